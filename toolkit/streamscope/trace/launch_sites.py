"""Launch sites: which line and module of the user's code launched each kernel, as far as a profiler tells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from streamscope.arrays import IntArray
from streamscope.trace.columns import SpanColumns, holds, indexed, none
from streamscope.trace.file_checks import listed_texts

MOST_LINE = 2**31 - 1
"""Largest number of a line."""
MOST_CALLERS = 64
"""Sites around a site."""


class Site(NamedTuple):
    """A place in the user's code. Texts are empty, and the line is 0, where they are not known."""

    function: str = ""
    file: str = ""
    line: int = 0
    module: str = ""
    """Name of the instance, such as ``"Linear_0"``."""
    defined: bool = False
    """Whether ``line`` is where the function is defined, and not the line that launched."""
    caller: Site | None = None
    """The site around it, which lacks its function or its module; None where it is not known. There are at most 64 around each other."""

    @property
    def callers(self) -> tuple[Site, ...]:
        """The sites around it, the outermost first."""
        found, site = list[Site](), self.caller
        while site is not None:
            found.append(site)
            site = site.caller
        return tuple(reversed(found))

    def words(self) -> dict[str, str]:
        """Return its known fields as texts by their names, for files of other programs.

        Examples
        --------
        >>> from streamscope.trace import Site
        >>> Site("forward", "model.py", 12, "Net_0").words()
        {'line': 'model.py:12', 'function': 'forward', 'module': 'Net_0'}
        """
        place = f"{self.file}:{self.line}" if self.file else ""
        found = {"defined at" if self.defined else "line": place, "function": self.function, "module": self.module}
        return {name: text for name, text in found.items() if text}


def are_sites(given: object) -> bool:
    """Tell whether it is a tuple of sites with the right fields. Each caller is looked at once."""
    depths: dict[int, int] = {id(None): -1}
    """Of the sites that are right, by their id, how many are around each other."""
    return isinstance(given, tuple) and all(_is_site(one, depths) for one in given)


def _is_site(one: Any, depths: dict[int, int]) -> bool:
    unseen, at = list[Site](), one
    while id(at) not in depths:
        if not _has_right_fields(at) or len(unseen) > MOST_CALLERS:
            return False
        unseen.append(at)
        at = at.caller
    for depth, site in enumerate(reversed(unseen), depths[id(at)] + 1):
        depths[id(site)] = depth
    return 0 <= depths[id(one)] <= MOST_CALLERS


def _has_right_fields(one: object) -> bool:
    return (
        isinstance(one, Site)
        and all(isinstance(text, str) for text in (one.function, one.file, one.module))
        and type(one.line) is int
        and 0 <= one.line <= MOST_LINE
        and isinstance(one.defined, bool)
    )


@dataclass(frozen=True, eq=False, repr=False)
class LaunchSites(SpanColumns):
    """Launch sites as equally long columns, one row for each span on a GPU whose site is known, sorted by ``span``.

    Attributes
    ----------
    span : int32 array
        Row of the table of spans.
    site : int32 array
        Index into ``sites``.
    sites : tuple of Site
        Function, file, line and module.

    Raises
    ------
    TraceError
        A column is not as said here, rows are not sorted, or there are more than 1,000,000.

    Examples
    --------
    >>> import numpy as np
    >>> from streamscope.trace import LaunchSites, Site
    >>> found = LaunchSites(np.array([4, 9]), np.array([0, 0]), (Site("forward", "model.py", 12, "Net_0"),))
    >>> len(found), found.sites[found.site[1]].file
    (2, 'model.py')
    """

    span: IntArray = field(default_factory=none, repr=False, metadata=holds(np.int32))
    site: IntArray = field(default_factory=none, repr=False, metadata=holds(np.int32, of="sites"))
    sites: tuple[Site, ...] = field(default=(), metadata=indexed(are_sites, "Site"))

    NOUN: ClassVar = "launch sites"
    MOST: ClassVar = 1_000_000

    def copied(self, rows: ArrayLike, origins: ArrayLike) -> Self:
        """Return the sites of rows of another table, from 0 on and ascending, which stand for rows of this one."""
        rows, origins = np.asarray(rows, np.int64), np.asarray(origins, np.int64)
        at = np.searchsorted(self.span, origins)
        known = np.append(self.span, -1)[at] == origins
        return type(self)(rows[known], self.site[at[known]], self.sites)

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values. ``span`` is stored as differences, which are short. A site is a row of numbers, texts are apart."""
        return {"span": np.diff(self.span, prepend=0).tolist(), "site": self.site.tolist(), **listed_sites(self.sites)}

    @classmethod
    def _stored(cls, stored: Mapping[str, Any]) -> dict[str, Any]:
        columns = super()._stored(stored)
        columns["span"] = np.cumsum(columns["span"], dtype=np.int64)
        return columns | {"sites": stored_sites(stored)}


def listed_sites(sites: Sequence[Site]) -> dict[str, Any]:
    """Return sites as JSON values: rows of numbers, whose texts are apart, and so are callers, the outer ones first."""
    texts: dict[str, int] = {}
    callers: dict[int, int] = {}
    known: list[list[int]] = []

    def row(one: Site) -> list[int]:
        words = [texts.setdefault(text, len(texts)) for text in (one.function, one.file, one.module)]
        return [*words, one.line, int(one.defined), *([] if one.caller is None else [callers[id(one.caller)]])]

    for one in sites:
        for caller in one.callers:
            if id(caller) not in callers:
                known.append(row(caller))
                callers[id(caller)] = len(known) - 1
    return {"sites": [row(one) for one in sites], **({"callers": known} if known else {}), "texts": list(texts)}


def stored_sites(stored: Mapping[str, Any]) -> tuple[Site, ...]:
    """Read the values of `listed_sites`.

    Raises
    ------
    LookupError, TypeError, ValueError
        It is something else.
    """
    texts = listed_texts(stored["texts"])
    callers, depths = list[Site](), [0]
    for row in stored.get("callers", ()):
        callers.append(_site(row, texts, callers))
        depths.append(depths[row[5] + 1 if len(row) > 5 else 0] + 1)
    if max(depths) > MOST_CALLERS:
        raise ValueError(f"launch sites have {max(depths)} callers around each other, more than {MOST_CALLERS}")
    return tuple(_site(row, texts, callers) for row in stored["sites"])


def _site(row: Sequence[int], texts: Sequence[str], callers: Sequence[Site]) -> Site:
    function, file, module, line, defined, *around = row
    if min(function, file, module, *around) < 0 or defined not in (0, 1) or len(around) > 1:
        raise ValueError(f"{row} is not a launch site")
    return Site(texts[function], texts[file], line, texts[module], bool(defined), callers[around[0]] if around else None)
