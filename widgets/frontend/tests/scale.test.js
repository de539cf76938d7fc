import assert from "node:assert/strict";
import test from "node:test";

import { drawAxes } from "../src/axis.js";
import { inUnit } from "../src/format.js";
import { frameGeometry } from "../src/geometry.js";
import { axisUnit, blendViews, clampView, fitView, fullView, NARROWEST_NS, panView, tickDecimals, tickStep, tickWords, zoomView } from "../src/scale.js";
import { seeded } from "./model.js";

const bounds = { t0: 0, t1: 1000 };

test("zooming keeps the anchor where it is", () => {
  const random = seeded(1);
  for (let i = 0; i < 200; i++) {
    const t0 = 100 + 300 * random();
    const view = { t0, t1: t0 + 100 + 200 * random() };
    const share = random();
    const anchor = view.t0 + share * (view.t1 - view.t0);
    const zoomed = zoomView(view, anchor, 0.3 + 0.7 * random(), bounds);
    assert.ok(Math.abs((anchor - zoomed.t0) / (zoomed.t1 - zoomed.t0) - share) < 1e-9);
  }
});

test("a view never leaves its bounds, nor gets narrower than can be drawn", () => {
  assert.deepEqual(zoomView({ t0: 0, t1: 1000 }, 500, 4, bounds), bounds);
  assert.deepEqual(panView({ t0: 0, t1: 100 }, -50, bounds), { t0: 0, t1: 100 });
  assert.deepEqual(panView({ t0: 0, t1: 100 }, 5000, bounds), { t0: 900, t1: 1000 });
  const narrow = zoomView({ t0: 400, t1: 440 }, 420, 1e-6, bounds);
  assert.equal(narrow.t1 - narrow.t0, NARROWEST_NS);
  assert.deepEqual(clampView({ t0: -10, t1: 2000 }, bounds), bounds);
});

test("an empty trace still has a view", () => {
  const view = fullView(0, 0);
  assert.ok(view.t1 > view.t0);
});

test("fitting shows all of a stretch with a margin", () => {
  assert.deepEqual(fitView(400, 600, bounds, 0.25), { t0: 350, t1: 650 });
});

test("a glide ends exactly at its target", () => {
  const target = { t0: 3, t1: 7 };
  assert.equal(blendViews(bounds, target, 1), target);
  const half = blendViews({ t0: 0, t1: 400 }, { t0: 0, t1: 100 }, 0.5);
  assert.ok(Math.abs(half.t1 - half.t0 - 200) < 1e-9, "the geometric mean of the widths");
  assert.ok(Math.abs(half.t0) < 1e-9, "an edge that both views share stays");
});

test("ticks are 1, 2 or 5 times a power of ten and leave their gap", () => {
  assert.equal(tickStep({ t0: 0, t1: 1000 }, 1000, 84), 100);
  assert.equal(tickStep({ t0: 0, t1: 1000 }, 1000, 101), 200);
  assert.equal(tickStep({ t0: 0, t1: 1000 }, 1000, 201), 500);
  assert.equal(tickStep({ t0: 0, t1: 20 }, 1000, 10), 1, "never below a nanosecond");
  assert.equal(tickDecimals(50, { ns: 1e3 }), 2);
  assert.equal(tickDecimals(2000, { ns: 1e3 }), 0);
});

test("the unit of the axis is that of its largest time, as in all words about it", () => {
  assert.equal(axisUnit({ t0: 0, t1: 999_999 }).name, "µs");
  assert.equal(axisUnit({ t0: 0, t1: 4e6 }).name, "ms");
  assert.equal(axisUnit({ t0: -2e6, t1: 10 }).name, "ms");
  assert.equal(axisUnit({ t0: 0, t1: 2e9 }).name, "s");
});

/** What the axis of a view writes, as [label, left edge, right edge], with letters six pixels wide. */
function labelsOf(view, width = 1000) {
  const labels = [];
  const measureText = (text) => ({ width: 6 * text.length });
  const ctx = {
    canvas: { width: 112 + width }, fillRect() {}, measureText,
    fillText: (text, centre) => labels.push([text, centre - measureText(text).width / 2, centre + measureText(text).width / 2]),
  };
  const layout = { plot: { left: 112, right: 112 + width }, axis: 30, foot: 200 };
  drawAxes(ctx, { layout, view, mode: "time", model: {}, theme: {}, geometry: frameGeometry(view, layout, 1) });
  return labels;
}

test("far into a long trace the offset is told once, and ticks count from it", () => {
  const [offset, ...ticks] = labelsOf({ t0: 4_147_972_130, t1: 4_147_972_630 }).map(([label]) => label);
  assert.equal(offset, "4.147972 s +");
  // From 0.13 to 0.63 µs behind it, two pixels a nanosecond; the label of 0.15 µs would lie under the offset, which is 84 pixels long.
  assert.deepEqual(ticks, ["0.20 µs", "0.25 µs", "0.30 µs", "0.35 µs", "0.40 µs", "0.45 µs", "0.50 µs", "0.55 µs", "0.60 µs"]);
  assert.deepEqual(tickWords({ t0: 4_147_972_130, t1: 4_147_975_130 }, 50).words, "4.147 s +");
  assert.deepEqual(tickWords({ t0: -500_000_000_130, t1: -500_000_000_030 }, 10).words, "−500.000001 s +");
});

test("up to eight digits ticks are told whole", () => {
  assert.deepEqual(labelsOf({ t0: 0, t1: 1000 }, 300).map(([label]) => label), ["0.0 µs", "0.5 µs", "1.0 µs"]);
  assert.equal(tickWords({ t0: 99_999_000, t1: 99_999_999 }, 1).base, 0); // 99.999999 ms
  assert.equal(tickWords({ t0: 4_147_972_000, t1: 4_147_982_000 }, 100).base, 0); // 4.1479720 s
  assert.notEqual(tickWords({ t0: 4_147_972_000, t1: 4_147_973_000 }, 10).base, 0); // 4.14797200 s
});

test("labels tell their ticks, keep apart and stay in the picture, wherever the view lies", () => {
  const random = seeded(8);
  for (let round = 0; round < 2000; round++) {
    const t0 = (random() < 0.2 ? -1 : 1) * 10 ** (13 * random());
    const view = { t0, t1: t0 + 20 * 10 ** (10 * random()) };
    const labels = labelsOf(view, 200 + 1500 * random());
    assert.ok(labels.length, `${t0}`);
    labels.forEach(([, left], at) => assert.ok(left >= (labels[at - 1]?.[2] ?? 0)));
    const exact = (label) => ({ "µs": 1e3, ms: 1e6, s: 1e9 })[label.split(" ")[1]] * Number(label.split(" ")[0].replaceAll(",", "").replace("−", "-"));
    const from = labels[0][0].endsWith("+") ? exact(labels.shift()[0]) : 0;
    for (const [label] of labels) {
      const time = from + exact(label);
      assert.ok(time > view.t0 - 1e-3 && time < view.t1 + 1e-3, `${label} in ${view.t0} to ${view.t1}`);
    }
  }
});

test("the cursor's time is exact in the unit of the axis", () => {
  const told = (time, t1) => inUnit(time, axisUnit({ t0: 0, t1 }));
  assert.deepEqual([told(1234.6, 1e6), told(4_147_972_202, 5e9), told(4_147_972_202, 2e11)], ["0.001235 ms", "4.147972202 s", "4.147972202 s"]);
});
