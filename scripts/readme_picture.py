"""Make the README's picture: the report of a recorded comparison in headless Chromium, verdict and timelines only.

python scripts/readme_picture.py [RECORDING]
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import streamscope as ss
from streamscope.files import written_whole

REPOSITORY = Path(__file__).resolve().parents[1]
RECORDING = "conv-backward"
WIDTH, MARGIN = 980, 12
"""In CSS pixels; narrow enough that the words are still read where a page shows the picture at 800."""
# What is about tables and single metrics is left to the report.
CROPPED = "details, table, .notes, footer { display: none !important } section:has(> table) { display: none }"


def main() -> None:
    """Write ``docs/timelines.png``."""
    from playwright.sync_api import sync_playwright

    name = sys.argv[1] if len(sys.argv) > 1 else RECORDING
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    target = REPOSITORY / "docs" / "timelines.png"
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        report = ss.load_comparison(REPOSITORY / "notebooks" / "recorded" / name).report(Path(folder) / "report.html")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-background-networking"])
        context = browser.new_context(
            viewport={"width": WIDTH, "height": 900}, color_scheme="light", reduced_motion="reduce", device_scale_factor=2, bypass_csp=True
        )
        page = context.new_page()
        page.goto(report.as_uri())
        page.add_style_tag(content=CROPPED)
        page.wait_for_function("document.querySelector('#timeline').timeline?.layout")
        page.wait_for_timeout(500)
        end = page.evaluate("document.querySelector('#timeline').getBoundingClientRect().bottom + window.scrollY")
        top = page.evaluate("document.querySelector('h1').getBoundingClientRect().top + window.scrollY")
        height = end - top + 2 * MARGIN
        with written_whole(target) as path:
            path.write_bytes(page.screenshot(clip={"x": 0, "y": top - MARGIN, "width": WIDTH, "height": height}, full_page=True))
        browser.close()
    print(f"wrote {target}, {target.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
