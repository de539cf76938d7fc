"""A newcomer's path, walked in a real JupyterLab: from its start to the timeline of an own program, and through what may go wrong there.

``python benchmarks/newcomer.py`` types every key into a new notebook, as somebody does who has read the README. It keeps for each step how
many keys it takes and how long the machine takes, and the minutes until the first timeline of somebody who types `KEYS_A_MINUTE`.
Each step fails the program if it is a dead end: if the picture, the sentence or the file that it should end with does not come.
"""

from __future__ import annotations

import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "toolkit"), str(ROOT / "widgets"), str(ROOT / "benchmarks")]

from in_jupyterlab import server  # noqa: E402
from provenance import keep, provenance  # noqa: E402
from timeline_drawing import ARGUMENTS  # noqa: E402

import streamscope as ss  # noqa: E402

KEYS_A_MINUTE = 150
"""Of somebody who types slowly: 30 words."""
DRAWN = "[...document.querySelectorAll('.jp-OutputArea *')].filter((part) => part.timeline?.layout).length"
SAID = "[...document.querySelectorAll('.jp-OutputArea-output')].at(-1)?.innerText ?? ''"

ATTENTION = """import numpy as np
import streamscope as ss

def attention(x, wq, wk, wv):
    q, k, v = x @ wq, x @ wk, x @ wv
    return ss.ops.softmax(q @ k.T) @ v

x, wq, wk, wv = np.random.default_rng(0).standard_normal((4, 64, 64)).astype("float32")
runs = ss.compare(attention, x, wq, wk, wv)
runs.timeline()"""
OPERATOR = """square = ss.elementwise("y = x * x")
squares = ss.compare(lambda x: square(x) @ x, x, progress=False)
squares.timeline()"""
LINE = "return ss.ops.softmax(q @ k.T) @ v"
WRONG = "ss.compare(attention, x, wq, wk, wv[:, :3].T)"
LONG = """def long(x):
    for _ in range(20000):
        x = x + 1
    return x

ss.compare(long, x)"""
REPORT = 'runs.report("attention.html")'
# What each cell is typed for: when it is reached, and what stands there then.
STEPS = (
    ("the first timeline of an own program", ATTENTION, f"{DRAWN} === 1"),
    ("an operator of one line", OPERATOR, f"{DRAWN} === 2"),
    (
        "a wrong shape is told in a sentence, with the line",
        WRONG,
        f"['{LINE}', 'differ'].every((words) => ({SAID}).includes(words))",
    ),
    ("an interrupt ends a long comparison", LONG, f"({SAID}).includes('KeyboardInterrupt')"),
    ("a report for a colleague", REPORT, f"({SAID}).includes('attention.html')"),
)


def type_cell(page: Any, source: str) -> None:
    """Type a cell, as a person would who corrects what the editor indents."""
    for number, line in enumerate(source.split("\n")):
        if number:
            page.keyboard.press("Enter")
            page.keyboard.press("Shift+Home")
            page.keyboard.press("Delete")
        page.keyboard.type(line)
    page.keyboard.press("Escape")  # a list of completions
    page.keyboard.press("Enter")


def walk(page: Any) -> Iterator[dict[str, Any]]:
    """Take each step in a new notebook, and yield what it took."""
    for what, source, reached in STEPS:
        start_s = time.perf_counter()
        type_cell(page, source)
        typed_s = time.perf_counter() - start_s
        page.keyboard.press("Shift+Enter")
        if "interrupt" in what:
            page.wait_for_timeout(3000)
            page.evaluate("jupyterapp.commands.execute('notebook:interrupt-kernel').then(() => null)")
        page.wait_for_function(reached, timeout=120_000)
        yield {"step": what, "keys": len(source), "machine_s": round(time.perf_counter() - start_s - typed_s, 1)}


@contextmanager
def notebook(browser: Any, folder: Path) -> Iterator[tuple[Any, float]]:
    """Start JupyterLab, and make a notebook with its launcher; give the page, and the seconds that both took."""
    start_s = time.perf_counter()
    with server(folder) as address:
        page = browser.new_page(viewport={"width": 1400, "height": 1000})
        page.goto(f"{address}/lab?reset")
        page.locator(".jp-LauncherCard[data-category='Notebook']").first.click()
        page.locator(".jp-NotebookPanel .jp-Notebook .cm-content").first.click(timeout=60_000)
        page.wait_for_function("document.querySelector('.jp-Notebook-ExecutionIndicator')?.dataset.status === 'idle'", timeout=60_000)
        yield page, time.perf_counter() - start_s
        page.close()


def offline(browser: Any, report: Path) -> None:
    """See that a report draws with the network off."""
    context = browser.new_context(offline=True)
    page = context.new_page()
    page.goto(report.as_uri())
    page.wait_for_function("document.querySelector('#timeline').timeline?.layout")
    context.close()


def main() -> None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS)
        with notebook(browser, Path(folder)) as (page, opened_s):
            steps = []
            for step in walk(page):
                steps.append(step)
                print(step, flush=True)
        offline(browser, Path(folder) / "home" / "attention.html")
        version = browser.version
        browser.close()
    first = steps[0]
    minutes = first["keys"] / KEYS_A_MINUTE + (opened_s + first["machine_s"]) / 60
    versions = {name: metadata.version(name) for name in ("jupyterlab", "ipywidgets", "anywidget")} | {"chromium": version}
    found = {
        "what": "a newcomer's path in JupyterLab, from its start; machine_s is from Shift Enter until what the step ends with is seen",
        "opened_s": round(opened_s, 1),
        "keys_a_minute": KEYS_A_MINUTE,
        "minutes_to_the_first_timeline": round(minutes, 2),
        "machine": {"platform": sys.platform, "processor": platform.machine(), "rendering": "headless, software"},
        "steps": steps,
    }
    print(f"{minutes:.2f} minutes to the first timeline of an own program")
    keep("newcomer.json", found | provenance(ss.open_device("simulated"), **versions))


if __name__ == "__main__":
    main()
