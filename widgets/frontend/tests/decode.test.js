import assert from "node:assert/strict";
import test from "node:test";

import { launchedName } from "../src/decode.js";
import { decodeColumn } from "../src/decode_column.js";
import { filterSpans } from "../src/filter.js";
import { highlightOf } from "../src/join.js";
import { fromBase64, unpacked } from "../src/page.js";
import { gallop, lowerBound, upperBound } from "../src/search.js";
import { makeModel } from "./model.js";

test("columns: constants, deltas, shifts, and views that start at an odd byte", () => {
  assert.deepEqual([...decodeColumn({ dtype: "u16", constant: 300 }, new Uint8Array(0), 3)], [300, 300, 300]);
  const bytes = new Uint8Array(1 + 6);
  new DataView(bytes.buffer).setUint16(3, 7, true);
  new DataView(bytes.buffer).setUint16(5, 500, true);
  const odd = bytes.subarray(1);
  assert.deepEqual([...decodeColumn({ dtype: "u16", offset: 2, delta: true, first: 10 }, odd, 2)], [17, 517]);
  assert.deepEqual([...decodeColumn({ dtype: "u16", offset: 2, shift: -1 }, odd, 2)], [6, 499]);
});

test("starts beyond 32 bits stay exact", () => {
  const model = makeModel({ async: [{ kind: "launch", start: 2 ** 45 + 1, end: 2 ** 45 + 4 }] });
  assert.equal(model.groups[0].start[0], 2 ** 45 + 1);
  assert.equal(model.groups[0].end[0], 2 ** 45 + 4);
});

test("host calls learn their operation's name from the device", () => {
  const model = makeModel({ async: [
    { kind: "launch", name: "cuLaunchKernel", start: 0, end: 3, operation: 4 }, { kind: "kernel", name: "relu", lane: 1, start: 3, end: 5, operation: 4 },
  ] });
  assert.equal(model.names[launchedName(model.groups[0], 0)], "relu");
  assert.equal(model.groups[0].launches.operationName[0], -1);
});

test("the launches of one operation wear the colours of what each puts on the device, whichever begins first", () => {
  const span = (kind, name, part, start, lane = 0) => ({ kind, name, part, start, end: start + 2, lane, operation: 0 });
  const model = makeModel({ dual: [
    span("launch", "launch dw", 0, 0), span("launch", "launch dx", 1, 2), span("host", "load", 2, 4),
    span("kernel", "dx", 1, 5, 1), span("kernel", "dw", 0, 6, 2),
  ] });
  const name = (row) => model.names[launchedName(model.groups[0], row)];
  assert.deepEqual([0, 1, 2, 3, 4].map(name), ["dw", "dx", undefined, "dx", "dw"]);
});

test("a report's block is read back", async () => {
  const packed = await new Response(new Blob([new Uint8Array([1, 2, 250])]).stream().pipeThrough(new CompressionStream("gzip"))).arrayBuffer();
  const text = Buffer.from(packed).toString("base64");
  assert.deepEqual([...(await unpacked(fromBase64(text), "gzip"))], [1, 2, 250]);
  assert.deepEqual([...(await unpacked(fromBase64("AQL6"), "none"))], [1, 2, 250]);
});

test("searches agree with a scan", () => {
  const values = Float64Array.from([1, 1, 2, 5, 5, 5, 9]);
  for (let limit = 0; limit <= 10; limit++) {
    const at = values.findIndex((value) => value >= limit);
    assert.equal(lowerBound(values, limit), at < 0 ? 7 : at);
    assert.equal(gallop(values, limit, 0), at < 0 ? 7 : at);
    const above = values.findIndex((value) => value > limit);
    assert.equal(upperBound(values, limit), above < 0 ? 7 : above);
  }
});

test("what the first picture can do without is decoded when it is asked for, once", () => {
  const [group] = makeModel({ async: [{ kind: "launch", start: 0, end: 5, operation: 7, correlation: 3 }] }).groups;
  const waits = (column) => "get" in Object.getOwnPropertyDescriptor(group, column);
  assert.deepEqual(["start", "correlation", "operation"].map(waits), [false, true, true]);
  const { correlation } = group;
  assert.deepEqual([...correlation], [3]);
  assert.equal(group.correlation, correlation);
  assert.deepEqual(["correlation", "operation"].map(waits), [false, true]);
});

test("operations of different programs have names of their own, though their numbers are the same", () => {
  const one = (name) => [{ kind: "launch", start: 0, end: 2, operation: 0 }, { kind: "kernel", name, lane: 1, start: 3, end: 9, operation: 0 }];
  const model = makeModel({ a: one("matmul"), b: one("relu") });
  model.groups[1].program = "other";
  assert.deepEqual([0, 1].map((group) => highlightOf(model, group, 1).name), ["matmul", "relu"]);
  assert.deepEqual([0, 1].map((group) => highlightOf(model, group, 0).name), ["matmul", "relu"]);
  const marked = filterSpans(model, { code: null, text: "matmul" }).map(({ shown }) => [...shown]);
  assert.deepEqual(marked, [[1, 1], [0, 0]]);
});
