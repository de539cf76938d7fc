"""Kernels that are compiled together: one translation unit a group, each kernel in a namespace of its own.

A translation unit costs NVRTC 20 to 40 ms besides its kernels, so kernels share one; groups are compiled side by side.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterable, Sequence

from streamscope.arguments import whole_number
from streamscope.errors import CompilationError
from streamscope.host_memory import free_bytes
from streamscope.kernels.source import HALF_CONVERSIONS, STAMPS, VECTORS, WRAPPING, KernelSource

Group = tuple[KernelSource, ...]

SHARED = (STAMPS, WRAPPING, HALF_CONVERSIONS, VECTORS)
WORKER_BYTES = 256 * 2**20
"""Memory that NVRTC takes for one translation unit: up to 160 MiB were measured."""


def unique_sources(sources: Iterable[KernelSource]) -> Group:
    """Return each kernel once, in order."""
    by_name: dict[str, KernelSource] = {}
    for source in sources:
        if by_name.setdefault(source.name, source) != source:
            raise CompilationError(
                f"two different kernels are called {source.name!r}", hint="make the name from the source, as named_source does"
            )
    return tuple(by_name.values())


def worker_count(asked: int | None = None) -> int:
    """Return how many translation units are compiled side by side: as asked for, else one a core, as far as memory is free."""
    if asked is not None:
        return whole_number("workers", asked, 1, error=CompilationError)
    return max(1, min(len(os.sched_getaffinity(0)), free_bytes() // WORKER_BYTES))


def grouped(sources: Sequence[KernelSource], count: int) -> list[Group]:
    """Return at most ``count`` groups of about equal expected cost, the costliest first.

    The expected cost of a kernel is the length of its source. True times would gain little, since groups wait for each
    other in NVRTC.
    """
    costs = {source: len(source.code) for source in sources}
    loads = [(0, number) for number in range(min(count, len(costs)))]
    groups: list[list[KernelSource]] = [[] for _ in loads]
    for source in sorted(costs, key=lambda source: (-costs[source], source.name)):
        load, number = loads[0]
        groups[number].append(source)
        heapq.heapreplace(loads, (load + costs[source], number))
    return sorted(map(tuple, groups), key=lambda group: sum(costs[source] for source in group), reverse=True)


def unit_code(group: Group) -> str:
    """Return the translation unit of a group; its errors name each kernel, and lines of its own source.

    The pieces that many generated kernels begin with come once, before all of them.
    """
    begun = [_begun(source.code) for source in group]
    shared = dict.fromkeys(piece for pieces, _, _ in begun for piece in pieces)
    spaces = [
        f'namespace kernel_{number} {{\n#line {line} "{source.name}.cu"\n{rest}\n}}'
        for number, (source, (_, rest, line)) in enumerate(zip(group, begun, strict=True))
    ]
    return "\n".join([*shared, *spaces])


def _begun(code: str) -> tuple[list[str], str, int]:
    """Return the shared pieces that a source begins with, the rest, and the number of the rest's first line."""
    pieces, rest = [], code
    while (piece := next((each for each in SHARED if rest.startswith(each)), None)) is not None:
        pieces.append(piece)
        rest = rest[len(piece) :].lstrip("\n")
    return pieces, rest, 1 + code[: len(code) - len(rest)].count("\n")
