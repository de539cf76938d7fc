"""Which operations of a program become one kernel.

A group is made from its last operation backwards. An operation joins if it is element-wise and of the same result shape, nobody outside
the group reads its result, and nothing that it reads is overwritten between it and the end of the group, where the group runs. Then its
result need not be written at all. No cycle can come of that: nobody outside waits for what a group has inside, and what it reads is there
at its end as it was before.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Sequence
from heapq import heappop, heappush

from streamscope.kernels.elementwise.specialization import ElementwiseCall
from streamscope.program.operation import Operation, Program

MOST_STEPS = 64
"""Operations of one group: they are unrolled for each element of a vector, and the compiler's time grows with them."""
MOST_ARRAYS = 16
"""Arrays that one group reads. A thread has a vector of 16 bytes of each in registers, and an address: six registers of the 255."""
MOST_NUMBERS = 64
"""Numbers among the operands of one group, which are arguments of its kernel."""


def elementwise_call(operation: Operation) -> ElementwiseCall | None:
    """Return the element-wise kernel that an operation launches; None for one that is something else, or nothing, or cannot be fused."""
    if len(operation.launches) != 1 or not isinstance(call := operation.launches[0].cuda, ElementwiseCall):
        return None
    # Macros know no namespaces: those of one operation would change what others mean.
    return None if "#" in call.signature.functions else call


def fusible_groups(program: Program) -> list[tuple[int, ...]]:
    """Return the groups of two and more operations that can be fused, each in order and by the operations' ids.

    Every operation is in one group at most.
    """
    flow = _Flow(program)
    taken: set[int] = set()
    groups = []
    for last in reversed(program.operations):
        if last.id not in taken and elementwise_call(last) is not None:
            group = _grown(flow, last)
            taken.update(group)
            if len(group) > 1:
                groups.append(tuple(sorted(group)))
    return groups[::-1]


class _Flow:
    """Who reads what whom wrote: a variable that is written again holds another value then."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.sources: list[dict[int, int | None]] = []
        """For each operation the variables that it reads, and which operation wrote each; None: it is an input."""
        self.readers: dict[int, set[int]] = defaultdict(set)
        """For each operation those that read what it wrote."""
        self.writers: dict[int, list[int]] = defaultdict(list)
        """For each variable the operations that write it, in order."""
        for operation in program.operations:
            self.sources.append({variable: self._latest(variable) for variable in operation.reads})
            for source in self.sources[-1].values():
                if source is not None:
                    self.readers[source].add(operation.id)
            for variable in operation.writes:
                self.writers[variable].append(operation.id)
        lasting = (self._latest(variable) for variable in (*program.inputs, *program.outputs))
        self.kept = {writer for writer in lasting if writer is not None}
        """Operations whose results are there after a run."""

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
        elementwise_call(operations[each]) is not None
        and _result_shape(flow.program, operations[each]) == _result_shape(flow.program, last)
        and each not in flow.kept
        and flow.readers[each] <= group
        and not any(flow.overwritten(variable, each, last.id, group) for variable in operations[each].reads)
        and _fits(flow, [operations[index] for index in (*group, each)])
    )


def _result_shape(program: Program, operation: Operation) -> tuple[int, ...]:
    return program.variables[operation.writes[0]].spec.shape


def _fits(flow: _Flow, operations: Sequence[Operation]) -> bool:
    inside = {operation.id for operation in operations}
    arrays = {variable for each in inside for variable, source in flow.sources[each].items() if source not in inside}
    numbers = sum(len(call.numbers) for call in map(elementwise_call, operations) if call is not None)
    return len(arrays) <= MOST_ARRAYS and numbers <= MOST_NUMBERS
