"""Operations of a differentiated program whose results nothing uses."""

from __future__ import annotations

from collections.abc import Collection

from streamscope.ops.fusion import renumbered
from streamscope.program.launch import HostCall
from streamscope.program.operation import Operation, Program


def without_unused(program: Program, removable: Collection[int]) -> Program:
    """Return a program without those of some operations on which no result depends: a gradient needs no loss, and often no last product.

    Other operations stay, also where nothing uses them: they are what the user wrote.
    """
    needed = {*program.outputs, *program.inputs}  # An input that is written is a result, too.
    left = []
    for operation in reversed(program.operations):
        if operation.id in removable and needed.isdisjoint(operation.writes) and not _has_effects(operation):
            continue
        left.append(operation)
        needed.difference_update(variable for variable in _written_whole(operation) if variable not in program.inputs)
        needed.update(operation.reads, *(work.reads for work in operation.works))
    return renumbered(program, left[::-1]) if len(left) < len(program.operations) else program


def _has_effects(operation: Operation) -> bool:
    return isinstance(operation.work, HostCall) or any(launch.stateful for launch in operation.launches)


def _written_whole(operation: Operation) -> list[int]:
    """Return the variables of which an operation leaves nothing as it was."""
    return [variable for variable, view in operation.results if view is None]
