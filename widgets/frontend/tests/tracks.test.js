import assert from "node:assert/strict";
import test from "node:test";

import { filterSpans } from "../src/filter.js";
import { buildLayout, hitTest } from "../src/layout.js";
import { buildLanes } from "../src/tracks.js";
import { makeModel, randomSpans } from "./model.js";

const lanesOf = (spans, more) => {
  const model = makeModel({ async: spans }, more);
  return buildLanes(model.groups[0]);
};

test("lanes and rows are those that Python says; spans on other lanes are in none", () => {
  const [host, main, ...others] = lanesOf(
    [{ kind: "host", start: 0, end: 9 }, { kind: "host", start: 1, end: 2, row: 1 }, { kind: "kernel", lane: 1, start: 3, end: 4 }, { kind: "kernel", lane: 2, start: 5, end: 6 }, { kind: "host", start: 7, end: 8, row: 1 }],
    { drawn: [[0, 2, false, 0], [1, 1, false, 3]] },
  );
  assert.deepEqual(host.rows.map(({ spans }) => [...spans]), [[0], [1, 4]]);
  assert.deepEqual([main.name, main.band, main.deeper, main.rows.length], ["main", null, 3, 1]);
  assert.equal(others.length, 0);
});

test("a graph's own span encloses its kernels and lies apart", () => {
  const [main] = lanesOf([
    { kind: "graph", lane: 1, start: 0, end: 100 }, { kind: "kernel", lane: 1, start: 0, end: 50 }, { kind: "kernel", lane: 1, start: 50, end: 100 },
  ]);
  assert.equal(main.rows.length, 1);
  assert.deepEqual([...main.band.spans], [0]);
});

test("every row's middle is hit as that row", () => {
  const model = makeModel({
    async: [{ kind: "launch", start: 0, end: 5 }, { kind: "kernel", lane: 1, start: 5, end: 9 }, { kind: "kernel", lane: 2, start: 5, end: 9 }],
    graph: [{ kind: "graph_launch", start: 0, end: 5 }, { kind: "graph", lane: 1, start: 5, end: 9 }, { kind: "kernel", lane: 1, start: 5, end: 9 }],
  });
  const layout = buildLayout(model.groups.map((group) => ({ lanes: buildLanes(group) })), 900);
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

const block = (start, end, operation, lane = 0) => ({ kind: "kernel", lane, start, end, operation, row: operation });

test("all multiprocessors are drawn, in thin lanes of one height", () => {
  const names = Array.from({ length: 304 }, (_, index) => `SM ${index}`);
  const spans = names.flatMap((_, lane) => [block(0, 9, 0, lane), ...(lane ? [] : [block(2, 7, 1)])]).sort((a, b) => a.start - b.start);
  const model = makeModel({ multiprocessors: spans }, { lanes: names, thin: true });
  const [group] = model.groups;
  const { groups: [box] } = buildLayout([{ group, lanes: buildLanes(group) }], 900);
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
    const layout = buildLayout([{ group, lanes: buildLanes(group) }], 900);
    for (const lane of layout.groups[0].lanes) {
      assert.equal(lane.rows.length, rows);
      for (const row of lane.rows) {
        for (let y = row.y + 0.25; y < row.y + row.height; y += 0.5) assert.equal(hitTest(layout, y).row, row);
      }
    }
  }
});

test("a search finds what is drawn: no hit lies on a lane that is left out", () => {
  const lanes = ["host", ...Array.from({ length: 120 }, (_, stream) => `stream ${stream}`)];
  const spans = lanes.slice(1).flatMap((_, stream) => [0, 1].slice(0, stream < 60 ? 1 : 2).map((again) => (
    { kind: "kernel", name: "k", lane: stream + 1, start: 1000 * again + stream, end: 1000 * again + stream + 1 }
  ))).sort((a, b) => a.start - b.start);
  const drawn = lanes.map((_, lane) => [lane, 1, false, 0]).slice(61); // Streams of a single kernel are left out.
  const model = makeModel({ async: spans }, { lanes, drawn });
  buildLanes(model.groups[0]);
  const [{ shown, onDevice }] = filterSpans(model, { code: null, text: "k" });
  assert.equal(onDevice, 120);
  assert.deepEqual([...shown], spans.map(({ lane }) => Number(lane > 60)));
});
