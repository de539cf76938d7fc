"""Numbers, times and lists in words, as tables, pictures and sentences write them: each once, so that all say the same."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Sequence

_MIB = 1 << 20


def counted(number: int, one: str, many: str | None = None) -> str:
    """Return ``"1 wait"`` or ``"3,000 waits"``; ``many`` is the plural where neither "s", "es" nor "ies" makes it."""
    return f"{number:,} {one if number == 1 else many or _plural(one)}"


def _plural(one: str) -> str:
    if one.endswith(("s", "x", "z", "ch", "sh")):
        return f"{one}es"
    return f"{one[:-1]}ies" if re.search("[^aeiou]y$", one) else f"{one}s"


def lane_prefix(gpu: int | None, *, several: bool = True) -> str:
    """Return the beginning of the name of a GPU's lane; nothing where there are not several GPUs, or its number is unknown."""
    return f"GPU {gpu} " if several and gpu is not None else ""


def a_kind(value: object) -> str:
    """Name the kind of a value: ``"an int"``, ``"an ndarray"``, ``"a list"``."""
    name = type(value).__name__
    return f"{'an' if name.lower().startswith(('a', 'e', 'i', 'o', 'nd')) else 'a'} {name}"


def listed(parts: Sequence[str]) -> str:
    """Return ``"a"``, ``"a and b"`` or ``"a, b and c"``."""
    return f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else "".join(parts)


def capitalised(sentence: str) -> str:
    """Return a sentence with a capital first letter; the rest stays."""
    return sentence[:1].upper() + sentence[1:]


def shortened(text: str, most: int) -> str:
    """Return at most so many characters of a text; an ellipsis stands for the rest."""
    return text if len(text) <= most else text[: max(1, most - 1)].rstrip() + "…"


def shortened_inside(text: str, most: int) -> str:
    """Return at most so many characters of a text, its end among them: names of kernels often differ there."""
    end = most // 4
    return text if len(text) <= most else f"{text[: most - end - 1]}…{text[-end:]}"


def wrapped(text: str, width: int, *, first: str = "", then: str = "") -> list[str]:
    """Return a text in lines of at most so many characters, which begin with ``first`` and ``then``.

    A number stays with its unit, as in ``"1 %"``, and words stay whole: those with hyphens, as ``graph-dual``, and those that are too long.
    """
    kept = re.sub(r"(?<=\d) (?=%|[nµm]?s\b|[KMG]iB\b)", "\xa0", text)
    lines = textwrap.wrap(kept, width, initial_indent=first, subsequent_indent=then, break_on_hyphens=False, break_long_words=False)
    return [line.replace("\xa0", " ") for line in lines]


def aligned(rows: Sequence[Sequence[str]], *, numbers: bool = False) -> list[str]:
    """Return the rows of a table as lines of text.

    ``rows``: the headings first.
    ``numbers``: all columns but the first one hold numbers: they stand on the right, and a rule under the headings.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    if numbers:
        rows = [rows[0], ["-" * width for width in widths], *rows[1:]]
    sides = [str.ljust, *[str.rjust if numbers else str.ljust] * (len(widths) - 1)]
    return ["  ".join(side(cell, width) for side, cell, width in zip(sides, row, widths, strict=True)).rstrip() for row in rows]


def percent(fraction: float, error: float | None = None) -> str:
    """Return a share in per cent: ``"69 %"``, ``"0.4 %"`` below one, ``"<0.1 %"``; ``"69 ± 6 %"`` where it may be off by ``error``."""
    value, off = fraction * 100, (error or 0.0) * 100
    if 0 < value < 0.05 and not off:
        return "<0.1 %"
    digits = 1 if 0 < value < 1 or 0 < off < 0.95 else 0
    return f"{value:.{digits}f} ± {off:.{digits}f} %" if off else f"{value:.{digits}f} %"


def format_us(value_us: float) -> str:
    """Write a time in µs with three significant digits, and whole from 100 on, with thousands separated."""
    if abs(value_us) >= 100 or value_us == 0:
        return f"{value_us:,.0f}"
    return f"{value_us:.1f}" if abs(value_us) >= 10 else f"{value_us:.2f}" if abs(value_us) >= 1 else f"{value_us:.3f}"


def format_mib(value_bytes: float) -> str:
    """Write a size in MiB (1,048,576 bytes) as `format_us` writes a time; below half a thousandth: ``"<0.001"``."""
    return "<0.001" if 0 < value_bytes < 0.0005 * _MIB else format_us(value_bytes / _MIB)


def binary_size(size: int) -> str:
    """Return a number of bytes in words, in B, KiB, MiB or GiB."""
    if size >= 2**30:
        return f"{size / 2**30:,.2f} GiB"
    if 0 < size < 2**10:
        return f"{size} B"
    return f"{size / 2**20:,.1f} MiB" if size >= 2**20 else f"{size / 2**10:,.1f} KiB"


def format_ms(time_ns: float) -> str:
    """Write a time in ms: ``"81.40"``, with one decimal from 10 ms on."""
    return f"{time_ns / 1e6:,.2f}" if time_ns < 1e7 else f"{time_ns / 1e6:,.1f}"


def time_unit(time_ns: float) -> tuple[float, str]:
    """Return the unit of a time, and of an axis up to it, as (ns, name): µs below 1 ms, ms below 1 s, then s.

    Every time that is written with a unit follows this rule. Columns of tables are in the unit of their heading.
    """
    return next(((scale, unit) for scale, unit in ((1e9, "s"), (1e6, "ms")) if abs(time_ns) >= scale), (1e3, "µs"))


def time_text(time_ns: float, digits: int = 3) -> str:
    """Return a time with the unit that suits it, for sentences: ``"268 µs"``, ``"2.11 ms"``.

    ``digits``: significant digits. An estimate has fewer: ``"0.3 µs"``.
    """
    rounded = abs(time_ns) / (1 - 0.5 * 10**-digits)  # 999.5 µs is 1.00 ms, and 9.995 µs 10.0 µs.
    scale, unit = time_unit(rounded)
    some = 0 < rounded < math.inf
    decimals = max(0, min(3, digits - 1 - math.floor(math.log10(rounded / scale)))) if some else 0
    return f"{time_ns / scale:,.{decimals}f} {unit}"


def times_text(first_ns: float, between: str, second_ns: float) -> str:
    """Return two times, with their unit once where both have the same: ``"339 → 123 µs"``, ``"999 µs to 1.01 ms"``."""
    first, second = time_text(first_ns), time_text(second_ns)
    unit = second.rpartition(" ")[2]
    return f"{first.removesuffix(f' {unit}')}{between}{second}"


def signed_time_text(time_ns: float) -> str:
    """Return a difference of times with its sign: ``"+12.0 µs"``, ``"−1.20 ms"``."""
    text = time_text(abs(time_ns))
    return text if not text.strip("0. µms") else f"{'+' if time_ns > 0 else '−'}{text}"


def exact_time_text(time_ns: float) -> str:
    """Return a time to the ns, as the tooltips of a timeline write it: ``"113.050 µs"``, ``"1.234567 ms"``."""
    whole = math.floor(time_ns + 0.5)
    scale, unit = time_unit(whole)
    return f"{whole / scale:,.{round(math.log10(scale))}f} {unit}"
