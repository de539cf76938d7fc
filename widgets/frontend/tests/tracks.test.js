import assert from "node:assert/strict";
import test from "node:test";

import { filterSpans } from "../src/filter.js";
import { buildLayout, hitTest } from "../src/layout.js";
import { buildLanes } from "../src/tracks.js";
import { makeModel, randomSpans } from "./model.js";

const lanesOf = (spans, more) => {
  const model = makeModel({ async: spans }, more);
  return buildLanes(model.groups[0], model.kinds);
};

test("a call inside another is drawn below it, and lanes without spans are left out", () => {
  const [host, ...others] = lanesOf([
    { kind: "host", start: 0, end: 100 }, { kind: "launch", start: 10, end: 20 }, { kind: "launch", start: 30, end: 40 },
    { kind: "launch", start: 100, end: 110 },
  ]);
  assert.equal(others.length, 0);
  assert.deepEqual(host.rows.map(({ spans }) => [...spans]), [[0, 3], [1, 2]]);
});

test("a graph's own span encloses its kernels and lies apart", () => {
  const [main] = lanesOf([
    { kind: "graph", lane: 1, start: 0, end: 100 }, { kind: "kernel", lane: 1, start: 0, end: 50 }, { kind: "kernel", lane: 1, start: 50, end: 100 },
  ]);
  assert.equal(main.rows.length, 1);
  assert.deepEqual([...main.band.spans], [0]);
});

test("kernels that ran at once get rows; derived ones that only touch do not", () => {
  const pair = (basis, overlap) => lanesOf([
    { kind: "kernel", lane: 1, start: 0, end: 1000, basis }, { kind: "kernel", lane: 1, start: 1000 - overlap, end: 2000, basis },
  ])[0].rows.length;
  assert.equal(pair(0, 100), 2);
  assert.equal(pair(1, 100), 1);
  assert.equal(pair(1, 500), 2);
});

test("every row's middle is hit as that row", () => {
  const model = makeModel({
    async: [{ kind: "launch", start: 0, end: 5 }, { kind: "kernel", lane: 1, start: 5, end: 9 }, { kind: "kernel", lane: 2, start: 5, end: 9 }],
    graph: [{ kind: "graph_launch", start: 0, end: 5 }, { kind: "graph", lane: 1, start: 5, end: 9 }, { kind: "kernel", lane: 1, start: 5, end: 9 }],
  });
  const layout = buildLayout(model.groups.map((group) => ({ lanes: buildLanes(group, model.kinds) })), 900);
  for (const box of layout.groups) {
    assert.equal(hitTest(layout, box.top + 5).area, "header");
    for (const lane of box.lanes) {
      for (const row of lane.band ? [lane.band, ...lane.rows] : lane.rows) {
        const hit = hitTest(layout, row.y + row.height / 2);
        assert.equal(hit.row, row);
        assert.equal(hit.group, box);
      }
    }
  }
  assert.equal(hitTest(layout, 3).area, "axis");
  assert.equal(hitTest(layout, layout.height - 3).area, "overview");
});

test("ranges nest: each below the one that holds it, also where both begin at one time", () => {
  const range = (start, end) => ({ kind: "range", start, end });
  const [lane] = lanesOf([range(0, 10), range(0, 100), range(0, 40), range(20, 30), range(50, 90), range(60, 70)]);
  assert.deepEqual(lane.rows.map(({ spans }) => [...spans]), [[1], [2, 4], [0, 3, 5]]);
});

test("kernels that begin at one time keep their order: a row is no depth", () => {
  const [lane] = lanesOf([
    { kind: "kernel", lane: 1, start: 5, end: 5 }, { kind: "kernel", lane: 1, start: 5, end: 9 }, { kind: "range", start: 5, end: 9 },
  ]).slice(1);
  assert.deepEqual(lane.rows.map(({ spans }) => [...spans]), [[0, 1]]);
});

test("of hundreds of lanes the fullest are drawn, in their order, and streams are not crowded out by threads", () => {
  const names = Array.from({ length: 400 }, (_, index) => (index < 300 ? `thread ${index}` : `stream ${index}`));
  const spans = names.flatMap((_, lane) => Array.from({ length: 1 + (lane % 3) }, (_, i) => (
    { kind: lane < 300 ? "api" : "kernel", lane, start: 10 * i, end: 10 * i + 5 }
  ))).sort((a, b) => a.start - b.start);
  const model = makeModel({ async: spans }, { lanes: names });
  const [group] = model.groups;
  group.lanes.forEach((lane) => (lane.host = lane.index < 300));
  const drawn = buildLanes(group, model.kinds);
  assert.equal(drawn.length, 100);
  assert.equal(group.lanesLeftOut, 300);
  const indices = drawn.map(({ index }) => index);
  assert.deepEqual(indices, [...indices].sort((a, b) => a - b));
  const [hosts, streams] = [indices.filter((index) => index < 300), indices.filter((index) => index >= 300)];
  assert.deepEqual([hosts.length, streams.length], [40, 60]);
  assert.ok(hosts.every((index) => index % 3 === 2));
});

const block = (start, end, operation, lane = 0) => ({ kind: "kernel", lane, start, end, operation });

test("a multiprocessor has a row for each kernel whose blocks it runs at one time, not for each block", () => {
  const [lane] = lanesOf(
    [block(0, 50, 0), block(5, 60, 0), block(10, 90, 1), block(20, 70, 1), block(62, 80, 0), block(95, 99, 1)], { lanes: ["SM 0"], thin: true },
  );
  assert.deepEqual(lane.rows.map(({ spans }) => [...spans]), [[0, 1, 4, 5], [2, 3]]);
});

test("all multiprocessors are drawn, in thin lanes of one height", () => {
  const names = Array.from({ length: 304 }, (_, index) => `SM ${index}`);
  const spans = names.flatMap((_, lane) => [block(0, 9, 0, lane), ...(lane ? [] : [block(2, 7, 1, 0)])]).sort((a, b) => a.start - b.start);
  const model = makeModel({ multiprocessors: spans }, { lanes: names, thin: true });
  const [group] = model.groups;
  const { groups: [box] } = buildLayout([{ group, lanes: buildLanes(group, model.kinds) }], 900);
  assert.equal(box.lanes.length, 304);
  assert.deepEqual([...new Set(box.lanes.map(({ height }) => height))], [6]);
  assert.deepEqual(box.lanes[0].rows.map(({ height }) => height), [3, 3]);
  assert.deepEqual(box.lanes[1].rows.map(({ height }) => height), [6]);
});

test("in a multiprocessor every height belongs to the row that is drawn there", () => {
  const spans = Array.from({ length: 4 }, (_, lane) => [block(0, 9, 0, lane), block(1, 8, 1, lane), block(2, 7, 2, lane)]).flat();
  for (const rows of [2, 3]) {
    const some = spans.filter(({ operation }) => operation < rows).sort((a, b) => a.start - b.start);
    const model = makeModel({ multiprocessors: some }, { lanes: ["SM 0", "SM 1", "SM 2", "SM 3"], thin: true });
    const [group] = model.groups;
    const layout = buildLayout([{ group, lanes: buildLanes(group, model.kinds) }], 900);
    for (const lane of layout.groups[0].lanes) {
      assert.equal(lane.rows.length, rows);
      for (const row of lane.rows) {
        for (let y = row.y + 0.25; y < row.y + row.height; y += 0.5) assert.equal(hitTest(layout, y).row, row);
      }
    }
  }
});

test("ranges nested deeper than there are rows are counted", () => {
  const nest = Array.from({ length: 11 }, (_, depth) => ({ kind: "range", start: depth, end: 100 - depth }));
  const [lane] = lanesOf([...nest, { kind: "range", start: 200, end: 210 }]);
  assert.deepEqual([lane.rows.length, lane.deeper], [8, 3]);
  assert.equal(lanesOf(nest.slice(0, 8))[0].deeper, 0);
});

test("a search finds what is drawn: no hit lies on a lane that is left out", () => {
  const lanes = ["host", ...Array.from({ length: 120 }, (_, stream) => `stream ${stream}`)];
  const spans = lanes.slice(1).flatMap((_, stream) => [0, 1].slice(0, stream < 60 ? 1 : 2).map((again) => (
    { kind: "kernel", name: "k", lane: stream + 1, start: 1000 * again + stream, end: 1000 * again + stream + 1 }
  ))).sort((a, b) => a.start - b.start);
  const model = makeModel({ async: spans }, { lanes });
  const drawn = buildLanes(model.groups[0], model.kinds);
  const [{ shown, onDevice }] = filterSpans(model, { code: null, text: "k" });
  assert.deepEqual([drawn.length, onDevice], [60, 120]); // Streams of a single kernel are left out.
  assert.deepEqual([...shown], spans.map(({ lane }) => Number(lane > 60)));
});
