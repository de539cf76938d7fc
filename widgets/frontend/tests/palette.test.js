import assert from "node:assert/strict";
import test from "node:test";

import { contrast, luminance, mix, parseColour } from "../src/colours.js";
import { inkOn, operatorColour, rankNames } from "../src/palette.js";
import { makeModel } from "./model.js";

// Viénot, Brettel and Mollon (1999): how dichromats see, as matrices over linear RGB.
const BLIND = {
  protan: [[0.11238, 0.88762, 0], [0.11238, 0.88762, 0], [0.00401, -0.00401, 1]],
  deutan: [[0.29275, 0.70725, 0], [0.29275, 0.70725, 0], [-0.02234, 0.02234, 1]],
};
const linear = (part) => (part <= 10.31475 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4);

function lab(rgb, matrix) {
  const raw = rgb.map(linear);
  const seen = matrix ? matrix.map((row) => row.reduce((sum, weight, i) => sum + weight * raw[i], 0)) : raw;
  const xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    .map((row, i) => row.reduce((sum, weight, j) => sum + weight * seen[j], 0) / [0.9505, 1, 1.089][i]);
  const [x, y, z] = xyz.map((value) => (value > 0.008856 ? Math.cbrt(value) : 7.787 * value + 16 / 116));
  return [116 * y - 16, 500 * (x - y), 200 * (y - z)];
}

for (const dark of [false, true]) {
  test(`the first seven operators differ for every eye (${dark ? "dark" : "light"})`, () => {
    for (const matrix of [null, BLIND.protan, BLIND.deutan]) {
      const seen = Array.from({ length: 7 }, (_, rank) => lab(operatorColour(rank, dark), matrix));
      for (let a = 0; a < 7; a++) for (let b = 0; b < a; b++) {
        const distance = Math.hypot(...seen[a].map((part, i) => part - seen[b][i]));
        assert.ok(distance > 12, `${a} and ${b}: ${distance.toFixed(1)}`);
      }
    }
  });

  test(`names can be read on every operator's colour (${dark ? "dark" : "light"})`, () => {
    for (let rank = 0; rank < 21; rank++) {
      const colour = operatorColour(rank, dark);
      assert.ok(contrast(colour, inkOn(colour)) >= 4, `rank ${rank}: ${contrast(colour, inkOn(colour)).toFixed(2)}`);
    }
  });
}

test("what takes longest on the device comes first, and host names have no rank", () => {
  const model = makeModel({
    a: [{ kind: "launch", name: "call", start: 0, end: 900 }, { kind: "kernel", name: "short", lane: 1, start: 0, end: 5 }, { kind: "kernel", name: "long", lane: 1, start: 5, end: 50 }],
    b: [{ kind: "kernel", name: "short", lane: 1, start: 0, end: 5 }],
  });
  const { order, ranks } = rankNames(model);
  assert.deepEqual(order.map((code) => model.names[code]), ["long", "short"]);
  assert.equal(ranks[model.names.indexOf("call")], -1);
});

test("colours are read as browsers write them", () => {
  assert.deepEqual(parseColour("rgb(1, 2, 3)"), [1, 2, 3]);
  assert.deepEqual(parseColour("#0072b2"), [0, 114, 178]);
  assert.deepEqual(parseColour("rgba(0, 0, 0, 0.5)", [255, 255, 255]), [127.5, 127.5, 127.5]);
  assert.deepEqual(parseColour("color(srgb 1 0.5 0)"), [255, 127.5, 0]);
  assert.deepEqual(mix([0, 0, 0], [200, 100, 50], 0.5), [100, 50, 25]);
  assert.equal(luminance([255, 255, 255]), 1);
});
