"""Every result as a notebook shows it, on one page, in light and in dark."""

from __future__ import annotations

import pytest
from tests.results.kinds import KINDS

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("bundle")]

OTHER_COLOURS = """[...document.querySelectorAll('section td, section th')].filter(
  (cell) => getComputedStyle(cell).color !== getComputedStyle(document.body).color
).map((cell) => cell.closest('section').id)"""
PICTURES = """Promise.all([...document.images].map((image) => image.decode().then(() => image.naturalWidth)))"""


@pytest.mark.parametrize(("ground", "ink"), [("rgb(255, 255, 255)", "rgb(0, 0, 0)"), ("rgb(17, 17, 17)", "rgb(230, 230, 230)")])
def test_every_result_is_whole_in_light_and_dark(browser, ground, ink):
    shown = "".join(f"<section id='{kind}'>{make()._repr_html_()}</section>" for kind, make in KINDS.items())
    page = browser.new_page(viewport={"width": 1400, "height": 1000})
    page.set_content(f"<title>whole</title><body style='background:{ground};color:{ink}'>{shown}")
    widths = page.evaluate(PICTURES)
    assert len(widths) > len(KINDS) / 2
    assert min(widths) > 100
    assert page.evaluate(OTHER_COLOURS) == []
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    page.evaluate("document.querySelectorAll('details').forEach((part) => (part.open = true))")
    assert page.evaluate("[...document.querySelectorAll('details table')].every((table) => table.offsetHeight > 0)")
    page.close()
