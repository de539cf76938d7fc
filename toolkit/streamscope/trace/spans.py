"""The table of spans, as columns of NumPy arrays."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from streamscope.arguments import shown
from streamscope.arrays import IntArray
from streamscope.errors import TraceError, UnknownAttributeError
from streamscope.trace.columns import columns_of, holds
from streamscope.trace.file_checks import MOST_NS, is_tuple_of_texts
from streamscope.words import counted

if TYPE_CHECKING:
    import pandas as pd

MOST_SPANS = 12_000_000
"""More than a notebook has memory for."""
MOST_FOREIGN_SPANS = 3_000_000
"""Of files of other profilers, which take many times the memory while they are read."""
MOST_GPU = 2**31 - 1
"""Largest number of a GPU: some tools take numbers that name more than its place."""
_FURTHER = re.compile(r" · \d+$")
"""Suffix of the names of further lanes of one stream."""


class SpanKind(IntEnum):
    """Kind of a span. Kinds below ``KERNEL`` lie on a host lane, the others on a stream's lane."""

    LAUNCH = 0
    """Host: the call that puts one kernel or one copy on a stream (its length is the *API time*)."""
    GRAPH_LAUNCH = 1
    """Host: the call that launches a CUDA graph."""
    EVENT = 2
    """Host: a call that records an event or makes a stream wait for one."""
    SYNC = 3
    """Host: blocked until the device has done something."""
    HOST = 4
    """Host: a host function of the program."""
    COMPILE = 5
    """Host: a kernel is being generated, compiled, linked or loaded."""
    API = 6
    """Host: another call of the CUDA runtime or driver, such as an allocation."""
    RANGE = 7
    """Host: a range that the user or a framework named, such as an NVTX range. Ranges of one lane nest."""
    KERNEL = 8
    """Device: one kernel."""
    COPY = 9
    """Device: a copy, between host and device or within the device."""
    SET = 10
    """Device: memory is set to a value."""
    GRAPH = 11
    """Device: one replay of a graph, from its first node to its last; encloses its kernels."""


HOST_KINDS = frozenset(kind for kind in SpanKind if kind < SpanKind.KERNEL)
MEMORY_KINDS = frozenset({SpanKind.COPY, SpanKind.SET})
DEVICE_KINDS = MEMORY_KINDS | {SpanKind.KERNEL}


def is_one(kind: npt.NDArray[Any], kinds: Iterable[SpanKind]) -> npt.NDArray[np.bool_]:
    """Tell of each kind in a column whether it is one of ``kinds``."""
    known = np.zeros(256, bool)
    known[list(map(int, kinds))] = True
    found: npt.NDArray[np.bool_] = known[kind]
    return found


class Basis(IntEnum):
    """How the two times of a span came to be known."""

    MEASURED = 0
    """Both ends were read from a clock (host calls; CUPTI; a simulated device's own log). By stamps: those of the first and last block;
    a constant is added around them."""
    DERIVED = 1
    """The end was measured; the start is the end less the duration, which was measured apart: alone, or by CUPTI in other runs."""
    PLACED = 2
    """The duration was measured; the position follows from order, dependencies and the measured extent."""


@dataclass(frozen=True)
class SpanTable:
    """Spans as equally long columns, sorted by ``start_ns``.

    Times are integers in nanoseconds since the trace's zero, which is the start of the run on the host.

    Attributes
    ----------
    kind : uint8 array
        `SpanKind` of each span.
    name : int32 array
        Index into ``names``.
    lane : int16 array
        Index into ``lanes``: the host thread or the stream that the span lies on.
    start_ns, end_ns : int64 arrays
        ``end_ns >= start_ns``, both within ±2**53 ns (104 days), and all durations together no longer than that.
        Kernels and copies of one lane whose times were measured do not overlap.
    operation : int32 array
        Id of the program's operation; -1 for none. The key that joins traces of one program.
    part : int16 array
        Which launch of the operation (a convolution's backward pass has two); 0 for the first. A library call of several kernels is one
        launch: its kernels share operation, part and correlation.
    correlation : int32 array
        Joins a host call (`LAUNCH`, `GRAPH_LAUNCH`) with its work on the device; -1 for none.
    basis : uint8 array
        `Basis` of the two times.
    blocks, threads : int64 and int32 arrays
        Launch size: blocks in the grid and threads in a block; 0 where unknown.
    bytes, flops : int64 arrays
        Cost by the operator's formula; 0 where unknown.
    symbol : int32 array
        Index into ``names`` of the kernel's own name, as the compiler or the library has it; -1 where it is not known.
    graph_node : int64 array
        Id of the node of a CUDA graph; -1 for none.
    names, lanes : tuple of str
        Texts that ``name``, ``symbol`` and ``lane`` index. Lanes are in the order in which they are drawn: host lanes first.
    gpus : tuple of int
        GPU of each lane: -1 for lanes of the host, 0 and up for streams. By default, lanes with work of a device are of GPU 0.

    Raises
    ------
    TraceError
        A column is not as said here, has values below 0 (-1 where that means none), or there are more than 12,000,000 spans.
    """

    kind: IntArray = field(metadata=holds(np.uint8))
    name: IntArray = field(metadata=holds(np.int32))
    lane: IntArray = field(metadata=holds(np.int16))
    start_ns: IntArray = field(metadata=holds(np.int64, -MOST_NS))
    end_ns: IntArray = field(metadata=holds(np.int64, -MOST_NS))
    operation: IntArray = field(metadata=holds(np.int32, -1))
    part: IntArray = field(metadata=holds(np.int16))
    correlation: IntArray = field(metadata=holds(np.int32, -1))
    basis: IntArray = field(metadata=holds(np.uint8))
    blocks: IntArray = field(metadata=holds(np.int64))
    threads: IntArray = field(metadata=holds(np.int32))
    bytes: IntArray = field(metadata=holds(np.int64))
    flops: IntArray = field(metadata=holds(np.int64))
    symbol: IntArray = field(metadata=holds(np.int32, -1))
    graph_node: IntArray = field(metadata=holds(np.int64, -1))
    names: tuple[str, ...] = ()
    lanes: tuple[str, ...] = ()
    gpus: tuple[int, ...] = ()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Hint at the right argument: functions of `ss.analysis` that take a trace were given its spans."""
            hint = "pass the trace, not its spans" if name in ("info", "origins", "spans") else None
            raise UnknownAttributeError(f"'SpanTable' object has no attribute {name!r}", hint=hint)

    def __repr__(self) -> str:
        return f"<SpanTable: {counted(len(self), 'span')} on {counted(len(self.lanes), 'lane')}; Trace.to_pandas shows them>"

    def __post_init__(self) -> None:
        self._check_texts()
        length = len(self.start_ns)
        if length > MOST_SPANS:
            raise TraceError(f"a trace of {length:,} spans is too long: it may have {MOST_SPANS:,}", hint="record fewer operations")
        for column, dtype in COLUMN_DTYPES.items():
            values = np.asarray(getattr(self, column))
            if values.shape != (length,):
                raise TraceError(f"span column {column!r} has shape {values.shape}, expected ({length},)")
            self._check_range(column, values)
            object.__setattr__(self, column, values.astype(dtype, copy=False))
        self._check_gpus()
        self._check_times()

    def _check_texts(self) -> None:
        _check_lane_count(len(self.lanes))
        for column, texts in (("names", self.names), ("lanes", self.lanes)):
            if not is_tuple_of_texts(texts):
                raise TraceError(f"{column} of spans must be a tuple of texts, not {shown(texts)}")
            if len(set(texts)) < len(texts):
                raise TraceError(f"{column} of spans must differ, but {shown(texts)} has one twice")

    def _check_gpus(self) -> None:
        """Check the GPU of each lane, or find it where none is given."""
        works = np.bincount(self.lane[self.kind >= SpanKind.KERNEL], minlength=len(self.lanes)) > 0
        if not self.gpus:
            # Host lanes come first, so an empty lane behind the first stream is a stream.
            streams = np.maximum.accumulate(works)
            streams[self.lane[self.kind < SpanKind.KERNEL]] = False
            object.__setattr__(self, "gpus", tuple(np.where(works | streams, 0, -1).tolist()))
        given = self.gpus
        if not all(type(gpu) is int and -1 <= gpu <= MOST_GPU for gpu in tuple(given)):
            raise TraceError(f"gpus of spans must be a tuple of whole numbers from -1 to {MOST_GPU}, not {shown(given)}")
        if len(given) != len(self.lanes):
            raise TraceError(f"gpus of spans has {counted(len(given), 'number')} for {counted(len(self.lanes), 'lane')}")
        wrong = works & (np.array(given, np.int64) < 0)
        if wrong.any():
            lane = self.lanes[int(np.argmax(wrong))]
            raise TraceError(
                f"lane {lane!r} has work of a GPU, but its GPU is -1", hint="gpus= has the GPU of each lane, -1 for the host's"
            )

    def _check_range(self, column: str, values: npt.NDArray[Any]) -> None:
        """Check values before they are cast, which would wrap them around."""
        if not len(values):
            return
        if not np.issubdtype(values.dtype, np.integer):
            raise TraceError(f"span column {column!r} must hold whole numbers, not {values.dtype}")
        least, most = _COLUMNS[column]["least"], self._most(column)
        wrong = (values < least) | (values > most)
        if wrong.any():
            row = int(np.argmax(wrong))
            raise TraceError(f"span {row} has {column} {int(values[row])}, which must be from {least} to {most}")

    def _most(self, column: str) -> int:
        if column in ("start_ns", "end_ns"):
            return MOST_NS
        lengths = {"kind": len(SpanKind), "basis": len(Basis), "name": len(self.names), "symbol": len(self.names), "lane": len(self.lanes)}
        return lengths[column] - 1 if column in lengths else int(np.iinfo(COLUMN_DTYPES[column]).max)

    def _check_times(self) -> None:
        start_ns, end_ns = self.start_ns, self.end_ns
        if (end_ns < start_ns).any():
            row = int(np.argmax(end_ns < start_ns))
            raise TraceError(f"span {row} ends {int(start_ns[row] - end_ns[row])} ns before it starts")
        if (start_ns[1:] < start_ns[:-1]).any():
            row = int(np.argmax(start_ns[1:] < start_ns[:-1])) + 1
            raise TraceError(f"span {row} starts before span {row - 1}, but spans must be in the order of their starts")
        if self.duration_ns.sum(dtype=np.float64) > MOST_NS:
            raise TraceError(f"the spans take {self.duration_ns.sum(dtype=np.float64):.3g} ns in all, more than {MOST_NS:,}")
        measured = np.flatnonzero((self.basis == Basis.MEASURED) & self.is_kind(DEVICE_KINDS))
        row_in = measured[np.lexsort((end_ns[measured], start_ns[measured], self.lane[measured]))]
        before, after = row_in[:-1], row_in[1:]
        overlaps = (self.lane[before] == self.lane[after]) & (end_ns[before] > start_ns[after])
        if overlaps.any():
            first, second = int(before[np.argmax(overlaps)]), int(after[np.argmax(overlaps)])
            raise TraceError(
                f"spans {first} and {second} were measured on one stream, {self.lanes[self.lane[first]]!r}, and overlap",
                hint="a stream runs its work in order; times that are estimates have another basis",
            )

    @classmethod
    def of(
        cls, *rows: tuple[str, str, str, int, int] | tuple[str, str, str, int, int, int], gpus: Mapping[str, int] | None = None
    ) -> SpanTable:
        """Return a table of a few spans, for examples and tests; `SpanBuilder` takes all columns.

        Parameters
        ----------
        *rows : tuple
            Kind, name, lane, start and end in ns; and the correlation of a launch with its work on the device. Lanes are drawn in the
            order in which they come.
        gpus : mapping of str to int, optional
            GPUs of streams by the names of their lanes, where there are several; all other lanes are of the host.

        Examples
        --------
        >>> from streamscope.trace import SpanTable
        >>> spans = SpanTable.of(("launch", "a", "host", 0, 3, 0), ("kernel", "a", "main", 5, 25, 0))
        >>> spans.lanes, spans.gpus, spans.duration_ns.tolist()
        (('host', 'main'), (-1, 0), [3, 20])
        """
        lanes = list(dict.fromkeys(row[2] for row in rows))
        builder = SpanBuilder(lanes, gpus=[gpus.get(lane, -1) for lane in lanes] if gpus else ())
        for kind, name, lane, start_ns, end_ns, *correlation in rows:
            builder.add(SpanKind[kind.upper()], name, lane, start_ns, end_ns, correlation=correlation[0] if correlation else -1)
        return builder.build()

    def __len__(self) -> int:
        return len(self.start_ns)

    @property
    def duration_ns(self) -> IntArray:
        """End minus start of each span, int64, in nanoseconds."""
        return self.end_ns - self.start_ns

    @property
    def gpu(self) -> IntArray:
        """GPU of each span's lane, int64: -1 for spans on lanes of the host."""
        return np.array(self.gpus, np.int64)[self.lane]

    @property
    def stream_lanes(self) -> IntArray:
        """For each lane the first one of its stream, int16: that of ``"stream 7"`` for ``"stream 7 · 2"``, where work overlapped it."""
        first: dict[str, int] = {}
        codes = [first.setdefault(_FURTHER.sub("", lane), code) for code, lane in enumerate(self.lanes)]
        return np.array(codes, COLUMN_DTYPES["lane"])

    def select(self, mask: npt.NDArray[Any]) -> SpanTable:
        """Return the rows that a boolean mask or an index array picks, in the order of its indices; names and lanes are kept."""
        chosen = object.__new__(SpanTable)  # Rows of a table were checked with it.
        chosen.__dict__.update({column: getattr(self, column)[mask] for column in COLUMN_DTYPES}, **self._texts())
        return chosen

    def _texts(self) -> dict[str, Any]:
        """Return the fields that are of the whole table, and not columns."""
        return {"names": self.names, "lanes": self.lanes, "gpus": self.gpus}

    def of_kind(self, kinds: Iterable[SpanKind]) -> SpanTable:
        """Return the spans whose kind is one of ``kinds``."""
        return self.select(self.is_kind(kinds))

    def is_kind(self, kinds: Iterable[SpanKind]) -> npt.NDArray[np.bool_]:
        """Tell of each span whether its kind is one of ``kinds``."""
        return is_one(self.kind, kinds)

    def to_pandas(self) -> pd.DataFrame:
        """Return the table as a DataFrame, with names, lanes, kinds and bases as categories.

        Its last column, ``gpu``, has the GPU of each span's lane: -1 for lanes of the host.
        """
        import pandas as pd

        frame = pd.DataFrame({column: getattr(self, column) for column in COLUMN_DTYPES})
        kinds, bases = ([member.name.lower() for member in members] for members in (SpanKind, Basis))
        names = list(self.names)
        texts = {"kind": kinds, "basis": bases, "name": names, "symbol": names, "lane": list(self.lanes)}
        for column, labels in texts.items():
            frame[column] = pd.Categorical.from_codes(getattr(self, column), pd.Index(labels))
        frame["gpu"] = self.gpu
        return frame


_COLUMNS = columns_of(SpanTable)
COLUMN_DTYPES: dict[str, npt.DTypeLike] = {name: held["dtype"] for name, held in _COLUMNS.items()}


def _check_lane_count(count: int) -> None:
    most = int(np.iinfo(COLUMN_DTYPES["lane"]).max) + 1
    if count > most:
        raise TraceError(
            f"a trace with {count:,} lanes is too wide: it may have {most:,}", hint="give each stream and each thread one lane"
        )


@dataclass
class SpanBuilder:
    """Collects spans one by one and makes the sorted table of them.

    Parameters
    ----------
    lanes : sequence of str
        Lane names in drawing order; `add` accepts these only.
    gpus : sequence of int, optional
        GPU of each lane, as `SpanTable` has them.
    """

    lanes: Sequence[str]
    gpus: Sequence[int] = ()
    _rows: list[tuple[int, ...]] = field(default_factory=list)
    _names: dict[str, int] = field(default_factory=dict)

    def add(
        self,
        kind: SpanKind,
        name: str,
        lane: str,
        start_ns: float,
        end_ns: float,
        *,
        operation: int = -1,
        part: int = 0,
        correlation: int = -1,
        basis: Basis = Basis.MEASURED,
        blocks: int = 0,
        threads: int = 0,
        nbytes: int = 0,
        flops: int = 0,
        symbol: str = "",
        graph_node: int = -1,
    ) -> None:
        """Add one span; times in nanoseconds since the trace's zero, rounded to whole ones."""
        code = self._names.setdefault(name, len(self._names))
        own_name = self._names.setdefault(symbol, len(self._names)) if symbol else -1
        self._rows.append(
            (
                int(kind), code, list(self.lanes).index(lane), round(start_ns), round(end_ns), operation, part,
                correlation, int(basis), blocks, threads, nbytes, flops, own_name, graph_node,
            )
        )  # fmt: skip

    def build(self) -> SpanTable:
        """Return the spans added so far as a table sorted by start."""
        _check_lane_count(len(self.lanes))
        columns = list(zip(*self._rows, strict=True)) if self._rows else [()] * len(COLUMN_DTYPES)
        arrays = {name: np.array(column, dtype=COLUMN_DTYPES[name]) for name, column in zip(COLUMN_DTYPES, columns, strict=True)}
        order = np.argsort(arrays["start_ns"], kind="stable")
        columns_in_order: dict[str, Any] = {name: values[order] for name, values in arrays.items()}
        return SpanTable(**columns_in_order, names=tuple(self._names), lanes=tuple(self.lanes), gpus=tuple(self.gpus))
