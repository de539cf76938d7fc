import assert from "node:assert/strict";
import test from "node:test";

import { axisUnit, blendViews, clampView, fitView, fullView, NARROWEST_NS, panView, tickDecimals, tickStep, zoomView } from "../src/scale.js";
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

test("the axis stays in microseconds until they get too long", () => {
  assert.equal(axisUnit({ t0: 0, t1: 99e6 }).name, "µs");
  assert.equal(axisUnit({ t0: 0, t1: 2e8 }).name, "ms");
  assert.equal(axisUnit({ t0: 0, t1: 2e11 }).name, "s");
});
