"""Comparisons and traces as files for others: reports as HTML, PDF or Markdown, pictures as SVG or PNG. The name's ending says which."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from streamscope.analysis.summary import summary
from streamscope.analysis.table import metrics_markdown
from streamscope.errors import OutputError
from streamscope.files import suffix_of, written_whole
from streamscope_widgets import charts
from streamscope_widgets.comparison_view import comparison_report
from streamscope_widgets.payload import as_groups
from streamscope_widgets.prediction_view import predicted_words, prediction_groups
from streamscope_widgets.show.chart import RowChart
from streamscope_widgets.show.html import fill
from streamscope_widgets.show.still_chart import row_document
from streamscope_widgets.still_timeline import timeline_svg
from streamscope_widgets.trace_view import finding_of, trace_report

if TYPE_CHECKING:
    from streamscope.comparing.comparison import Comparison
    from streamscope.predicting.prediction import Prediction
    from streamscope.trace import Trace

CHARTS: dict[str, Callable[[Comparison], RowChart]] = {
    "makespans": lambda comparison: charts.makespans(comparison.metrics),
    "speedups": lambda comparison: charts.speedups(comparison.metrics),
    "overlaps": lambda comparison: charts.overlaps(comparison.metrics),
    "launches": lambda comparison: charts.launch_overheads(comparison.groups()),
}


def _charts(ending: str) -> Callable[[Comparison, str], list[Path]]:
    return lambda comparison, name: [comparison.picture(f"{name}-{of}{ending}", of=of) for of in CHARTS]


EXPORTS: dict[str, Callable[[Comparison, str], list[Path]]] = {
    "report, HTML": lambda comparison, name: [comparison.report(f"{name}.html")],
    "report, PDF": lambda comparison, name: [comparison.report(f"{name}.pdf")],
    "report, Markdown": lambda comparison, name: [comparison.report(f"{name}.md")],
    "timelines, SVG": lambda comparison, name: [comparison.picture(f"{name}.svg")],
    "timelines, PNG": lambda comparison, name: [comparison.picture(f"{name}.png")],
    "charts, SVG": _charts(".svg"),
    "charts, PNG": _charts(".png"),
    "spans, CSV": lambda comparison, name: [comparison.spans(f"{name}.csv")],
    "spans, Parquet": lambda comparison, name: [comparison.spans(f"{name}.parquet")],
    "folder to open again": lambda comparison, name: [comparison.save(name)],
}
"""What the explorer can write of a comparison, each under a name without an ending."""

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "microsoft-edge", "chrome")
PATIENCE_S = 120
"""A page is printed in two seconds; a machine that does a lot else may take longer."""
SHARPNESS = 2
"""Pixels of a PNG, and of a canvas in a PDF, for each pixel of the picture."""
PAGE_SIZE = "1400,1000"

PICTURE = '<!doctype html><meta charset="utf-8"><style>body{{margin:0}}img{{display:block}}</style><img src="picture.svg">'


def write_report(comparison: Comparison, path: Path) -> Path:
    """Write the report of a comparison, and return the path."""
    return _write(path, lambda page: comparison_report(comparison, page), lambda: _markdown(comparison))


def write_trace(trace: Trace, path: Path) -> Path:
    """Write the report of a trace, and return the path."""
    groups = as_groups([trace])
    return _write(path, lambda page: trace_report(trace, groups, finding_of(trace), page), lambda: summary(trace).to_markdown())


def write_prediction(prediction: Prediction, path: Path) -> Path:
    """Write the report of a prediction, beside the trace that it was made from, and return the path."""
    groups, finding = prediction_groups(prediction), predicted_words(prediction)
    return _write(path, lambda page: trace_report(prediction, groups, finding, page), lambda: summary(prediction).to_markdown())


def kind_of_report(path: Path) -> str:
    """Return the ending that says the format of a report; one without an ending is HTML."""
    return suffix_of(path, ".html", ".pdf", ".md", other=".html")


def _write(path: Path, page: Callable[[Path], Path], markdown: Callable[[], str]) -> Path:
    """Write a report as HTML, PDF or Markdown."""
    kind = kind_of_report(path)
    if kind == ".html":
        return page(path)
    with written_whole(path) as unfinished:
        unfinished.write_bytes(_pdf(page) if kind == ".pdf" else markdown().encode())
    return path


def write_picture(comparison: Comparison, path: Path, of: str) -> Path:
    """Write the timelines or a chart as SVG or PNG, and return the path."""
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


def _pdf(page: Callable[[Path], Path]) -> bytes:
    with tempfile.TemporaryDirectory(prefix="streamscope-") as folder:
        return pdf_of(page(Path(folder, "report.html")))


def _png(svg: str) -> bytes:
    root = ET.fromstring(svg)  # noqa: S314 — our own
    return png_of(svg, int(root.attrib["width"]), int(root.attrib["height"]))


def pdf_of(page: Path) -> bytes:
    """Return an HTML file as PDF, as a browser prints it."""
    # Time goes by at once until the page has drawn its timeline.
    options = (f"--window-size={PAGE_SIZE}", "--no-pdf-header-footer", "--virtual-time-budget=10000")
    return _made(page, "page.pdf", "--print-to-pdf", *options)


def png_of(svg: str, width: int, height: int) -> bytes:
    """Return an SVG document of a size in px as PNG, twice as large."""
    with tempfile.TemporaryDirectory(prefix="streamscope-") as folder:
        page = Path(folder, "page.html")
        page.with_name("picture.svg").write_text(svg, encoding="utf-8")
        page.write_text(fill(PICTURE), encoding="utf-8")
        return _made(page, "picture.png", "--screenshot", f"--window-size={width},{height}", "--hide-scrollbars")


def _made(page: Path, name: str, command: str, *options: str) -> bytes:
    """Let Chromium make a file of a page, in a profile of its own, and return what is in it."""
    chromium = _chromium(Path(name).suffix[1:].upper())
    with tempfile.TemporaryDirectory(prefix="streamscope-", ignore_cleanup_errors=True) as folder:
        made = Path(folder, name)
        # Its sandbox does not run as root; the page is ours, and its policy lets nothing in.
        root = ["--no-sandbox"] if os.geteuid() == 0 else []
        run = [
            chromium, "--headless", "--disable-gpu", "--no-first-run", *root, f"--user-data-dir={folder}/profile", *options,
            f"--force-device-scale-factor={SHARPNESS}", f"{command}={made}", page.absolute().as_uri(),
        ]  # fmt: skip
        said = ["it does not start"]
        try:
            done = subprocess.run(run, capture_output=True, timeout=PATIENCE_S, check=False)  # noqa: S603 — found on PATH, with our page
            said = ["it wrote no file", *done.stderr.decode(errors="replace").strip().splitlines()]
            return made.read_bytes()
        except subprocess.TimeoutExpired as error:
            raise OutputError(f"{chromium} did not finish within {PATIENCE_S} s", hint="try again, or print the HTML report") from error
        except OSError as error:
            raise OutputError(f"{chromium} made no {made.suffix[1:].upper()}: {said[-1]}", hint="print the HTML report by hand") from error


def _chromium(wanted: str) -> str:
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        raise OutputError(
            f"a {wanted} is made by Chromium or Chrome, and neither is on PATH",
            hint="install one (`apt install chromium`), or write .html or .svg, which need none",
        )
    return found
