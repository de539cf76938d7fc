"""What a notebook or a report shows where its live timeline cannot live: reopened, not trusted, converted."""

from __future__ import annotations

import json

import pytest

from streamscope_widgets.payload import as_groups
from streamscope_widgets.report import report
from streamscope_widgets.still_timeline import timeline_still

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("bundle")]

NAME = "reopened.ipynb"
CELL = """import streamscope as ss
function, inputs = ss.workload("branches").build()
ss.compare(function, *inputs, engines="async,graph", device="simulated", progress=False).timeline()"""
DRAWN = "[...document.querySelectorAll('.jp-OutputArea-output *')].some((part) => part.timeline?.layout)"
VISIBLE = """() => {
  const seen = (part) => part.checkVisibility() && part.getBoundingClientRect().height > 0;
  return {
    text: [...document.querySelectorAll(".jp-OutputArea-child")].filter(seen).map((part) => part.innerText).join("\\n").trim(),
    pictures: [...document.querySelectorAll(".jp-OutputArea-output img")].filter(seen).map((part) => part.naturalWidth),
    timelines: [...document.querySelectorAll(".ss-timeline canvas")].filter(seen).length,
  };
}"""
SESSION = f"[...jupyterapp.shell.widgets('main')].find((panel) => panel.context?.path === '{NAME}').sessionContext"
FINDING = "Simulated times (simulated NVIDIA H200), not measured."


@pytest.fixture(scope="module")
def page(lab_page, lab):
    """A page with the notebook, run and saved."""
    lab.write_notebook(NAME, [CELL])
    page = lab_page
    page.set_viewport_size({"width": 1400, "height": 1200})
    page.evaluate(lab.OPEN, NAME)
    page.wait_for_selector(".jp-NotebookPanel .jp-Cell", timeout=60_000)
    page.evaluate(lab.RUN_ALL, NAME)
    page.wait_for_function(DRAWN, timeout=60_000)
    page.evaluate("jupyterapp.commands.execute('docmanager:save')")
    page.wait_for_function("!document.querySelector('.jp-mod-dirty')")
    return page


def shows_the_timeline_alone(page):
    page.wait_for_function(f"{DRAWN} && document.querySelectorAll('.ss-timeline canvas').length")
    seen = page.evaluate(VISIBLE)
    assert (seen["pictures"], seen["timelines"] > 0) == ([], True)
    assert "This is a picture" not in seen["text"]
    assert seen["text"].startswith(FINDING)  # The answer stays above the timeline.


def shows_the_picture_alone(page):
    page.wait_for_selector(".jp-OutputArea-output img")
    seen = page.evaluate(VISIBLE)
    assert (seen["pictures"], seen["timelines"]) == ([980], 0)
    assert seen["text"].startswith(FINDING)
    assert seen["text"].endswith("This is a picture. Run the cell for timelines to zoom and search.")


def test_a_live_timeline_takes_the_place_of_its_picture(page):
    shows_the_timeline_alone(page)


def test_a_page_that_is_loaded_again_finds_the_timeline_of_its_kernel(page):
    page.reload()
    page.wait_for_selector(".jp-NotebookPanel .jp-Cell", timeout=60_000)
    shows_the_timeline_alone(page)


def test_a_reopened_notebook_shows_the_picture_and_no_error(page, lab):
    page.evaluate(f"{SESSION}.shutdown()")
    page.evaluate(lab.OPEN, NAME)
    page.wait_for_function("document.querySelector('.jp-OutputArea')?.textContent.includes('model not found')", timeout=60_000)
    shows_the_picture_alone(page)


def test_a_notebook_that_is_not_trusted_shows_the_picture(page, lab):
    # A hash of the cells says which notebooks are trusted, so one that somebody has changed is not.
    content = json.loads((lab.folder / NAME).read_text(encoding="utf-8"))
    content["cells"][0]["source"] = f"# from a colleague\n{CELL}"
    (lab.folder / "colleague.ipynb").write_text(json.dumps(content), encoding="utf-8")
    page.evaluate(lab.OPEN, "colleague.ipynb")
    page.wait_for_selector(".jp-OutputArea-output img", timeout=60_000)
    assert page.locator(".jp-mod-trusted").count() == 0
    shows_the_picture_alone(page)


def test_a_converted_notebook_shows_the_picture(browser, lab, page, tmp_path):
    exporters = pytest.importorskip("nbconvert.exporters")
    body, _ = exporters.HTMLExporter().from_filename(str(lab.folder / NAME))
    (tmp_path / "converted.html").write_text(body, encoding="utf-8")
    context = browser.new_context(offline=True)
    converted = context.new_page()
    converted.goto((tmp_path / "converted.html").as_uri(), wait_until="domcontentloaded")
    shows_the_picture_alone(converted)
    context.close()


# The orders in which VS Code prefers types, by themselves and for screen readers; types that are not listed come first
# (microsoft/vscode, `MimeTypeDisplayOrder.sort` in src/vs/workbench/contrib/notebook/common/notebookCommon.ts).
# Types that nothing renders, as a widget's or Plotly's without an extension, come last (seen in code-server 4.139).
LISTED = "application/json application/javascript text/html image/svg+xml text/latex text/markdown image/png image/jpeg text/plain"
LISTED_FOR_READERS = "text/latex text/markdown application/json text/html image/svg+xml image/png image/jpeg text/plain"
VS_CODE_ORDERS = (LISTED.split(), LISTED_FOR_READERS.split())


def test_vs_code_is_given_text_that_shows_nothing_beside_the_picture(page, lab):
    """VS Code falls back to another type of the same output where a widget has no model."""
    picture, widget = json.loads((lab.folder / NAME).read_text(encoding="utf-8"))["cells"][0]["outputs"]
    for order in VS_CODE_ORDERS:
        first = [min(output["data"], key=lambda kind: order.index(kind) if kind in order else -1) for output in (picture, widget)]
        assert first == ["text/html", "application/vnd.jupyter.widget-view+json"]
        rendered = [kind for kind in widget["data"] if kind in order]
        assert min(rendered, key=order.index) == "text/html"
    assert "data:image/svg+xml;base64," in "".join(picture["data"]["text/html"])
    assert "application/vnd.jupyter.widget-view+json" in widget["data"]
    assert ("".join(widget["data"]["text/html"]), "".join(widget["data"]["text/plain"])) == ("", "")


# What VS Code's page is: its body names the theme, and says nothing of a colour scheme (seen in code-server 4.139).
VS_CODE_CELL = """<body data-vscode-theme-kind="{kind}"><div class="cell_container">
<div class="output_container"><div class="output"><div><div>{picture}</div></div></div></div>
<div class="output_container"><div class="output"><div><div>{widget}</div></div></div></div></div></body>"""


@pytest.mark.parametrize("preferred", ["light", "dark"])
def test_in_vs_code_a_picture_follows_its_theme_whatever_the_system_prefers(browser, five_engines, preferred):
    picture = timeline_still(as_groups(five_engines(5)), "")
    context = browser.new_context(color_scheme=preferred, viewport={"width": 1100, "height": 700})
    shown = context.new_page()
    seen = {}
    for kind in ("vscode-dark", "vscode-high-contrast", "vscode-light", "vscode-high-contrast-light", ""):
        shown.set_content(VS_CODE_CELL.format(kind=kind, picture=picture, widget="").replace(' data-vscode-theme-kind=""', ""))
        seen[kind] = shown.locator("img").screenshot()
    context.close()
    assert seen["vscode-dark"] == seen["vscode-high-contrast"] != seen["vscode-light"] == seen["vscode-high-contrast-light"]
    assert seen[""] == seen[f"vscode-{preferred}"]


def test_in_vs_code_a_drawn_timeline_hides_its_picture(context, five_engines):
    picture = timeline_still(as_groups(five_engines(5)), "")
    shown = context.new_page()
    for widget, pictures in (("", 1), ('<div class="ss-timeline"><canvas></canvas></div>', 0)):
        shown.set_content(VS_CODE_CELL.format(kind="vscode-light", picture=picture, widget=widget))
        assert shown.locator("img:visible").count() == pictures
    shown.close()


def test_a_report_in_jupyterlab_shows_its_picture_until_it_is_trusted(page, lab, five_engines):
    report(five_engines(20), lab.folder / "report.html", title="step")
    page.evaluate(lab.OPEN, "report.html")
    inside = page.frame_locator(".jp-HTMLViewer iframe")
    inside.locator("noscript svg").wait_for(timeout=60_000)
    assert "Trust HTML" in inside.locator(".missing").inner_text()
    page.get_by_text("Trust HTML").first.click()
    inside.locator("#timeline canvas").first.wait_for()
    assert inside.locator("noscript svg").count() == 0
