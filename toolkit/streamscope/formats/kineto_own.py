"""Reads Kineto files that Streamscope wrote: each event says which span it was, so the table comes back as it was.

`kineto_format` has the names, `kineto_writer` writes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter, index
from typing import Any

import numpy as np
import numpy.typing as npt

from streamscope.formats.kineto_events import AnyEvent, OwnArguments
from streamscope.formats.kineto_format import CATEGORIES
from streamscope.formats.kineto_values import products, times_ns, whole_numbers
from streamscope.trace.info import TraceInfo
from streamscope.trace.origins import Origins
from streamscope.trace.spans import MOST_FOREIGN_SPANS, Basis, SpanKind, SpanTable
from streamscope.trace.trace import Trace

_KINDS = {kind.name.lower(): int(kind) for kind in SpanKind}
_ON_DEVICE = {category: int(kind) for kind, category in CATEGORIES.items() if kind in (SpanKind.KERNEL, SpanKind.COPY, SpanKind.SET)}
_BASES = {None: 0} | {basis.name.lower(): int(basis) for basis in Basis}


class OwnSpans:
    """Collects the spans of a file, piece by piece, in its order."""

    def __init__(self) -> None:
        self._parts: list[dict[str, npt.NDArray[Any]]] = []
        self._names: dict[str, int] = {}
        self._count = 0
        self._tracks: dict[tuple[Any, Any], int] = {}

    def add(self, events: Iterable[AnyEvent]) -> None:
        """Add the spans among some events."""
        spans = [event for event in events if event.ph == "X"]
        self._count += len(spans)
        if self._count > MOST_FOREIGN_SPANS:
            raise ValueError(f"it has more than the {MOST_FOREIGN_SPANS:,} spans that a trace may have")
        said: list[Any] = [event.args or OwnArguments() for event in spans]

        def values(name: str) -> list[Any]:
            return list(map(attrgetter(name), said))

        replay = zip(values("streamscope_replay"), values("correlation"), strict=True)
        start_ns = times_ns([event.ts for event in spans])
        shown = [event.name if name is None else name for event, name in zip(spans, values("streamscope_name"), strict=True)]
        self._parts.append({
            "kind": np.array([_kind(event, each.streamscope_kind) for event, each in zip(spans, said, strict=True)], np.int64),
            "name": np.array([self._code(name) for name in shown], np.int64),
            "lane": np.array([self._tracks.setdefault((event.pid, event.tid), len(self._tracks)) for event in spans], np.int64),
            "start_ns": start_ns,
            "end_ns": start_ns + times_ns([event.dur for event in spans]),
            "operation": whole_numbers(values("streamscope_operation"), -1),
            "part": whole_numbers(values("streamscope_part"), 0),
            "correlation": whole_numbers([one if other is None else other for other, one in replay], -1),
            "basis": np.array([_BASES[basis] for basis in values("streamscope_basis")], np.int64),
            "blocks": products(values("grid")),
            "threads": products(values("block")),
            "bytes": whole_numbers(values("bytes"), 0),
            "flops": whole_numbers(values("streamscope_flops"), 0),
            "symbol": np.array([self._symbol(event, each) for event, each in zip(spans, said, strict=True)], np.int64),
            "graph_node": whole_numbers(values("graph_node_id"), -1),
        })  # fmt: skip

    def trace(self, stored: Any, notes: Sequence[str] = (), *, lost: int = 0) -> Trace:
        """Return the trace.

        ``stored``: what the file holds beside the events.
        ``notes``: what the reader of the file has to say.
        ``lost``: how many events were left out; with any, nothing is said of rows, whose numbers have changed.
        """
        if not isinstance(stored, Mapping):
            raise TypeError(f"{stored!r:.20} is not a mapping of names to values")
        lane_of_track = {(pid, tid): name for name, pid, tid in stored["lanes"]}
        lanes = {name: code for code, name in enumerate(dict.fromkeys(lane_of_track.values()))}
        lane = np.array([lanes[lane_of_track[track]] for track in self._tracks], np.int64)
        columns = {name: np.concatenate([part[name] for part in self._parts]) for name in self._parts[0]}
        columns["lane"] = lane[columns["lane"]]
        for column in ("start_ns", "end_ns"):
            columns[column] = columns[column] - index(stored.get("before_zero_ns", 0))
        table = SpanTable(**columns, names=tuple(self._names), lanes=tuple(lanes))
        info, origins = TraceInfo.from_dict(stored["info"]), Origins.from_dict(stored.get("origins"))
        if lost:
            origins = replace(origins, row_waits=Origins().row_waits, complete=False)
            info = replace(info, ledger={**info.ledger, "lost_records": float(lost)})
        return Trace(table, replace(info, notes=(*info.notes, *notes)), origins)

    def _code(self, text: Any) -> int:
        if not isinstance(text, str):
            raise TypeError(f"{text!r:.20} is not a name")
        return self._names.setdefault(text, len(self._names))

    def _symbol(self, event: AnyEvent, said: Any) -> int:
        if event.cat == CATEGORIES[SpanKind.KERNEL]:
            return -1 if said.streamscope_name is None else self._code(event.name)
        return -1 if said.streamscope_symbol is None else self._code(said.streamscope_symbol)


def _kind(event: AnyEvent, said: Any) -> int:
    return _ON_DEVICE[event.cat] if said is None else _KINDS[said]
