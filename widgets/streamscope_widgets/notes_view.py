"""Notes of a reader: their table, and their numbers in the still picture."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from streamscope.trace import Note, Trace
from streamscope.trace.counters import NOTE_HEADS
from streamscope.words import counted, shortened
from streamscope_widgets.show import palette
from streamscope_widgets.show.html import Column, Html, Row, fill, joined, page_table, small, table
from streamscope_widgets.show.svg import shape, small_text, text, words

HEADING = "Notes"
NOTE_ROW = 16
"""Height of the row of numbers, in pixels."""
MOST_DRAWN, LONGEST_TITLE = 100, 100
"""Notes in one picture of a trace, and letters of one under the pointer."""
MOST_ROWS, LONGEST_TEXT = 30, 300
"""Notes in a notebook, whose output stays small, and letters of one. A report has all of them."""
BADGE, LETTER = 13, 6


def notes_table(rows: Iterable[Sequence[str]], heads: Sequence[str] = NOTE_HEADS) -> Html:
    """Return rows of notes as a table for a notebook; of more than 30, and of long texts, the beginning."""
    rows = list(rows)
    shown = [Row([shortened(cell, LONGEST_TEXT) for cell in row]) for row in islice(rows, MOST_ROWS)]
    left_out = len(rows) - len(shown)
    more = small(f"+ {counted(left_out, 'more note')}, which a report has") if left_out else Html()
    return joined([table(_columns(heads), shown), more]) if rows else Html()


def notes_section(rows: Sequence[Sequence[str]], heads: Sequence[str] = NOTE_HEADS) -> Html:
    """Return all rows of notes, whose numbers the timeline has, for a report; nothing where there are none."""
    if not rows:
        return Html()
    shown = page_table(_columns(heads), map(Row, rows))
    return fill('<h2>{}</h2><div class="noted">{}</div>', HEADING, shown)


def _columns(heads: Sequence[str]) -> list[Column]:
    return [Column(head, kind="prose" if head == heads[-1] else "text") for head in heads]


def timed(notes: Sequence[Note]) -> bool:
    """Tell whether a picture has anything to draw of these notes."""
    return any(note.start_ns is not None for note in notes)


def room_of(trace: Trace) -> float:
    """Return how high the row of numbers is."""
    return NOTE_ROW if timed(trace.user_notes) else 0


def drawn_notes(trace: Trace, zero_ns: float, scale: float, gutter: float, rows: tuple[float, float], width: float) -> list[str]:
    """Draw a line for each moment and a shade for each stretch through all rows, and the number above; the tooltip has the text."""
    top, bottom = rows
    places = [(number, *place) for number, note in enumerate(trace.user_notes, 1) if (place := _place(note, zero_ns, scale, width))]
    if not places:
        return []
    label = f"notes, {MOST_DRAWN} of {len(places):,}" if len(places) > MOST_DRAWN else "notes"
    parts, edge = [small_text(gutter - 8, top + 10, label, "end")], f"{top + BADGE:g}V{bottom:g}"
    badges: list[tuple[float, int, int]] = []
    for number, left, right in places[:MOST_DRAWN]:
        note = trace.user_notes[number - 1]
        title = shape("title", words(shortened(f"{number}: {note.text}", LONGEST_TITLE)))
        if right > left:
            size = {"x": gutter + left, "y": top + BADGE, "width": right - left, "height": bottom - top - BADGE}
            parts.append(shape("rect", title, **size, fill=palette.FAINT_INK, fill_opacity="0.16", class_="note"))
        ends = "".join(f"M{gutter + x:.1f} {edge}" for x in dict.fromkeys((left, right)))
        parts.append(shape("path", title, d=ends, stroke=palette.INK, stroke_width=1, stroke_dasharray="3 2", class_="note"))
        if badges and left < badges[-1][0] + _width(*badges[-1][1:]):  # They are sorted by their starts.
            badges[-1] = (*badges[-1][:2], number)
        else:
            badges.append((left, number, number))
    for left, first, last in badges:
        parts += _badge(gutter + min(left, width - _width(first, last)), top, first, last)
    return parts


def _place(note: Note, zero_ns: float, scale: float, width: float) -> tuple[float, float] | None:
    """Return the edges of a note in pixels of the drawing area; None where it lies outside, or is on the whole trace."""
    if note.start_ns is None or note.end_ns is None:
        return None
    left, right = (note.start_ns - zero_ns) * scale, (note.end_ns - zero_ns) * scale
    return (max(left, 0.0), min(right, width)) if right >= 0 and left <= width else None


def _badge(left: float, top: float, first: int, last: int) -> list[str]:
    """Draw the number of a note or, of some that are too close, the first and the last one."""
    width = _width(first, last)
    box = shape("rect", x=left, y=top, width=width, height=BADGE, rx=3, fill=palette.INK)
    return [
        box,
        text(left + width / 2, top + 10, _label(first, last), font_size=10, fill=palette.CARD, text_anchor="middle", font_weight=600),
    ]


def _label(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}–{last}"


def _width(first: int, last: int) -> float:
    return max(BADGE, LETTER * len(_label(first, last)) + 6)
