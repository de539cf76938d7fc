import assert from "node:assert/strict";
import test from "node:test";

import { orderOf } from "../src/sorting.js";

const sorted = (cells, turned = false) => orderOf(cells, turned).map((at) => cells[at]);

test("numbers fall, then rise; cells without one stay behind", () => {
  const cells = ["9.5", "1,234.0", "", "−3", "12", "–"];
  assert.deepEqual(sorted(cells), ["1,234.0", "12", "9.5", "−3", "", "–"]);
  assert.deepEqual(sorted(cells, true), ["−3", "9.5", "12", "1,234.0", "", "–"]);
  assert.deepEqual(sorted(["0.4 %", "83 %", "7 %"]), ["83 %", "7 %", "0.4 %"]);
  assert.deepEqual(sorted(["1.3", "12.5 (1.2×)", "3.1 (2.0×)"]), ["12.5 (1.2×)", "3.1 (2.0×)", "1.3"]);
  const speedups = ["4.0× faster", "5 % faster", "3 % slower", "2.8× slower", "–"];
  assert.deepEqual(sorted(speedups.toReversed()), speedups);
});

test("texts rise, then fall, though some begin with a digit; equals keep their order", () => {
  assert.deepEqual(sorted(["loss", "3d_conv", "attention"]), ["3d_conv", "attention", "loss"]);
  assert.deepEqual(sorted(["loss", "attention"], true), ["loss", "attention"]);
  assert.deepEqual(orderOf(["1", "1", "2"], true), [0, 1, 2]);
});
