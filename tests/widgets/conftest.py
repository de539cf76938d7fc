"""Traces with the proportions that were measured on an H200, and a browser to look at them with."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import tomllib
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from streamscope.trace.collectives import Collectives, PeerCopies
from streamscope.trace.info import DeviceInfo, TraceInfo
from streamscope.trace.spans import COLUMN_DTYPES, Basis, SpanBuilder, SpanKind, SpanTable
from streamscope.trace.trace import Trace

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell
    from playwright.sync_api import Browser, BrowserContext, Page

OPERATORS = ("matmul", "bias add", "relu", "multiply", "softmax")
KERNEL_NS = {"matmul": 3140, "bias add": 830, "relu": 830, "multiply": 1090, "softmax": 1480}
LAUNCH_NS, LATENCY_NS, EVENT_NS, GRAPH_LAUNCH_NS = 3030, 3900, 880, 1600
H200 = DeviceInfo("cuda", "NVIDIA H200")
SIMULATED = DeviceInfo("simulated", "simulated NVIDIA H200")
CHROMIUM_ARGUMENTS = (
    "--no-sandbox", "--disable-quic", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run",
    "--disable-features=SpareRendererForSitePerProcess",
)  # fmt: skip
VIEWPORT = {"width": 1400, "height": 1000}
ENGINES = ("sync", "async", "dual", "graph", "graph-dual")


def make_trace(engine: str, spans: SpanTable, device: DeviceInfo = H200, program: str = "step", notes: tuple[str, ...] = ()) -> Trace:
    """Wrap spans with an info that does not change from run to run."""
    recorder = "device log" if device.simulated else "events"
    info = TraceInfo(engine, program, device, recorder, notes=notes, versions={"python": "3.12.0"}, created="2026-01-02T03:04:05+00:00")
    return Trace(spans, info)


def engine_trace(engine: str, count: int = 200, device: DeviceInfo = H200) -> Trace:
    """One run of ``count`` small kernels under an engine."""
    issue: Callable[[SpanBuilder, int, bool], None] = _issue_graph if engine.startswith("graph") else _issue_calls
    builder = SpanBuilder(["host", "main", "aux"])
    if engine == "sync":
        _issue_sync(builder, count)
    else:
        issue(builder, count, engine.endswith("dual"))
    return make_trace(engine, builder.build(), device)


def five_engines(count: int = 200, device: DeviceInfo = H200) -> dict[str, Trace]:
    """The same program under every engine."""
    return {engine: engine_trace(engine, count, device) for engine in ENGINES}


def _add_kernel(builder: SpanBuilder, operation: int, lane: str, start_ns: int, correlation: int, basis: Basis) -> int:
    name = OPERATORS[operation % len(OPERATORS)]
    end_ns = start_ns + KERNEL_NS[name]
    flops = 33_554_432 if name == "matmul" else 65_536
    builder.add(
        SpanKind.KERNEL, name, lane, start_ns, end_ns, operation=operation, correlation=correlation, basis=basis, blocks=128, threads=256,
        nbytes=1_048_576, flops=flops,
    )  # fmt: skip
    return end_ns


def _issue_sync(builder: SpanBuilder, count: int) -> None:
    now = 1000
    for operation in range(count):
        name = OPERATORS[operation % len(OPERATORS)]
        builder.add(SpanKind.LAUNCH, name, "host", now, now + LAUNCH_NS, operation=operation, correlation=operation)
        end = _add_kernel(builder, operation, "main", now + LATENCY_NS, operation, Basis.DERIVED)
        builder.add(SpanKind.SYNC, "synchronize", "host", now + LAUNCH_NS, end + 2100, operation=operation)
        now = end + 2300


def _issue_calls(builder: SpanBuilder, count: int, two_streams: bool) -> None:
    now, free = 1000, {"main": 0, "aux": 0}
    for operation in range(count):
        lane = "aux" if two_streams and operation % 5 in (1, 3) else "main"
        if two_streams and operation % 5 in (1, 2, 3, 4):
            for call in ("record", "wait"):
                builder.add(SpanKind.EVENT, call, "host", now, now + EVENT_NS // 2, operation=operation)
                now += EVENT_NS // 2 + 20
        name = OPERATORS[operation % len(OPERATORS)]
        builder.add(SpanKind.LAUNCH, name, "host", now, now + LAUNCH_NS, operation=operation, correlation=operation)
        free[lane] = _add_kernel(builder, operation, lane, max(now + LATENCY_NS, free[lane]), operation, Basis.DERIVED)
        now += LAUNCH_NS + 60
    builder.add(SpanKind.SYNC, "synchronize", "host", now, max(free.values()) + 2000)


def _issue_graph(builder: SpanBuilder, count: int, two_streams: bool) -> None:
    builder.add(SpanKind.GRAPH_LAUNCH, "graph launch", "host", 1000, 1000 + GRAPH_LAUNCH_NS, correlation=1)
    free = dict.fromkeys(("main", "aux"), 1000 + 5200)
    for operation in range(count):
        lane = "aux" if two_streams and operation % 5 in (1, 3) else "main"
        free[lane] = _add_kernel(builder, operation, lane, free[lane] + 80, 1, Basis.PLACED)
    builder.add(SpanKind.GRAPH, "graph", "main", 1000 + 5200, max(free.values()), correlation=1)
    builder.add(SpanKind.SYNC, "synchronize", "host", 1000 + GRAPH_LAUNCH_NS + 200, max(free.values()) + 2000)


def large_trace(count: int, seed: int = 7) -> Trace:
    """``count`` spans, half of them launches and half kernels of 0.5 to 5 µs, with pauses; made of columns, so that it is quick."""
    rng = np.random.default_rng(seed)
    kernels = count // 2
    duration = rng.integers(500, 5000, kernels)
    gap = np.where(rng.random(kernels) < 0.01, rng.integers(20_000, 200_000, kernels), rng.integers(50, 3000, kernels))
    start = np.cumsum(duration + gap) - duration + 5000
    operation = np.arange(kernels)
    name = rng.integers(0, 12, kernels)
    sides = {
        "kind": (np.full(kernels, SpanKind.LAUNCH), np.full(kernels, SpanKind.KERNEL)),
        "name": (name, name),
        "lane": (np.zeros(kernels), np.ones(kernels)),
        "start_ns": (start - 4000, start),
        "end_ns": (start - 4000 + np.minimum(400 + gap // 4, 3000), start + duration),
        "operation": (operation, operation),
        "correlation": (operation, operation),
    }
    columns = {column: np.concatenate(sides[column]) if column in sides else np.zeros(2 * kernels) for column in COLUMN_DTYPES}
    order = np.argsort(columns["start_ns"], kind="stable")
    typed = {column: values[order].astype(COLUMN_DTYPES[column]) for column, values in columns.items()}
    return make_trace("async", SpanTable(**typed, names=tuple(f"kernel {index}" for index in range(12)), lanes=("host", "main")))


def gpus_trace(count: int, streams: int = 1) -> Trace:
    """Each GPU joins an all-reduce after 100 µs, the last one after 160 µs, and computes beside it; GPU 0 copies to GPU 1.

    ``streams``: as many more streams of each GPU have a short kernel.
    """
    lanes = [("host", -1), *((f"GPU {gpu} {name}", gpu) for gpu in range(count) for name in ("main", "comm", *range(streams)))]
    late_ns = [160_000 if gpu == count - 1 else 100_000 for gpu in range(count)]
    rows: list[tuple[Any, ...]] = [(SpanKind.LAUNCH, "matmul", "host", gpu, gpu + 1) for gpu in range(count)]
    rows += [(SpanKind.KERNEL, "matmul", f"GPU {gpu} main", 1000, 1000 + late_ns[gpu] // 2) for gpu in range(count)]
    rows += [(SpanKind.COPY, "x", "GPU 0 0", 2000, 12_000)]
    rows += [(SpanKind.KERNEL, "short", f"GPU {gpu} {stream}", 20_000, 21_000) for gpu in range(count) for stream in range(streams)]
    rows += [(SpanKind.KERNEL, "all-reduce", f"GPU {gpu} comm", late_ns[gpu], 200_000) for gpu in range(count)]
    rows += [(SpanKind.KERNEL, "matmul", f"GPU {gpu} main", late_ns[gpu], late_ns[gpu] + 20_000) for gpu in range(count)]
    rows.sort(key=lambda row: row[3])
    builder = SpanBuilder([name for name, _ in lanes], gpus=[gpu for _, gpu in lanes])
    for row in rows:
        builder.add(*row)
    parts = [number for number, row in enumerate(rows) if row[1] == "all-reduce"]
    copies = [number for number, row in enumerate(rows) if row[1] == "x"]
    collectives = Collectives.from_columns(parts, "all_reduce", instance=3, op="sum", nbytes=1 << 20, ranks=count, communicator="dp")
    peers = PeerCopies(np.array(copies), np.array([0]), np.array([1]))
    trace = make_trace("dual", builder.build(), DeviceInfo("cuda", f"{count} × NVIDIA H100"))
    return replace(trace, collectives=collectives, peers=peers)


@contextmanager
def a_shell(folder: Path, setup: str, **options: Any) -> Iterator[InteractiveShell]:
    """Give an IPython shell that has run a first cell; it is the one that `display` and `get_ipython` ask for."""
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "nocolor"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IPYTHONDIR", str(folder))
        shell = InteractiveShell(config=config)
        patch.setattr(InteractiveShell, "_instance", shell)
        shell.run_cell(setup, **options).raise_error()
        yield shell
        atexit.unregister(shell.atexit_operations)
        shell.atexit_operations()


@pytest.fixture(scope="session")
def violations(hatch_build: Any, repository: Path) -> Callable[..., list[str]]:
    """What axe finds wrong in part of a page; also where a visible label is not in the name that is read aloud."""
    frontend = repository / "widgets/frontend"
    source = frontend / "node_modules/axe-core/axe.min.js"
    if not source.is_file():
        hatch_build.run([*hatch_build.find_node()[1], "ci"], frontend)
    axe = f"{source.read_text(encoding='utf-8')}; 0"

    def found(page: Page, part: str = "html") -> list[str]:
        page.evaluate(axe)
        options = {"resultTypes": ["violations"], "rules": {"label-content-name-mismatch": {"enabled": True}}}
        results = page.evaluate("([part, options]) => axe.run(part, options)", [part, options])
        return [f"{found['id']}: {node['html'][:200]}" for found in results["violations"] for node in found["nodes"]]

    return found


@pytest.fixture(name="make_trace")
def make_trace_fixture() -> Callable[..., Trace]:
    """`make_trace`, for tests that build their own spans."""
    return make_trace


@pytest.fixture(name="five_engines", scope="session")
def five_engines_fixture() -> Callable[..., dict[str, Trace]]:
    """`five_engines`: 200 small kernels under each engine, or as many as are asked for."""
    return five_engines


@pytest.fixture(name="large_trace")
def large_trace_fixture() -> Callable[..., Trace]:
    """`large_trace`: as many spans as are asked for."""
    return large_trace


@pytest.fixture
def simulated() -> DeviceInfo:
    """A device whose times are simulated."""
    return SIMULATED


@pytest.fixture(scope="session")
def browser(chromium_path: str) -> Iterator[Browser]:
    """Headless Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=chromium_path, args=list(CHROMIUM_ARGUMENTS))
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def context(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrowserContext]:
    """What pages share that need no settings of their own: one process, which a page that stays open keeps, and compiled scripts."""
    shared = browser.new_context(viewport=VIEWPORT, reduced_motion="reduce", permissions=["clipboard-read", "clipboard-write"])
    kept = tmp_path_factory.mktemp("kept") / "page.html"
    kept.touch()
    shared.new_page().goto(kept.as_uri())
    yield shared
    shared.close()


LAB_SETTINGS = {
    "@jupyterlab/apputils-extension/notification.jupyterlab-settings": {"fetchNews": "false", "checkForUpdates": False},
    "@jupyterlab/notebook-extension/tracker.jupyterlab-settings": {"windowingMode": "none"},
}
START_SECONDS = 60


@dataclass(frozen=True)
class Lab:
    """A running JupyterLab, and the folder that it shows."""

    server: str
    folder: Path

    RUN_ALL = """async (path) => {
      await jupyterapp.restored;
      const panel = [...jupyterapp.shell.widgets("main")].find((widget) => widget.context?.path === path);
      await panel.context.ready;
      await panel.sessionContext.ready;
      jupyterapp.shell.activateById(panel.id);
      await jupyterapp.commands.execute("notebook:run-all-cells");
    }"""
    """Takes the path of an open notebook."""

    OPEN = """async (path) => {
      await jupyterapp.restored;
      await jupyterapp.commands.execute("application:close-all");
      await jupyterapp.commands.execute("docmanager:open", { path });
    }"""
    """Takes the path of a file, which is then open, and nothing else; a page that is loaded anew takes the browser three seconds."""

    def address_of(self, path: str) -> str:
        """Return where a file of the folder is open, and nothing else."""
        return f"{self.server}/lab/tree/{path}?reset"

    def write_notebook(self, path: str, sources: Sequence[str]) -> None:
        """Write a notebook without outputs."""
        blank = {"cell_type": "code", "metadata": {}, "execution_count": None, "outputs": []}
        cells = [{**blank, "id": f"cell-{index}", "source": source} for index, source in enumerate(sources)]
        kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
        content = {"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}
        (self.folder / path).write_text(json.dumps(content), encoding="utf-8")


@pytest.fixture(scope="module")
def lab(shared_lab: Lab) -> Lab:
    """The tests' JupyterLab with the settings that it starts with: it keeps those that another module's tests changed, as the theme."""
    folder = shared_lab.folder.parent / "settings"
    shutil.rmtree(folder, ignore_errors=True)
    for name, settings in LAB_SETTINGS.items():
        file = folder / name
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps(settings))
    return shared_lab


@pytest.fixture(scope="session")
def shared_lab(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Iterator[Lab]:
    """A JupyterLab of its own, on an empty folder."""
    temporary = tmp_path_factory.mktemp("lab")
    home = temporary / "home"
    home.mkdir()
    _install_extension(repository, temporary / "prefix")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    # As in tests/conftest.py, for the server and its kernels.
    (temporary / "sitecustomize.py").write_text("import sys\nsys.modules['rfc3987_syntax'] = None\n")
    source = os.pathsep.join([*(str(repository / part) for part in ("toolkit", "widgets")), str(temporary)])
    environment = os.environ | {
        "PYTHONPATH": source, "JUPYTER_CONFIG_DIR": str(temporary / "config"), "JUPYTER_DATA_DIR": str(temporary / "data"),
        "JUPYTER_RUNTIME_DIR": str(temporary / "runtime"), "IPYTHONDIR": str(temporary / "ipython"),
        "JUPYTER_PATH": str(temporary / "prefix/share/jupyter"), "JUPYTER_CONFIG_PATH": str(temporary / "prefix/etc/jupyter"),
    }  # fmt: skip
    command = [
        sys.executable, "-m", "jupyter", "lab", "--no-browser", "--allow-root", "--expose-app-in-browser", "--ip=127.0.0.1",
        f"--port={port}", "--ServerApp.port_retries=0", "--IdentityProvider.token=", f"--ServerApp.root_dir={home}",
        f"--LabApp.user_settings_dir={temporary / 'settings'}", f"--LabApp.workspaces_dir={temporary / 'workspaces'}",
    ]  # fmt: skip
    with (temporary / "lab.log").open("wb") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            _wait_for(f"http://127.0.0.1:{port}/api", server, temporary / "lab.log")
            yield Lab(f"http://127.0.0.1:{port}", home)
        finally:
            server.terminate()
            server.wait(20)


@pytest.fixture(scope="session")
def lab_page(context: BrowserContext, shared_lab: Lab) -> Iterator[Page]:
    """A page of JupyterLab for all modules that leave its settings as they are; it notes what the page complains of."""
    page = context.new_page()
    page.complaints = []
    page.on("console", lambda message: page.complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    page.on("dialog", lambda dialog: page.complaints.append(dialog.message))
    page.goto(f"{shared_lab.server}/lab?reset")
    page.wait_for_function("window.jupyterapp?.restored")
    yield page
    page.close()


def _install_extension(repository: Path, prefix: Path) -> None:
    """Put the JupyterLab extension where a wheel would put it."""
    wheel = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]["targets"]["wheel"]
    for source, target in wheel["shared-data"].items():
        (prefix / target).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(repository / source, prefix / target)


def _wait_for(address: str, server: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and server.poll() is None:
        try:
            with urllib.request.urlopen(address, timeout=2):
                return
        except OSError:
            time.sleep(0.2)
    pytest.fail(f"JupyterLab did not start:\n{log.read_text()}")


def until(page: Page, condition: str) -> None:
    """Wait for a condition on a page. Playwright's own wait needs ``eval``, which the policy of our pages forbids."""
    page.evaluate(f"new Promise((done) => {{ const look = () => ({condition}) ? done() : requestAnimationFrame(look); look(); }})")


INJECTED = """<img src="x" onerror="hacked('handler')"><svg onload="hacked('handler of an SVG')"></svg>
<script>hacked("script")</script><script type="module">hacked("module")</script>
<script src="data:text/javascript,hacked('source')"></script>
<a id="lure" href="javascript:hacked('link')">a link</a><button id="trap" onclick="hacked('click')">a button</button>
<iframe srcdoc="<script>parent.hacked('frame')</script>"></iframe>"""


@pytest.fixture
def attacked(browser: Browser) -> Iterator[Callable[[Path], tuple[Page, list[str]]]]:
    """Put what an attacker would into a page, open and click it; return the page, and which of the attacker's scripts ran."""
    contexts = []

    def open_attacked(path: Path) -> tuple[Page, list[str]]:
        whole = path.read_text(encoding="utf-8")
        assert whole.count("<body>") == 1
        path.write_text(whole.replace("<body>", f"<body>{INJECTED}"), encoding="utf-8")
        contexts.append(browser.new_context())
        page, ran = contexts[-1].new_page(), []

        def hacked(by: str) -> None:  # a function: Playwright sets an attribute of it
            ran.append(by)

        page.expose_function("hacked", hacked)
        page.goto(path.as_uri())
        page.locator("#lure").click()
        page.locator("#trap").click()
        return page, ran

    yield open_attacked
    for context in contexts:
        context.close()


def noting(page: Page) -> Page:
    """Have a page note what it complains of, and what it asks the network for."""
    page.complaints = []
    page.on("console", lambda message: page.complaints.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    page.on("request", lambda request: page.complaints.append(request.url) if request.url.startswith("http") else None)
    return page


@pytest.fixture(scope="session")
def idle_pages() -> list[Page]:
    """Pages that no test uses now: a new one takes the browser as long as most tests."""
    return []


@pytest.fixture
def open_page(browser: Browser, context: BrowserContext, idle_pages: list[Page]) -> Iterator[Callable[..., Page]]:
    """Open a report and wait for its timeline; at the end, fail if the page complained or asked the network for anything.

    Options besides size and colours are settings of a context of its own.
    """
    opened: list[Page] = []

    def open_report(path: Path, viewport: Any = VIEWPORT, color_scheme: Any = "light", **options: Any) -> Page:
        if options:
            page = noting(browser.new_context(reduced_motion="reduce", **options).new_page())
        else:
            page = idle_pages.pop() if idle_pages else noting(context.new_page())
            page.bring_to_front()  # Behind another page, it would be drawn once a second.
        opened.append(page)
        page.mouse.move(0, 0)
        page.set_viewport_size(viewport)
        page.emulate_media(media="null", color_scheme=color_scheme)
        page.goto(path.as_uri())
        until(page, "document.querySelector('#timeline').timeline?.layout")
        return page

    yield open_report
    complaints = [complaint for page in opened for complaint in page.complaints]
    for page in opened:
        if page.context == context:
            page.goto("about:blank")
            page.complaints.clear()
            idle_pages.append(page)
        else:
            page.context.close()
    assert complaints == []
