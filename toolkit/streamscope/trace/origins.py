"""Where the operations of a trace come from, and which of them wait for which, to join a picture with the user's code."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import IntFlag
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from streamscope.arrays import IntArray
from streamscope.errors import TraceError
from streamscope.trace.file_checks import is_tuple_of_texts, listed_texts, named_values
from streamscope.trace.joins import looked_up
from streamscope.trace.launch_sites import Site
from streamscope.trace.spans import DEVICE_KINDS, SpanKind, SpanTable

MOST_OPERATIONS, MOST_WAITS, MOST_DEPENDENCIES = 100_000, 200_000, 100_000
"""A trace of a longer program does not say where its operations come from, one with more waits does not list them, and one with more
launches or dependencies neither of these."""
MOST_NS = _MOST = int(np.iinfo(np.int32).max)
"""An operation that is expected to take longer than 2 s is written down as that."""


_LINE = re.compile(r"(?P<file>.+?):(?P<line>\d{1,9})(?:: (?P<text>.*))?", re.DOTALL)


@lru_cache(1024)  # Every engine asks for the same lines.
def site_of(line: str, module: str = "") -> Site | None:
    """Return the site of an operation's line: its text stands in the place of the function. None where neither is known.

    Examples
    --------
    >>> from streamscope.trace.origins import site_of
    >>> site_of("model.py:12: h = x @ w")[:3]
    ('h = x @ w', 'model.py', 12)
    """
    found = _LINE.fullmatch(line)
    if found is None:
        return Site(line, module=module) if line or module else None
    return Site(found["text"] or "", found["file"], int(found["line"]), module)


class Trait(IntFlag):
    """Traits of a launch for an engine, besides its dependencies."""

    AUXILIARY = 1
    """It belongs on the auxiliary stream of its operation's scope."""
    LIBRARY = 2
    """The host calls a library."""
    FIXED = 4
    """It cannot be captured into a graph."""
    HOST = 8
    """It is a host function."""
    CAPTURED = 16
    """It was captured from code that is not ours."""
    COPY_IN = 32
    """It copies to the device."""
    COPY_OUT = 64
    """It copies from the device."""
    ROOT = 128
    """It is the root of a collective, which sends in a broadcast and in a send."""


def _none(*shape: int) -> IntArray:
    return np.zeros(shape, np.int32)


@dataclass(frozen=True)
class Origins:
    """Facts about a program's operations, besides their times.

    Attributes
    ----------
    texts : tuple of str
        Texts that the next three index.
    label, line, arguments : int32 arrays
        Of each operation, by its id: its `ss.label`, the user's line, shapes and dtypes; -1 where unknown. All three have the
        same length, which is 0 where nothing is known.
    waits : int32 array, shape (n, 4)
        Event waits between streams: the launch of ``(operation, part)`` in the last two columns waited for that in the first two. Where
        a host function waited for a launch, it is the operation in the third column. In a graph, waits are edges.
    complete : bool
        Whether ``waits`` holds all of them. False where there are too many, and in traces of other tools.
    launches : int32 array, shape (n, 4)
        The program's launches and host functions in its order: operation, part, `Trait`, and for how many ns the engine took it when it
        planned (0 for host functions). Empty where they are not known: in traces of code that is not ours, and of programs with too many.
    dependencies : int32 array, shape (n, 4)
        Order that dependencies need, whatever the engine: the launch of ``(operation, part)`` in the last two columns after that in the
        first two, because one writes what the other reads or writes; and host functions after each other. Some may imply others.
        Complete where there are ``launches``.
    row_waits : int32 array, shape (n, 2)
        Event waits of code that is not ours: the span of the row in the second column waited for that of the row in the first.
    captured : int32 array, shape (n, 2)
        Of captured code, the edges of the capture, which the ``graph`` engine keeps: the operation in the second column came after that in
        the first. Empty where they are not known.

    Raises
    ------
    TraceError
        A column is not as said here.
    """

    texts: tuple[str, ...] = ()
    label: IntArray = field(default_factory=lambda: _none(0), repr=False)
    line: IntArray = field(default_factory=lambda: _none(0), repr=False)
    arguments: IntArray = field(default_factory=lambda: _none(0), repr=False)
    waits: IntArray = field(default_factory=lambda: _none(0, 4), repr=False)
    complete: bool = False
    launches: IntArray = field(default_factory=lambda: _none(0, 4), repr=False)
    dependencies: IntArray = field(default_factory=lambda: _none(0, 4), repr=False)
    row_waits: IntArray = field(default_factory=lambda: _none(0, 2), repr=False)
    captured: IntArray = field(default_factory=lambda: _none(0, 2), repr=False)

    def __post_init__(self) -> None:
        if not is_tuple_of_texts(self.texts) or not isinstance(self.complete, bool):
            raise TraceError("origins of operations need a tuple of texts, and whether their waits are complete")
        length = len(self.label)
        for name, shape, limits in (
            *((name, (length,), (-1, len(self.texts) - 1)) for name in ("label", "line", "arguments")),
            *((name, (len(getattr(self, name)), width), (0, _MOST)) for name, width in _WIDTHS.items()),
        ):
            values = np.asarray(getattr(self, name))
            if values.shape != shape or not np.issubdtype(values.dtype, np.integer):
                raise TraceError(f"{name} of operations must be whole numbers of shape {shape}, not {values.dtype} of shape {values.shape}")
            if values.size and not limits[0] <= values.min() <= values.max() <= limits[1]:
                raise TraceError(f"{name} of operations must be from {limits[0]} to {limits[1]}")
            object.__setattr__(self, name, values.astype(np.int32, copy=False))

    def words(self) -> list[dict[str, str]]:
        """Return the facts about each operation as texts, by kind: label, shapes and line.

        Of captured code these are its module, operator and line.
        """

        def said(code: int) -> str:
            return self.texts[code] if code >= 0 else ""

        found = []
        for label, arguments, line in zip(self.label.tolist(), self.arguments.tolist(), self.line.tolist(), strict=True):
            names = ("module", "operator") if _is_operator(said(arguments)) else ("label", "shapes")
            words = dict(zip((*names, "line"), (said(label), said(arguments), said(line)), strict=True))
            found.append({name: text for name, text in words.items() if text})
        return found

    def sites(self) -> list[Site | None]:
        """Return the line and module of each operation; None where neither is known."""
        words = self.words()
        # Where one is captured, all are, and their labels are modules.
        captured = any("operator" in each for each in words)
        return [site_of(each.get("line", ""), each.get("module", each.get("label", "") if captured else "")) for each in words]

    def wait_rows(self, spans: SpanTable) -> tuple[IntArray, IntArray]:
        """Return the waits as rows of a table of spans: awaited work and waiting work; those whose spans are missing are left out.

        ``spans``: of the same run. Kernels, copies and host functions are looked at.
        """
        by_operation = self._rows_of_pairs(self.waits, spans)
        known = (self.row_waits < len(spans)).all(axis=1)
        earlier, later = (np.concatenate([rows, self.row_waits[known, side]]) for side, rows in enumerate(by_operation))
        return earlier, later

    def _rows_of_pairs(self, pairs: IntArray, spans: SpanTable) -> tuple[IntArray, IntArray]:
        rows = np.flatnonzero(spans.is_kind({SpanKind.HOST, *DEVICE_KINDS}))
        rows = rows[spans.operation[rows] >= 0]
        every = _key(spans.operation[rows], spans.part[rows])
        keys, first = np.unique(every, return_index=True)
        # A library call of several kernels is done with its last one, and waits with its first one.
        last = len(every) - 1 - np.unique(every[::-1], return_index=True)[1]
        found = []
        for (operation, part), end in ((pairs[:, :2].T, rows[last]), (pairs[:, 2:].T, rows[first])):
            found.append(looked_up(keys, end, _key(operation, part), -1))
        known = (found[0] >= 0) & (found[1] >= 0)
        return found[0][known], found[1][known]

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        columns = {name: getattr(self, name).tolist() for name in ("label", "line", "arguments", *_WIDTHS)}
        return {"texts": list(self.texts), **columns, "complete": self.complete}

    @classmethod
    def from_dict(cls, stored: Any) -> Origins:
        """Read the values of `to_dict`.

        Raises
        ------
        LookupError, TypeError, ValueError, TraceError
            It is something else.
        """
        texts = listed_texts(named_values(stored)["texts"])
        label, line, arguments = (_whole(stored[name]) for name in ("label", "line", "arguments"))
        tables = {name: _rows(stored.get(name, []), width) for name, width in _WIDTHS.items()}
        return cls(texts, label, line, arguments, complete=stored["complete"], **tables)


def _is_operator(arguments: str) -> bool:
    """Tell whether the arguments' texts are the operators of captured code, and not shapes."""
    return bool(arguments) and "→" not in arguments


_WIDTHS = {"waits": 4, "launches": 4, "dependencies": 4, "row_waits": 2, "captured": 2}
"""The columns of each table."""


def _whole(stored: Any) -> npt.NDArray[Any]:
    return np.asarray(stored) if len(stored) else _none(0)


def _rows(stored: Any, width: int) -> npt.NDArray[Any]:
    rows = _whole(stored) if len(stored) else _none(0, width)
    if rows.shape[1:] != (width,):
        raise ValueError(f"rows of {width} numbers were expected, not of shape {rows.shape}")
    return rows


def _key(operation: IntArray, part: IntArray) -> npt.NDArray[np.int64]:
    key: npt.NDArray[np.int64] = operation.astype(np.int64) << 16 | part
    return key
