"""How fast the timeline draws, from 2,000 to 1,000,000 spans over five engines, in headless Chromium.

``python benchmarks/timeline_drawing.py`` writes reports, opens each, zooms and pans it, and keeps under ``benchmarks/results``:
``first_ms`` from the parsed page to the first picture (unpacking, decoding, drawing), ``draw_ms`` for drawing one frame, and ``frame_ms``
from one frame to the next while the view changes in each. Medians, and the 95th percentile of the last.
"""

from __future__ import annotations

import json
import platform
import shutil
import sys
import tempfile
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "toolkit"), str(ROOT / "widgets"), str(ROOT)]

from hatch_build import build_bundle  # noqa: E402

from streamscope.trace.spans import COLUMN_DTYPES, SpanKind, SpanTable  # noqa: E402
from streamscope.trace.trace import DeviceInfo, Trace, TraceInfo  # noqa: E402
from streamscope_widgets.report import report  # noqa: E402

COUNTS = (2_000, 10_000, 50_000, 100_000, 1_000_000)
ENGINES = ("sync", "async", "dual", "graph", "graph-dual")
VIEWPORT = {"width": 1400, "height": 1000}
FRAMES = 60
ARGUMENTS = [
    "--no-sandbox", "--disable-quic", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run",
]  # fmt: skip

# Zooms from the whole run to a hundredth of it, then pans there; each frame has another view.
MEASURE = """async (frames) => {
  const timeline = document.querySelector('#timeline').timeline;
  const whole = timeline.bounds;
  const width = whole.t1 - whole.t0;
  const view = (i) => {
    const share = i < frames / 2 ? 0.01 ** (i / (frames / 2)) : 0.01;
    const middle = whole.t0 + width * (0.5 + (i < frames / 2 ? 0 : (i / frames - 0.5) * 0.3));
    return { t0: middle - share * width / 2, t1: middle + share * width / 2 };
  };
  const draw = [];
  for (let i = 0; i < frames; i++) {
    timeline.view = view(i);
    const start = performance.now();
    timeline.drawNow();
    timeline.stage.baseContext.getImageData(0, 0, 1, 1);  // until the picture is there, not only asked for
    draw.push(performance.now() - start);
  }
  timeline.reset();
  const stamps = [];
  await new Promise((done) => {
    const step = (now) => {
      stamps.push(now);
      if (stamps.length > frames) return done();
      timeline.setView(view(stamps.length));
      requestAnimationFrame(step);
    };
    requestAnimationFrame(step);
  });
  const frame = stamps.slice(1).map((stamp, i) => stamp - stamps[i]);
  return { draw, frame, first: performance.getEntriesByName('timeline-drawn')[0].startTime };
}"""
# A timeline has a layout once it has been drawn for the first time.
MARK = """addEventListener('DOMContentLoaded', () => {
  const begin = performance.now();
  const look = () => document.querySelector('#timeline').timeline?.layout
    ? performance.mark('timeline-drawn', { startTime: performance.now() - begin }) : setTimeout(look, 1);
  look();
});"""


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
    typed = {column: values[order].astype(COLUMN_DTYPES[column]) for column, values in columns.items()}
    table = SpanTable(**typed, names=tuple(f"kernel {index}" for index in range(12)), lanes=("host", "main", "aux"))
    return Trace(table, TraceInfo(engine, "benchmark", DeviceInfo("simulated", "none"), versions={}))


def measure(browser: Any, count: int, folder: Path) -> dict[str, float]:
    """Return medians for one number of spans."""
    traces = [make_trace(engine, count // len(ENGINES), seed) for seed, engine in enumerate(ENGINES)]
    path = report(traces, folder / f"{count}.html", title=f"{count:,} spans", budget_bytes=200_000_000)
    page = browser.new_page(viewport=VIEWPORT, bypass_csp=True)
    page.add_init_script(MARK)
    page.goto(path.as_uri())
    page.wait_for_function("performance.getEntriesByName('timeline-drawn').length")
    times = page.evaluate(MEASURE, FRAMES)
    page.close()
    return {
        "spans": count,
        "file_mb": round(path.stat().st_size / 1e6, 3),
        "first_ms": round(times["first"], 1),
        "draw_ms": round(float(np.median(times["draw"])), 2),
        "frame_ms": round(float(np.median(times["frame"])), 1),
        "frame_p95_ms": round(float(np.percentile(times["frame"], 95)), 1),
    }


def main() -> None:
    from playwright.sync_api import sync_playwright

    build_bundle(ROOT)
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS)
        rows = []
        for count in COUNTS:
            rows.append(measure(browser, count, Path(folder)))
            print(rows[-1])
        result = {
            "date": datetime.now(UTC).date().isoformat(),
            "versions": {"chromium": browser.version, "python": platform.python_version(), "numpy": metadata.version("numpy")},
            "machine": {"platform": sys.platform, "processor": platform.machine(), "rendering": "headless, software"},
            "viewport": VIEWPORT,
            "engines": len(ENGINES),
            "frames": FRAMES,
            "results": rows,
        }
        browser.close()
    (ROOT / "benchmarks" / "results" / "timeline_drawing.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
