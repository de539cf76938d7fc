"""How fast the timeline draws and answers, from 10,000 to 1,000,000 spans over five engines, in headless Chromium; Plotly beside it.

``python benchmarks/timeline_drawing.py`` keeps under ``benchmarks/results``, as medians over repeats:

- ``first_ms``: from the arrived data (header and block) to the first picture: decoding, layout, helper lanes, drawing
- ``draw_ms``: drawing one frame, and its 95th percentile; ``frame_ms``: from one frame to the next while the view zooms and pans, and its
  95th percentile. The display has 60 frames a second, so a frame takes 16.7 ms, or 33.3 where drawing and the browser take longer.
- ``hover_ms``, ``select_ms``, ``filter_ms``: from the event to the picture that answers it, without the wait for the display's next frame
- ``run_ms``: from running the cell in JupyterLab to the first picture, with what the kernel and the browser spend on it

Plotly draws the same spans as horizontal bars and as WebGL lines, as many as it draws within seconds. The timeline's pixels are read
back within its times. Those of Plotly's SVG cannot be, so its times end with the frame that shows the picture; what it draws without
one (``draw_ms``, ``hover_ms``) is left out. All times are those of the wall: run this alone on the machine.
"""

from __future__ import annotations

import json
import platform
import shutil
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from in_jupyterlab import first_paints

File = bytes | Callable[[str], bytes]
"""What a page fetches: bytes, or what makes them of what the page sends."""
ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "toolkit"), str(ROOT / "widgets"), str(ROOT)]

from hatch_build import build_bundle  # noqa: E402

from streamscope.trace.info import DeviceInfo, TraceInfo  # noqa: E402
from streamscope.trace.spans import COLUMN_DTYPES, SpanKind, SpanTable  # noqa: E402
from streamscope.trace.trace import Trace  # noqa: E402
from streamscope_widgets.payload import as_groups, bundle_source, encode  # noqa: E402

COUNTS = (10_000, 100_000, 1_000_000)
RUN_COUNTS = (100_000, 1_000_000)
PEERS = {"bar": 10_000, "scattergl": 100_000}
"""How Plotly draws, and up to how many spans: more would take minutes."""
ENGINES = ("sync", "async", "dual", "graph", "graph-dual")
VIEWPORT = {"width": 1400, "height": 1000}
FRAMES = 60
PEER_MS = 8_000
"""How long Plotly zooms and pans: it may not manage all frames."""
ARGUMENTS = [
    "--no-sandbox", "--disable-quic", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run",
]  # fmt: skip

# Zooms from the whole run to a hundredth of it, then pans there; each frame has another view. Frames that a page asks for are kept in
# ``asked`` while a time is taken, and run at once: so what is measured is the work, not the wait for the display.
COMMON = (
    f"const FRAMES = {FRAMES}; const PEER_MS = {PEER_MS};"
    """
const viewAt = (i, [t0, t1]) => {
  const share = i < FRAMES / 2 ? 0.01 ** (i / (FRAMES / 2)) : 0.01;
  const middle = t0 + (t1 - t0) * (0.5 + (i < FRAMES / 2 ? 0 : (i / FRAMES - 0.5) * 0.3));
  return [middle - share * (t1 - t0) / 2, middle + share * (t1 - t0) / 2];
};
const nextFrame = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
const framesOf = async (show, bounds) => {
  const stamps = [];
  await new Promise((done) => {
    const step = (now) => {
      stamps.push(now);
      if (stamps.length > FRAMES) return done();
      show(...viewAt(stamps.length, bounds));
      requestAnimationFrame(step);
    };
    requestAnimationFrame(step);
  });
  return stamps.slice(1).map((stamp, i) => stamp - stamps[i]);
};
const drawn = (timeline, painted) => Array.from({ length: FRAMES }, (_, i) => {
  const [from, to] = viewAt(i, [timeline.bounds.t0, timeline.bounds.t1]);
  timeline.view = { t0: from, t1: to };
  const start = performance.now();
  timeline.drawNow();
  painted();
  return performance.now() - start;
});
const timed = async (act, painted) => {
  await nextFrame();
  const [real, asked] = [window.requestAnimationFrame, []];
  window.requestAnimationFrame = (run) => asked.push(run);
  const start = performance.now();
  act();
  for (let run; (run = asked.shift()); ) run(performance.now());
  painted();
  const spent = performance.now() - start;
  window.requestAnimationFrame = real;
  return spent;
};
"""
)
TIMELINE = (
    COMMON
    + """
const element = document.querySelector('#timeline');
const header = await (await fetch('/header')).json();
const block = new Uint8Array(await (await fetch('/block')).arrayBuffer());
const painted = () => {
  for (const canvas of element.querySelectorAll('canvas')) canvas.getContext('2d').getImageData(0, 0, 1, 1);
};
const first = [];
for (let repeat = 0; repeat < 5; repeat++) {
  element.timeline?.destroy();
  await nextFrame();
  const start = performance.now();
  streamscopeTimeline.mount(element, structuredClone(header), block);
  painted();
  first.push(performance.now() - start);
}
const timeline = element.timeline;
await new Promise((done) => setTimeout(done, 1000));  // as long as a reader needs to look
const { t0, t1 } = timeline.bounds;
const draw = drawn(timeline, painted);
const frame = await framesOf((from, to) => timeline.setView({ t0: from, t1: to }), [t0, t1]);
timeline.setView({ t0, t1 });
const canvas = timeline.root.querySelector('.ss-overlay');
canvas.setPointerCapture = () => {};
const box = canvas.getBoundingClientRect();
const places = timeline.layout.groups.flatMap((group) => group.lanes.flatMap((lane) => lane.rows.map(({ y, height }) => y + height / 2)));
const send = (type, i) => canvas.dispatchEvent(new PointerEvent(type, {
  clientX: box.left + 140 + ((i * 97) % 1100), clientY: box.top + places[i % places.length], pointerId: 1, bubbles: true,
}));
const [hover, select, filter] = [[], [], []];
for (let i = 0; i < 30; i++) hover.push(await timed(() => send('pointermove', i), painted));
for (let i = 0; i < 20; i++) select.push(await timed(() => (send('pointerdown', i), send('pointerup', i)), painted));
timeline.clear();
const find = (text) => (timeline.state = { find: { name: null, text } });
for (let i = 0; i < 12; i++) filter.push(await timed(() => find(i % 2 ? '' : `kernel ${i}`), painted));
return { first, draw, frame, hover, select, filter };
"""
)
PLOTLY = (
    COMMON
    + """
const element = document.querySelector('#timeline');
const figure = await (await fetch('/figure')).json();
const shown = async (act) => {
  const start = performance.now();
  await act();
  await nextFrame();
  return performance.now() - start;
};
const first = [await shown(() => Plotly.newPlot(element, figure.data, figure.layout, { displayModeBar: false }))];
const bounds = element.layout.xaxis.range.map(Number);
const frame = [];
const began = performance.now();
// Views from all over the way, however few there is time for.
for (let i = 0; i < FRAMES && performance.now() - began < PEER_MS; i++) {
  frame.push(await shown(() => Plotly.relayout(element, { 'xaxis.range': viewAt((i * 7) % FRAMES, bounds) })));
}
await Plotly.relayout(element, { 'xaxis.range': bounds });
const [select, filter] = [[], []];
for (let i = 0; i < 3 && (!i || performance.now() - began < 2 * PEER_MS); i++) {
  select.push(await shown(() => Plotly.restyle(element, { selectedpoints: [[10 * i]] }, [0])));
  filter.push(await shown(() => Plotly.restyle(element, { visible: i % 2 ? true : 'legendonly' }, [0])));
}
return { first, frame, select, filter };
"""
)


def make_trace(engine: str, count: int, seed: int) -> Trace:
    """Make ``count`` spans, half launches and half kernels, made of columns."""
    rng = np.random.default_rng(seed)
    kernels = count // 2
    duration = rng.integers(500, 5000, kernels)
    start = np.cumsum(duration + rng.integers(50, 3000, kernels)) - duration + 5000
    operation = np.arange(kernels)
    name = rng.integers(0, 12, kernels)
    sides = {
        "kind": (np.full(kernels, SpanKind.LAUNCH), np.full(kernels, SpanKind.KERNEL)),
        "name": (name, name),
        "lane": (np.zeros(kernels), rng.integers(1, 3, kernels) if "dual" in engine else np.ones(kernels)),
        "start_ns": (start - 4000, start),
        "end_ns": (start - 3500, start + duration),
        "operation": (operation, operation),
        "correlation": (operation, operation),
    }
    columns = {column: np.concatenate(sides[column]) if column in sides else np.zeros(2 * kernels) for column in COLUMN_DTYPES}
    order = np.argsort(columns["start_ns"], kind="stable")
    typed: dict[str, Any] = {column: values[order].astype(COLUMN_DTYPES[column]) for column, values in columns.items()}
    table = SpanTable(**typed, names=tuple(f"kernel {index}" for index in range(12)), lanes=("host", "main", "aux"))
    return Trace(table, TraceInfo(engine, "benchmark", DeviceInfo("simulated", "none"), versions={}))


def engines_traces(count: int) -> list[Trace]:
    """Make ``count`` spans over all engines."""
    return [make_trace(engine, count // len(ENGINES), seed) for seed, engine in enumerate(ENGINES)]


def figure_json(traces: list[Trace], kind: str) -> str:
    """Return the device's spans as a Plotly figure of bars, or of WebGL lines."""
    import plotly.graph_objects as go

    figure = go.Figure(layout={"height": 600, "barmode": "overlay", "showlegend": True})
    for row, trace in enumerate(traces):
        spans = trace.spans
        start, end = spans.start_ns / 1e3, spans.end_ns / 1e3
        lane = row + spans.lane / 4
        if kind == "bar":
            figure.add_bar(y=lane, x=end - start, base=start, orientation="h", width=0.2, name=ENGINES[row])
        else:
            gaps = np.full(len(start), np.nan)
            x, y = np.stack([start, end, gaps], 1).ravel(), np.repeat(lane, 3)
            figure.add_scattergl(x=x, y=y, mode="lines", line={"width": 8}, name=ENGINES[row])
    return str(figure.to_json())


def summary(times: dict[str, list[float]]) -> dict[str, float]:
    """Return medians in milliseconds, and the 95th percentiles of frames and of drawing them."""
    medians = {f"{name}_ms": round(float(np.median(values)), 2) for name, values in times.items() if values}
    return medians | {f"{name}_p95_ms": round(float(np.percentile(times[name], 95)), 1) for name in ("draw", "frame") if name in times}


def measure(browser: Any, count: int) -> list[dict[str, Any]]:
    """Return what the timeline and its peers take for one number of spans."""
    traces = engines_traces(count)
    payload = encode(as_groups(traces))
    files = {"/header": json.dumps(payload.header).encode(), "/block": payload.block}
    script = bundle_source().partition("export default")[0]
    rows = [{"spans": count, "library": "streamscope", **summary(in_page(browser, files, script, TIMELINE))}]
    for kind, most in PEERS.items():
        if count <= most:
            times = in_page(browser, {"/figure": figure_json(traces, kind).encode()}, plotly_source(), PLOTLY)
            rows.append({"spans": count, "library": f"plotly, {kind}", **summary(times)})
    return rows


def in_page(browser: Any, files: Mapping[str, File], script: str, measured: str) -> dict[str, list[float]]:
    """Open a page with a script, which may fetch files, and return what a function in it returns, however long that takes."""
    page = browser.new_page(viewport=VIEWPORT)
    known: dict[str, File] = {"/": b"<!doctype html><div id=timeline></div>", **files}

    def serve(route: Any) -> None:
        file = known.get("/" + route.request.url.partition("measured/")[2], b"")
        route.fulfill(body=file if isinstance(file, bytes) else file(route.request.post_data))

    page.route("http://measured/**", serve)
    page.goto("http://measured/")
    page.add_script_tag(content=script)
    page.set_default_timeout(0)
    # An error in the page would be waited for for ever.
    told = "(times) => (window.measured = { times }), (error) => (window.measured = { error: `${error}` })"
    page.evaluate(f"() => {{ window.measured = null; (async () => {{ {measured} }})().then({told}); }}")
    found: dict[str, Any] = page.wait_for_function("window.measured", polling=100).json_value()
    page.close()
    if "error" in found:
        raise RuntimeError(f"what is measured failed in the page: {found['error']}")
    times: dict[str, list[float]] = found["times"]
    return times


def plotly_source() -> str:
    """Return Plotly's own JavaScript."""
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())


def main() -> None:
    from playwright.sync_api import sync_playwright

    build_bundle(ROOT)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS)
        rows = []
        for count in COUNTS:
            rows += (found := measure(browser, count))
            print(*found, sep="\n")
        result = {
            "date": datetime.now(UTC).date().isoformat(),
            "versions": {
                "chromium": browser.version, "python": platform.python_version(), "numpy": metadata.version("numpy"),
                "plotly": metadata.version("plotly"), "jupyterlab": metadata.version("jupyterlab"),
            },
            "machine": {"platform": sys.platform, "processor": platform.machine(), "rendering": "headless, software"},
            "viewport": VIEWPORT,
            "engines": len(ENGINES),
            "frames": FRAMES,
            "results": rows,
            "in_jupyterlab": first_paints(browser, RUN_COUNTS),
        }  # fmt: skip
        browser.close()
    path = ROOT / "benchmarks" / "results" / "timeline_drawing.json"
    # What large_timelines.py found stays.
    large = {"large": found["large"]} if "large" in (found := json.loads(path.read_text(encoding="utf-8"))) else {}
    path.write_text(json.dumps(result | large, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
