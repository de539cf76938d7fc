import assert from "node:assert/strict";
import test from "node:test";

import { filterSpans } from "../src/filter.js";
import { SpansById } from "../src/grouping.js";
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
