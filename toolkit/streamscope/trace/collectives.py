"""Work of several GPUs together: collectives, and copies from GPU to GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from streamscope.arrays import IntArray
from streamscope.errors import TraceError
from streamscope.trace.columns import SpanColumns, holds, indexed, none

if TYPE_CHECKING:
    from collections.abc import Mapping

KINDS = (
    "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all", "gather", "scatter", "send", "recv", "send_recv",
    "barrier",
)  # fmt: skip
"""Kinds of collectives that a trace names; ``""`` is one of another kind, or of an unknown one."""
_SHARES = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "all_to_all": 1, "gather": 1, "scatter": 1}
"""Of these kinds, how many times each GPU sends its data to all others."""
_WHOLE = frozenset({"broadcast", "reduce", "send", "recv", "send_recv"})
"""Of these, the whole of it passes each link once."""


def bus_factor(kind: str, ranks: int) -> float:
    """Return how much of a collective's size each link carries, by the definitions of nccl-tests; 0 of a kind that moves no data."""
    if kind in _SHARES:
        return _SHARES[kind] * (ranks - 1) / ranks
    return 1.0 if kind in _WHOLE else 0.0


@dataclass(frozen=True, eq=False)
class Collectives(SpanColumns):
    """Collectives as equally long columns, one row for each span on a GPU that is a part of one, sorted by ``span``.

    `from_columns` makes it of texts and lists.

    Attributes
    ----------
    span : int32 array
        Row of the table of spans. The lane of that row tells the GPU.
    instance : int32 array
        Number of the operation: the same on each GPU that takes part, another one each time it runs; -1 where unknown.
    kind, op : int16 arrays
        Index into ``texts`` of the kind (``"all_reduce"``) and of the reduction (``"sum"``); -1 where unknown or none.
    nbytes : int64 array
        Size of the operation as nccl-tests counts it: of the whole buffer, on one GPU. So all-gather counts what it writes, and
        reduce-scatter what it reads. 0 where unknown.
    ranks : int32 array
        How many GPUs take part, those of other processes included; 0 where unknown.
    communicator : int32 array
        Index into ``texts`` of the communicator's name, such as the process group's; -1 where unknown.
    sequence : int64 array
        Place of the operation among those of its communicator, as the library counts them; -1 where unknown.
    peer : int32 array
        Of a send or a receive, the rank at the other end, of recordings of ours its number in the communicator; -1 where unknown.
    texts : tuple of str
        Texts that ``kind``, ``op`` and ``communicator`` index.

    Raises
    ------
    TraceError
        A column is not as said here, rows are not sorted, or there are more than 100,000.
    """

    span: IntArray = field(default_factory=none, repr=False, metadata=holds(np.int32))
    instance: IntArray = field(default_factory=none, repr=False, metadata=holds(np.int32, -1))
    kind: IntArray = field(default_factory=none, repr=False, metadata=holds(np.int16, -1, of="texts"))
    op: IntArray = field(default_factory=none, repr=False, metadata=holds(np.int16, -1, of="texts"))
    nbytes: IntArray = field(default_factory=none, repr=False, metadata=holds(np.int64))
    ranks: IntArray = field(default_factory=none, repr=False, metadata=holds(np.int32))
    communicator: IntArray = field(default_factory=none, repr=False, metadata=holds(np.int32, -1, of="texts"))
    sequence: IntArray = field(default_factory=none, repr=False, metadata=holds(np.int64, -1))
    peer: IntArray = field(default_factory=none, repr=False, metadata=holds(np.int32, -1))
    texts: tuple[str, ...] = field(default=(), metadata=indexed())

    NOUN: ClassVar = "collectives"
    MOST: ClassVar = 100_000

    @classmethod
    def from_columns(
        cls,
        span: npt.ArrayLike,
        kind: str | Sequence[str] = "",
        *,
        instance: npt.ArrayLike = -1,
        op: str | Sequence[str] = "",
        nbytes: npt.ArrayLike = 0,
        ranks: npt.ArrayLike = 0,
        communicator: str | Sequence[str] = "",
        sequence: npt.ArrayLike = -1,
        peer: npt.ArrayLike = -1,
    ) -> Self:
        """Make it of texts and numbers, each one for all rows, or one a row. Rows may come in any order.

        Raises
        ------
        TraceError
            A column has another length, or values that do not fit.

        Examples
        --------
        >>> from streamscope.trace import Collectives
        >>> found = Collectives.from_columns([4, 9], "all_reduce", instance=0, op="sum", nbytes=1 << 20, ranks=2)
        >>> len(found), found.words("kind"), found.words("communicator")
        (2, ['all_reduce', 'all_reduce'], ['', ''])
        """
        rows = np.atleast_1d(np.asarray(span, np.int64))
        order = np.argsort(rows, kind="stable")
        codes: dict[str, int] = {}
        columns: dict[str, Any] = {"span": rows}
        for name, texts in (("kind", kind), ("op", op), ("communicator", communicator)):
            each = [texts] if isinstance(texts, str) else list(texts)
            columns[name] = np.array([codes.setdefault(text, len(codes)) if text else -1 for text in each], np.int64)
        columns |= {"instance": instance, "nbytes": nbytes, "ranks": ranks, "sequence": sequence, "peer": peer}
        for name, values in columns.items():
            column = np.atleast_1d(np.asarray(values))
            if column.shape not in ((1,), rows.shape):
                raise TraceError(f"{name} of collectives has {len(column)} values for {len(rows)} spans")
            columns[name] = np.broadcast_to(column, rows.shape)[order]
        return cls(**columns, texts=tuple(codes))

    @classmethod
    def _stored(cls, stored: Mapping[str, Any]) -> dict[str, Any]:
        peers = {"peer": [-1] * len(stored["span"])}  # Of files from before there were any.
        return super()._stored(peers | dict(stored))


@dataclass(frozen=True, eq=False)
class PeerCopies(SpanColumns):
    """Copies from GPU to GPU as equally long columns, one row for each such copy, sorted by ``span``.

    Attributes
    ----------
    span : int32 array
        Row of the copy in the table of spans.
    from_gpu, to_gpu : int32 arrays
        The GPUs, as ``SpanTable.gpus`` counts them.

    Raises
    ------
    TraceError
        A column is not as said here, rows are not sorted, or there are more than 200,000.

    Examples
    --------
    >>> import numpy as np
    >>> from streamscope.trace import PeerCopies
    >>> copies = PeerCopies(np.array([3, 8]), np.array([0, 1]), np.array([1, 0]))
    >>> copies.to_dict()
    {'span': [3, 8], 'from_gpu': [0, 1], 'to_gpu': [1, 0]}
    """

    span: IntArray = field(default_factory=none, repr=False, metadata=holds(np.int32))
    from_gpu: IntArray = field(default_factory=none, repr=False, metadata=holds(np.int32))
    to_gpu: IntArray = field(default_factory=none, repr=False, metadata=holds(np.int32))

    NOUN: ClassVar = "copies from GPU to GPU"
    MOST: ClassVar = 200_000

    @classmethod
    def of(cls, rows: Sequence[tuple[int, int, int]]) -> Self:
        """Make it of rows in any order: span, and the two GPUs."""
        return cls(*np.array(sorted(rows), np.int64).reshape(-1, 3).T) if rows else cls()
