"""The widget in a real JupyterLab, from running the cell to the saved file."""

from __future__ import annotations

import json
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


# Commands are noted instead of run, so that one key does not undo what another did.
NOTE_COMMANDS = "() => { window.noted = []; jupyterapp.commands.execute = (id) => Promise.resolve(window.noted.push(id)); }"
# All elements of the first timeline that take the focus when they are given it, with the operation's panel open.
FOCUSABLE = f"""() => {{
  const [timeline] = {TIMELINES};
  timeline.select(1, timeline.model.groups[1].operation.indexOf(35));
  window.parts = [...timeline.root.querySelectorAll("*")].filter((part) => {{
    part.focus({{ preventScroll: true }});
    return document.activeElement === part;
  }});
  return window.parts.map((part) => `${{part.tagName}}.${{part.className}} ${{part.getAttribute("aria-label") ?? ""}}`);
}}"""
FOCUS = """(part) => {
  part.focus({ preventScroll: true });
  window.noted.length = 0;
  return document.activeElement === part;
}"""
# What a key's event says: its key, and the code of its place on an American keyboard, which JupyterLab reads.
PRESS_ALL = """async ([part, keys]) => {
  window.noted.length = 0;
  for (const [key, keyCode] of keys) {
    part.focus({ preventScroll: true });
    for (const shiftKey of [false, false, true, true]) {
      part.dispatchEvent(new KeyboardEvent("keydown", { key, keyCode, shiftKey, bubbles: true, cancelable: true, composed: true }));
    }
  }
  await new Promise((done) => setTimeout(done, 200));  // JupyterLab runs commands a little later
  return [...window.noted];
}"""
KEY_CODES = [
    *((chr(code).lower(), code) for code in (*range(48, 58), *range(65, 91))), *((f"F{n}", 111 + n) for n in range(1, 13)), ("Enter", 13),
    ("Escape", 27), (" ", 32), ("PageUp", 33), ("PageDown", 34), ("End", 35), ("Home", 36), ("ArrowLeft", 37), ("ArrowUp", 38),
    ("ArrowRight", 39), ("ArrowDown", 40), ("Delete", 46), ("Backspace", 8), ("-", 189), ("=", 187), ("/", 191), (".", 190), (",", 188),
    ("[", 219), ("]", 221), (";", 186), ("'", 222), ("\\", 220), ("`", 192),
]  # fmt: skip
# Delete the cell, restart the kernel, insert one above, one below, cut it: pressed for real.
REAL_KEYS = ("dd", "00", "a", "b", "x")


@pytest.fixture(scope="module")
def notebook(context, lab, folder):
    """The notebook, open, with both cells run and both timelines drawn."""
    page = context.new_page()
    page.set_viewport_size({"width": 1400, "height": 1500})
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.goto(lab.address_of("step.ipynb"))
    page.wait_for_selector(".jp-NotebookPanel .jp-Cell", timeout=60_000)
    page.evaluate(lab.RUN_ALL, "step.ipynb")
    page.wait_for_function(f"{TIMELINES}.filter((timeline) => timeline.layout).length === 2", timeout=60_000)
    page.complaints = complaints
    yield page
    page.close()


def point_at(page, operation: int) -> tuple[float, float]:
    """Return where the first timeline draws the async engine's kernel of an operation."""
    return page.evaluate(
        f"""(operation) => {{
          const [timeline] = {TIMELINES};
          const {{ operation: ids, kind }} = timeline.model.groups[1];
          const span = ids.findIndex((id, i) => id === operation && kind[i] === 8);
          timeline.setView({{ t0: 100000, t1: 130000 }});
          timeline.root.querySelector('.ss-overlay').scrollIntoView({{ block: "center" }});
          const box = timeline.root.querySelector('.ss-overlay').getBoundingClientRect();
          const place = timeline.locate(1, span);
          return [box.x + place.x + place.width / 2, box.y + place.y + place.height / 2];
        }}""",
        operation,
    )


# How much of a list's width its terms and their meanings fill, in its first row; JupyterLab's own style floats them.
SHARES_OF_LISTS = """(card) => [...document.querySelectorAll(`${card}:is(:popover-open, dialog) dl`)].map((list) => {
  const [term, meaning, all] = [list.children[0], list.children[1], list].map((part) => part.getBoundingClientRect());
  const gap = parseFloat(getComputedStyle(list).columnGap);
  return Math.round((100 * (term.width + gap + meaning.width)) / all.width) / 100;
})"""


def test_the_timeline_in_jupyterlab(notebook, folder):
    page = notebook
    x, y = point_at(page, 35)
    page.mouse.move(x, y)
    assert page.locator(".ss-tip:popover-open .ss-tip-title").inner_text() == "matmul"
    assert "113.050 µs" in page.locator(".ss-tip:popover-open").inner_text()

    assert page.evaluate(SHARES_OF_LISTS, ".ss-tip") == [1]

    page.mouse.click(x, y)
    assert page.locator(".ss-panel:visible").first.locator("tbody tr").count() == 5

    page.keyboard.press("?")
    assert page.evaluate(SHARES_OF_LISTS, ".ss-help") == [1]
    heights = page.evaluate("[...document.querySelectorAll('.ss-help dt')].map((term) => term.getClientRects()[0].height)")
    assert max(heights) < 40  # two lines at most
    page.keyboard.press("Escape")

    page.locator(".ss-filter").first.click()
    page.keyboard.type("add00")
    assert page.locator(".ss-filter").first.input_value() == "add00"

    assert not page.evaluate(f"{TIMELINES}[0].root.matches('.ss-dark')")
    page.evaluate("jupyterapp.commands.execute('apputils:change-theme', { theme: 'JupyterLab Dark' })")
    page.wait_for_function(f"{TIMELINES}.every((timeline) => timeline.root.matches('.ss-dark'))")
    ground = page.evaluate("getComputedStyle(document.querySelector('.ss-timeline')).backgroundColor")
    assert ground == page.evaluate("getComputedStyle(document.querySelector('.jp-Notebook')).backgroundColor")

    # Drawn again, not only recoloured by CSS: the first pixel of each canvas is the notebook's ground.
    drawn = page.evaluate(
        f"{TIMELINES}.map((timeline) => [...timeline.root.querySelector('.ss-base').getContext('2d').getImageData(0, 0, 1, 1).data])"
    )
    assert [f"rgb({r}, {g}, {b})" for r, g, b, _ in drawn] == [ground, ground]

    page.evaluate("jupyterapp.commands.execute('docmanager:save')")
    page.wait_for_function("!document.querySelector('.jp-mod-dirty')")
    saved = (folder / "step.ipynb").read_text(encoding="utf-8")
    assert "application/vnd.jupyter.widget-view+json" in saved
    data = [output.get("data", {}) for cell in json.loads(saved)["cells"] for output in cell["outputs"]]
    stills = [len(json.dumps(bundle["text/html"])) for bundle in data if "text/html" in bundle]
    assert max(stills) < 200_000
    assert len(saved) - sum(stills) < 20_000  # no spans, no front end
    assert page.complaints == []


def in_kernel(page, code: str) -> str:
    """Run code in the notebook's kernel and return what it prints."""
    return page.evaluate(
        """async (code) => {
          const panel = [...jupyterapp.shell.widgets("main")].find((widget) => widget.context?.path === "step.ipynb");
          const future = panel.sessionContext.session.kernel.requestExecute({ code, store_history: false });
          let text = "";
          future.onIOPub = ({ content }) => { text += content.text ?? (content.ename ? content.traceback.join("\\n") : ""); };
          await future.done;
          return text.trim();
        }""",
        code,
    )


def until_the_kernel_says(page, code: str, said: str) -> None:
    """Wait for what a view tells the kernel: it comes a little later, and would undo what a test sets meanwhile."""
    for _ in range(100):
        if in_kernel(page, code) == said:
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"{code} never gave {said}")


def test_the_axis_and_the_details_stay_in_sight_of_the_notebook(notebook):
    page = notebook
    page.set_viewport_size({"width": 1400, "height": 600})
    page.evaluate(f"(timelines => timelines[0].select(1, 3))({TIMELINES})")
    until_the_kernel_says(page, "print(shown.selection is None)", "False")
    page.evaluate(f"{TIMELINES}[0].root.querySelector('.ss-base').scrollIntoView()")
    page.locator(".jp-WindowedPanel-outer").evaluate("(outer) => outer.scrollBy(0, 150)")
    # JupyterLab lays itself out anew after it was resized.
    page.wait_for_function(
        """() => {
            const [outer, axis, panel] = [".jp-WindowedPanel-outer", ".ss-pinned", ".ss-panel"].map(
                (part) => document.querySelector(part).getBoundingClientRect());
            return outer.height && Math.abs(axis.top - outer.top) <= 1 && panel.bottom <= outer.bottom + 1;
        }"""
    )
    page.evaluate(f"{TIMELINES}[0].clear()")
    until_the_kernel_says(page, "print(shown.selection is None)", "True")
    page.set_viewport_size({"width": 1400, "height": 1500})


def test_traits_are_linked_both_ways(notebook):
    page = notebook
    both = f"{TIMELINES}.every((timeline) => (({{ view, state }}) => %s)(timeline))"
    in_kernel(page, "seen = []; shown.observe(lambda change: seen.append(change['name']), ['range', 'selection', 'engines'])")

    # From the kernel to both views.
    in_kernel(
        page, "shown.range = (100_000, 130_000); shown.engines = ['graph', 'async']; shown.selection = dict(engine='graph', operation=35)"
    )
    page.wait_for_function(both % "view.t0 === 100000 && view.t1 === 130000")
    page.wait_for_function(
        both % "String(state.engines) === 'graph,async' && state.selection?.engine === 'graph' && state.selection.operation === 35"
    )
    assert page.locator(".ss-panel:visible").count() == 2

    # From one view to the kernel, and through it to the other view; once for each change, although two views are told.
    in_kernel(page, "seen.clear()")
    first = f"{TIMELINES}[0]"
    page.evaluate(
        f"{first}.state = {{ engines: ['graph', 'async', 'sync'], selection: {{ engine: 'graph', operation: 36 }}, range: [1000, 9000] }}"
    )
    page.wait_for_function(both % "String(state.engines) === 'graph,async,sync' && state.selection.operation === 36 && view.t1 === 9000")
    said = in_kernel(page, "print(shown.range, shown.engines, shown.selection['operation'], shown.selection['name'], sorted(seen))")
    assert said == "(1000.0, 9000.0) ['graph', 'async', 'sync'] 36 bias add ['engines', 'range', 'selection']"

    # A view that is drawn later starts where the others are.
    in_kernel(page, "shown.range = None")
    page.evaluate(f"{first}.clear()")
    page.wait_for_function(both % "!state.selection")
    assert in_kernel(page, "print(shown.range, shown.selection)") == "None None"
    in_kernel(page, "shown.engines = ['sync', 'async', 'dual', 'graph', 'graph-dual']; shown.range = (5_000, 95_000)")
    page.evaluate("jupyterapp.shell.currentWidget.content.activeCellIndex = 1; jupyterapp.commands.execute('notebook:run-cell')")
    page.wait_for_function(f"{TIMELINES}.length === 2 && {TIMELINES}.every(({{ layout, view }}) => layout && view.t1 === 95000)")
    assert "no engine 'none'" in in_kernel(page, "shown.engines = ['none']")
    assert page.complaints == []


@pytest.fixture(scope="module")
def noting(notebook):
    """The notebook, in which commands are noted and not run; after the test above, which runs some."""
    notebook.evaluate("jupyterapp.commands.execute('notebook:enter-command-mode')")
    notebook.evaluate(NOTE_COMMANDS)
    return notebook


@pytest.fixture
def parts(noting) -> list[str]:
    """The parts of the first timeline that can have the focus; the page keeps them in ``window.parts``."""
    return noting.evaluate(FOCUSABLE)


def test_the_parts_that_can_have_the_focus_are_found(noting, parts):
    for tag, count in {"CANVAS": 1, "INPUT": 1, "BUTTON": 8}.items():
        assert sum(part.startswith(tag) for part in parts) >= count, parts
    # Where shortcuts are looked for before the event reaches the part, as in other versions of JupyterLab, this keeps them away.
    assert noting.evaluate("window.parts.every((part) => part.hasAttribute('data-lm-suppress-shortcuts'))")


def test_no_key_on_any_kind_of_part_is_a_command_of_the_notebook(noting, parts):
    kinds = noting.evaluate("window.parts.map((part) => part.tagName + part.className)")
    for index, part in [(kinds.index(kind), parts[kinds.index(kind)]) for kind in dict.fromkeys(kinds)]:
        handle = noting.evaluate_handle("(index) => window.parts[index]", index)
        assert (part, noting.evaluate(PRESS_ALL, [handle, KEY_CODES])) == (part, [])


def test_combined_keys_on_any_part_are_commands_of_the_page(noting, parts):
    for index, part in enumerate(parts):
        handle = noting.evaluate_handle("(index) => window.parts[index]", index)
        assert noting.evaluate(FOCUS, handle), part
        for key in ("Control+s", "Control+b", "Control+Shift+c"):
            noting.keyboard.press(key)
        found = ["docmanager:save", "application:toggle-left-area", "apputils:activate-command-palette"]
        assert (part, noting.evaluate("window.noted")) == (part, found)


def test_keys_pressed_for_real_leave_the_notebook_as_it_is(noting, parts):
    for index, part in enumerate(parts):
        handle = noting.evaluate_handle("(index) => window.parts[index]", index)
        assert noting.evaluate(FOCUS, handle), part
        for key in "".join(REAL_KEYS):
            noting.keyboard.press(key)
        assert (part, noting.evaluate("window.noted")) == (part, [])


def test_the_keys_that_are_pressed_are_commands_where_a_cell_has_the_focus(noting):
    noting.evaluate("() => { document.querySelector('.jp-Notebook .jp-Cell').focus(); window.noted.length = 0; }")
    for key in "".join(REAL_KEYS):
        noting.keyboard.press(key)
    assert len(noting.evaluate("window.noted")) == len(REAL_KEYS)
    cell = noting.evaluate_handle("document.querySelector('.jp-Notebook .jp-Cell')")
    commands = noting.evaluate(PRESS_ALL, [cell, KEY_CODES])
    assert {"notebook:insert-cell-below", "notebook:change-cell-to-markdown", "notebook:enter-edit-mode"} <= set(commands)
    assert {"notebook:delete-cell", "kernelmenu:restart"} <= set(commands)  # They take a key twice.


def test_the_second_bundle_comes_from_the_kernel_when_python_asks_for_time_by_code(notebook):
    """The last test here: it shows other runs."""
    page = notebook
    runs = "ss.compare(ss.workload('branches').build()[0], *ss.workload('branches').build()[1], device='simulated', progress=False)"
    in_kernel(page, f"import streamscope as ss; from streamscope_widgets.payload import as_groups; shown.show(as_groups({runs}.groups()))")
    in_kernel(page, "shown.range = None; shown.shows = ['overlap', 'by code']")
    page.locator(".ss-frame").first.wait_for()
    assert {"GPU", "add"} <= set(page.locator(".ss-frame").all_inner_texts())
    page.locator(".ss-overlay").first.press("n")
    page.locator(".ss-panel .ss-place").first.click()
    page.wait_for_function("document.querySelector('.ss-nudge.ss-shown')?.textContent.includes('is not below the folder')")
    assert page.complaints == []
