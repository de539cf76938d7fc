import assert from "node:assert/strict";
import test from "node:test";

import { filterSpans } from "../src/filter.js";
import { SpansById } from "../src/grouping.js";
import { buildLanes, MOST_LANES } from "../src/tracks.js";
import { makeModel, seeded } from "./model.js";

for (const [what, scale] of [["close together", 1], ["far apart", 1e6]]) {
  test(`spans are found by ids that are ${what}, as a search finds them`, () => {
    const random = seeded(scale);
    const ids = Int32Array.from({ length: 500 }, () => Math.floor(random() * 60 - 5) * scale).map((id) => Math.max(id, -1));
    const index = new SpansById(ids);
    for (let id = -1; id < 60; id++) {
      const expected = [...ids.keys()].filter((i) => id >= 0 && ids[i] === id * scale);
      assert.deepEqual([...index.of(id < 0 ? -1 : id * scale)], expected);
    }
    assert.equal(index.of(2 ** 31 - 1).length, 0);
    assert.equal(new SpansById(new Int32Array(0)).of(0).length, 0);
  });
}

test("a filter shows what has the name, and the calls that launch it", () => {
  const model = makeModel({ async: [
    { kind: "launch", name: "call", start: 0, end: 3, operation: 4 }, { kind: "launch", name: "call", start: 3, end: 5, operation: 5 },
    { kind: "kernel", name: "MatMul", lane: 1, start: 5, end: 9, operation: 4 }, { kind: "kernel", name: "add", lane: 1, start: 9, end: 12, operation: 5, part: 2 },
    { kind: "launch", name: "call", start: 12, end: 13, operation: 5, part: 2 }, { kind: "sync", name: "wait", start: 13, end: 14 },
  ] });
  const shown = (filter) => [...filterSpans(model, filter)[0].shown];
  assert.deepEqual(shown({ code: null, text: "matm" }), [1, 0, 1, 0, 0, 0]);
  assert.deepEqual(shown({ code: model.names.indexOf("add"), text: "" }), [0, 0, 0, 1, 1, 0]);
  assert.deepEqual(shown({ code: null, text: "wait" }), [0, 0, 0, 0, 0, 1]);
  assert.equal(filterSpans(model, { code: null, text: "" }), null);
  const [{ onDevice, onHost }] = filterSpans(model, { code: null, text: "a" });
  assert.deepEqual([onDevice, onHost], [2, 4], "matmul and add, their calls, and the wait");
});

test("of a hundred thousand lanes the first are drawn, and the others counted", () => {
  const lanes = Array.from({ length: 100_000 }, (_, index) => `lane ${index}`);
  const spans = lanes.map((_, lane) => ({ kind: "kernel", name: "k", lane, start: lane, end: lane + 5 }));
  const model = makeModel({ async: spans }, { lanes });
  const built = buildLanes(model.groups[0], model.kinds);
  assert.equal(built.length, MOST_LANES);
  assert.equal(model.groups[0].lanesLeftOut, 100_000 - MOST_LANES);
  assert.deepEqual(built.map(({ name, rows }) => [name, [...rows[0].spans]])[7], ["lane 7", [7]]);
});

test("of many branches of a graph those of a single kernel are counted and not drawn", () => {
  const drawnOf = (branches) => {
    const lanes = ["main", ...Array.from({ length: branches }, (_, index) => `aux ${index + 1}`)];
    const spans = lanes.map((_, lane) => ({ kind: "kernel", name: "k", lane, start: lane, end: lane + 5 }));
    spans.push(...[0, 2].map((lane) => ({ kind: "kernel", name: "k", lane, start: 300 + lane, end: 310 })));
    const model = makeModel({ "graph-dual": spans }, { lanes });
    const built = buildLanes(model.groups[0], model.kinds);
    return [built.length, model.groups[0].lanesLeftOut];
  };
  assert.deepEqual(drawnOf(31), [32, 0]);
  assert.deepEqual(drawnOf(115), [2, 114]);
});
