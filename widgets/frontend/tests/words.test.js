import assert from "node:assert/strict";
import test from "node:test";

import { describeSpan } from "../src/describe.js";
import { exactTime, grouped, percent, prefixed, significant } from "../src/format.js";
import { firstOnDevice, highlightExtent, highlightOf } from "../src/join.js";
import { measureRows, operationRows } from "../src/panel.js";
import { activityOf, makeModel } from "./model.js";

const model = makeModel({
  async: [
    { kind: "launch", name: "relu", start: 1000, end: 4030, operation: 7, correlation: 3 },
    { kind: "kernel", name: "relu", lane: 1, start: 4900, end: 6900, operation: 7, correlation: 3, basis: 1, blocks: 128, threads: 256, bytes: 4_000_000, flops: 1_000_000 },
  ],
  graph: [
    { kind: "graph_launch", name: "graph launch", start: 500, end: 2100, correlation: 0 },
    { kind: "graph", name: "graph", lane: 1, start: 2000, end: 8000, correlation: 0 },
    { kind: "kernel", name: "relu", lane: 1, start: 2000, end: 4000, operation: 7, correlation: 0, basis: 2 },
    { kind: "kernel", name: "add", lane: 1, start: 4000, end: 8000, operation: 8, correlation: 0, basis: 2 },
  ],
});
const [plain, graph] = model.groups;

test("numbers", () => {
  assert.equal(exactTime(234_567), "234.567 µs");
  assert.equal(exactTime(1_234_567), "1.234567 ms");
  assert.equal(exactTime(-80), "−0.080 µs");
  assert.equal(exactTime(999_999), "999.999 µs");
  assert.equal(exactTime(999_999.5), "1.000000 ms");
  assert.equal(exactTime(-5e9), "−5.000000000 s");
  assert.equal(exactTime(3_600_000_000_001), "3,600.000000001 s");
  assert.equal(grouped(-0.0001, 2), "0.00");
  assert.equal(significant(0.0123), "0.0123");
  assert.equal(prefixed(1_048_576, "B"), "1.05 MB");
  assert.equal(prefixed(12, "B"), "12 B");
  assert.equal(percent(0.2149), "21.5 %");
});

test("a kernel is described with latency, queue time, size, rates and the basis of its times", () => {
  const text = describeSpan(model, plain, 1);
  assert.equal(text.where, "kernel · async · main");
  assert.deepEqual(text.rows, [
    ["start", "4.900 µs"],
    ["kernel time", "2.000 µs"],
    ["launch latency", "3.900 µs"], // 4.900 − 1.000
    ["queue time", "0.870 µs"], // 4.900 − 4.030
    ["launch size", "128 blocks × 256 threads"],
    ["moves", "4.00 MB, 2,000.0 GB/s"], // 4 MB in 2 µs
    ["computes", "1.00 MFLOP, 500 GFLOP/s"],
    ["operation", "#7"],
  ]);
  assert.deepEqual(text.notes, ["Times: derived."]);
  const stamped = { ...plain, basis: plain.basis.map(() => 0), stamped: { kernel: "first and last block" } };
  assert.deepEqual(describeSpan(model, stamped, 1).notes, ["Times: first and last block."]);
  assert.deepEqual(describeSpan(model, stamped, 0).notes, ["Times: measured."]); // a call
  const simulated = describeSpan(model, { ...plain, device: { kind: "simulated" } }, 1);
  assert.equal(simulated.where, "kernel · async · main · simulated time");
  assert.deepEqual(simulated.notes, []);
});

test("queue time is reported only where positive", () => {
  const rows = Object.fromEntries(describeSpan(model, graph, 2).rows);
  assert.equal(rows["launch latency"], "1.500 µs"); // 2.000 − 0.500
  assert.equal(rows["queue time"], undefined); // began 0.1 µs before the call returned
});

test("launch latency and queue time are told of the first node of a replay alone: the others waited for nodes, not for the call", () => {
  const rows = Object.fromEntries(describeSpan(model, graph, 3).rows);
  assert.deepEqual([rows["launch latency"], rows["queue time"]], [undefined, undefined]);
  assert.equal(Object.fromEntries(describeSpan(model, graph, 1).rows)["launch latency"], "1.500 µs"); // the replay's own span
  assert.deepEqual(operationRows(model, highlightOf(model, 1, 3)), [["graph", "main", "4.000 µs", "4.000 µs", "in graph", "–"]]);
});

test("an operation is found under every engine, with its launches", () => {
  const highlight = highlightOf(model, 0, 0);
  assert.equal(highlight.name, "relu");
  assert.deepEqual(highlight.members.map(({ group, spans, links }) => [group, spans, links]), [[0, [0, 1], [[0, 1]]], [1, [2, 0], [[0, 2]]]]);
  const common = model.groups.map(() => ({ origin: 0, factor: 1 }));
  assert.deepEqual(highlightExtent(model, highlight, common), [2000, 6900]);
  assert.deepEqual(highlightExtent(model, highlight, common, 0), [4900, 6900]);
  assert.deepEqual(operationRows(model, highlight), [
    ["async", "main", "4.900 µs", "2.000 µs", "3.030 µs", "3.900 µs"],
    ["graph", "main", "2.000 µs", "2.000 µs", "in graph", "1.500 µs"],
  ]);
});

test("operations of another program are not joined", () => {
  const other = makeModel({ a: [{ kind: "kernel", lane: 1, start: 0, end: 1, operation: 0 }], b: [{ kind: "kernel", lane: 1, start: 0, end: 1, operation: 0 }] });
  other.groups[1].program = "another";
  assert.deepEqual(highlightOf(other, 0, 0).members.map(({ group }) => group), [0]);
});

test("a graph's launch belongs to the whole replay", () => {
  const highlight = highlightOf(model, 1, 0);
  assert.deepEqual(highlight.members[0].spans.toSorted(), [0, 1, 2, 3]);
  assert.equal(firstOnDevice(graph, model.kinds, 0), 1, "the arrow of a graph's launch points at the graph");
});

test("a measured stretch tells running, busy and idle time of each engine", () => {
  const activities = [
    activityOf([{ start: 0, end: 4900, occupation: 2 }, { start: 4900, end: 6900, kernels: 1 }]),
    activityOf([{ start: 0, end: 2000, occupation: 2 }, { start: 2000, end: 8000, kernels: 1 }]),
  ];
  const groups = model.groups.map((group, index) => ({ ...group, activities: [activities[index]].filter(Boolean) }));
  assert.deepEqual(measureRows(model, groups, 3000, 7500), [
    ["async", "3.900 µs", "2.000 µs", "51.3 %", "1.900 µs", "1"], // ends at 6.900; busy 4.900 to 6.900
    ["graph", "4.500 µs", "4.500 µs", "100.0 %", "0.000 µs", "1"],
  ]);
  assert.deepEqual(measureRows(model, groups, 7000, 7500)[0], ["async", "–", "–", "–", "–", "–"]);
});

test("a kernel is marked with all of its blocks, in the group below", () => {
  const block = (start) => ({ kind: "kernel", name: "gemm", lane: 1, start, end: start + 5, operation: 0 });
  const both = makeModel({ dual: [block(0)], multiprocessors: [block(0), block(1), block(2)] });
  assert.deepEqual(highlightOf(both, 0, 0).members.map(({ group, spans }) => [group, spans.length]), [[0, 1], [1, 3]]);
});

test("a replay of a hundred thousand kernels is highlighted at once, up to a limit", () => {
  const kernels = Array.from({ length: 100_000 }, (_, i) => ({ kind: "kernel", lane: 1, start: 10 + i, end: 11 + i, correlation: 1 }));
  const calls = Array.from({ length: 100_000 }, () => ({ kind: "event", start: 0, end: 1 }));
  const large = makeModel({ graph: [...calls, { kind: "graph_launch", start: 5, end: 6, correlation: 1 }, ...kernels] });
  const begin = performance.now();
  const [{ spans }] = highlightOf(large, 0, 100_000).members;
  assert.equal(spans.length, 2000);
  assert.ok(performance.now() - begin < 500, "without a scan for each kernel");
});

test("a copy alone is no busy time of the GPU, and no idle time", () => {
  const activity = activityOf([{ start: 0, end: 1000, kernels: 1 }, { start: 1000, end: 1500, copies: 1 }, { start: 1500, end: 2000, occupation: 4 }]);
  const rows = measureRows(model, [{ ...plain, extent_ns: 2000, activities: [activity] }], 0, 2000);
  assert.deepEqual(rows.map((row) => row.slice(1, 5)), [["2.000 µs", "1.000 µs", "50.0 %", "0.500 µs"]]);
});
