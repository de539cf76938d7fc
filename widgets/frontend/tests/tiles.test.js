import assert from "node:assert/strict";
import test from "node:test";

import { Tiles } from "../src/tiles.js";
import { NO_WAITS, columnsOf, makeModel } from "./model.js";

const rest = (ms = 160) => new Promise((done) => setTimeout(done, ms));

/** The overview of a run of 1,000,000 ns, of which each half of the main stream is one mark. */
function overview() {
  const spans = [0, 500_000].map((start) => ({ kind: "kernel", lane: 1, start, end: start + 400_000 }));
  const model = makeModel({ async: spans });
  const more = { drawn: [[1, 1, 0, 0]], lanes_left_out: 0, row: [0, 0], merged: [50, 50], busy: [100_000, 100_000], span: [3, 60] };
  Object.assign(model.groups[0], more);
  Object.assign(model.groups[0].described, more);
  return model;
}

/** The answer to a question: one kernel of 10 ns in the middle of the stretch, row 70 of the trace. */
function tileFor({ windows: [[, reach, index]], find }) {
  const start = (index + 1) * 2 ** reach;
  const none = Object.fromEntries(["kind", "part", "basis", "blocks", "threads", "bytes", "flops", "operation", "correlation", "symbol", "graph_node"].map((name) => [name, [0]]));
  const [{ count, ...columns }, block] = columnsOf({
    ...none, kind: [8], name: [0], lane: [1], start: [start], duration: [10], merged: [1], busy: [10], row: [0], span: [70], ...(find ? { hits: [1] } : {}),
  });
  for (const id of ["operation", "correlation", "symbol", "graph_node"]) columns[id].shift = -1;
  return { header: { groups: [{ count, columns, activities: [], waits: NO_WAITS, path: null, exact: true }] }, block };
}

/** What of a timeline the tiles use. */
function makeTimeline(ask) {
  const model = overview();
  const timeline = {
    model, dpr: 1, view: { t0: 0, t1: 1_000_000 }, drawn: [], nudges: [], selected: [],
    viewer: { alignments: [{ origin: 0, factor: 1 }], plotWidth: 1000, revealStretch: (...where) => timeline.revealed = where },
    arrangement: { shown: [0] }, finding: { sought: null, at: 0 }, switches: { shows: { path: false } }, stage: { nudge: (words) => timeline.nudges.push(words) },
    choosing: {
      select: (group, span) => {
        timeline.selected.push([group, span]);
        timeline.tiles.hold({ group, row: timeline.model.groups[group].span[span] });
      },
      clear: () => timeline.tiles.hold(null),
    },
    draw(tile) {
      if (timeline.tile === tile) return;
      Object.assign(timeline, { tile, model: tile.model });
      timeline.drawn.push(tile.key ?? "whole");
      timeline.tiles.select();
    },
    redraw: () => timeline.tiles.update(),
    show(t0, t1) {
      timeline.view = { t0, t1 };
      timeline.redraw();
    },
  };
  timeline.tiles = new Tiles(timeline, ask, model);
  timeline.tile = timeline.tiles.whole;
  return timeline;
}

const windowsOf = (asked) => asked.map(({ windows }) => windows[0]);

test("a view is asked for once it rests, in a stretch that holds it, at its level of detail", async () => {
  const asked = [];
  const timeline = makeTimeline(async (question) => {
    asked.push(question);
    return tileFor(question);
  });
  for (let step = 0; step < 20; step++) timeline.show(300_000 + step, 310_000 + step);
  assert.deepEqual(asked, []);
  assert.deepEqual(timeline.drawn, []); // the overview, meanwhile
  await rest();
  // 10,019 ns on 1,000 pixels: a fourth of 8 ns is less than a pixel's fourth; twice 2^14 ns from 18 * 2^14 on hold it.
  assert.deepEqual(windowsOf(asked), [[1, 14, 18]]);
  await rest(20);
  assert.equal(timeline.drawn.length, 1);
  assert.equal(timeline.model.groups[0].merged[0], 1);
  assert.equal(timeline.model.groups[0].kindCounts, timeline.tiles.whole.model.groups[0].kindCounts);

  // What the same tile holds is not asked for again; what lies elsewhere is drawn from the overview until it is there.
  timeline.show(302_000, 312_000);
  await rest();
  assert.equal(asked.length, 1);
  timeline.show(700_000, 710_000);
  assert.equal(timeline.drawn.at(-1), "whole");
  await rest();
  assert.equal(asked.length, 2);

  // What is kept is drawn at once.
  timeline.show(300_000, 310_000);
  assert.equal(timeline.drawn.at(-1), timeline.drawn[0]);
  await rest();
  assert.equal(asked.length, 2);
});

test("one answer is waited for at a time, and the view of then is asked for next", async () => {
  const waiting = [];
  const timeline = makeTimeline((question) => new Promise((resolve) => waiting.push(() => resolve(tileFor(question)))));
  timeline.show(300_000, 310_000);
  await rest();
  for (const t0 of [400_000, 500_000, 600_000]) {
    timeline.show(t0, t0 + 10_000);
    await rest();
  }
  assert.equal(waiting.length, 1);
  waiting[0]();
  await rest();
  assert.equal(waiting.length, 2);
  waiting[1]();
  await rest(20);
  const { windows: [[, reach, index]] } = timeline.tile;
  assert.ok(index * 2 ** reach <= 600_000 && (index + 2) * 2 ** reach >= 610_000);
});

test("a lost answer is told and asked for again, and the view stays drawn", async (context) => {
  let lost = 1;
  const timeline = makeTimeline(async (question) => {
    if (lost--) throw new Error("the line is cut");
    return tileFor(question);
  });
  context.mock.timers.enable({ apis: ["setTimeout"] });
  const passes = async (ms) => {
    context.mock.timers.tick(ms);
    for (let turn = 0; turn < 9; turn++) await Promise.resolve();
  };
  timeline.show(300_000, 310_000);
  await passes(200);
  assert.deepEqual(timeline.nudges, ["The detail is asked for again: the line is cut"]);
  assert.equal(timeline.tile, timeline.tiles.whole);
  await passes(2000);
  await passes(200);
  await passes(1);
  assert.notEqual(timeline.tile, timeline.tiles.whole);
});

test("few tiles are kept, and none is asked for once the timeline is gone", async () => {
  let asked = 0;
  const timeline = makeTimeline(async (question) => tileFor(question, asked++));
  for (let place = 0; place < 15; place++) {
    await timeline.tiles.load({ windows: [[3, 14, place]], find: null }, `${place}`);
    await rest(5);
  }
  assert.deepEqual([...timeline.tiles.kept.keys()], ["3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14"]);
  timeline.show(300_000, 310_000);
  timeline.tiles.end();
  await rest();
  assert.equal(asked, 15);
});

test("a step goes to what Python says, and selects it when it is loaded", async () => {
  const asked = [];
  const timeline = makeTimeline(async (question) => {
    asked.push(question);
    return question.type === "go" ? { header: { group: 0, span: 70, start: 311_296, end: 311_306, position: 5 } } : tileFor(question);
  });
  timeline.tiles.held = { group: 0, row: 3 };
  await timeline.tiles.go({ how: "hit", step: 1 });
  assert.deepEqual(asked, [{ type: "go", group: 0, span: 3, shown: [0], find: null, how: "hit", step: 1 }]);
  assert.deepEqual(timeline.revealed, [0, 311_296, 311_306]);
  assert.equal(timeline.finding.at, 5);
  assert.deepEqual(timeline.selected, []);
  timeline.show(311_000, 311_600);
  await rest();
  await rest(20);
  assert.deepEqual(timeline.selected, [[0, 0]]);
});

test("a search marks what holds a hit, and nothing of what was loaded without it", async () => {
  const timeline = makeTimeline(async (question) => tileFor(question));
  timeline.show(300_000, 310_000);
  await rest();
  await rest(20);
  assert.equal(timeline.tile.shown, null);
  timeline.finding.sought = { code: null, text: "k" };
  timeline.redraw();
  await rest();
  await rest(20);
  assert.deepEqual([...timeline.tile.shown[0]], [1]);
});

test("steps that are asked for at once lead on from each other, and none goes on after what was selected, or cleared, since", async () => {
  const waiting = [];
  const timeline = makeTimeline((question) => new Promise((resolve) => waiting.push([question.span, (row) => resolve({ header: { group: 0, span: row, start: row, end: row + 1 } })])));
  const { tiles } = timeline;
  const answer = async (row) => {
    waiting.at(-1)[1](row);
    await rest(5);
  };
  tiles.hold({ group: 0, row: 10 });
  for (let press = 0; press < 3; press++) tiles.go({ how: "next" });
  await rest(5);
  for (const row of [11, 12, 13]) await answer(row);
  assert.deepEqual(waiting.map(([row]) => row), [10, 11, 12]);
  assert.equal(tiles.held.row, 13);

  for (const since of [() => timeline.choosing.clear(), () => timeline.choosing.select(0, 1)]) {
    timeline.revealed = null;
    tiles.hold({ group: 0, row: 10 });
    tiles.go({ how: "next" });
    tiles.go({ how: "next" });
    await rest(5);
    since();
    const { held } = tiles;
    const asked = waiting.length;
    await answer(11);
    assert.deepEqual([timeline.revealed, tiles.held, waiting.length], [null, held, asked]);
    tiles.go({ how: "next" });
    await rest(5);
    assert.equal(waiting.at(-1)[0], held?.row ?? -1);
    await answer(20);
    assert.equal(tiles.held.row, 20);
  }
});

test("a step to a lane that is not drawn says so", async () => {
  const timeline = makeTimeline(async () => ({ header: { group: 0, span: 70, start: 311_296, end: 311_306, position: 0, hidden: "stream 120" } }));
  await timeline.tiles.go({ how: "dependent" });
  assert.deepEqual(timeline.nudges, ["On a lane that is not drawn: stream 120"]);
});

test("what is refused is asked for once, and what is lost at longer and longer intervals", async (context) => {
  let asked = 0;
  let refused = true;
  const timeline = makeTimeline(async () => {
    asked++;
    throw Object.assign(new Error("no"), { refused });
  });
  context.mock.timers.enable({ apis: ["setTimeout"] });
  const passes = async (ms) => {
    for (let passed = 0; passed < ms; passed += 100) {
      context.mock.timers.tick(100);
      for (let turn = 0; turn < 5; turn++) await Promise.resolve();
    }
  };
  timeline.show(300_000, 310_000);
  await passes(20_000);
  assert.deepEqual([asked, timeline.nudges], [1, ["No detail: no"]]);
  refused = false;
  asked = 0;
  timeline.show(700_000, 710_000);
  await passes(300_000);
  // At 0, 2, 6, 14, 30, 62 s, and then once a minute.
  assert.equal(asked, 6 + 3);
});

test("that the first critical path takes a while is said until it is there", async () => {
  let answer;
  const timeline = makeTimeline((question) => new Promise((resolve) => (answer = () => resolve(tileFor(question)))));
  timeline.switches.shows.path = true;
  timeline.show(300_000, 310_000);
  await rest();
  assert.deepEqual(timeline.nudges, ["Following the critical path …"]);
  answer();
  await rest(20);
  timeline.show(700_000, 710_000);
  await rest();
  answer();
  assert.deepEqual(timeline.nudges, ["Following the critical path …", ""]);
});
