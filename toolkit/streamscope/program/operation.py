"""Operations, and programs, which are lists of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from streamscope.arrays import Array
from streamscope.program.captured_graph import CapturedGraph, Certificate, Edges
from streamscope.program.collective import Collective
from streamscope.program.launch import HostCall, Launch, LaunchKind, called, labelled
from streamscope.program.variable import ArraySpec, MemoryPlace
from streamscope.program.view import View
from streamscope.program.widening import widened
from streamscope.words import counted, shortened

LONGEST_SOURCE = 80
"""Characters of a user's line that are shown."""
_CACHED = 1 << 24
"""A program whose variables have no more bytes stays in the caches of the GPUs that were measured."""
_SMALL = 1 << 16
"""Operands of fewer bytes are left out: they are many, and fill no cache."""
_NO_CACHE = 1 << 27
"""Bytes that no GPU's cache holds: the search ends there."""


@dataclass(frozen=True)
class Variable:
    """A buffer of a program.

    Attributes
    ----------
    id : int
        Its index in `Program.variables`.
    name : str
        Name of the input, or of the operation that made it.
    spec : ArraySpec
        Shape and dtype.
    place : MemoryPlace
        Host or device memory.
    gpu : int
        The GPU whose memory it is; 0 for host memory.
    """

    id: int
    name: str
    spec: ArraySpec
    place: MemoryPlace
    gpu: int = 0


@dataclass(frozen=True)
class Operation:
    """One application of an operator.

    Attributes
    ----------
    id : int
        Its index in `Program.operations`; the key that joins the traces of all engines.
    name : str
        Name of the operator.
    reads, writes : tuple of int
        Ids of variables, each once; a variable updated in place is in both.
    attributes : mapping
        The operator's attributes.
    where : str
        ``"file.py:12"``: the user's line that applied it.
    work : tuple of Launch, or a single HostCall
        What it puts on streams, which is nothing where all that it writes is empty; or the host function it calls.
    label : str
        Its `ss.label`: ``"attention/scores"``; empty where nothing does.
    source : str
        Text of the user's line; empty where the source is not to be had.
    views : tuple of (int, View or None)
        Variables that it reads, with how each is seen, each pair once; nothing where all are read as they are.
    written : tuple of (View or None)
        For each of ``writes`` the part that is written, None for all of it; nothing where each is written as a whole. A variable of which
        a part stays as it is is in ``reads``, too.
    """

    id: int
    name: str
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    attributes: Mapping[str, Any]
    where: str
    work: tuple[Launch, ...] | HostCall
    label: str = ""
    source: str = ""
    views: tuple[tuple[int, View | None], ...] = ()
    written: tuple[View | None, ...] = ()

    @property
    def line(self) -> str:
        """The user's line with the label and the text, as one writes it: ``model.py:12 in 'mlp': h = x @ w``."""
        return labelled(self.where, self.label) + (f": {shortened(self.source, LONGEST_SOURCE)}" if self.source else "")

    @property
    def operands(self) -> Sequence[tuple[int, View | None]]:
        """The variables that it reads, each with how it is seen."""
        return self.views or [(variable, None) for variable in self.reads]

    @property
    def results(self) -> Sequence[tuple[int, View | None]]:
        """The variables that it writes, each with the part that is written; None: all of it."""
        return list(zip(self.writes, self.written or (None,) * len(self.writes), strict=True))

    @property
    def launches(self) -> tuple[Launch, ...]:
        """Its launches; empty for a host function."""
        return () if isinstance(self.work, HostCall) else self.work

    @property
    def works(self) -> tuple[Launch | HostCall, ...]:
        """Its launches, or its host function."""
        return (self.work,) if isinstance(self.work, HostCall) else self.work

    def of_file(self, names: Mapping[str, str]) -> Operation:
        """Return it with the new name of its line's file, if that has one."""
        file, _, line = self.where.rpartition(":")
        if file not in names:
            return self
        where = f"{names[file]}:{line}"
        there = labelled(where, self.label)
        if isinstance(self.work, HostCall):
            return replace(self, where=where, work=replace(self.work, where=there))
        return replace(self, where=where, work=tuple(replace(launch, where=there) for launch in self.work))

    @property
    def touched(self) -> frozenset[int]:
        """The variables that it reads or writes, and those that its launches or its host call do."""
        return frozenset((*self.reads, *self.writes)).union(*(work.reads + work.writes for work in self.works))

    @property
    def gpus(self) -> tuple[int, ...]:
        """The GPUs that it runs on, each once; empty for a host function."""
        return tuple(dict.fromkeys(launch.gpu for launch in self.launches))

    @property
    def collective(self) -> Collective | None:
        """The collective that its launches are the parts of, if they are."""
        launches = self.launches
        return launches[0].collective if launches else None

    @property
    def capturable(self) -> bool:
        """Whether all of it can be captured into a CUDA graph."""
        return not isinstance(self.work, HostCall) and all(launch.capturable for launch in self.work)

    def __str__(self) -> str:
        return called(self.name, self.id, labelled(self.where, self.label))


@dataclass(frozen=True, repr=False)
class Program:
    """A static list of operations over variables.

    Attributes
    ----------
    name : str
    variables : tuple of Variable
    operations : tuple of Operation
        In the order of the traced function; a serial execution in this order is the meaning of the program.
    inputs, outputs : tuple of int
        Ids of the variables that the arguments fill and that the results are read from.
    single_output : bool
        The traced function returned one variable rather than a tuple.
    captured : tuple of tuple of int, optional
        Where it was captured from code that is not ours: for each operation those that it came directly after in the capture. The ``graph``
        engine keeps these edges; the variables give the orders that other engines must keep. They do not tell all that one run shares
        with the next, so a run waits for the run before it as a whole.
    certificate : Certificate, optional
        Of captured code: checks each of its schedules before it runs.
    result_shapes : mapping of int to tuple of int
        Shapes of outputs that are returned in another shape than the variable has: to reshape them takes no operation.
    raw : CapturedGraph, optional
        Where it was captured in this process: the captured graph itself, which a CUDA device replays with these or other edges.
    needs_row_major : bool
        It reshapes, and writes in place: whether a reshape is a view in NumPy, which sees what is written, or a copy depends on how inputs
        lie in memory. A program has them last axis fastest, so they must lie like that.
    measured_on : str
        Where it was captured elsewhere: the GPU that its kernels were measured on, whose times the simulated device takes.
    held : tuple of (int, int)
        Of captured code: bytes of each piece of memory of the capture, and the operation that writes it first; -1 where it is not known.

    Examples
    --------
    >>> traced = ss.program(lambda x: ss.ops.relu(x) + 1).trace(np.ones(4, "float32"))
    >>> print(traced)
    <lambda>: 2 operations, 3 variables
         0  %1:float32[4] = relu(%0:float32[4])    # ...
         1  %2:float32[4] = add(%1:float32[4], b=1)    # ...
    >>> [launch.name for launch in traced.launches()]
    ['relu', 'add']
    """

    name: str
    variables: tuple[Variable, ...]
    operations: tuple[Operation, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    single_output: bool = True
    captured: Edges = ()
    certificate: Certificate | None = field(default=None, compare=False)
    result_shapes: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    raw: CapturedGraph | None = field(default=None, compare=False)
    needs_row_major: bool = False
    measured_on: str = ""
    held: tuple[tuple[int, int], ...] = field(default=(), compare=False)

    def result(self, variable: int, values: Array) -> Array:
        """Return the values of an output in the shape in which it is returned."""
        return values.reshape(self.result_shapes.get(variable, values.shape))

    def launches(self) -> Iterator[Launch]:
        """Yield every launch in program order."""
        for operation in self.operations:
            yield from operation.launches

    def read_specs(self, work: Operation | Launch) -> list[ArraySpec]:
        """Return shape and dtype of an operation's or a launch's input, as it is seen."""
        return [self.variables[variable].spec if view is None else view.spec for variable, view in work.operands]

    @cached_property
    def gpus(self) -> int:
        """Number of GPUs that it needs: one more than the highest that a variable lies on, or a launch runs on."""
        on = {variable.gpu for variable in self.variables}.union(launch.gpu for launch in self.launches())
        return 1 + max(on, default=0)

    @cached_property
    def written_inputs(self) -> frozenset[int]:
        """The inputs that an operation writes to."""
        return frozenset(variable for operation in self.operations for variable in operation.writes).intersection(self.inputs)

    @cached_property
    def with_reuse(self) -> Program:
        """The program with `Cost.reuse` in its launches, as in a run that follows one like it; a small or captured program as it is.

        Only a device that costs launches by a model needs it, and it takes as long as tracing does.
        """
        sizes = {variable.id: variable.spec.nbytes for variable in self.variables}
        if self.captured or sum(sizes.values()) <= _CACHED:
            return self
        used = [dict[int, None]() for _ in range(self.gpus)]
        for launch in self.launches():  # The run before.
            _use(launch, used)
        return replace(self, operations=tuple(_reusing(operation, sizes, used) for operation in self.operations))

    @property
    def changes_inputs(self) -> bool:
        """Whether an operation writes to an input, so that inputs must be filled again before each run."""
        return bool(self.written_inputs)

    def __repr__(self) -> str:
        return f"<program {self._summary()}>"

    def __str__(self) -> str:
        lines = [self._summary()]
        for operation in self.operations:
            writes = ", ".join(self._label(*result) for result in operation.results)
            reads = ", ".join([*(self._label(*operand) for operand in operation.operands), *_options(operation.attributes)])
            remark = widened(operation, lambda variable: self.variables[variable].spec)
            lines.append(f"  {operation.id:>4}  {writes} = {operation.name}({reads})    # {operation.line}{'; ' * bool(remark)}{remark}")
        return "\n".join(lines)

    def _summary(self) -> str:
        count = len(self.operations)
        return f"{self.name}: {counted(count, 'operation')}, {counted(len(self.variables), 'variable')}"

    def _label(self, variable: int, view: View | None = None) -> str:
        name = f"%{variable}:{self.variables[variable].spec}" if view is None else f"%{variable}{view}:{view.spec}"
        return f"{name} on GPU {self.variables[variable].gpu}" if self.gpus > 1 else name


def _options(attributes: Mapping[str, Any]) -> Iterator[str]:
    """Yield the numbers and options of an operation as they were given, without those that are None."""
    for name, value in attributes.items():
        plain = _plain(value)
        if isinstance(plain, Mapping):
            yield from _options(plain)
        elif isinstance(plain, int | float | str) or (name == "axis" and plain is not None):
            yield f"{name}={plain!r}"


def _plain(value: Any) -> Any:
    """Return NumPy's numbers, also several, as Python's, which are printed without their type."""
    if isinstance(value, tuple | list):
        return type(value)(map(_plain, value))
    return value.item() if isinstance(value, np.generic) else value


def _reusing(operation: Operation, sizes: Mapping[int, int], used: Sequence[dict[int, None]]) -> Operation:
    if not operation.launches:
        return operation
    launches = []
    for launch in operation.launches:
        if launch.kind is LaunchKind.KERNEL:
            parts: dict[int, View | None] = {**dict(launch.results), **dict(launch.operands)}
            nbytes = {one: sizes[one] if view is None else min(sizes[one], view.spec.nbytes) for one, view in parts.items()}
            read = {variable for variable, _ in launch.operands}
            reuse = tuple((size, _since(one, sizes, used[launch.gpu]), one in read) for one, size in nbytes.items() if size >= _SMALL)
            launches.append(launch.but(cost=replace(launch.cost, reuse=reuse)) if reuse else launch)
        else:
            launches.append(launch)
        _use(launch, used)
    return replace(operation, work=tuple(launches))


def _since(variable: int, sizes: Mapping[int, int], used: dict[int, None]) -> int:
    """Return the bytes of other variables that a GPU has used since it used this one."""
    total = 0
    for other in reversed(used):
        if other == variable or total > _NO_CACHE:
            break
        total += sizes[other]
    return total


def _use(launch: Launch, used: Sequence[dict[int, None]]) -> None:
    """Make the operands of a launch those that its GPUs used last."""
    for gpu in {launch.gpu, launch.to_gpu} if launch.kind is LaunchKind.COPY_PEER else (launch.gpu,):
        for variable in (*launch.reads, *launch.writes):
            used[gpu].pop(variable, None)
            used[gpu][variable] = None
