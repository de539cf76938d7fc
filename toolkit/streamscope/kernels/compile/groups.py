"""Kernels that are compiled together: one translation unit a group, each kernel in a namespace of its own.

A translation unit costs NVRTC 20 to 40 ms besides its kernels, so kernels share one; groups are compiled side by side.
"""

from __future__ import annotations

import heapq
import os
import re
from collections.abc import Iterable, Sequence

from streamscope.arguments import whole_number
from streamscope.errors import CompilationError
from streamscope.host_memory import free_bytes
from streamscope.kernels.source import HALF_CONVERSIONS, STAMPS, VECTORS, WRAPPING, KernelSource

Group = tuple[KernelSource, ...]

SHARED = (STAMPS, WRAPPING, HALF_CONVERSIONS, VECTORS)
WORKER_BYTES = 256 * 2**20
"""Memory that NVRTC takes for one translation unit: up to 160 MiB were measured."""

_NOT_CODE = re.compile(
    r"//[^\n]*|/\*.*?\*/|R\"([^\s()\\]*)\(.*?\)\1\"|\"(?:\\.|[^\"\\\n])*\"|\b\d(?:'?[\w.])*|'(?:\\.|[^'\\\n])+'", re.DOTALL
)
"""Comments, texts and characters, whose braces count for nothing; and numbers, since an apostrophe between digits begins no character."""
_REACHING = re.compile(r"^\s*(?:#|%:|\?\?=)(?!\s*pragma\s+unroll\b)|\b_Pragma\b|<%|%>|/\*|[\"']", re.MULTILINE)
"""Code that would reach into later kernels: directives, and comments and texts that do not end."""
_READING_FILES = re.compile(
    r"^[^\S\n]*(?:#|%:|\?\?=)[^\S\n]*(include(?:_next)?|import|embed)\b|\b(__has_(?:include(?:_next)?|embed))\s*\(", re.MULTILINE
)
_CHOOSING = re.compile(r"^\s*(?:#|%:|\?\?=)\s*(?:if|define)|<%|%>|<:|:>", re.MULTILINE)
"""Code with brackets in another meaning: directives, and other spellings."""
_CLOSED_BY = {"(": ")", "[": "]", "{": "}"}
_BLAMED = re.compile(r"^(\w+)\.cu\(\d+\): (?:catastrophic )?error|^ptxas error.*'(\w+)'", re.MULTILINE)


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
    """Return at most ``count`` groups of about equal expected cost, the costliest first; more only for sources that must stand alone.

    The expected cost of a kernel is the length of its source. True times would gain little, since groups wait for each
    other in NVRTC.
    """
    costs = {source: len(source.code) for source in sources}
    alone = [source for source in sources if not keeps_to_itself(source.code)]
    together = sorted(costs.keys() - set(alone), key=lambda source: (-costs[source], source.name))
    loads = [(0, number) for number in range(min(count, len(together)))]
    groups: list[list[KernelSource]] = [[] for _ in loads]
    for source in together:
        load, number = loads[0]
        groups[number].append(source)
        heapq.heapreplace(loads, (load + costs[source], number))
    every = [*map(tuple, groups), *((source,) for source in alone)]
    return sorted(every, key=lambda group: sum(costs[source] for source in group), reverse=True)


def keeps_to_itself(code: str) -> bool:
    """Tell whether a source can stand beside others: it has no directive that would hold for them, too, and its brackets match.

    Compiled together, a source with a brace too few and one with a brace too many would both be taken for right.
    """
    bare = _bare(code)
    depth = 0
    for brace in re.findall("[{}]", bare):
        depth += 1 if brace == "{" else -1
        if depth < 0:
            return False
    return depth == 0 and not _REACHING.search(bare)


def file_directive(code: str) -> str | None:
    """Return the part of a source that depends on files, for example ``#include``; None where nothing does."""
    found = _READING_FILES.search(_bare(code))
    return found and (f"#{found[1]}" if found[1] else found[2])


def unbalanced(code: str) -> str | None:
    """Return a bracket in a source that is not closed, or that closes none; None where there is none, or directives decide."""
    bare, opened = _bare(code), list[str]()
    if _CHOOSING.search(bare):
        return None
    for bracket in re.findall(r"[(){}\[\]]", bare):
        if bracket in _CLOSED_BY:
            opened.append(bracket)
        elif not opened or _CLOSED_BY[opened.pop()] != bracket:
            return str(bracket)
    return opened[-1] if opened else None


def nesting(code: str) -> int:
    """Return how deep the brackets of a source are nested; directives may hide some, so that one closes none."""
    deepest = level = 0
    for bracket in re.findall(r"[(){}\[\]]", _bare(code)):
        level = level + 1 if bracket in _CLOSED_BY else max(0, level - 1)
        deepest = max(deepest, level)
    return deepest


def _bare(code: str) -> str:
    """Return code without comments, texts and numbers. Those of several lines leave a line's end: NVRTC takes a directive behind them."""
    joined = re.sub(r"\\\r?\n", "", code)
    return _NOT_CODE.sub(lambda match: "\n" if "\n" in match[0] else " ", joined)


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


def blamed(log: str, group: Group) -> Group:
    """Return the kernels of a group that a log complains of; empty where it names none."""
    names = {name for match in _BLAMED.finditer(log) for name in match.groups() if name}
    return tuple(source for source in group if source.name in names)
