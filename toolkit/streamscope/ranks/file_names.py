"""The rank in the name of a file: ``rank3``, ``worker_3``, ``trace_3.json``, ``TP1-DP0-PP1``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePath

_NAMED = tuple(
    re.compile(rf"(?<![a-z])(?<!local[_.-]){word}[_.=-]?(\d{{1,6}})(?!\d)", re.IGNORECASE)
    for word in ("rank", "worker", "proc", "gpu", "r")
)
"""Words before the number of a rank, the clearest first."""
_AXES = ("pp", "dp", "ep", "cp", "tp")
"""Kinds of parallelism, the slowest first: neighbours in a group of tensor parallelism have ranks that follow each other."""
_AXIS = re.compile(r"(?<![a-z])(pp|dp|ep|cp|tp)[_-]?(\d{1,6})(?!\d)", re.IGNORECASE)
_ENDINGS = re.compile(r"(\.(gz|json|pt|trace|parquet|sqlite|db|pb|xplane|nsys-rep))+$", re.IGNORECASE)
_DENSE = 4
"""Numbers of ranks are at most so many times as many as there are files; process ids and times are larger."""


def ranks_of_names(names: Sequence[str]) -> list[int] | None:
    """Return the rank in the name of each file of a job; None where the names do not tell.

    A word such as ``rank`` before the number says it. Else it is the number by which the names differ, if one such number is small. Names
    with several axes, as ``TP1-DP0-PP1``, are numbered in Megatron's order: pp, dp, ep, cp, tp.

    Examples
    --------
    >>> from streamscope.ranks.file_names import ranks_of_names
    >>> ranks_of_names(["host_4711.rank0.1700.pt.trace.json", "host_4712.rank1.1700.pt.trace.json"])
    [0, 1]
    >>> ranks_of_names(["a/trace_10.json.gz", "a/trace_9.json.gz"]), ranks_of_names(["one.json", "two.json"])
    ([10, 9], None)
    >>> ranks_of_names(["TP0-DP0.json", "TP1-DP0.json", "TP0-DP1.json", "TP1-DP1.json"])
    [0, 1, 2, 3]
    """
    stems = [_ENDINGS.sub("", PurePath(name).name) for name in names]
    axes = [{axis.lower(): int(number) for axis, number in _AXIS.findall(stem)} for stem in stems]
    if all(axes) and len({frozenset(each.items()) for each in axes}) == len(names):
        places = sorted(tuple(each.get(axis, 0) for axis in _AXES) for each in axes)
        return [places.index(tuple(each.get(axis, 0) for axis in _AXES)) for each in axes]
    for word in _NAMED:
        found = [word.findall(stem) for stem in stems]
        if all(found):
            return [int(numbers[-1]) for numbers in found]
    return _varying(stems)


def _varying(stems: Sequence[str]) -> list[int] | None:
    """Return the one number by which names differ that are alike otherwise, and that is small."""
    parts = [re.split(r"(\d+)", stem) for stem in stems]
    if len({tuple(each[::2]) for each in parts}) > 1:
        return None
    columns = [list(map(int, column)) for column in list(zip(*parts, strict=True))[1::2]]
    most = _DENSE * len(stems)
    found = [column for column in columns if len(set(column)) == len(column) and max(column) <= most]
    return found[0] if found and all(column == found[0] for column in found) else None
