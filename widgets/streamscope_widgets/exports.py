"""A comparison as files for others: the report as HTML, PDF or Markdown, and pictures as SVG or PNG. The name's ending says which."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from streamscope.analysis.table import metrics_markdown
from streamscope.errors import OutputError
from streamscope.files import suffix_of, written_whole
from streamscope_widgets import charts
from streamscope_widgets.comparison_view import comparison_report
from streamscope_widgets.show.browser import pdf_of, png_of
from streamscope_widgets.show.chart import RowChart
from streamscope_widgets.show.still_chart import row_document
from streamscope_widgets.still_timeline import timeline_svg

if TYPE_CHECKING:
    from streamscope.comparing.comparison import Comparison

CHARTS: dict[str, Callable[[Comparison], RowChart]] = {
    "makespans": lambda comparison: charts.makespans(comparison.metrics),
    "speedups": lambda comparison: charts.speedups(comparison.metrics),
    "overlaps": lambda comparison: charts.overlaps(comparison.metrics),
    "launches": lambda comparison: charts.launch_overheads(comparison.groups()),
}


def write_report(comparison: Comparison, path: Path) -> Path:
    """Write the report as HTML, PDF or Markdown, and return the path."""
    kind = suffix_of(path, ".html", ".pdf", ".md", other=".html")
    if kind == ".html":
        return comparison_report(comparison, path)
    with written_whole(path) as unfinished:
        unfinished.write_bytes(_pdf(comparison) if kind == ".pdf" else _markdown(comparison).encode())
    return path


def write_picture(comparison: Comparison, path: Path, of: str) -> Path:
    """Write the timelines or a chart as SVG or PNG, and return the path.

    Raises
    ------
    OutputError
        The name ends otherwise, there is no such picture, the file cannot be written, or for a PNG there is no Chromium.
    TraceError
        There is nothing to draw.
    """
    kind = suffix_of(path, ".svg", ".png")
    if of not in ("timeline", *CHARTS):
        raise OutputError(f"there is no picture of {of!r:.40}", hint=f"there are timeline, {', '.join(CHARTS)}")
    svg = timeline_svg(comparison.groups()) if of == "timeline" else row_document(CHARTS[of](comparison))
    with written_whole(path) as unfinished:
        unfinished.write_bytes(svg.encode() if kind == ".svg" else _png(svg))
    return path


def _markdown(comparison: Comparison) -> str:
    found = comparison.assessment
    return metrics_markdown(comparison.program, comparison.device, comparison.metrics, found)


def _pdf(comparison: Comparison) -> bytes:
    with tempfile.TemporaryDirectory(prefix="streamscope-") as folder:
        return pdf_of(comparison_report(comparison, Path(folder, "report.html")))


def _png(svg: str) -> bytes:
    root = ET.fromstring(svg)  # noqa: S314 — our own
    return png_of(svg, int(root.attrib["width"]), int(root.attrib["height"]))
