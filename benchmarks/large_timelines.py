"""Timelines that are too long to be sent whole, twenty timelines in one page, and Plotly's bars where it draws none; in headless Chromium.

``python benchmarks/large_timelines.py`` keeps in ``benchmarks/results/timeline_drawing.json``, beside what ``timeline_drawing.py`` keeps:

- ``tiles``: for 1,000,000 spans, sent whole, and 12,000,000, in tiles, each with the flame chart, memory and counters open. ``python_ms``:
  Python's time from the trace to the first payload; ``first_ms``: from the arrived data to the first picture; ``opened_ms``: from there
  until chart and lanes are drawn; ``draw_ms`` and ``frame_ms`` as in ``timeline_drawing.py``; ``sharp_ms``: from the last movement to the
  picture with all detail, of which 120 ms are the wait for it to be the last;
  ``first_kb``, ``tile_kb``: bytes that travel, of tiles the median and the most; ``python_mb``: what Python's memory grows by
- ``twenty``: 20 timelines of 10,000 spans in one page: ``first_ms`` of all, ``frame_ms`` while one zooms and while the page scrolls,
  ``heap_mb`` of the page's JavaScript
- ``plotly_bars``: Plotly's bars of 1,000,000 spans: how long the first picture took, or for how long there was none

All times are those of the wall: run this alone on the machine.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
from timeline_drawing import ARGUMENTS, COMMON, ROOT, engines_traces, figure_json, in_page, make_trace, plotly_source

from streamscope.trace.counters import Counters, Series
from streamscope.trace.launch_sites import LaunchSites, Site
from streamscope.trace.memory import Allocations
from streamscope.trace.spans import SpanKind
from streamscope.trace.trace import Trace
from streamscope_widgets.payload import Payload, as_groups, bundle_source, encode
from streamscope_widgets.tile_questions import answer
from streamscope_widgets.tiles import Tiles, needs_tiles

COUNTS = (1_000_000, 12_000_000)
PAGES, SPANS = 20, 10_000
PATIENCE_S = 120.0
RESULT = ROOT / "benchmarks" / "results" / "timeline_drawing.json"

READ = """
const unpacked = async (response) => {
  const buffer = await (await response).arrayBuffer();
  const length = new DataView(buffer).getUint32(0, true);
  return { header: JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length))), block: new Uint8Array(buffer, 8 + length) };
};
const paint = (timeline) => timeline.root.querySelector('.ss-base').getContext('2d').getImageData(0, 0, 1, 1);
"""
TILES = (
    COMMON
    + READ
    + """
const element = document.querySelector('#timeline');
const ask = (question) => unpacked(fetch('/ask', { method: 'POST', body: JSON.stringify(question) }));
const { header, block } = await unpacked(fetch('/first'));
const first = [];
for (let repeat = 0; repeat < 5; repeat++) {
  element.timeline?.destroy();
  await nextFrame();
  const start = performance.now();
  await streamscopeTimeline.open(element, structuredClone(header), block, ask);
  paint(element.timeline);
  first.push(performance.now() - start);
}
const timeline = element.timeline;
const begun = performance.now();
timeline.state = { shows: ['overlap', 'by code', 'counters'] };
while (!element.querySelector('.ss-frame') || element.querySelector('.ss-lanes').hidden) await nextFrame();
const opened = [performance.now() - begun];
await new Promise((done) => setTimeout(done, 1000));
const { t0, t1 } = timeline.bounds;
const canvases = [...element.querySelectorAll('canvas')];
const draw = drawn(timeline, () => canvases.forEach((canvas) => canvas.getContext('2d').getImageData(0, 0, 1, 1)));
const frame = await framesOf((from, to) => timeline.setView({ t0: from, t1: to }), [t0, t1]);
const sharp = [];
for (let i = 0; timeline.tiles && i < 24; i++) {
  // Places all over the run, from a third of it down to a hundred-thousandth.
  const width = (t1 - t0) * 3 ** -(1 + (i * 5) % 10);
  const from = t0 + ((i * 0.37) % 0.9) * (t1 - t0 - width);
  const start = performance.now();
  timeline.setView({ t0: from, t1: from + width });
  while (timeline.tile.key !== timeline.tiles.key || timeline.dirty.base) await nextFrame();
  paint(timeline);
  sharp.push(performance.now() - start);
}
return { first, opened, draw, frame, sharp };
"""
)
TWENTY = (
    COMMON
    + READ
    + """
const { header, block } = await unpacked(fetch('/first'));
const elements = Array.from({ length: PAGES }, () => document.body.appendChild(document.createElement('div')));
elements.forEach((element) => (element.style.margin = '40px 0'));
const start = performance.now();
for (const element of elements) streamscopeTimeline.mount(element, structuredClone(header), block);
elements.forEach(({ timeline }) => paint(timeline));
const first = [performance.now() - start];
await new Promise((done) => setTimeout(done, 1500));
const one = elements[3].timeline;
elements[3].scrollIntoView();
await nextFrame();
const { t0, t1 } = one.bounds;
const zoom = await framesOf((from, to) => one.setView({ t0: from, t1: to }), [t0, t1]);
let place = 0;
const most = document.documentElement.scrollHeight - innerHeight;
const scroll = await framesOf(() => scrollTo(0, (place = (place + 97) % most)), [0, 1]);
gc();
return { first, zoom, scroll, heap: [performance.memory.usedJSHeapSize / 1e6] };
""".replace("PAGES", str(PAGES))
)
BARS = (
    COMMON
    + """
const figure = await (await fetch('/figure')).json();
const start = performance.now();
await Plotly.newPlot(document.querySelector('#timeline'), figure.data, figure.layout, { displayModeBar: false });
await nextFrame();
return { first: [performance.now() - start] };
"""
)


def detailed(trace: Trace) -> Trace:
    """Add contents of the flame chart and the lanes: modules and lines of a million kernels, as many allocations, and 24 counters."""
    rng = np.random.default_rng(1)
    kernels = np.flatnonzero(trace.spans.kind == SpanKind.KERNEL)[:1_000_000]
    count, end_ns = len(kernels), int(trace.spans.end_ns.max())
    modules = [Site(module=f"Net.layer{index}", caller=Site(module="Net")) for index in range(50)]
    sites = tuple(
        Site("forward", f"model{index % 7}.py", index + 1, f"Net.layer{index % 50}.{index}", caller=modules[index % 50])
        for index in range(2000)
    )
    begin = np.sort(rng.integers(0, end_ns, count))
    end, nbytes, none, zero = (
        begin + rng.integers(1, end_ns // 100, count),
        rng.integers(1, 1 << 20, count),
        np.full(count, -1),
        np.zeros(count, int),
    )
    held = Allocations(begin, end, nbytes, zero, zero, none, none, none, none)
    times, series = np.sort(rng.integers(0, end_ns, 96_000)), rng.integers(0, 24, 96_000)
    counters = Counters(times, series, rng.normal(size=len(times)), tuple(Series(f"counter {index}") for index in range(24)))
    return replace(trace, sites=LaunchSites(kernels, rng.integers(0, len(sites), count), sites), memory=held, counters=counters)


def packed(payload: Payload) -> bytes:
    """Return a header and a block as one body."""
    header = json.dumps(payload.header).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + payload.block


def frames(times: list[float], name: str = "frame") -> dict[str, float]:
    """Return the median and the 95th percentile of times between frames."""
    return {f"{name}_ms": round(float(np.median(times)), 1), f"{name}_p95_ms": round(float(np.percentile(times, 95)), 1)}


def memory_mb() -> float:
    """Return the most memory that this process had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure_tiles(browser: Any, count: int) -> dict[str, Any]:
    """Return what one trace of so many spans takes."""
    groups = as_groups([detailed(make_trace("dual", count, 0))])
    before_mb, start_s = memory_mb(), time.perf_counter()
    tiles = Tiles(groups) if needs_tiles(groups) else None
    body = packed(tiles.overview() if tiles else encode(groups))
    python_ms = (time.perf_counter() - start_s) * 1e3
    sizes: list[int] = []

    def asked(question: str) -> bytes:
        found = packed(answer(tiles, groups, json.loads(question)))
        sizes.append(len(found))
        return found

    times = in_page(browser, {"/first": body, "/ask": asked}, bundle_source().partition("export default")[0], TILES)
    row: dict[str, Any] = {
        "spans": count, "python_ms": round(python_ms), "first_ms": round(float(np.median(times["first"])), 1),
        "opened_ms": round(times["opened"][0]), **frames(times["draw"], "draw"), **frames(times["frame"]),
        "first_kb": round(len(body) / 1e3), "python_mb": round(memory_mb() - before_mb),
    }  # fmt: skip
    if tiles:
        row |= frames(times["sharp"], "sharp")
        row |= {"tile_kb": round(float(np.median(sizes)) / 1e3), "largest_tile_kb": round(max(sizes) / 1e3)}
    return row


def measure_twenty(browser: Any) -> dict[str, Any]:
    """Return what many timelines in one page take."""
    body = packed(encode(as_groups(engines_traces(SPANS))))
    times = in_page(browser, {"/first": body}, bundle_source().partition("export default")[0], TWENTY)
    frame = {**frames(times["zoom"], "zoom_frame"), **frames(times["scroll"], "scroll_frame")}
    return {
        "timelines": PAGES,
        "spans_each": SPANS,
        "first_ms": round(times["first"][0], 1),
        **frame,
        "heap_mb": round(times["heap"][0], 1),
    }


def measure_bars(count: int = COUNTS[0]) -> dict[str, Any]:
    """Return how long Plotly takes for bars of so many spans, or for how long there was no picture.

    A program of its own draws them, since a browser that is busy does not answer, and is ended.
    """
    command = [sys.executable, __file__, str(count)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as program:
        assert program.stdout is not None
        program.stdout.readline()  # The page has its figure.
        try:
            answer, _ = program.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            os.killpg(program.pid, signal.SIGKILL)
            return {"spans": count, "picture": f"none within {PATIENCE_S:.0f} s"}
    return {"spans": count, "first_ms": json.loads(answer)}


def draw_bars(count: int) -> None:
    """Draw bars; print a line when the page has them, and then how long the picture took."""
    from playwright.sync_api import sync_playwright

    figure = figure_json(engines_traces(count), "bar").encode()

    def fetched(_: str) -> bytes:
        print("fetched", flush=True)
        return figure

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS)
        print(in_page(browser, {"/figure": fetched}, plotly_source(), BARS)["first"][0])


def main() -> None:
    from hatch_build import build_bundle  # from the root, which timeline_drawing puts on the path
    from playwright.sync_api import sync_playwright

    build_bundle(ROOT)
    found: dict[str, Any] = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"2 cores, load {os.getloadavg()[0]:.1f} at the start",
    }
    with sync_playwright() as playwright:
        more = ["--enable-precise-memory-info", "--js-flags=--expose-gc"]
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=[*ARGUMENTS, *more])
        found["twenty"] = measure_twenty(browser)
        found["tiles"] = [measure_tiles(browser, count) for count in COUNTS]
        browser.close()
    keep(found)
    found["plotly_bars"] = measure_bars()
    keep(found)


def keep(found: dict[str, Any]) -> None:
    """Put what was found beside the results of the other benchmark."""
    print(json.dumps(found, indent=1), flush=True)
    result = json.loads(RESULT.read_text(encoding="utf-8"))
    RESULT.write_text(json.dumps(result | {"large": found}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    draw_bars(int(sys.argv[1])) if sys.argv[1:] else main()
