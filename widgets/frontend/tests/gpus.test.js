// Several GPUs of one run: their sections, collectives across them, copies between them.

import assert from "node:assert/strict";
import test from "node:test";

import { Arrangement } from "../src/arrangement.js";
import { rowOf } from "../src/arrows.js";
import { Choosing } from "../src/choosing.js";
import { describeSpan } from "../src/describe.js";
import { drawPeerCopy, gpuName, gpuNames } from "../src/gpus.js";
import { highlightOf } from "../src/join.js";
import { buildLayout, hitTest } from "../src/layout.js";
import { drawOverlay } from "../src/overlay.js";
import { measureRows } from "../src/panel.js";
import { drawSpan } from "../src/spans.js";
import { applyState, readState } from "../src/state.js";
import { totalsByName } from "../src/totals.js";
import { buildLanes } from "../src/tracks.js";
import { activityOf, makeModel } from "./model.js";

const GPUS = [0, 2].map((gpu) => ({ gpu, name: `GPU ${gpu}`, words: [], slowest: "", folded: gpu === 2, details: [] }));
const LANES = ["host", "GPU 0 main", "GPU 0 comm", "GPU 2 main", "GPU 2 comm"].map((name, index) => ({ name, host: !index, gpu: [-1, 0, 0, 2, 2][index] }));
const all = (name, lane, start, end) => ({ kind: "kernel", name, lane, start, end });

/** Two GPUs: one all-reduce for which GPU 0 waits 60 ns, one whose parts are not known to belong together, a copy from GPU 2 to GPU 0. */
function twoGpus(more = {}) {
  const model = makeModel({ dual: [
    { kind: "launch", lane: 0, start: 0, end: 5 }, all("matmul", 1, 10, 100), all("matmul", 3, 10, 160), all("all-reduce", 2, 100, 200),
    all("all-reduce", 4, 160, 200), all("all-reduce", 2, 210, 250), { ...all("x", 3, 220, 240), kind: "copy" },
  ] }, { gpus: GPUS, ...more });
  const [group] = model.groups;
  group.lanes = [...LANES, { name: "GPU 0 from GPU 2", host: false, gpu: 0, ends: [2, 0] }].map((lane, index) => ({ ...lane, index }));
  group.drawn.push([5, 1, false, 0]);
  group.collective = [-1, -1, -1, 0, 1, 2, -1];
  group.collectives = { instance: [7, 7, -1], waiting: [60, 0, 0], last: [1, 1, 0], bandwidth: [2e9, 2e9, 0], told: [0, 0, 0], words: [[["collective", "all-reduce, sum"]]] };
  group.far = Uint8Array.of(0, 0, 0, 0, 0, 0, 5);
  group.activities = [activityOf([{ start: 0, end: 250, kernels: 1 }]), activityOf([{ start: 0, end: 125, kernels: 1 }, { start: 125, end: 250, occupation: 5 }])];
  return model;
}

const layoutOf = (model, isClosed) => buildLayout(model.groups.map((group) => ({ group, lanes: buildLanes(group) })), 900, [0], { isClosed, atOnceOf: () => true });

test("lanes stand in sections by GPU, below the host's; a collapsed one shows one row, where all of its spans lie", () => {
  const model = twoGpus();
  const [open, folded] = [false, true].map((wanted) => layoutOf(model, (_, of) => wanted && of === 1));
  assert.deepEqual(open.groups[0].sections.map(({ of, top, lanes, atOnce }) => [of, top !== null, lanes.map(({ lane }) => lane.name), atOnce !== null]), [
    [-1, false, ["host"], false], [0, true, ["GPU 0 main", "GPU 0 comm", "GPU 0 from GPU 2"], true], [1, true, ["GPU 2 main", "GPU 2 comm"], true],
  ]);
  const [, first, second] = folded.groups[0].sections;
  assert.deepEqual([second.lanes, second.closed, first.closed], [[], true, false]);
  assert.ok(folded.height < open.height);
  assert.deepEqual(rowOf({ model, layout: folded }, 0, 4), { row: { ...second.atOnce, lane: buildLanes(model.groups[0])[4], rows: [], band: null }, k: -1 });
  assert.equal(hitTest(folded, second.top + 3).area, "GPU");
  assert.equal(hitTest(folded, second.atOnce.y + 3).area, "at once");
  assert.equal(hitTest(folded, first.lanes[1].y + 3).section, first);
  assert.equal(folded.overview.height - layoutOf(makeModel({ one: [all("a", 1, 0, 9)] })).overview.height, folded.overview.row, "a strip a GPU");
});

test("one GPU has one section without a header", () => {
  const [box] = layoutOf(makeModel({ one: [{ kind: "launch", start: 0, end: 1 }, all("a", 1, 2, 9), all("a", 2, 2, 9)] })).groups;
  assert.deepEqual(box.sections.map(({ of, top, lanes, atOnce, bottom }) => [of, top, lanes, atOnce.y + atOnce.height, bottom]), [[0, null, box.lanes, box.bottom, box.bottom]]);
});

test("a part of a collective is marked with all others, and its tooltip tells waiting, transfer, who was last, and how fast", () => {
  const model = twoGpus();
  assert.deepEqual(highlightOf(model, 0, 4).members.map(({ spans }) => spans), [[3, 4]]);
  assert.deepEqual(highlightOf(model, 0, 5).members.map(({ spans }) => spans), [[5]], "whose other parts are not known");
  const ranks = twoGpus();
  ranks.groups[0].operation.set([1, 2], 3);
  assert.deepEqual(highlightOf(ranks, 0, 3).members.map(({ spans }) => spans), [[3, 4]], "each rank numbers its operations by itself");
  const rows = ["collective", "waiting", "transfer", "last to begin", "bus bandwidth"];
  const told = (span) => describeSpan(model, model.groups[0], span).rows.filter(([term]) => rows.includes(term)).map(([, value]) => value);
  assert.deepEqual(told(3), ["all-reduce, sum", "0.060 µs", "0.040 µs", "GPU 2", "2.0 GB/s"]);
  assert.deepEqual(told(5), ["all-reduce, sum"]);
  assert.deepEqual(describeSpan(model, model.groups[0], 6).rows.find(([term]) => term === "from, to"), ["from, to", "GPU 2, GPU 0"]);
});

test("the arrow keys go from part to part of a collective, by GPU, and then to the next engine", () => {
  const model = twoGpus();
  const seen = [];
  const timeline = { model, arrangement: { shown: [0] }, selected: highlightOf(model, 0, 3) };
  const choosing = Object.assign(new Choosing(timeline), { selectAndReveal: (group, span) => {
    seen.push(span);
    timeline.selected = highlightOf(model, group, span);
  } });
  for (const step of [1, 1, -1, -1]) choosing.acrossEngines(step);
  assert.deepEqual(seen, [4, 3]);
});

test("waiting is hatched, transfer is not", () => {
  const model = twoGpus();
  const [lane] = buildLanes(model.groups[0]).slice(2);
  const swatch = { fill: "blue", ink: "white", shades: [] };
  const geometry = { dpr: 1, left: 0, right: 300, pitch: 1, t0: 0, t1: 300, x: (t) => t, px: Math.round };
  const filled = [];
  const ctx = { fillRect(...at) { filled.push([this.fillStyle, ...at]); }, measureText: () => ({ width: 10 }), fillText: (_, x) => filled.push(["text", x]) };
  const scene = { model, geometry, hatch: "hatch", theme: { operators: model.names.map(() => swatch) }, labelWidths: [] };
  for (const k of [0, 1]) drawSpan(ctx, scene, { track: lane.rows[0], y: 0, height: 18 }, k, true, 0, 18);
  assert.deepEqual(filled, [["blue", 100, 0, 99, 18], ["hatch", 100, 0, 60, 14], ["text", 164], ["blue", 210, 0, 39, 18], ["text", 214]]);
});

test("a copy between GPUs is in a row of both, joined by an arrow to the one that it writes, upwards here; selecting it marks both, and it counts once", () => {
  const model = twoGpus();
  const layout = layoutOf(model, () => false);
  const geometry = { dpr: 1, x: (t) => t, px: Math.round };
  const drawn = [];
  const ctx = { beginPath() {}, moveTo: (...at) => drawn.push(at), bezierCurveTo: (...at) => drawn.push(at.slice(4)), lineTo() {}, stroke() {}, fill() {} };
  drawPeerCopy(ctx, { model, layout, geometry }, 0, 6);
  const [{ row }, far] = [rowOf({ model, layout }, 0, 6), rowOf({ model, layout }, 0, 6, 5)];
  assert.deepEqual([far.row.lane.name, far.row.track.spans[far.k]], ["GPU 0 from GPU 2", 6]);
  assert.deepEqual(drawn.slice(0, 2), [[220, row.y], [240, far.row.y + far.row.height + 3.5]]);
  drawPeerCopy(ctx, { model, layout: { boxes: [] }, geometry }, 0, 6);
  drawPeerCopy(ctx, { model, layout, geometry }, 0, 1);
  assert.equal(drawn.length, 3, "a line and its head");
  const [top, bottom] = [far.row.y + 1, far.row.y + 2];
  for (const area of [{ top, bottom }, { top, bottom: row.y + 1 }, {}]) {
    const found = totalsByName(model, layout, [{ origin: 0, factor: 1 }], { from: 0, to: 250, ...area }).find(({ name }) => name === "x");
    assert.deepEqual(found.cells, [{ count: 1, time: 20 }]);
  }
  const outlined = [];
  const overlay = { ...ctx, save() {}, restore() {}, rect() {}, clip() {}, fillRect() {}, fillText() {}, measureText: () => ({ width: 1 }), strokeRect: (x, y) => outlined.push(y + 0.5) };
  const swatch = { fill: "blue", ink: "white", shades: [] };
  const scene = { model, layout, geometry: { ...geometry, left: 0, right: 300, pitch: 1, t0: 0, t1: 300 }, theme: { operators: model.names.map(() => swatch) }, labelWidths: [] };
  drawOverlay(overlay, Object.assign(scene, { own: [scene] }), { selected: highlightOf(model, 0, 6), hovered: null, rubber: null, measured: null, cursor: null }, false);
  assert.deepEqual(outlined, [row.y, far.row.y]);
});

test("a measured stretch has a row for each GPU", () => {
  const model = twoGpus();
  const layout = layoutOf(model, (_, of) => of === 1);
  const totals = totalsByName(model, layout, [{ origin: 0, factor: 1 }], { from: 0, to: 250 });
  assert.deepEqual(totals.map(({ name, cells: [{ count, time }] }) => [name, count, time]), [
    ["matmul", 2, 240], ["all-reduce", 3, 180], ["x", 1, 20],
  ], "what is collapsed counts");
  assert.deepEqual(measureRows(model, model.groups, 0, 250).map((row) => [row[0], ...row.slice(2)]), [
    ["dual · GPU 0", "0.250 µs", "100.0 %", "0.000 µs", "3"], ["dual · GPU 2", "0.125 µs", "50.0 %", "0.125 µs", "2"],
  ]);
});

test("which GPUs are collapsed is part of the state, by their names", () => {
  const model = twoGpus();
  assert.deepEqual([gpuNames(model, true), gpuNames(model, false)], [["dual · GPU 0", "dual · GPU 2"], ["dual · GPU 2"]]);
  assert.equal(gpuName(makeModel({ one: [] }).groups[0], 0), "one");
  const arrangement = new Arrangement(1, gpuNames(model, false));
  const timeline = {
    model, arrangement, viewer: { isWhole: () => true, mode: "time" }, finding: { filter: { code: null, text: "" } }, switches: { words: [] }, selected: null,
    arrange: (change) => change(),
  };
  assert.deepEqual(readState(timeline).collapsed, ["dual · GPU 2"]);
  applyState(timeline, { collapsed: ["dual", "dual · GPU 0"] });
  assert.deepEqual([[...arrangement.collapsed], [...arrangement.closed]], [[0], ["dual · GPU 0"]]);
  arrangement.fold("dual · GPU 0");
  assert.deepEqual([...arrangement.closed], []);
});
