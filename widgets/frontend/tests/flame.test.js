import assert from "node:assert/strict";
import test from "node:test";

import { around, bottomUp, boxesOf, decodeTree, FRAME_KINDS, foundIn, spansIn, wraps } from "../src/flame_tree.js";
import { columnsOf, makeModel } from "./model.js";

const TEXTS = ["", "GPU", "forward", "model.py", "gemm", "relu", "loss"];
// GPU 100 = forward 70 (gemm 40, relu 30) + loss 30 (gemm 30)
const ROWS = [
  [-1, 1, 0, 0, "unknown", 4, 100, 0, 20], [0, 2, 3, 12, "function", 3, 70, 0, 15], [1, 4, 0, 0, "kernel", 2, 40, 0, 15],
  [1, 5, 0, 0, "kernel", 1, 30, 0, 0], [0, 6, 3, 40, "function", 1, 30, 0, 5], [4, 4, 0, 0, "kernel", 1, 30, 0, 5],
];
const NAMES = ["parent", "name", "file", "line", "kind", "kernels", "gpu", "exposed", "idle"];

function treeOf(rows = ROWS, frame = []) {
  const [columns, block] = columnsOf({
    ...Object.fromEntries(NAMES.map((name, at) => [name, rows.map((row) => (name === "kind" ? FRAME_KINDS.indexOf(row[at]) : row[at] + (name === "parent")))])),
    frame: [...frame.map((each) => each + 1), ...Array(Math.max(0, rows.length - frame.length)).fill(0)],
  });
  columns.parent.shift = columns.frame.shift = -1;
  return decodeTree({ by: "code", texts: TEXTS, count: rows.length, columns, rows: frame.length, frame: columns.frame }, block);
}

const pathsOf = (frame, cost = "gpu") => Object.assign({ [around(frame).reverse().map(({ name }) => name).join("/")]: frame.cost[cost] }, ...frame.children.map((child) => pathsOf(child, cost)));

test("a tree from the whole down", () => {
  const tree = treeOf();
  assert.deepEqual(pathsOf(tree.frames[0]), { "": 100, forward: 70, "forward/gemm": 40, "forward/relu": 30, loss: 30, "loss/gemm": 30 });
  assert.deepEqual([tree.frames[1].file, tree.frames[1].line, tree.frames[1].kind], ["model.py", 12, "function"]);
});

test("and from kernels up: the sums of each row are those of the whole, in each cost", () => {
  const up = bottomUp(treeOf());
  assert.deepEqual(pathsOf(up), { "": 100, gemm: 70, "gemm/forward": 40, "gemm/loss": 30, relu: 30, "relu/forward": 30 });
  assert.deepEqual(pathsOf(up, "idle"), { "": 20, gemm: 20, "gemm/forward": 15, "gemm/loss": 5, relu: 0, "relu/forward": 0 });
  assert.deepEqual(up.children.map(({ kernels, numbers }) => [kernels, numbers]), [[3, [2, 5]], [1, [3]]]);
});

test("time that lies in no kernel, as that after the last work, is a frame of its own from below", () => {
  const up = bottomUp(treeOf([[-1, 1, 0, 0, "unknown", 1, 10, 0, 9], [0, 2, 0, 0, "unknown", 1, 10, 0, 9], [1, 4, 0, 0, "kernel", 1, 10, 0, 2]]));
  assert.deepEqual(pathsOf(up, "idle"), { "": 9, forward: 7, gemm: 2, "gemm/forward": 2 });
});

test("boxes: the frames around the top over the whole width, children side by side, the widest first, none too narrow", () => {
  const { frames } = treeOf();
  const told = (boxes) => boxes.map(({ frame, depth, left, width }) => [frame.name, depth, left, width]);
  assert.deepEqual(told(boxesOf(frames[0], "gpu", 0.35, 100)), [["GPU", 0, 0, 1], ["forward", 1, 0, 0.7], ["gemm", 2, 0, 0.4]]);
  assert.deepEqual(told(boxesOf(frames[4], "gpu", 0.01, 100)), [["GPU", 0, 0, 1], ["loss", 1, 0, 1], ["gemm", 2, 0, 1]]);
  assert.equal(boxesOf(frames[0], "gpu", 0, 3).length, 3);
  assert.deepEqual(told(boxesOf(frames[0], "exposed", 0.01, 100)), [["GPU", 0, 0, 1]]); // there is none
});

test("frames that only call the next one take no row, and no place in callers; modules, and what calls kernels, stay", () => {
  const wrapped = treeOf([
    [-1, 1, 0, 0, "unknown", 4, 100, 0, 90], [0, 6, 3, 1, "function", 4, 100, 0, 15], [1, 5, 3, 2, "function", 4, 100, 0, 15],
    [2, 2, 3, 3, "module", 4, 100, 0, 15], [3, 6, 3, 4, "function", 4, 100, 0, 15], [4, 4, 0, 0, "kernel", 4, 100, 0, 15],
  ]);
  const { frames } = wrapped;
  assert.deepEqual(frames.map(wraps), [false, true, true, false, false, false]);
  assert.deepEqual(boxesOf(frames[0], "idle", 0.01, 100).map(({ frame, depth }) => [frame.name, depth]), [["GPU", 0], ["forward", 1], ["loss", 2], ["gemm", 3]]);
  assert.deepEqual(boxesOf(frames[4], "gpu", 0.01, 100).map(({ frame }) => frame.name), ["GPU", "forward", "loss", "gemm"]);
  assert.deepEqual(Object.keys(pathsOf(bottomUp(wrapped))), ["", "gemm", "gemm/loss", "gemm/loss/forward"]);
  frames[5].cost.idle = 0; // Now the functions have idle time of their own, which nothing else would tell.
  frames[3].cost.idle = 0;
  assert.ok(!wraps(frames[2]) && wraps(frames[1]));
});

test("the spans of a frame, their calls, and the same operations under another engine", () => {
  const model = makeModel({
    async: [
      { kind: "launch", start: 0, end: 1, operation: 7, correlation: 3 }, { kind: "launch", start: 1, end: 2, operation: 8, correlation: 4 },
      { kind: "kernel", lane: 1, start: 5, end: 9, operation: 7, correlation: 3 }, { kind: "kernel", lane: 1, start: 9, end: 12, operation: 8, correlation: 4 },
    ],
    graph: [
      { kind: "graph_launch", start: 0, end: 1, correlation: 0 }, { kind: "kernel", lane: 1, start: 5, end: 9, operation: 7, correlation: 0 },
      { kind: "kernel", lane: 1, start: 9, end: 12, operation: 8, correlation: 0 },
    ],
  });
  const spans = spansIn(treeOf(ROWS, [-1, -1, 2, 5]), [1]);
  assert.deepEqual([...spans], [0, 0, 1, 0]);
  assert.deepEqual(spansIn(treeOf(ROWS, [-1, -1, 2, 5]), [2, 5]), Uint8Array.of(0, 0, 1, 1));
  const found = foundIn(model, 0, spans).map(({ shown, onDevice, onHost }) => [[...shown], onDevice, onHost]);
  assert.deepEqual(found, [[[1, 0, 1, 0], 1, 1], [[0, 1, 0], 1, 0]]);
});
