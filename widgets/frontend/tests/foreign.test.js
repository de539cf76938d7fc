// Traces that no engine of ours made: no operations, kernels with names of their own, several kernels of one launch.

import assert from "node:assert/strict";
import test from "node:test";

import { describeSpan } from "../src/describe.js";
import { filterSpans } from "../src/filter.js";
import { highlightOf } from "../src/join.js";
import { natureOf, natureOfAxis, timeWords } from "../src/nature.js";
import { kernelColumn, operationRows } from "../src/panel.js";
import { rangesAround } from "../src/ranges.js";
import { shortened } from "../src/text.js";
import { makeModel, seeded } from "./model.js";

const SYMBOL = "sm90_xmma_gemm_f32f32_tn_n_kernel";
const kernel = (start, correlation, more = {}) => ({ kind: "kernel", name: "gemm", lane: 1, start, end: start + 5, correlation, symbol: 0, ...more });
const model = makeModel({
  step: [
    { kind: "launch", name: "cudaLaunchKernel", start: 0, end: 3, correlation: 1 }, kernel(10, 1), kernel(20, 1, { name: "splitK", symbol: -1 }),
    { kind: "graph_launch", name: "cudaGraphLaunch", start: 30, end: 33, correlation: 2 },
    kernel(40, 2, { graph_node: 7 }), kernel(50, 2, { graph_node: 8 }), { kind: "set", name: "Memset", lane: 1, start: 60, end: 61, correlation: 2 },
  ],
});
model.texts = [SYMBOL];
const [group] = model.groups;
const spansOf = (span) => highlightOf(model, 0, span).members.flatMap(({ spans }) => spans).sort();

test("all kernels of one launch belong together, and an arrow leads to each", () => {
  for (const span of [0, 1, 2]) assert.deepEqual(spansOf(span), [0, 1, 2]);
  const [{ links }] = highlightOf(model, 0, 2).members;
  assert.deepEqual(links, [[0, 1], [0, 2]]);
});

test("a kernel of a replay is selected with its launch alone, the launch with the whole replay", () => {
  assert.deepEqual(spansOf(5), [3, 5]);
  assert.deepEqual(highlightOf(model, 0, 5).members[0].links, [[3, 5]]);
  assert.deepEqual(spansOf(6), [3, 6]);
  assert.deepEqual(spansOf(3), [3, 4, 5, 6]);
});

test("a kernel is told by its short name and its own, and by its node", () => {
  const told = describeSpan(model, group, 4);
  assert.deepEqual([told.name, told.symbol], ["gemm", SYMBOL]);
  assert.deepEqual(told.rows.at(-1), ["graph node", "7"]);
  assert.equal(describeSpan(model, group, 2).symbol, "");
});

test("the panel names the kernels of a launch, where they are not what the title says", () => {
  assert.deepEqual(kernelColumn(model, highlightOf(model, 0, 1)), ["kernel", SYMBOL, "splitK"]);
  assert.equal(operationRows(model, highlightOf(model, 0, 1)).length, 2);
  assert.equal(kernelColumn(model, highlightOf(model, 0, 6)), null);
});

test("a kernel says which ranges held its launch, from the outermost on", () => {
  const lanes = ["thread 1", "thread 1 ranges", "stream 7", "thread 2"];
  const range = (name, start, end) => ({ kind: "range", name, lane: 1, start, end });
  const around = makeModel({
    step: [
      range("step", 0, 100), range("conv", 10, 30), range("cudnn", 12, 20), { kind: "launch", lane: 0, start: 15, end: 18, correlation: 1 },
      { kind: "launch", lane: 3, start: 16, end: 18, correlation: 3 }, range("relu", 40, 50), { kind: "launch", lane: 0, start: 60, end: 61, correlation: 2 },
      { kind: "kernel", lane: 2, start: 70, end: 80, correlation: 1 }, { kind: "kernel", lane: 2, start: 80, end: 90, correlation: 2 },
      { kind: "kernel", lane: 2, start: 90, end: 95, correlation: 3 }, { kind: "kernel", lane: 2, start: 95, end: 99 },
    ],
  }, { lanes });
  const [step] = around.groups;
  const told = [7, 3, 8, 9, 10, 1].map((span) => rangesAround(around, step, span));
  assert.deepEqual(told, ["step › conv › cudnn", "step › conv › cudnn", "step", "", "", ""]);
});

test("a kernel is found by its own name", () => {
  const [{ shown, onDevice }] = filterSpans(model, { code: null, text: "xmma" });
  assert.deepEqual([...shown], [0, 1, 0, 0, 1, 1, 0]);
  assert.equal(onDevice, 3);
});

test("times that were not measured are called what they are", () => {
  const measured = { device: { kind: "cuda" }, recorder: "cupti" };
  const simulated = { device: { kind: "simulated" }, recorder: "device log" };
  const predicted = { device: { kind: "simulated" }, recorder: "prediction" };
  assert.deepEqual([measured, simulated, predicted].map(natureOf), ["", "simulated", "predicted"]);
  assert.equal(natureOfAxis([measured, measured]), "");
  assert.equal(natureOfAxis([predicted]), "predicted");
  assert.equal(natureOfAxis([measured, predicted, predicted]), "partly predicted");
  assert.equal(natureOfAxis([simulated, predicted]), "simulated or predicted");
  assert.equal(timeWords(predicted), " · predicted time");
});

test("a long name keeps its beginning and its end", () => {
  const long = `void ${"x".repeat(100_000)}<float>`;
  assert.equal(shortened(long, 40).length, 40);
  assert.match(shortened(long, 40), /^void x+…x+<float>$/);
  assert.equal(shortened("gemm", 40), "gemm");
});

test("of ranges nested ever so deep those around a launch are told, also where they have no row, the middle of many left out", () => {
  const lanes = ["thread 1", "thread 1 ranges"];
  const told = (depth) => {
    const nest = Array.from({ length: depth }, (_, at) => ({ kind: "range", name: `r${at}`, lane: 1, start: at, end: 9000 - at }));
    const beside = { kind: "range", name: "beside", lane: 1, start: depth + 1, end: depth + 2 };
    const model = makeModel({ step: [...nest, beside, { kind: "launch", start: depth + 5, end: depth + 6 }] }, { lanes });
    return rangesAround(model, model.groups[0], depth + 1);
  };
  assert.equal(told(11), Array.from({ length: 11 }, (_, at) => `r${at}`).join(" › "));
  assert.equal(told(3000), "r0 › r1 › r2 › r3 › r4 › r5 › … › r2994 › r2995 › r2996 › r2997 › r2998 › r2999");
});

test("ranges around a launch agree with a search, whether they nest or cross", () => {
  const random = seeded(8);
  for (let round = 0; round < 20; round++) {
    const ranges = Array.from({ length: 12 }, (_, at) => {
      const start = Math.floor(random() * 40);
      return { kind: "range", name: `r${at}`, lane: 1, start, end: start + 1 + Math.floor(random() * 30) };
    }).sort((a, b) => a.start - b.start);
    const calls = Array.from({ length: 70 }, (_, start) => ({ kind: "launch", start, end: start + 1 }));
    const model = makeModel({ step: [...ranges, ...calls].sort((a, b) => a.start - b.start) }, { lanes: ["thread 1", "thread 1 ranges"] });
    const [group] = model.groups;
    for (let span = 0; span < group.count; span++) {
      if (group.kind[span] !== model.kinds.launch) continue;
      const at = group.start[span];
      const wanted = ranges.filter(({ start, end }) => start <= at && end > at).map(({ name }) => name).sort();
      const told = rangesAround(model, group, span);
      if (wanted.length <= 12) assert.deepEqual(told ? told.split(" › ").sort() : [], wanted);
    }
  }
});
