import assert from "node:assert/strict";
import test from "node:test";

import { alignmentsOf } from "../src/align.js";
import { buildLayout } from "../src/layout.js";
import { Panel, totalRows } from "../src/panel.js";
import { totalsByName } from "../src/totals.js";
import { buildLanes } from "../src/tracks.js";
import { makeModel, randomSpans, seeded } from "./model.js";

const partsOf = (model) => model.groups.map((group) => ({ group, lanes: buildLanes(group) }));

test("an area counts what lies in it, with the part that does, under each engine", () => {
  const model = makeModel({
    async: [
      { kind: "launch", name: "a", start: 0, end: 9 }, { kind: "kernel", name: "a", lane: 1, start: 10, end: 30 },
      { kind: "kernel", name: "b", lane: 1, start: 30, end: 40 }, { kind: "kernel", name: "a", lane: 2, start: 35, end: 80 },
    ],
    graph: [{ kind: "kernel", name: "b", lane: 1, start: 0, end: 100 }],
  });
  const layout = buildLayout(partsOf(model), 900);
  const alignments = alignmentsOf(model, "time", null, [0, 1]);
  const told = totalsByName(model, layout, alignments, { from: 20, to: 60 });
  assert.deepEqual(told.map(({ name, cells }) => [name, ...cells]), [
    ["b", { count: 1, time: 10 }, { count: 1, time: 40 }],
    ["a", { count: 2, time: 10 + 25 }, { count: 0, time: 0 }],
  ]);
  assert.deepEqual(totalRows(told, 2), [
    ["b", "1 × · 0.010 µs · 22.2 %", "1 × · 0.040 µs · 100.0 %"], ["a", "2 × · 0.035 µs · 77.8 %", "–"],
  ]);
  const [host, main] = layout.groups[0].lanes;
  const within = (lane) => totalsByName(model, layout, alignments, { from: 0, to: 60, top: lane.y + 3, bottom: lane.y + 4 });
  assert.deepEqual(within(host).map(({ name, cells }) => [name, cells[0]]), [["a (call)", { count: 1, time: 9 }]]);
  assert.deepEqual(within(main).map(({ name, cells }) => [name, cells[0].count]), [["a", 1], ["b", 1]]);
});

test("an area lists the engines that it touches, a stretch of the axis all of them", () => {
  const spans = [{ kind: "launch", start: 0, end: 9 }, { kind: "kernel", lane: 1, start: 10, end: 30 }];
  const model = makeModel({ sync: spans, async: spans, graph: spans });
  const layout = buildLayout(partsOf(model), 900, [2, 0, 1], { collapsed: new Set([0]) });
  const panel = Object.assign(Object.create(Panel.prototype), { timeline: { model, layout } });
  const listed = (area) => panel.boxesOf({ from: 0, to: 5, ...area }).map(({ index }) => index);
  const [graph, sync, async] = layout.groups;
  assert.deepEqual(listed({}), [2, 0, 1]);
  for (const { index, lanes } of [graph, async]) for (const { y } of lanes) assert.deepEqual(listed({ top: y + 3, bottom: y + 4 }), [index]);
  assert.deepEqual(listed({ top: graph.lanes[1].y, bottom: async.lanes[0].y + 5 }), [2, 1]); // sync, between them, shows its header alone
  assert.deepEqual(listed({ top: sync.top, bottom: sync.bottom }), []);
});

test("totals of any stretch equal a search through all spans", () => {
  const random = seeded(5);
  const spans = randomSpans(400, 6).map((span, i) => ({ ...span, name: `k${i % 3}` }));
  const model = makeModel({ async: spans });
  const layout = buildLayout(partsOf(model), 900);
  const alignments = alignmentsOf(model, "scale", null, [0]);
  for (let round = 0; round < 30; round++) {
    const from = random() * spans.at(-1).end;
    const to = from + random() * 5000;
    const told = Object.fromEntries(totalsByName(model, layout, alignments, { from, to }).map(({ name, cells }) => [name, cells[0]]));
    for (const name of ["k0", "k1", "k2"]) {
      const inside = spans.filter((span) => span.name === name && span.end > from && span.start < to);
      assert.equal(told[name]?.count ?? 0, inside.length);
      const time = inside.reduce((sum, { start, end }) => sum + Math.min(end, to) - Math.max(start, from), 0);
      assert.ok(Math.abs((told[name]?.time ?? 0) - time) < 1e-6);
    }
  }
});

test("calls and what ran on the device have shares of their own, and calls stand below", () => {
  const cell = (count, time) => [{ count, time }];
  const rows = totalRows([
    { name: "a", call: false, cells: cell(2, 3000) }, { name: "b", call: false, cells: cell(1, 1000) },
    { name: "a (call)", call: true, cells: cell(2, 6000) },
  ], 1);
  assert.deepEqual(rows, [
    ["a", "2 × · 3.000 µs · 75.0 %"], ["b", "1 × · 1.000 µs · 25.0 %"], ["a (call)", "2 × · 6.000 µs · 100.0 %"],
  ]);
});

test("ranges, which hold each other, are no calls, and have no share", () => {
  const model = makeModel({
    async: [
      { kind: "range", name: "step", start: 0, end: 100 }, { kind: "range", name: "layer", start: 10, end: 90 },
      { kind: "launch", name: "a", start: 20, end: 30 },
    ],
  });
  const layout = buildLayout(partsOf(model), 900);
  const told = totalsByName(model, layout, alignmentsOf(model, "time", null, [0]), { from: 0, to: 100, top: 0, bottom: 900 });
  assert.deepEqual(totalRows(told, 1), [
    ["a (call)", "1 × · 0.010 µs · 100.0 %"], ["step (range)", "1 × · 0.100 µs"], ["layer (range)", "1 × · 0.080 µs"],
  ]);
});
