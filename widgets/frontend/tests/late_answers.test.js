import assert from "node:assert/strict";
import test from "node:test";

import { alignmentsOf } from "../src/align.js";
import { questionsBy } from "../src/asking.js";
import { latencyCallOf } from "../src/join.js";
import { buildLayout } from "../src/layout.js";
import { Panel, operationRows } from "../src/panel.js";
import { OverlapSwitches } from "../src/switches.js";
import { buildLanes } from "../src/tracks.js";
import { makeModel } from "./model.js";

const turns = async () => {
  for (let turn = 0; turn < 9; turn++) await Promise.resolve();
};

test("a measured area is asked for again where other engines are shown when its answer comes", async () => {
  const spans = [{ kind: "kernel", lane: 1, start: 0, end: 10 }];
  const model = makeModel({ async: spans, graph: spans });
  const parts = model.groups.map((group) => ({ group, lanes: buildLanes(group) }));
  const waiting = [];
  const measure = { from: 0, to: 5 };
  const timeline = {
    measured: measure, model, viewer: { alignments: alignmentsOf(model, "time", null, [0, 1]) }, layout: buildLayout(parts, 900, [0, 1]),
    tiles: { tell: ({ areas }) => new Promise((resolve) => waiting.push([areas, resolve])) },
  };
  const panel = Object.assign(Object.create(Panel.prototype), { timeline, fill() {}, told: [] });
  panel.showMeasure = (_, known) => (known ? panel.told.push(known) : panel.askTotals(measure));
  panel.askTotals(measure);
  const answer = async () => {
    const [areas, resolve] = waiting.at(-1);
    resolve({ groups: areas.map(({ group, start }) => `${group} from ${start}`) });
    await turns();
  };
  timeline.layout = buildLayout(parts, 900, [1]);
  await answer();
  assert.deepEqual(panel.told, []);
  timeline.viewer.alignments = timeline.viewer.alignments.map((alignment) => ({ ...alignment, origin: 3 }));
  await answer();
  assert.deepEqual(panel.told, []);
  await answer();
  assert.deepEqual(panel.told, [["1 from 3"]]);
  assert.equal(waiting.length, 3);
});

test("a launch latency is that of the first kernel of a whole trace, not of what is loaded of it", () => {
  const replay = [
    { kind: "graph_launch", start: 0, end: 5000, correlation: 0 }, { kind: "kernel", lane: 1, start: 2000, end: 2100, correlation: 0 },
    { kind: "kernel", lane: 1, start: 3000, end: 3100, correlation: 7 },
  ];
  const model = makeModel({ async: replay });
  const [group] = model.groups;
  const rows = () => operationRows(model, { members: [{ group: 0, spans: [1, 2] }] }).map((cells) => cells.slice(4));
  assert.deepEqual(rows(), [["in graph", "2.000 µs"], ["–", "–"]]);
  Object.assign(group, { exact: true, first: [0, 0, 1] });
  assert.equal(latencyCallOf(group, model.kinds, 1), -1);
  assert.deepEqual(rows(), [["in graph", "–"], ["call not loaded", "–"]]);
  group.first = [0, 1, 1];
  assert.equal(latencyCallOf(group, model.kinds, 1), 0);
  // Where spans are in crowds, nothing is joined.
  Object.assign(group, { exact: false, correlation: Int32Array.of(-1, -1, -1) });
  assert.deepEqual(rows(), [["call not loaded", "–"], ["call not loaded", "–"]]);
});

test("critical paths are waited for as long as the kernel is busy; other questions a minute", async (context) => {
  context.mock.timers.enable({ apis: ["setTimeout"] });
  const sent = [];
  const { ask, answered } = questionsBy((question) => sent.push(question));
  const [paths, tile, refused] = ["paths", "tile", "go"].map((type) => ask({ type }));
  const told = Promise.allSettled([tile, refused]);
  answered({ id: sent[2].id, header: { refused: "no such row" } });
  context.mock.timers.tick(3_600_000);
  answered({ id: sent[0].id, header: { paths: [] } }, "block");
  assert.deepEqual(await paths, { header: { paths: [] }, block: "block" });
  const reasons = (await told).map(({ reason }) => [reason.message, reason.refused]);
  assert.deepEqual(reasons, [["the kernel is busy, or gone", undefined], ["no such row", true]]);
});

test("a critical path that could not be had leaves the switch off and says why; the next press asks again", async () => {
  const model = makeModel({ async: [{ kind: "kernel", lane: 1, start: 0, end: 10 }] });
  const nudges = [];
  let asked = 0;
  const timeline = { model, tiles: null, stage: { nudge: (words) => nudges.push(words) }, redraw() {}, resize() {}, tell() {} };
  const ask = async () => {
    asked++;
    throw new Error("the line is cut");
  };
  const switches = Object.assign(Object.create(OverlapSwitches.prototype), { timeline, ask, shows: { overlap: true, path: false }, tell() {} });
  for (const times of [1, 2]) {
    switches.toggle("path");
    await turns();
    assert.deepEqual([switches.shows.path, asked], [false, times]);
  }
  const said = ["Following the critical path …", "No critical path: the line is cut"];
  assert.deepEqual(nudges, [...said, ...said]);
});
