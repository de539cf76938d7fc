"""Which kernels are compiled together: groups that cost about the same, each kernel in a namespace of its own.

What a group costs is fitted to measurements (128 generated element-wise kernels, NVRTC 13.0, a 16-core machine): 17 ms of front end, which
NVRTC does for one source at a time, and 24 ms a kernel, which threads share. So ``g`` groups take ``17 g + 24 n / g`` ms, which is least
at the square root of ``24 n / 17`` groups; more groups than that are slower, also where there are idle cores. Costs by length of source balance
groups as well as the true times do (0.47 against 0.46 s on 16 threads).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

from streamscope.rtc.source import KernelSource

LARGEST = 32
"""Kernels in a group at most: a progress bar moves, and Ctrl-C ends, when a group is done, about every second."""

_FIXED_COST = 1600
"""What a group costs before its first kernel, in characters of source: 17 of the 24 ms that 2,300 characters take."""

_DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(?!pragma\b)\w", re.MULTILINE)
_LINE_OF_LOG = re.compile(r"^(\w+)\.cu\(\d+\)", re.MULTILINE)


def file_of(source: KernelSource) -> str:
    """Return what compiler logs call a kernel's source."""
    return f"{source.name}.cu"


def joined(group: Sequence[KernelSource]) -> str:
    """Return one source with all kernels of a group, each in a namespace, and with lines counted as in its own source."""
    if len(group) == 1:
        return group[0].code
    return "".join(f'namespace kernel_{number} {{\n#line 1 "{file_of(source)}"\n{source.code}\n}}\n' for number, source in enumerate(group))


def blamed(group: Sequence[KernelSource], log: str) -> list[KernelSource]:
    """Return those kernels of a group of which a compiler's log names lines."""
    names = set(_LINE_OF_LOG.findall(log))
    return [source for source in group if source.name in names]


def balanced_groups(sources: Sequence[KernelSource], workers: int) -> list[list[KernelSource]]:
    """Return groups of kernels, those that take longest first.

    Kernels that cannot share a source are groups of one: those with preprocessor directives, since macros know no namespaces, and all but
    the first of those that have a name in common.

    Parameters
    ----------
    sources : sequence of KernelSource
        All different.
    workers : int
        How many groups are compiled at the same time.
    """
    first_of_name = {source.name: source for source in reversed(sources)}
    together = [source for source in sources if first_of_name[source.name] is source and _can_share(source)]
    apart = Counter(sources) - Counter(together)
    groups = [*([source] for source in apart), *_shared_out(together, _best_count(together, workers))]
    return sorted(groups, key=lambda group: -sum(map(_cost, group)))


def _can_share(source: KernelSource) -> bool:
    return source.name.isidentifier() and not _DIRECTIVE.search(source.code)


def _best_count(sources: Sequence[KernelSource], workers: int) -> int:
    cheapest = round(math.sqrt(sum(map(_cost, sources)) / _FIXED_COST))
    return max(min(workers, cheapest), math.ceil(len(sources) / LARGEST), 1)


def _shared_out(sources: Sequence[KernelSource], count: int) -> list[list[KernelSource]]:
    """Share out by longest processing time first: Graham, "Bounds on multiprocessing timing anomalies", 1969."""
    groups: list[list[KernelSource]] = [[] for _ in range(count)]
    costs = [0] * count
    for source in sorted(sources, key=_cost, reverse=True):
        open_groups = [number for number in range(count) if len(groups[number]) < LARGEST]
        least = min(open_groups, key=costs.__getitem__)
        groups[least].append(source)
        costs[least] += _cost(source)
    return [group for group in groups if group]


def _cost(source: KernelSource) -> int:
    return len(source.code)
