import assert from "node:assert/strict";
import test from "node:test";

import { alignmentsOf, offAxis, onAxis, reachOf } from "../src/align.js";
import { Arrangement } from "../src/arrangement.js";
import { fullView } from "../src/scale.js";
import { makeModel } from "./model.js";

const model = makeModel({
  sync: [{ kind: "launch", start: 0, end: 10, operation: 0 }, { kind: "kernel", lane: 1, start: 40, end: 60, operation: 0 }, { kind: "kernel", lane: 1, start: 300, end: 1000, operation: 1 }],
  graph: [{ kind: "graph", lane: 1, start: 5, end: 90 }, { kind: "kernel", lane: 1, start: 8, end: 20, operation: 0 }, { kind: "kernel", lane: 2, start: 30, end: 100, operation: 1 }],
});
const both = [0, 1];

test("on one axis nothing moves", () => {
  assert.deepEqual(alignmentsOf(model, "time", null, both), [{ origin: 0, factor: 1 }, { origin: 0, factor: 1 }]);
});

test("the first kernel, or an operation, stands at 0 under every engine that has it", () => {
  assert.deepEqual(alignmentsOf(model, "start", null, both).map(({ origin }) => origin), [40, 8]);
  const alignments = alignmentsOf(model, "operation", 1, both);
  assert.deepEqual(alignments.map(({ origin }) => origin), [300, 30]);
  assert.deepEqual(reachOf(model, alignments, both), [-300, 700]);
  assert.deepEqual(reachOf(model, alignments, [1]), [-30, 70]);
  assert.deepEqual(alignmentsOf(model, "operation", 7, both).map(({ origin }) => origin), [0, 0]);
});

test("of a long trace, an operation begins where Python says", () => {
  assert.deepEqual(alignmentsOf(model, "operation", [25, null], both).map(({ origin }) => origin), [25, 0]);
});

test("at its own scale each engine is as long as the longest that is shown", () => {
  const alignments = alignmentsOf(model, "scale", null, both);
  assert.deepEqual(alignments.map(({ factor }) => factor), [1, 10]);
  assert.deepEqual(model.groups.map(({ extent_ns }, index) => onAxis(alignments[index], extent_ns)), [1000, 1000]);
  assert.equal(alignmentsOf(model, "scale", null, [1])[1].factor, 1);
});

test("there and back again", () => {
  for (const mode of ["time", "start", "operation", "scale"]) {
    for (const alignment of alignmentsOf(model, mode, 1, both)) {
      for (const time of [-5, 0, 17.5, 1e12]) assert.ok(Math.abs(offAxis(alignment, onAxis(alignment, time)) - time) <= 1e-12 * Math.abs(time) + 1e-12);
    }
  }
});

test("a view of everything has air at both ends, and a width even where nothing happens", () => {
  assert.deepEqual(fullView(-300, 700), { t0: -308, t1: 712 });
  assert.deepEqual(fullView(0, 0), { t0: 0, t1: 1000 });
});

test("engines are shown in their order, the pinned ones first", () => {
  const arrangement = new Arrangement(4);
  assert.deepEqual(arrangement.shown, [0, 1, 2, 3]);
  arrangement.move(0, 2);
  assert.deepEqual(arrangement.shown, [1, 2, 0, 3]);
  arrangement.toggle("pinned", 3);
  assert.deepEqual(arrangement.shown, [3, 1, 2, 0]);
  arrangement.move(3, 1);
  arrangement.move(1, -1);
  assert.deepEqual(arrangement.shown, [3, 1, 2, 0], "neither leaves the pinned ones nor gets among them");
  arrangement.hide(1);
  arrangement.move(0, -1);
  assert.deepEqual(arrangement.shown, [3, 0, 2], "hidden ones are passed over");
  arrangement.show([2, 1]);
  assert.deepEqual(arrangement.shown, [2, 1]);
  arrangement.hide(2);
  arrangement.hide(1);
  assert.deepEqual(arrangement.shown, [1], "the last stays");
});
