"""SVG: shapes, text and axes, written in one place and escaped."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Sequence
from html import escape

from streamscope.errors import printable
from streamscope_widgets.show import palette

FONT = "system-ui,-apple-system,'Segoe UI',Roboto,sans-serif"


def shape(element: str, /, *content: str, **attributes: object) -> str:
    """Return an SVG element.

    ``element``: for example ``"rect"``.
    ``*content``: SVG that stands in the element.
    ``**attributes``: numbers are rounded to a tenth, texts escaped, and None is left out. ``font_size`` is the attribute ``font-size``,
        ``class_`` is ``class``.
    """
    written = "".join(f' {_name(name)}="{_value(value)}"' for name, value in attributes.items() if value is not None)
    return f"<{element}{written}>{''.join(content)}</{element}>" if content else f"<{element}{written}/>"


def words(text: str) -> str:
    """Return text as it may stand in an element."""
    return escape(printable(text))


def text(x: float, y: float, content: str, **attributes: object) -> str:
    """Return a line of text."""
    return shape("text", words(content), x=x, y=y, **attributes)


def document(width: float, height: float, *content: str, label: str | None = None, card: bool = True, **attributes: object) -> str:
    """Return an SVG document, by default on a card of its own, light in light surroundings and dark in dark ones.

    A browser asks the page that shows the picture which of the two it is. A viewer without style sheetss shows the light one.
    """
    back = [shape("rect", width="100%", height="100%", rx=6, fill=palette.CARD)] if card else []
    role = {} if label is None else {"role": "img", "aria_label": label}
    style = palette.dark_style("".join([*back, *content]))
    parts = [*([shape("style", style)] if style else []), *back, *content]
    size = {"viewBox": f"0 0 {width:.0f} {height:.0f}", "width": f"{width:.0f}", "height": f"{height:.0f}"}
    return shape("svg", *parts, xmlns="http://www.w3.org/2000/svg", **size, **role, **attributes)


def data_uri(svg: str) -> str:
    """Return a data URI of an SVG document, for the ``src`` of an image."""
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode("ascii")


def round_step(least: float) -> float:
    """Return the smallest of 1, 2, 5 times a power of ten that is at least ``least``, but for errors of rounding."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= least * (1 - 1e-9))


def ticks(low: float, high: float, about: float) -> list[float]:
    """Return at most ``about + 1`` round numbers from ``low`` to ``high``, evenly spaced by 1, 2 or 5 times a power of ten."""
    if not high > low:
        return [low]
    step = round_step((high - low) / about)
    return [index * step for index in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def tick_text(value: float) -> str:
    """Return a tick's label: ``"0.5"``, ``"3,600,000"``."""
    return f"{value:,.10g}"


def small_text(x: float, y: float, content: str, anchor: str = "start", fill: str = palette.FAINT_INK) -> str:
    """Return the small text of pictures with lanes: labels, ticks, legends."""
    return text(x, y, content, font_size=10.5, fill=fill, text_anchor=anchor)


def lane_legend(entries: Sequence[tuple[str, str]], left: float, top: float = 9) -> tuple[list[str], float]:
    """Return a line of labels with swatches of colour, at the top of a picture if nothing else is said, and where it ends."""
    parts, x = [], left
    for label, colour in entries:
        parts += [shape("rect", x=round(x), y=top, width=10, height=10, rx=2, fill=colour), small_text(x + 14, top + 9, label)]
        x += 14 + 6.5 * len(label) + 3.5 * sum(map(label.count, "mwMW")) + 16
    return parts, x


def lane_axis(places: Iterable[tuple[float, str]], top: float, bottom: float) -> list[str]:
    """Return rules with labels, under all lanes, at places in px."""
    parts = []
    for x, label in places:
        parts += [shape("path", stroke=palette.RULE, d=f"M{x:.1f} {top:.0f}V{bottom:.0f}"), small_text(x, bottom + 14, label, "middle")]
    return parts


def _name(name: str) -> str:
    return name.rstrip("_").replace("_", "-")


def _value(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.1f}".removesuffix(".0")
    return words(str(value))
