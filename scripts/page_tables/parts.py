"""What tables are made of: data, rows and words."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import streamscope as ss

ROOT = Path(__file__).resolve().parents[2]


def data(name: str) -> Any:
    """Return a result that was committed."""
    return json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text(encoding="utf-8"))


def recording(name: str) -> ss.Comparison:
    """Return a workload's recording."""
    return ss.load_comparison(ROOT / "notebooks" / "recorded" / name)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown: the first column to the left, the others to the right."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def measured_on(result: Any) -> str:
    """Return where and when a result was measured."""
    return f"\n{result['device']}, CUDA {result['details']['driver'] / 1000:.1f}, {result['date'][:10]}.\n"


def least(values: Iterable[float]) -> str:
    """Return the least of some numbers, rounded so that it stays a bound."""
    return f"{math.floor(100 * min(values)) / 100:.2f}"


def most(values: Iterable[float]) -> str:
    """Return the greatest of some numbers, rounded so that it stays a bound."""
    return f"{math.ceil(100 * max(values)) / 100:.2f}"


def words_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of words in Markdown."""
    return "".join(f"| {' | '.join(line)} |\n" for line in (head, ["---"] * len(head), *rows))


def share(kept: Iterable[bool]) -> str:
    """Return how many of some are true: ``3 of 4``."""
    listed = list(kept)
    return f"{sum(map(bool, listed))} of {len(listed)}"


def days(days: Iterable[str]) -> str:
    """Return when something was measured."""
    return f"\nMeasured on {', '.join(sorted(set(days)))}.\n"


def faster(slow: Mapping[str, Any], fast: Mapping[str, Any]) -> float:
    """Return by which share the second is faster: 0.17 is 17 %."""
    return float(slow["median_us"] / fast["median_us"] - 1)


def median_and_most(numbers: Sequence[float]) -> str:
    """Return two times in µs as words."""
    return f"{numbers[0]:.1f} µs, {numbers[1]:.1f} µs"


def worst(errors: Sequence[float]) -> str:
    """Return the median of errors, and the largest, in per cent."""
    return f"{100 * statistics.median(errors):.1f} %, {100 * max(errors):.1f} %"


def batches(found: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the cases of a headline that are batches."""
    return [(batch, one) for batch, one in found.items() if batch.isdigit()]
