"""Recordings with pauses: the pieces between them become the records of one block, from whose clock the pauses are cut out.

A pause takes no time in the trace. So it is no idle time of a GPU, and no metric has to know of it; a note says where it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from operator import add

import numpy as np

from streamscope.arrays import BoolArray, IntArray
from streamscope.recording.activity_records import TEXT_COLUMNS, ActivityRecords, Rows
from streamscope.recording.counting import Heard, Moment, Said, note, said_since
from streamscope.trace.counters import Noted
from streamscope.words import counted, listed, time_text

_TABLES = ("calls", "work", "waits", "events", "markers", "attributes", "overheads", "memory")
_TIMES = frozenset({"start_ns", "end_ns", "time_ns"})
_NUMBERS = ("correlation", "event", "id")
"""CUPTI counts calls, records of events and ranges anew when it has left the process in between."""
_BITS = 40
"""CUPTI's numbers have fewer bits than that: the number of the piece stands above."""
_MOST_TOLD = 5


@dataclass(frozen=True)
class Piece:
    """What was recorded from the beginning, or the end of a pause, to the next pause or the end; on CUPTI's clock.

    Attributes
    ----------
    records : ActivityRecords
    start_ns, end_ns : int
        Calls outside are not the user's.
    waited_ns : int
        When the GPUs had finished.
    said : Heard, optional
        Counters and markers meanwhile, on the same clock.
    """

    records: ActivityRecords
    start_ns: int
    end_ns: int
    waited_ns: int
    said: Heard | None = None


def without_pauses(pieces: Sequence[Piece], last_ns: int | None = None) -> tuple[ActivityRecords, int, list[str]]:
    """Return the records of all pieces, the end of the block, and a note on the pauses.

    Times behind a pause are earlier by its length. The block begins where its first piece does, or ``last_ns`` before its end.
    """
    first, *others = pieces
    if not others:
        return first.records, first.end_ns, []
    cut_ns = _cuts_ns(pieces)
    parts = [
        _moved(_cut(piece, last=piece is pieces[-1]), cut, place) for place, (piece, cut) in enumerate(zip(pieces, cut_ns, strict=True))
    ]
    end_ns = pieces[-1].end_ns - cut_ns[-1]
    zero_ns = first.start_ns if last_ns is None else max(first.start_ns, end_ns - last_ns)
    at_ns = [piece.waited_ns - cut - zero_ns for piece, cut in zip(pieces[:-1], cut_ns, strict=False)]
    at = [time_text(each) for each in at_ns if each >= 0]
    told_ns = cut_ns[-1] - cut_ns[len(at_ns) - len(at)]  # without those ahead of the last so many ns
    more = f" and {len(at) - _MOST_TOLD} more" if len(at) > _MOST_TOLD else ""
    note = f"cut out: {counted(len(at), 'pause')}, {time_text(told_ns)} together, at {listed(at[:_MOST_TOLD])}{more}"
    return _joined(parts), end_ns, [note] if at else []


def without_pauses_ns(time_ns: IntArray, pieces: Sequence[Piece]) -> tuple[IntArray, BoolArray]:
    """Return times on the clock of the records, and which of them lie in a pause: those are when it began."""
    start_ns, waited_ns = (np.array([getattr(piece, name) for piece in pieces], np.int64) for name in ("start_ns", "waited_ns"))
    piece = np.maximum(np.searchsorted(start_ns, time_ns, side="right") - 1, 0)
    paused = (time_ns > waited_ns[piece]) & (piece < len(pieces) - 1)
    return np.minimum(time_ns, waited_ns[piece]) - np.array(_cuts_ns(pieces))[piece], paused


def said_without_pauses(pieces: Sequence[Piece], since_ns: int = 0) -> Noted:
    """Return counters and markers of all pieces, at the times that their records have; a sum goes on behind a pause.

    ``since_ns``: on the clock without pauses. Markers of before are left out, and each counter begins with its value at that time.
    """
    noted, values, moments = Noted(), list[Said](), list[Moment]()
    for piece, cut_ns in zip(pieces, _cuts_ns(pieces), strict=True):
        if piece.said is not None:
            # All of it was said in the piece: two clocks are tied within a fraction of a microsecond, which may lie outside.
            said = piece.said.at(partial(_inside, piece)).at(partial(add, -cut_ns))
            values += said.values
            moments += said.moments
    note(noted, said_since(values, since_ns), [each for each in moments if each[0] >= since_ns], "thread {}".format)
    return noted


def _inside(piece: Piece, at_ns: int) -> int:
    return min(max(at_ns, piece.start_ns), piece.end_ns)


def _cuts_ns(pieces: Sequence[Piece]) -> list[int]:
    """Return how much is cut out before each piece."""
    gaps = [after.start_ns - before.waited_ns for before, after in pairwise(pieces)]
    found: list[int] = np.cumsum([0, *gaps], dtype=np.int64).tolist()
    return found


def _cut(piece: Piece, *, last: bool) -> ActivityRecords:
    """Return the records without calls outside of the piece; before a pause, nothing lasts into it."""
    cut = {table: getattr(piece.records, table) for table in _TABLES}
    for table in ("calls", "overheads"):
        rows = cut[table]
        cut[table] = rows[(rows["start_ns"] >= piece.start_ns) & (rows["start_ns"] < piece.end_ns)]
    for table, rows in cut.items() if not last else ():
        cut[table] = _changed(rows, {name: np.minimum(rows[name], piece.waited_ns) for name in _TIMES & set(rows.dtype.names)})
    return replace(piece.records, **cut)


def _moved(records: ActivityRecords, cut_ns: int, place: int) -> ActivityRecords:
    """Return records at earlier times, with numbers and addresses that no other piece has."""
    tables = {}
    for table in _TABLES:
        rows = getattr(records, table)
        columns = {name: np.where(rows[name] == 0, 0, rows[name] - cut_ns) for name in _TIMES & set(rows.dtype.names)}  # 0: not known
        columns |= {name: rows[name] + (place << _BITS) for name in _NUMBERS if name in rows.dtype.names}
        tables[table] = _changed(rows, columns)
    key = {address: (place << _BITS) + number for number, address in enumerate(sorted(records.texts), start=1)}
    for table, column in TEXT_COLUMNS:
        tables[table][column] = [key.get(address, 0) for address in tables[table][column].tolist()]
    texts = {key[address]: text for address, text in records.texts.items()}
    payloads = {one + (place << _BITS): content for one, content in records.payloads.items()}
    return replace(records, **tables, texts=texts, payloads=payloads)


def _changed(rows: Rows, columns: dict[str, Rows]) -> Rows:
    changed = rows.copy()
    for name, values in columns.items():
        changed[name] = values
    return changed


def _joined(parts: Sequence[ActivityRecords]) -> ActivityRecords:
    return ActivityRecords(
        **{table: np.concatenate([getattr(part, table) for part in parts]) for table in _TABLES},
        texts={address: text for part in parts for address, text in part.texts.items()},
        payloads={one: content for part in parts for one, content in part.payloads.items()},
        dropped=sum(part.dropped for part in parts),
    )
