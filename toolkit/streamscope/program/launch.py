"""Launches of an operation, described for any device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar, Protocol, Self

import numpy as np

from streamscope.arrays import Array
from streamscope.errors import ProgramError, described
from streamscope.program.collective import Collective
from streamscope.program.view import View

Reference = Callable[[Sequence[Array]], Sequence[Array]]
CudaCall = Callable[[], None]
"""Launches a prepared kernel, with its arguments, on the stream that it was prepared for."""


class CudaBench(Protocol):
    """Bench on which an operator prepares its launches, bound to one stream; the CUDA device hands it out (`devices.cuda.bench`).

    A kernel's ``source`` is a `streamscope.kernels.source.KernelSource`.
    """

    device: Any
    stream: Any
    tuned: Any

    def kernel(self, source: Any, blocks: int, threads: int, arguments: Sequence[Any]) -> CudaCall:
        """Prepare a generated kernel with CuPy arrays and ctypes scalars."""

    def matmul(self, a: Any, b: Any, out: Any) -> CudaCall:
        """Prepare a matrix product of CuPy arrays."""

    def function(self, function: Callable[[], None]) -> CudaCall:
        """Prepare a function that launches on the current CuPy stream."""


CudaBuilder = Callable[[CudaBench, Sequence[Any], Sequence[Any]], CudaCall]

RESULTS_HINT = "a result is like the first argument unless ss.operator is given shapes=, or ss.host_function results="
"""Remedy where a function of the user's returns arrays that do not fit."""


class LaunchKind(Enum):
    """Which part of a device does the work: the multiprocessors, or one of the copy engines; of a collective, the links, too."""

    KERNEL = "kernel"
    COPY_IN = "copy in"
    COPY_OUT = "copy out"
    COPY_PEER = "peer copy"
    """From one GPU to another."""
    COLLECTIVE = "collective"
    """One GPU's part of a collective."""

    @property
    def on_multiprocessors(self) -> bool:
        """Whether kernels do it."""
        return self in (LaunchKind.KERNEL, LaunchKind.COLLECTIVE)


class _LeftOut:
    """Stands in for a function that stayed behind when its program was pickled: calling it says so, and whose function it is."""

    def __init__(self, what: str) -> None:
        self.what = what

    def __call__(self, *_: object, **__: object) -> Any:
        """Raise ProgramError."""
        raise ProgramError(f"the functions of {self.what} were dropped when its program was pickled", hint="trace the program here")


class _WithFunctions:
    """Work that holds functions, most of them local to others: when it is pickled, they stay behind. The rest is data."""

    _FUNCTIONS: ClassVar[tuple[str, ...]]

    def __getstate__(self) -> dict[str, Any]:
        state = dict(vars(self))
        return state | {name: _LeftOut(str(self)) for name in self._FUNCTIONS if state[name] is not None}

    def __copy__(self) -> Self:
        return self  # It is frozen, and keeps its functions.

    def __deepcopy__(self, memo: object) -> Self:
        return self


@dataclass(frozen=True)
class Product:
    """The matrix products of a library's launch; a convolution counts as the product without its windows."""

    kind: str
    """``"matmul"``; ``"convolution"``, ``"data_gradient"`` or ``"weight_gradient"``; ``"pointwise"`` for each of these three where the
    filter is a single pixel, so that nothing overlaps; ``"stem_convolution"`` and so on for large filters of few channels."""
    dtype: str
    """Of the operands."""
    count: int
    rows: int
    inner: int
    columns: int
    """So many times (rows, inner) by (inner, columns)."""


@dataclass(frozen=True)
class Cost:
    """Cost of one launch on the device, by the operator's formula."""

    bytes: int
    """Bytes that must move through device memory (each input once, each output once), or over the bus for a copy."""
    flops: int = 0
    """Floating-point operations; a multiply-add is two."""
    blocks: int = 1
    threads: int = 256
    """Blocks in the grid and threads in a block: exact for our own kernels, an estimate for library calls."""
    stages: int = 0
    """What a thread waits for, one after the other, after its first loads: other threads of its block, loads from where earlier ones point,
    or what it computes itself, element by element, where that takes as long."""
    product: Product | None = None
    """The factors of a matrix product or a convolution. The number of the library's kernels is unknown."""
    then: Cost | None = None
    """The second kernel of a launch of two: it adds up the partial results of the first."""
    alone_ns: float | None = None
    """How long it takes alone, where that was measured: nothing is estimated then."""
    per_multiprocessor: int = 0
    """Blocks that fit on a multiprocessor, by registers and shared memory too; 0 where only their threads are known."""
    gap_ns: float = field(default=0.0, compare=False)
    """How much later than others it starts in a graph, where that was measured; it is the graph's, so costs are compared without it."""
    touched_bytes: int = 0
    """Bytes of the sectors that threads touch at a time, where these are more than ``bytes``: caches hand them out again and again."""
    reuse: tuple[tuple[int, int, bool], ...] = ()
    """For each of its larger operands and results: its bytes, the bytes of all data used since its last use, and whether it is read; see
    `Program.with_reuse`."""

    @property
    def kernels(self) -> tuple[Cost, ...]:
        """The costs of all kernels of the launch, in order."""
        return (self, *(self.then.kernels if self.then is not None else ()))


@dataclass(frozen=True)
class Launch(_WithFunctions):
    """One piece of work that an operation puts on one stream."""

    _FUNCTIONS = "reference", "cuda"

    operation: int
    part: int
    """Which operation of the program, and which of its launches."""
    name: str
    """Name in timelines."""
    kind: LaunchKind
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    """Ids of the variables it reads and writes. A variable that is updated in place is in both."""
    cost: Cost
    reference: Reference | None
    """``reference(arrays of reads) -> arrays of writes`` in NumPy, of whole variables; it must not change its arguments. None for a
    user's operator that has none, which then runs on CUDA only."""
    cuda: CudaBuilder | None = None
    """``cuda(bench, arrays of reads, arrays of writes)`` prepares the launch once on a CUDA device, with the views of its inputs.
    None for copies, which the device does itself."""
    auxiliary: bool = False
    """Belongs on the auxiliary stream of its operation's scope, where the engine has one."""
    capturable: bool = True
    """Can be captured into a CUDA graph."""
    why_not: str = ""
    """If not capturable, the reason."""
    library: bool = False
    """The host calls a library, which takes it longer than the launch of a kernel whose arguments are packed."""
    where: str = ""
    """The user's line that applied the operator, as `Operation.where`, and its label; empty where there is none."""
    unknown: str = ""
    """The unknown part of its expression, where NumPy has no meaning for it and it has no reference."""
    vouched: bool = False
    """The reference is the user's word for what a line of CUDA computes."""
    stateful: bool = False
    """Its results depend on state that it keeps from call to call, besides the variables."""
    exact: bool = False
    """It only moves elements, and so rounds nothing."""
    views: tuple[View | None, ...] = ()
    """For each of ``reads``, how it is seen; None, or no entry at all: as it is."""
    written: tuple[View | None, ...] = ()
    """For each of ``writes``, which part of it is written; None, or no entry at all: all of it. A variable of which a part stays as it is
    is the last of ``reads``, too; a kernel does not read it."""
    gpu: int = 0
    """The GPU that it runs on; of a copy between GPUs, the one that it copies from."""
    to_gpu: int = 0
    """Of a copy between GPUs, the one that it copies to."""
    collective: Collective | None = None
    """The collective that it is a part of; all parts have the same."""

    def __post_init__(self) -> None:
        if not self.views:
            return
        # A thread may read the element that it writes, and no other one of that variable.
        written = dict(self.results)
        raced = [
            f"%{variable}{view}"
            for variable, view in self.operands
            if view is not None and variable in written and view != written[variable]
        ]
        if raced:
            raise ProgramError(
                f"{self} reads {raced[0]}, a view of the variable that it writes, so its threads would race",
                hint="write another variable, or copy the view first: .copy()",
            )

    def but(self, **values: Any) -> Launch:
        """Return it with other values of some attributes, unchecked: `replace` takes five times as long."""
        changed = object.__new__(Launch)
        vars(changed).update(vars(self), **values)
        return changed

    @property
    def operands(self) -> list[tuple[int, View | None]]:
        """The variables that it reads, each with how it is seen."""
        return list(zip(self.reads, self.views or (None,) * len(self.reads), strict=True))

    @property
    def results(self) -> list[tuple[int, View | None]]:
        """The variables that it writes, each with the part that is written; None: all of it."""
        return list(zip(self.writes, self.written or (None,) * len(self.writes), strict=True))

    def __str__(self) -> str:
        return called(self.name, self.operation, self.where)

    @property
    def without_reference(self) -> str:
        """Reason for errors, where a launch has no reference."""
        return "has no NumPy reference" + (f" (unknown there: {self.unknown})" if self.unknown else "")


@dataclass(frozen=True)
class HostCall(_WithFunctions):
    """One call of a host function of the program."""

    _FUNCTIONS = ("function",)

    operation: int
    name: str
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    """Ids of variables in host memory."""
    function: Callable[..., Any]
    """``function(*arrays of reads) -> array or tuple of arrays``, copied into the variables it writes."""
    duration_ns: float
    """Duration on the simulated device, in ns."""
    where: str = ""
    """The user's line that applied it, as `Operation.where`, and its label."""

    def __str__(self) -> str:
        return called(self.name, self.operation, self.where)


def call_collective(parts: Sequence[Launch], operands: Sequence[Array]) -> list[Array]:
    """Return the results of the parts of a collective that have one, from the whole variables that parts with an operand read, in NumPy.

    A result is as the part writes it: like the part of a variable that `Launch.written` names.
    """
    collective = parts[0].collective
    assert collective is not None
    views = [part.views[0] if part.views else None for number, part in enumerate(parts) if collective.reads(number)]
    return collective.results([array if view is None else view.of(array) for array, view in zip(operands, views, strict=True)])


def call_host_function(call: HostCall, reads: Sequence[Array]) -> list[Array]:
    """Call the function of a host call and return its outputs as a list of arrays.

    It sees its inputs as read-only, and gets a copy of arrays that it updates in place. Its exceptions are passed on as it is, with a note
    that names the operation and the user's line.
    """
    arguments = [array.copy() if variable in call.writes else read_only(array) for variable, array in zip(call.reads, reads, strict=True)]
    try:
        result = call.function(*arguments)
        return [] if result is None and not call.writes else as_arrays(result, f"host function {call}")
    except Exception as error:
        error.add_note(f"in host function {call}")
        raise


def call_reference(what: str, reference: Reference, reads: Sequence[Array]) -> list[Array]:
    """Call the NumPy reference of a launch, named ``what`` in errors, and return its outputs as a list of arrays.

    It sees its inputs as read-only. Results may be views of them. What else it raises is passed on as it is.
    """
    with writes_refused(what):
        results = reference([read_only(array) for array in reads])
    return as_arrays(results, what)


def read_only(array: Array) -> Array:
    """Return a view that cannot be written to, so that a user's function that changes its arguments is found out."""
    view = array.view()
    view.flags.writeable = False
    return view


@contextmanager
def writes_refused(what: str) -> Iterator[None]:
    """Run ``what``, a user's function on read-only arrays; where NumPy refuses that it writes to one, say so."""
    try:
        yield
    except ValueError as error:
        # NumPy's words, whatever writes: "assignment destination is read-only", "output array is read-only", ...
        if not described(error).endswith("is read-only"):
            raise
        raise ProgramError(f"{what} changes its arguments: {error}", hint="let it copy what it changes, and return that") from error


def as_arrays(result: Any, what: str = "it") -> list[Array]:
    """Return the results of a user's function, one array or a tuple of them, as a list; errors call the function ``what``."""
    results = list(result) if isinstance(result, tuple | list) else [result]
    if any(isinstance(array, np.ma.MaskedArray) for array in results):
        raise ProgramError(f"{what} returned a masked array, which would lose its mask", hint="fill it first: array.filled(value)")
    try:
        return [np.asarray(array) for array in results]
    except (TypeError, ValueError, RuntimeError) as error:  # Lists of unequal rows; other libraries' arrays, in their own words.
        raise ProgramError(f"{what} did not return an array: {described(error)}", hint=RESULTS_HINT) from error


def called(name: str, operation: int, where: str) -> str:
    """Name a piece of work for errors, or its operation: ``relu (operation 2, model.py:12)``."""
    return f"{name} (operation {operation}{', ' if where else ''}{where})"


def labelled(where: str, label: str) -> str:
    """Name a user's line for errors, with its label: ``model.py:12 in 'attention'``."""
    return f"{where} in {label!r}" if label else where
