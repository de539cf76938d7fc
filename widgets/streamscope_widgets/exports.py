"""The files that the explorer writes of a comparison."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from streamscope_widgets.comparison_view import CHARTS

if TYPE_CHECKING:
    from streamscope.comparing.comparison import Comparison


def _charts(suffix: str) -> Callable[[Comparison, str], list[Path]]:
    return lambda comparison, name: [comparison.picture(f"{name}-{of}{suffix}", of=of) for of in CHARTS]


def _file(suffix: str) -> Callable[[Comparison, str], list[Path]]:
    return lambda comparison, name: [comparison.save(f"{name}{suffix}")]


EXPORTS: dict[str, Callable[[Comparison, str], list[Path]]] = {
    "report, HTML": _file(".html"),
    "report, PDF": _file(".pdf"),
    "report, Markdown": _file(".md"),
    "timelines, SVG": _file(".svg"),
    "timelines, PNG": _file(".png"),
    "charts, SVG": _charts(".svg"),
    "charts, PNG": _charts(".png"),
    "spans, CSV": _file(".csv"),
    "spans, Parquet": _file(".parquet"),
    "folder to open again": lambda comparison, name: [comparison.save_folder(name)],
}
"""Each kind of file, with the function that writes it under a name without a suffix."""
