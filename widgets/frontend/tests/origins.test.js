import assert from "node:assert/strict";
import test from "node:test";

import { describeSpan } from "../src/describe.js";
import { filterSpans } from "../src/filter.js";
import { fittingName, originOf } from "../src/origins.js";
import { makeModel } from "./model.js";

const matmul = (start, operation) => ({ kind: "kernel", name: "matmul", lane: 1, start, end: start + 50, operation });
const model = makeModel({ async: [{ kind: "launch", name: "launch matmul", start: 0, end: 9, operation: 1 }, matmul(10, 0), matmul(60, 1), matmul(200, 2)] });
model.texts = ["Attention/scores", "model.py:3: s = q @ k.T", "float32[64, 64], float32[64, 64] → float32[64, 64]"];
model.groups[0].origins = {
  count: 2, label: Int32Array.of(-1, 0), line: Int32Array.of(1, 1), arguments: Int32Array.of(2, 2),
};
const [group] = model.groups;

test("five equal names are told apart by label, shapes and line", () => {
  const told = describeSpan(model, group, 2);
  assert.deepEqual(told.rows.slice(0, 2), [["label", "Attention/scores"], ["shapes", model.texts[2]]]);
  assert.equal(told.notes[0], "model.py:3: s = q @ k.T");
  assert.equal(describeSpan(model, group, 1).rows[0][0], "shapes");
});

test("captured code has no shapes, but an operator", () => {
  const texts = [...model.texts, "aten.relu.default"];
  const captured = { ...group, origins: { ...group.origins, arguments: Int32Array.of(3, 3) } };
  assert.deepEqual(describeSpan({ ...model, texts }, captured, 2).rows.slice(0, 2), [["module", "Attention/scores"], ["operator", "aten.relu.default"]]);
});

test("what is not known is empty: an operation beyond the program, none at all, an old trace", () => {
  const nothing = { label: "", line: "", shapes: "" };
  assert.deepEqual([originOf(model, group, 2), originOf(model, group, -1)], [nothing, nothing]);
  assert.deepEqual(originOf(model, { origins: { count: 0 } }, 0), nothing);
});

test("a bar shows as much as fits", () => {
  const ctx = { measureText: (text) => ({ width: text.length }) };
  const fit = (span, room) => fittingName(ctx, model, group, span, "matmul", room);
  assert.equal(fit(2, 200), `matmul · Attention/scores · ${model.texts[2]}`);
  assert.equal(fit(2, 30), "matmul · Attention/scores");
  assert.equal(fit(2, 10), "matmul");
  assert.equal(fit(3, 200), "matmul");

  const captured = { ...group, origins: { ...group.origins, arguments: Int32Array.of(3, 3) } };
  const called = (span, room) => fittingName(ctx, { ...model, texts: [...model.texts, "aten.relu.default"] }, captured, span, "Kernel", room);
  assert.deepEqual([90, 25, 9].map((room) => called(2, room)), ["relu · Attention/scores · Kernel", "relu · Attention/scores", "relu"]);
  assert.equal(called(1, 90), "relu · Kernel");
});

test("a label is found as a name is, with the calls", () => {
  assert.deepEqual([...filterSpans(model, { code: null, text: "scores" })[0].shown], [1, 0, 1, 0]);
  assert.deepEqual([...filterSpans(model, { code: null, text: "matmul" })[0].shown], [1, 1, 1, 1]);
});
