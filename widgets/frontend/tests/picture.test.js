import assert from "node:assert/strict";
import test from "node:test";

import { css } from "../src/colours.js";
import { drawLaneGrounds } from "../src/draw.js";
import { Pen, Pixels } from "../src/filling.js";
import { readLink, writeLink } from "../src/link.js";
import { drawLabel, drawRow } from "../src/spans.js";
import { findSelection } from "../src/state.js";
import { SvgContext } from "../src/svg_context.js";
import { fitted } from "../src/text.js";
import { buildLanes } from "../src/tracks.js";
import { makeModel, seeded } from "./model.js";

test("shapes, clips and text become SVG, and no name can end it", () => {
  const ctx = new SvgContext(100, 50, { measureText: (text) => ({ width: text.length }) });
  ctx.fillStyle = css([1, 2, 3], 0.5);
  ctx.fillRect(0, 0, 10.123, 5);
  ctx.fillRect(0, 0, 0, 5);
  ctx.save();
  ctx.beginPath();
  ctx.rect(0, 0, 50, 50);
  ctx.clip();
  ctx.globalAlpha = 0.5;
  ctx.font = '600 11px "Liberation Sans", sans-serif';
  ctx.fillText('</text><script>alert("1")</script>\u0001', 3, 4);
  ctx.restore();
  ctx.strokeStyle = "url(#hatch)";
  ctx.strokeRect(1, 2, 3, 4);
  const text = ctx.toString("<pattern/>");
  assert.match(text, /<rect x="0" y="0" width="10\.12" height="5" fill="#010203" fill-opacity="0\.5"\/><clipPath/);
  assert.ok(text.includes("&lt;/text&gt;&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt;\uFFFD</text>"));
  assert.ok(text.includes("600 11px &quot;Liberation Sans&quot;, sans-serif"));
  assert.ok(!text.includes("<script"));
  assert.match(text, /<\/text><\/g><rect [^>]* fill="none" stroke="url\(#hatch\)" stroke-width="1"\/><\/svg>$/);
  assert.equal(text.split("<g ").length, text.split("</g>").length);
});

test("every call that has a bar of its own wears the colour of what it launches, however narrow", () => {
  const spans = [];
  for (let width = 1; width < 12; width++) {
    const start = 20 * width;
    spans.push({ kind: "launch", name: "call", start, end: start + width, operation: width });
    spans.push({ kind: "kernel", name: "relu", lane: 1, start: start + 400, end: start + 401, operation: width });
  }
  const model = makeModel({ async: spans });
  const [host] = buildLanes(model.groups[0]);
  const swatch = { fill: "grey", ink: "black", shades: Array(9).fill("shade") };
  const theme = { host: { launch: swatch }, operators: model.names.map((name) => ({ ...swatch, fill: name })) };
  const geometry = { dpr: 1, left: 0, right: 1000, pitch: 1, t0: 0, t1: 1000, x: (t) => t, px: Math.round };
  const feet = [];
  const ctx = { fillRect(x, y, width) { if (this.fillStyle === "relu") feet.push([x, width]); }, measureText: () => ({ width: 1000 }), fillText() {} };
  drawRow(ctx, { model, theme, geometry, pairs: new Int32Array(5000), labelWidths: [] }, { track: host.rows[0], y: 0, height: 14 });
  assert.deepEqual(feet.map(([x]) => x), spans.filter(({ kind }) => kind === "launch").map(({ start }) => start));
  for (const [x, width] of feet) assert.ok(width >= Math.max(1, x / 20 - 1) && width <= x / 20, `${width} at ${x}`); // a hairline less
});

test("bars drawn as pixels are those of a canvas, strip after strip", () => {
  const [left, right] = [10, 50];
  globalThis.ImageData = class { constructor(width, height) { Object.assign(this, { width, height, data: new Uint8Array(4 * width * height) }); } };
  globalThis.document = { createElement: () => ({ dataset: {}, append() {}, getContext: () => ({ canvas: {}, putImageData(image) { this.shown = image.data.slice(); } }) }) };
  const random = seeded(3);
  const whole = (most) => Math.floor(random() * most);
  const fills = [[230, 159, 0], [0, 114, 178], [20, 22, 26]].flatMap((colour) => [css(colour), css(colour, 0.5)]);
  const pixels = new Pixels();
  for (const lines of [1, 6, 3, 6]) {
    const wanted = Array.from({ length: lines }, () => Array(right - left).fill(""));
    const canvas = { fillRect(x, y, width, height) {
      for (let row = y - 7; row < y - 7 + height; row++) for (let at = x - left; at < x - left + width; at++) if (wanted[row] && at < right - left) wanted[row][at] = this.fillStyle;
    } };
    pixels.begin({ left, right }, 7, lines);
    const pens = [new Pen(canvas), new Pen(pixels)];
    for (let x = left; x < right; x += 1 + whole(3)) {
      const bar = [x, 1 + whole(4), 7 + whole(lines), 1 + whole(9), fills[whole(fills.length)]];
      for (const pen of pens) pen.rectangle(...bar);
    }
    for (const pen of pens) pen.flush();
    pixels.drawOn({ drawImage({}, ...box) { assert.deepEqual(box, [0, 0, right - left, lines, left, 7, right - left, 18]); } }, 18);
    const drawn = wanted.map((row, line) => row.map((_, at) => [...pixels.context.shown.slice(4 * (line * (right - left) + at)).slice(0, 4)]));
    const bytes = (fill) => (fill ? fill.slice(1).padEnd(8, "f").match(/../g).map((part) => parseInt(part, 16)) : [0, 0, 0, 0]);
    assert.deepEqual(drawn, wanted.map((row) => row.map(bytes)));
  }
});

test("ranges that begin before the first call lie on the ground of their lane", () => {
  const model = makeModel({ eager: [{ kind: "range", name: "step", start: -40, end: 30 }, { kind: "launch", start: 0, end: 10 }] });
  const swatch = { fill: "bar", ink: "black", shades: Array(9).fill("shade") };
  const geometry = { dpr: 1, left: 0, right: 200, pitch: 1, t0: -60, t1: 140, x: (t) => t + 60, px: Math.round };
  const theme = { lane: "lane", host: { range: swatch, launch: swatch }, operators: model.names.map(() => swatch) };
  const grounds = [];
  const ctx = { fillRect(x, y, width) { if (this.fillStyle === "lane") grounds.push([x, x + width]); } };
  drawLaneGrounds(ctx, { model, theme, geometry }, { index: 0, lanes: [{ y: 0, height: 14 }] });
  assert.deepEqual(grounds, [[20, 60 + model.groups[0].extent_ns]]);
});

test("a link says the state, and what is no link says none", () => {
  const state = { range: [1.5, 2e9], selection: null, engines: ["sync & #async", "ä"], find: { name: null, text: "<b>" } };
  assert.deepEqual(readLink(writeLink(state)), state);
  for (const other of ["", "#", "#section", "#view=", "#view=%", "#view=7", "#view=[1]", "#view=null"]) assert.equal(readLink(other), null);
});

test("parts of a link that are none are left out, whoever wrote them", () => {
  const read = (state) => readLink(`#view=${encodeURIComponent(JSON.stringify(state))}`);
  const bad = {
    range: [5, "a", [1], ["1", "2"], [0, null], {}], engines: [5, null, [1], { length: 2 }], pinned: [3, "ab"], collapsed: [true, [null]],
    align: ["bogus", 3, null, "toString"], shows: [5, [5]], find: [{}, 5, null, { name: 3, text: "" }, { name: null }, []],
    selection: [5, [], "x", { engine: 3 }, { span: 1.5 }, { operation: "x" }, { span: null }, { name: {} }], other: [1],
  };
  for (const [part, values] of Object.entries(bad)) for (const value of values) assert.deepEqual(read({ [part]: value }), {}, part);
  assert.deepEqual(read({ engines: 5, pinned: ["a"] }), { pinned: ["a"] });
  const good = {
    range: null, selection: { engine: "async", operation: null, name: "a", span: 3 }, engines: [], pinned: ["b"], collapsed: [], align: "scale",
    shows: ["overlap"], find: { name: "a", text: "" },
  };
  assert.deepEqual(read(good), good);
});

test("a span without an operation is selected again only where it has its name", () => {
  const of = (names) => makeModel({ step: names.map((name, at) => ({ kind: "kernel", name, lane: 1, start: 9 * at, end: 9 * at + 5 })) });
  const selection = { engine: "step", operation: null, name: "b", span: 1 };
  assert.deepEqual(findSelection(of(["a", "b", "c"]), selection), [0, 1]);
  assert.deepEqual(findSelection(of(["b", "a", "c"]), selection), [0, -1]);
  assert.deepEqual(findSelection(of(["b"]), selection), [0, -1]);
  assert.deepEqual(findSelection(of(["a", "c"]), { engine: "step", span: 1 }), [0, 1]);
});

test("names are cut until they fit, however wide their letters are", () => {
  const wide = { W: 15, i: 3, "…": 11 };
  const texts = [];
  const ctx = { measureText: (text) => ({ width: [...text].reduce((sum, letter) => sum + wide[letter], 0) }), fillText: (text) => texts.push(text) };
  for (const name of ["WWWWWWiiiiiiiiiiiiii", "iiiiiiiiiiiiiiWWWWWW", "WiWiWiWiWiWi"]) {
    for (let room = 0; room < 200; room++) {
      assert.ok(ctx.measureText(fitted(ctx, name, room)).width <= room);
      const scene = { geometry: { dpr: 1 }, model: { names: [name], texts: [] }, labelWidths: [NaN] };
      drawLabel(ctx, scene, { name: [0], operation: [-1], origins: {} }, 0, "ink", 0, room + 8, 0);
      if (texts.length) assert.ok(ctx.measureText(texts.pop()).width <= room);
    }
    assert.ok(fitted(ctx, name, 120).length > 5);
  }
});
