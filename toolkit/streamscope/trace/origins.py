"""Where the operations of a trace come from, and which of them wait for which: what joins a picture with the user's code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from streamscope.errors import TraceError
from streamscope.trace.spans import DEVICE_KINDS, IntArray, SpanKind, SpanTable
from streamscope.trace.stored import is_tuple_of_texts

MOST_OPERATIONS, MOST_WAITS = 100_000, 200_000
"""A trace of a longer program does not say where its operations come from, one with more waits not what waits for what."""
_MOST = int(np.iinfo(np.int32).max)


def _none(*shape: int) -> IntArray:
    return np.zeros(shape, np.int32)


@dataclass(frozen=True)
class Origins:
    """What is known of a program's operations, besides their times.

    Attributes
    ----------
    texts : tuple of str
        What the next three index.
    label, line, arguments : int32 arrays
        Of each operation, by its id: what `ss.label` calls it, the user's line, shapes and dtypes; -1 where unknown. All three have the
        same length, which is 0 where nothing is known.
    waits : int32 array, shape (n, 4)
        Event waits between streams: the launch of ``(operation, part)`` in the last two columns waited for that in the first two. Where
        a host function waited for a launch, it is the operation in the third column. In a graph, waits are edges.
    complete : bool
        Whether ``waits`` holds all of them. False in traces of versions before there were any, and where there are too many.

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

    def __post_init__(self) -> None:
        if not is_tuple_of_texts(self.texts) or not isinstance(self.complete, bool):
            raise TraceError("origins of operations need a tuple of texts, and whether their waits are complete")
        length = len(self.label)
        for name, shape, limits in (
            *((name, (length,), (-1, len(self.texts) - 1)) for name in ("label", "line", "arguments")),
            ("waits", (len(self.waits), 4), (0, _MOST)),
        ):
            values = np.asarray(getattr(self, name))
            if values.shape != shape or not np.issubdtype(values.dtype, np.integer):
                raise TraceError(f"{name} of operations must be whole numbers of shape {shape}, not {values.dtype} of shape {values.shape}")
            if values.size and not limits[0] <= values.min() <= values.max() <= limits[1]:
                raise TraceError(f"{name} of operations must be from {limits[0]} to {limits[1]}")
            object.__setattr__(self, name, values.astype(np.int32, copy=False))

    def wait_rows(self, spans: SpanTable) -> tuple[IntArray, IntArray]:
        """Return the waits as rows of a table of spans: what was waited for, and what waited; those whose spans are missing are left out.

        Parameters
        ----------
        spans : SpanTable
            Of the same run. Kernels, copies and host functions are looked at.
        """
        rows = np.flatnonzero(spans.is_kind({SpanKind.HOST, *DEVICE_KINDS}))
        rows = rows[spans.operation[rows] >= 0]
        keys = _key(spans.operation[rows], spans.part[rows])
        keys, first = np.unique(keys, return_index=True)
        rows, found = rows[first], []
        for operation, part in (self.waits[:, :2].T, self.waits[:, 2:].T):
            at = np.searchsorted(keys, wanted := _key(operation, part))
            there = at < len(keys)
            there[there] = keys[at[there]] == wanted[there]
            found.append(np.where(there, rows[np.minimum(at, len(keys) - 1)] if len(keys) else -1, -1))
        known = (found[0] >= 0) & (found[1] >= 0)
        return found[0][known], found[1][known]

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        columns = {name: getattr(self, name).tolist() for name in ("label", "line", "arguments", "waits")}
        return {"texts": list(self.texts), **columns, "complete": self.complete}

    @classmethod
    def from_dict(cls, stored: Any) -> Origins:
        """Return what `to_dict` returned, or nothing where nothing was stored.

        Raises
        ------
        LookupError, TypeError, ValueError, TraceError
            It is something else.
        """
        if stored is None:
            return cls()
        if not isinstance(stored, Mapping):
            raise TypeError(f"{stored!r:.20} is not a mapping of names to values")
        if not isinstance(stored["texts"], list):
            raise TypeError(f"{stored['texts']!r:.20} is not a list of texts")
        waits = _whole(stored["waits"]).reshape(-1, 4)
        label, line, arguments = (_whole(stored[name]) for name in ("label", "line", "arguments"))
        return cls(tuple(stored["texts"]), label, line, arguments, waits, stored["complete"])


def _whole(stored: Any) -> npt.NDArray[Any]:
    return np.asarray(stored) if len(stored) else _none(0)


def _key(operation: IntArray, part: IntArray) -> npt.NDArray[np.int64]:
    key: npt.NDArray[np.int64] = operation.astype(np.int64) << 16 | part
    return key
