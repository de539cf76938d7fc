"""How long ago a program used the operands of its kernels: whether a cache can still have them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from streamscope.program.launch import Launch, LaunchKind
from streamscope.program.operation import Operation, Program
from streamscope.program.view import View

_SMALL = 1 << 16
"""Operands of fewer bytes are left out: they are many, and fill no cache."""
_FITS = 1 << 24
"""A program of so few bytes stays in the caches of the GPUs that were measured."""
_NO_CACHE = 1 << 28
"""Bytes that no GPU's cache holds: the search ends there."""


def with_reuse(program: Program) -> Program:
    """Return the program with `Cost.reuse` in its launches, as in a run that follows one like it."""
    sizes = {variable.id: variable.spec.nbytes for variable in program.variables}
    if sum(sizes.values()) <= _FITS:
        return program
    used = [dict[int, None]() for _ in range(program.gpus)]
    for launch in program.launches():  # The run before.
        _use(launch, used)
    return replace(program, operations=tuple(_reusing(operation, sizes, used) for operation in program.operations))


def _reusing(operation: Operation, sizes: Mapping[int, int], used: Sequence[dict[int, None]]) -> Operation:
    if not operation.launches:
        return operation
    launches = []
    for launch in operation.launches:
        if launch.kind is LaunchKind.KERNEL:
            parts: dict[int, View | None] = {**dict(launch.results), **dict(launch.operands)}
            nbytes = {one: sizes[one] if view is None else min(sizes[one], view.spec.nbytes) for one, view in parts.items()}
            reuse = tuple((size, _since(one, sizes, used[launch.gpu])) for one, size in nbytes.items() if size >= _SMALL)
            launches.append(launch.but(cost=replace(launch.cost, reuse=reuse)))
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
