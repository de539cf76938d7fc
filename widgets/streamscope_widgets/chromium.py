"""PDF and PNG, made by Chromium of a page or of an SVG document."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

from streamscope.errors import OutputError
from streamscope_widgets.show.html import fill

BROWSERS = (
    "chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "microsoft-edge", "chrome",
)  # fmt: skip
PATIENCE_S = 120
"""A page is printed in two seconds; a machine that does a lot else may take longer."""
SHARPNESS = 2
"""Pixels of a PNG, and of a canvas in a PDF, for each pixel of the picture."""
PAGE_SIZE = "1400,1000"

PICTURE = '<!doctype html><meta charset="utf-8"><style>body{{margin:0}}img{{display:block}}</style><img src="picture.svg">'


def pdf_by(write: Callable[[Path], Path]) -> bytes:
    """Return as PDF the page that a function writes to the path that it is given."""
    with tempfile.TemporaryDirectory(prefix="streamscope-") as folder:
        return pdf_of(write(Path(folder, "report.html")))


def pdf_of(page: Path) -> bytes:
    """Return an HTML file as PDF, as a browser prints it."""
    # Time goes by at once until the page has drawn its timeline.
    options = (f"--window-size={PAGE_SIZE}", "--no-pdf-header-footer", "--virtual-time-budget=10000")
    return _made(page, "page.pdf", "--print-to-pdf", *options)


def png_of(svg: str) -> bytes:
    """Return an SVG document of ours as PNG, twice as large."""
    root = ET.fromstring(svg)  # noqa: S314 — our own
    width, height = int(root.attrib["width"]), int(root.attrib["height"])
    with tempfile.TemporaryDirectory(prefix="streamscope-") as folder:
        page = Path(folder, "page.html")
        page.with_name("picture.svg").write_text(svg, encoding="utf-8")
        page.write_text(fill(PICTURE), encoding="utf-8")
        return _made(page, "picture.png", "--screenshot", f"--window-size={width},{height}", "--hide-scrollbars")


def _made(page: Path, name: str, command: str, *options: str) -> bytes:
    """Let Chromium make a file of a page, in a profile of its own, and return its bytes."""
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
