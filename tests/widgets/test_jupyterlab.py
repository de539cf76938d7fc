"""The widget in a real JupyterLab, from running the cell to the saved file."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("bundle")]

CELLS = (
    """from streamscope.trace.trace import Trace
from streamscope_widgets.timeline import timeline
names = ('sync', 'async', 'dual', 'graph', 'graph-dual')
shown = timeline({name: Trace.from_parquet(f'{name}.parquet') for name in names})
shown""",
    "shown  # a second view of the same model",
)
TIMELINES = "[...document.querySelectorAll('.jp-OutputArea-output *')].map((e) => e.timeline).filter(Boolean)"


@pytest.fixture(scope="module")
def folder(five_engines, lab) -> Path:
    """JupyterLab's folder, with a notebook and the traces that it reads."""
    for engine, trace in five_engines(200).items():
        trace.to_parquet(lab.folder / f"{engine}.parquet")
    lab.write_notebook("step.ipynb", CELLS)
    return lab.folder


# What the keys do in a notebook whose cell is selected: delete the cell, restart the kernel, insert one above, one below, cut it.
KEYS = ("dd", "00", "a", "b", "x")
# Commands are noted instead of run, so that one key does not undo what another did.
NOTE_COMMANDS = "() => { window.noted = []; jupyterapp.commands.execute = (id) => Promise.resolve(window.noted.push(id)); }"
FOCUS = """(part) => {
  document.querySelector(`.jp-OutputArea-output ${part}`).focus({ preventScroll: true });
  window.noted.length = 0;
  return document.activeElement.matches(part);
}"""
PARTS = {
    "the canvas": "canvas[tabindex='0']",
    "a legend chip": ".ss-chip",
    "the button −": ".ss-tools button[aria-label^='Zoom out']",
    "the button +": ".ss-tools button[aria-label^='Zoom in']",
    "the filter": ".ss-filter",
}
NOT_YET = {("the canvas", "b"), ("the canvas", "x"), *product(("a legend chip", "the button −", "the button +"), KEYS)}
"""Which keys reach the notebook although the timeline has the focus."""


@pytest.fixture(scope="module")
def notebook(browser, lab, folder):
    """The notebook, open, with both cells run and both timelines drawn."""
    context = browser.new_context(viewport={"width": 1400, "height": 1500}, reduced_motion="reduce")
    page = context.new_page()
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.goto(lab.address_of("step.ipynb"))
    page.wait_for_selector(".jp-NotebookPanel .jp-Cell", timeout=60_000)
    page.evaluate(lab.RUN_ALL, "step.ipynb")
    page.wait_for_function(f"{TIMELINES}.filter((timeline) => timeline.layout).length === 2", timeout=60_000)
    page.complaints = complaints
    yield page
    context.close()


def point_at(page, operation: int) -> tuple[float, float]:
    """Return where the first timeline draws the async engine's kernel of an operation."""
    return page.evaluate(
        f"""(operation) => {{
          const [timeline] = {TIMELINES};
          const {{ operation: ids, kind }} = timeline.model.groups[1];
          const span = ids.findIndex((id, i) => id === operation && kind[i] === 6);
          timeline.setView({{ t0: 100000, t1: 130000 }});
          timeline.stage.overlay.scrollIntoView({{ block: "center" }});
          const box = timeline.stage.overlay.getBoundingClientRect();
          const place = timeline.locate(1, span);
          return [box.x + place.x + place.width / 2, box.y + place.y + place.height / 2];
        }}""",
        operation,
    )


def test_the_timeline_in_jupyterlab(notebook, folder):
    page = notebook
    x, y = point_at(page, 35)
    page.mouse.move(x, y)
    assert page.locator(".ss-tip:popover-open .ss-tip-title").inner_text() == "matmul"
    assert "113.050 µs" in page.locator(".ss-tip:popover-open").inner_text()

    page.mouse.click(x, y)
    assert page.locator(".ss-panel:visible tbody tr").count() == 5

    page.locator(".ss-filter").first.click()
    page.keyboard.type("add00")
    assert page.locator(".ss-filter").first.input_value() == "add00"

    assert not page.evaluate(f"{TIMELINES}[0].theme.dark")
    page.evaluate("jupyterapp.commands.execute('apputils:change-theme', { theme: 'JupyterLab Dark' })")
    page.wait_for_function(f"{TIMELINES}.every((timeline) => timeline.theme.dark)")
    ground = page.evaluate("getComputedStyle(document.querySelector('.ss-timeline')).backgroundColor")
    assert ground == page.evaluate("getComputedStyle(document.querySelector('.jp-Notebook')).backgroundColor")

    # Drawn again, not only recoloured by CSS: the first pixel of each canvas is the notebook's ground.
    drawn = page.evaluate(f"{TIMELINES}.map((timeline) => [...timeline.stage.baseContext.getImageData(0, 0, 1, 1).data])")
    assert [f"rgb({r}, {g}, {b})" for r, g, b, _ in drawn] == [ground, ground]

    page.evaluate("jupyterapp.commands.execute('docmanager:save')")
    page.wait_for_function("!document.querySelector('.jp-mod-dirty')")
    saved = (folder / "step.ipynb").read_text(encoding="utf-8")
    assert "application/vnd.jupyter.widget-view+json" in saved
    assert len(saved) < 150_000
    assert page.complaints == []


@pytest.fixture(scope="module")
def noting(notebook):
    """The notebook, in which commands are noted and not run; after the test above, which runs some."""
    notebook.evaluate("jupyterapp.commands.execute('notebook:enter-command-mode')")
    notebook.evaluate(NOTE_COMMANDS)
    return notebook


def each_key_on_each_part():
    mends = pytest.mark.xfail(strict=True, reason="issue 16: only the canvas keeps keys to itself, and only those that it knows")
    for part, keys in product(PARTS, KEYS):
        yield pytest.param(part, keys, marks=mends if (part, keys) in NOT_YET else ())


@pytest.mark.parametrize(("part", "keys"), list(each_key_on_each_part()))
def test_a_key_on_a_part_of_the_timeline_is_no_command_of_the_notebook(noting, part, keys):
    assert noting.evaluate(FOCUS, PARTS[part])
    for key in keys:
        noting.keyboard.press(key)
    assert noting.evaluate("window.noted") == []


def test_the_keys_that_are_pressed_are_commands_where_a_cell_has_the_focus(noting):
    noting.evaluate("() => { document.querySelector('.jp-Notebook .jp-Cell').focus(); window.noted.length = 0; }")
    for key in "".join(KEYS):
        noting.keyboard.press(key)
    assert len(noting.evaluate("window.noted")) == len(KEYS)
