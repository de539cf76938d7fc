"""Numbers, times and lists in words, as tables, pictures and sentences write them: each once, so that all say the same."""

from __future__ import annotations

import math
from collections.abc import Sequence

_MIB = 1 << 20


def counted(number: int, one: str, many: str | None = None) -> str:
    """Return ``"1 wait"`` or ``"3,000 waits"``; ``many`` is the plural where an "s" does not make it."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def listed(parts: Sequence[str]) -> str:
    """Return ``"a"``, ``"a and b"`` or ``"a, b and c"``."""
    return f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else "".join(parts)


def capitalised(sentence: str) -> str:
    """Return a sentence with a capital first letter; the rest stays."""
    return sentence[:1].upper() + sentence[1:]


def shortened(text: str, most: int) -> str:
    """Return at most so many characters of a text; an ellipsis stands for the rest."""
    return text if len(text) <= most else text[: max(1, most - 1)].rstrip() + "…"


def aligned(rows: Sequence[Sequence[str]], *, numbers: bool = False) -> list[str]:
    """Return the rows of a table as lines of text.

    Parameters
    ----------
    rows : sequence of sequence of str
        The headings first.
    numbers : bool
        All columns but the first one hold numbers: they stand on the right, and a rule under the headings.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    if numbers:
        rows = [rows[0], ["-" * width for width in widths], *rows[1:]]
    sides = [str.ljust, *[str.rjust if numbers else str.ljust] * (len(widths) - 1)]
    return ["  ".join(side(cell, width) for side, cell, width in zip(sides, row, widths, strict=True)).rstrip() for row in rows]


def percent(fraction: float) -> str:
    """Return a share in per cent: ``"69 %"``, and ``"0.4 %"`` below one."""
    value = fraction * 100
    return f"{value:.1f} %" if 0 < value < 1 else f"{value:.0f} %"


def format_us(value_us: float) -> str:
    """Write a time in µs with three significant digits, and whole from 100 on, with thousands separated."""
    return _three_digits(value_us)


def format_mib(value_bytes: float) -> str:
    """Write a size in MiB (1,048,576 bytes) as `format_us` writes a time; below half a thousandth: ``"<0.001"``."""
    return "<0.001" if 0 < value_bytes < 0.0005 * _MIB else _three_digits(value_bytes / _MIB)


def binary_size(size: int) -> str:
    """Return a number of bytes in words, in KiB or MiB."""
    return f"{size / 2**20:,.1f} MiB" if size >= 2**20 else f"{size / 2**10:,.1f} KiB"


def format_ms(time_ns: float) -> str:
    """Write a time in ms: ``"81.40"``, with one decimal from 10 ms on."""
    return f"{time_ns / 1e6:,.2f}" if time_ns < 1e7 else f"{time_ns / 1e6:,.1f}"


def time_text(time_ns: float) -> str:
    """Return a time with its unit and three significant digits: ``"268 µs"``, ``"2.11 ms"``."""
    scale, unit = next(((scale, unit) for scale, unit in ((1e9, "s"), (1e6, "ms")) if time_ns >= scale * 0.9995), (1e3, "µs"))
    value = time_ns / scale
    decimals = 0 if value == 0 else max(0, min(3, 2 - math.floor(math.log10(value * 1.0005))))
    return f"{value:,.{decimals}f} {unit}"


def _three_digits(value: float) -> str:
    if abs(value) >= 100 or value == 0:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}" if abs(value) >= 1 else f"{value:.3f}"
