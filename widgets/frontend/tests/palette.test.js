import assert from "node:assert/strict";
import test from "node:test";

import { contrast, css, luminance, mix, parseColour } from "../src/colours.js";
import { DIMMED } from "../src/draw.js";
import { hostColours, inkOn, operatorColour, rankNames } from "../src/palette.js";
import { themeOf } from "../src/theme.js";

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

test("the first seven operators differ for every eye", () => {
  for (const matrix of [null, BLIND.protan, BLIND.deutan]) {
    const seen = Array.from({ length: 7 }, (_, rank) => lab(operatorColour(rank), matrix));
    for (let a = 0; a < 7; a++) for (let b = 0; b < a; b++) {
      const distance = Math.hypot(...seen[a].map((part, i) => part - seen[b][i]));
      assert.ok(distance > 12, `${a} and ${b}: ${distance.toFixed(1)}`);
    }
  }
});

const readable = (text, ground, of) => assert.ok(contrast(text, ground) >= 4.5, `${of}: ${contrast(text, ground).toFixed(2)}`);

const PAGES = [["light", "#ffffff", "#1c2128"], ["dark", "#14161a", "#e4e7eb"], ["JupyterLab's dark", "#111111", "#ffffff"]];
for (const [page, ground, ink] of PAGES) {
  test(`all text can be read, also on bars that are dimmed (${page})`, () => {
    const names = Array.from({ length: 21 }, (_, rank) => `${rank}`);
    const look = { ground: parseColour(ground), ink: parseColour(ink), accent: parseColour("#0b6bcb"), font: "" };
    const theme = themeOf(look, { names }, names.map(Number));
    const [lane, dimmedInk] = [theme.lane, theme.ink].map((colour) => parseColour(colour));
    for (const ground of [look.ground, lane]) for (const text of [theme.ink, theme.soft]) readable(parseColour(text), ground, text);
    const bars = [...Object.entries(theme.host), ...Object.entries(theme.operators)];
    for (const [name, { rgb }] of bars) {
      readable(inkOn(rgb), rgb, name);
      readable(dimmedInk, mix(rgb, lane, DIMMED), `${name}, dimmed`);
    }
    for (const hatch of [theme.hatch, theme.hatchGround]) readable(dimmedInk, parseColour(hatch), "hatching");
  });

  test(`no kind of host call is taken for an operator (${page})`, () => {
    const hosts = Object.values(hostColours(parseColour(ink), parseColour(ground))).map((colour) => lab(colour));
    for (let rank = 0; rank < 7; rank++) for (const host of hosts) {
      const distance = Math.hypot(...host.map((part, i) => part - lab(operatorColour(rank))[i]));
      assert.ok(distance > 20, `rank ${rank}: ${distance.toFixed(1)}`);
    }
  });
}

test("operators take their ranks in the order of the header, and host names have none", () => {
  const { order, ranks } = rankNames({ order: [2, 0], names: ["short", "call", "long"] });
  assert.deepEqual([...ranks], [1, -1, 0]);
  assert.deepEqual(order, [2, 0]);
});

test("colours are read as browsers write them", () => {
  assert.deepEqual(parseColour("rgb(1, 2, 3)"), [1, 2, 3]);
  assert.equal(css([1, 127.6, 255]), "#0180ff");
  assert.equal(css([0, 16, 255], 0.2), "#0010ff33");
  assert.deepEqual(parseColour(css([1, 2, 250])), [1, 2, 250]);
  assert.deepEqual(parseColour("#0072b2"), [0, 114, 178]);
  assert.deepEqual(parseColour("rgba(0, 0, 0, 0.5)", [255, 255, 255]), [127.5, 127.5, 127.5]);
  assert.deepEqual(parseColour("color(srgb 1 0.5 0)"), [255, 127.5, 0]);
  assert.deepEqual(mix([0, 0, 0], [200, 100, 50], 0.5), [100, 50, 25]);
  assert.equal(luminance([255, 255, 255]), 1);
});
