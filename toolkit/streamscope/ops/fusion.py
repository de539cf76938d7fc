"""Fusion: neighbouring element-wise operations of a program as one kernel each, with the bits that they have one by one.

A group is made from its last operation backwards. An operation joins if it is element-wise and of the same result shape, nobody outside
the group reads its result, and nothing that it reads is overwritten between it and the end of the group, where the group runs. Then its
result need not be written at all. No cycle can come of that: nobody outside waits for what a group has inside, and what it reads is there
at its end as it was before. Nor does it see through a view what the group writes: a thread would read there what another one has written.

An update of an input in place joins, too, as those of an optimizer's weights and moments: its result is written beside the group's.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from heapq import heappop, heappush

import numpy as np

from streamscope.arrays import Array
from streamscope.kernels.elementwise.fused_source import FusedStep, fused_signature
from streamscope.kernels.elementwise.specialization import ElementwiseCall, specialized_fresh
from streamscope.kernels.form import THREADS
from streamscope.kernels.signature import Parameter
from streamscope.program.launch import Cost, HostCall, Launch, LaunchKind, Reference, labelled
from streamscope.program.operation import Operation, Program
from streamscope.program.view import View, whole

_MOST_NAMED = 3
"""Most operations whose names are all in the name of the fused one."""


def fused(program: Program) -> Program:
    """Return a program that computes the same, its neighbouring element-wise operations fused to one each.

    A fused operation is where its last one was; intermediates that only it would read are not variables any more. Results are the same to
    the last bit, but for signs and payloads of NaNs. ``attributes["fused"]`` lists its parts; ``where`` is the line of the first,
    and ``label`` joins theirs by ``+``.
    """
    flow = _Flow(program)
    by_last = {group[-1]: group for group in _fusible_groups(flow)}
    inside = {each for group in by_last.values() for each in group[:-1]}
    operations = [
        _fused_operation(program, [program.operations[each] for each in by_last[operation.id]], flow.updates)
        if operation.id in by_last
        else operation
        for operation in program.operations
        if operation.id not in inside
    ]
    return renumbered(program, operations) if by_last else program


def _fused_operation(program: Program, operations: Sequence[Operation], updates: Collection[int]) -> Operation:
    names = [operation.name for operation in operations]
    last = operations[-1]
    launch = _launch(program, operations, updates)
    made_of = {"fused": tuple(f"{operation.name} at {operation.where}" for operation in operations)}
    first, views = operations[0], tuple(launch.operands) if launch.views else ()
    return Operation(
        last.id,
        _title(names),
        tuple(dict.fromkeys(launch.reads)),
        launch.writes,
        made_of,
        first.where,
        (launch,),
        label=_label(operations),
        source=first.source,
        views=views,
    )


def _label(operations: Sequence[Operation]) -> str:
    return "+".join(dict.fromkeys(operation.label for operation in operations if operation.label))


def _title(names: Sequence[str]) -> str:
    return "+".join(names) if len(names) <= _MOST_NAMED else f"{names[0]}+...+{names[-1]} ({len(names)})"


class _Operands:
    """Operands of a fused kernel, each once, and their names in its steps."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.arrays: dict[tuple[int, View | None], Parameter] = {}
        self.numbers: dict[tuple[str, bytes], tuple[Parameter, np.generic]] = {}
        self.inside: dict[int, str] = {}
        """Name of the latest step that wrote a variable."""

    def array(self, variable: int, view: View | None) -> str:
        """Name a variable's current value, as it is seen."""
        if variable in self.inside and view is None:
            return self.inside[variable]
        dtype = self.program.variables[variable].spec.dtype.name
        return self.arrays.setdefault((variable, view), Parameter(f"x{len(self.arrays)}", dtype, dtype)).name

    def number(self, number: np.generic) -> str:
        """Name a number."""
        key = number.dtype.name, number.tobytes()
        parameter = Parameter(f"c{len(self.numbers)}", key[0], key[0], scalar=True)
        return self.numbers.setdefault(key, (parameter, number))[0].name

    def step(self, launch: Launch, call: ElementwiseCall) -> FusedStep:
        """Return an operation as a step, which is called ``v`` and its number."""
        reads = iter(launch.operands)
        arguments = [
            self.number(call.numbers[parameter.name]) if parameter.scalar else self.array(*next(reads))
            for parameter in call.signature.parameters
        ]
        return FusedStep(call.signature, (*arguments, *(self.array(*each) for each in reads)))


def _launch(program: Program, operations: Sequence[Operation], updates: Collection[int]) -> Launch:
    operands, steps = _Operands(program), []
    launches = [operation.launches[0] for operation in operations]
    for index, (operation, launch) in enumerate(zip(operations, launches, strict=True)):
        call = _elementwise_call(operation)
        if call is not None:  # None is in no group
            steps.append(operands.step(launch, call))
            operands.inside[launch.writes[0]] = f"v{index}"
    scalars = [parameter for parameter, _ in operands.numbers.values()]
    name = f"fused_{operations[0].name}_{operations[-1].name}_{len(steps)}"
    (reads, views), last = zip(*operands.arrays, strict=True), launches[-1]
    kept = {operation.writes[0]: index for index, operation in enumerate(operations[:-1]) if operation.id in updates}
    stored = [(operands.arrays[variable, None].name, index) for variable, index in kept.items()]
    signature = fused_signature(name, [*operands.arrays.values(), *scalars], steps, stored)
    operated = [*operands.arrays, *((variable, None) for variable in last.writes)]
    seen = [view or whole(program.variables[variable].spec) for variable, view in operated]
    kernel = specialized_fresh(signature, tuple(view.spec.shape for view in seen))
    seen += [whole(program.variables[variable].spec) for variable in kept]
    flops = sum(launch.cost.flops for launch in launches)
    numbers = {parameter.name: number for parameter, number in operands.numbers.values()}
    return Launch(
        last.operation,
        0,
        _title([launch.name for launch in launches]),
        LaunchKind.KERNEL,
        reads,
        (*kept, *last.writes),
        Cost(sum(view.moved_bytes for view in seen), flops, max(1, kernel.blocks), THREADS),
        _reference(program, launches, reads, (*kept, *last.writes)),
        ElementwiseCall(signature, numbers),
        where=labelled(operations[0].where, _label(operations)),
        views=views if any(views) else (),
        gpu=last.gpu,
        unknown=next((launch.unknown for launch in launches if launch.reference is None), ""),
    )


def _reference(program: Program, launches: Sequence[Launch], reads: Sequence[int], writes: Sequence[int]) -> Reference | None:
    """Return the references of several launches one after the other; None where one has none."""
    functions = [launch.reference for launch in launches]
    if any(function is None for function in functions):
        return None

    def reference(arrays: Sequence[Array]) -> Sequence[Array]:
        memory = dict(zip(reads, arrays, strict=True))
        for launch, function in zip(launches, functions, strict=True):
            if function is not None:
                (result,) = function([memory[variable] for variable in launch.reads])
                (written,) = launch.writes
                memory[written] = np.asarray(result).astype(program.variables[written].spec.dtype, copy=False)
        return [memory[variable] for variable in writes]

    return reference


def renumbered(program: Program, operations: Sequence[Operation]) -> Program:
    """Return a program of operations of another one, with the variables that they touch."""
    touched = {variable for operation in operations for variable in (*operation.reads, *operation.writes)}
    left = [variable for variable in program.variables if variable.id in touched or variable.id in (*program.inputs, *program.outputs)]
    new = {variable.id: index for index, variable in enumerate(left)}
    return replace(
        program,
        variables=tuple(replace(variable, id=new[variable.id]) for variable in left),
        operations=tuple(_moved(operation, index, new) for index, operation in enumerate(operations)),
        inputs=tuple(new[variable] for variable in program.inputs),
        outputs=tuple(new[variable] for variable in program.outputs),
        result_shapes={new[variable]: shape for variable, shape in program.result_shapes.items()},
    )


def _moved(operation: Operation, number: int, new: Mapping[int, int]) -> Operation:
    def places(variables: Sequence[int]) -> tuple[int, ...]:
        return tuple(new[variable] for variable in variables)

    def work(of: Launch) -> Launch:
        return replace(of, operation=number, reads=places(of.reads), writes=places(of.writes))

    if isinstance(operation.work, HostCall):
        call = operation.work
        moved: tuple[Launch, ...] | HostCall = replace(call, operation=number, reads=places(call.reads), writes=places(call.writes))
    else:
        moved = tuple(work(launch) for launch in operation.work)
    views = tuple((new[variable], view) for variable, view in operation.views)
    return replace(operation, id=number, reads=places(operation.reads), writes=places(operation.writes), work=moved, views=views)


MOST_STEPS = 64
"""Operations of one group: they are unrolled for each element of a vector, and the compiler's time grows with them."""
MOST_ARRAYS = 16
"""Arrays that one group reads. A thread has a vector of 16 bytes of each in registers, and an address: six registers of the 255."""
_MOST_NUMBERS = 64
"""Numbers among the operands of one group, which are arguments of its kernel."""


def _elementwise_call(operation: Operation) -> ElementwiseCall | None:
    """Return the element-wise kernel that an operation launches; None for one that is something else, or nothing, or cannot be fused.

    One that writes a part of a variable cannot: a fused one writes a whole variable.
    """
    if operation.written or len(operation.launches) != 1 or not isinstance(call := operation.launches[0].cuda, ElementwiseCall):
        return None
    return call


def _fusible_groups(flow: _Flow) -> list[tuple[int, ...]]:
    """Return the groups of two and more operations that can be fused, each in order and by the operations' ids.

    Every operation is in one group at most.
    """
    taken: set[int] = set()
    groups = []
    for last in reversed(flow.program.operations):
        if last.id not in taken and _elementwise_call(last) is not None:
            group = _grown(flow, last)
            taken.update(group)
            if len(group) > 1:
                groups.append(tuple(sorted(group)))
    return groups[::-1]


class _Flow:
    """Readers of each written value: a variable that is written again holds another value then."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.sources: list[dict[int, int | None]] = []
        """For each operation the variables that it reads, and which operation wrote each; None: it is an input."""
        self.readers: dict[int, set[int]] = defaultdict(set)
        """For each operation, the readers of its outputs."""
        self.writers: dict[int, list[int]] = defaultdict(list)
        """For each variable the operations that write it, in order."""
        viewed: set[int | None] = set()
        for operation in program.operations:
            self.sources.append({variable: self._latest(variable) for variable in operation.reads})
            for source in self.sources[-1].values():
                if source is not None:
                    self.readers[source].add(operation.id)
            viewed.update(self.sources[-1][variable] for variable, view in operation.views if view is not None)
            for variable in operation.writes:
                self.writers[variable].append(operation.id)
        lasting = (self._latest(variable) for variable in (*program.inputs, *program.outputs))
        self.kept = {writer for writer in (*lasting, *viewed) if writer is not None}
        """Operations whose results must be in memory: they are there after a run, or are read through a view, by other threads."""
        self.updates = {each for each in self.kept - viewed if self._updates(program.operations[each])}
        """Those of them that update an input in place, which every thread may do for its own elements."""

    def _updates(self, operation: Operation) -> bool:
        """Tell whether an operation alone writes an input, which it reads element by element."""
        if _elementwise_call(operation) is None:
            return False
        (written,) = operation.writes
        # A thread has half as it is computed, not as it is stored.
        alone = len(self.writers[written]) == 1 and self.program.variables[written].spec.dtype != np.float16
        return alone and (written, None) in operation.launches[0].operands

    def _latest(self, variable: int) -> int | None:
        writers = self.writers.get(variable)
        return writers[-1] if writers else None

    def overwritten(self, variable: int, after: int, before: int, group: Collection[int]) -> bool:
        """Tell whether an operation outside a group writes a variable between two operations."""
        writers = self.writers.get(variable, [])
        return any(writer not in group for writer in writers[bisect_right(writers, after) : bisect_left(writers, before)])


def _grown(flow: _Flow, last: Operation) -> set[int]:
    """Return the group that ends with an operation. Later operations are tried first, so that all readers of one were tried before it."""
    group = {last.id}
    tried: set[int] = set()
    waiting = sorted(-source for source in flow.sources[last.id].values() if source is not None)
    while waiting and len(group) < MOST_STEPS:
        each = -heappop(waiting)
        if each in tried:
            continue
        tried.add(each)
        if _can_join(flow, each, last, group):
            group.add(each)
            for source in flow.sources[each].values():
                if source is not None:
                    heappush(waiting, -source)
    return group


def _can_join(flow: _Flow, each: int, last: Operation, group: set[int]) -> bool:
    operations = flow.program.operations
    return (
        _elementwise_call(operations[each]) is not None
        and _result_shape(flow.program, operations[each]) == _result_shape(flow.program, last)
        and (each not in flow.kept or each in flow.updates)
        and all(reader in group or (each in flow.updates and reader > last.id) for reader in flow.readers[each])
        and not any(flow.overwritten(variable, each, last.id, group) for variable in operations[each].reads)
        and _fits(flow, last, [operations[index] for index in (*group, each)])
    )


def _result_shape(program: Program, operation: Operation) -> tuple[int, ...]:
    return program.variables[operation.writes[0]].spec.shape


def _fits(flow: _Flow, last: Operation, operations: Sequence[Operation]) -> bool:
    inside = {operation.id for operation in operations}
    operands = ((each.id, operand) for each in operations for operand in each.launches[0].operands)
    arrays = {operand for each, operand in operands if flow.sources[each][operand[0]] not in inside}
    written = {variable for each in operations if each is last or each.id in flow.updates for variable in each.writes}
    if any(view is not None and variable in written for variable, view in arrays):
        return False
    numbers = sum(len(call.numbers) for call in map(_elementwise_call, operations) if call is not None)
    return len(arrays) <= MOST_ARRAYS and numbers <= _MOST_NUMBERS
