"""From running a cell to the first picture of a timeline, in a real JupyterLab; where the time goes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
REPEATS = 3
CELL = """import sys, time
sys.path[:0] = {paths!r}
from timeline_drawing import engines_traces
from streamscope_widgets.timeline import timeline
traces = engines_traces({count})"""
SHOW = "timeline(traces)"
# Each run is of a cell with another text, so that its output is new.
RUN = """async () => {
  await jupyterapp.restored;
  const panel = [...jupyterapp.shell.widgets("main")].find((widget) => widget.context?.path === "measured.ipynb");
  await panel.context.ready;
  await panel.sessionContext.ready;
  jupyterapp.shell.activateById(panel.id);
  const { content } = panel;
  content.activeCellIndex = 0;
  await jupyterapp.commands.execute("notebook:run-cell");
  const runs = [];
  for (let repeat = 0; repeat < REPEATS; repeat++) {
    content.activeCellIndex = 1;
    content.widgets[1].model.sharedModel.setSource("timeline(traces)  # " + repeat);
    content.widgets[1].model.clearExecution();
    await new Promise((done) => setTimeout(done, 800));
    const start = performance.now();
    jupyterapp.commands.execute("notebook:run-cell");
    const spent = await new Promise((done) => {
      const look = () => {
        const drawn = [...document.querySelectorAll(".jp-OutputArea-output *")].map((e) => e.timeline).find((t) => t?.layout);
        if (!drawn) return requestAnimationFrame(look);
        drawn.root.querySelector('.ss-base').getContext('2d').getImageData(0, 0, 1, 1);
        return done(performance.now() - start);
      };
      look();
    });
    runs.push(spent);
  }
  return runs;
}""".replace("REPEATS", str(REPEATS))


def first_paints(browser: Any, counts: Sequence[int]) -> list[dict[str, float]]:
    """Return milliseconds from running the cell to the first picture, the middle of three runs, for each number of spans."""
    rows = []
    for count in counts:
        with tempfile.TemporaryDirectory() as folder, jupyterlab(Path(folder), count) as address:
            page = browser.new_page(viewport={"width": 1400, "height": 1000})
            page.goto(f"{address}/lab/tree/measured.ipynb?reset")
            page.wait_for_selector(".jp-NotebookPanel .jp-Cell", timeout=60_000)
            runs = sorted(page.evaluate(RUN))
            page.close()
        rows.append({"spans": count, "run_ms": round(runs[len(runs) // 2], 1), "slowest_run_ms": round(runs[-1], 1)})
        print(rows[-1])
    return rows


@contextmanager
def jupyterlab(folder: Path, count: int) -> Iterator[str]:
    """Start a JupyterLab on a notebook that makes ``count`` spans and shows them; give its address."""
    home = folder / "home"
    home.mkdir()
    paths = [str(ROOT / part) for part in ("benchmarks", "toolkit", "widgets")]
    blank: dict[str, Any] = {"cell_type": "code", "metadata": {}, "execution_count": None, "outputs": []}
    sources = (CELL.format(paths=paths, count=count), SHOW)
    cells = [{**blank, "id": f"cell-{index}", "source": source} for index, source in enumerate(sources)]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    (home / "measured.ipynb").write_text(json.dumps({"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}))
    with server(folder) as address:
        yield address


@contextmanager
def server(folder: Path) -> Iterator[str]:
    """Start a JupyterLab that shows ``folder / "home"``; give its address."""
    home = folder / "home"
    home.mkdir(exist_ok=True)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    source = os.pathsep.join(str(ROOT / part) for part in ("toolkit", "widgets"))
    folders = {f"JUPYTER_{name}_DIR": str(folder / name.lower()) for name in ("CONFIG", "DATA", "RUNTIME")}
    environment = os.environ | {"PYTHONPATH": source} | folders
    command = [
        sys.executable, "-m", "jupyter", "lab", "--no-browser", "--allow-root", "--expose-app-in-browser", "--ip=127.0.0.1",
        f"--port={port}", "--ServerApp.port_retries=0", "--IdentityProvider.token=", f"--ServerApp.root_dir={home}",
        f"--LabApp.user_settings_dir={folder / 'settings'}", f"--LabApp.workspaces_dir={folder / 'workspaces'}",
    ]  # fmt: skip
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(f"http://127.0.0.1:{port}/api", process)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)


def wait_for(address: str, process: subprocess.Popen[bytes]) -> None:
    """Wait until the server answers."""
    for _ in range(600):
        try:
            with urllib.request.urlopen(address, timeout=2):
                return
        except (OSError, urllib.error.URLError):
            if process.poll() is not None:
                raise RuntimeError("JupyterLab did not start") from None
            time.sleep(0.1)
    raise RuntimeError("JupyterLab does not answer")
