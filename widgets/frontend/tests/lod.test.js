import assert from "node:assert/strict";
import test from "node:test";

import { coverage, entryCapacity, spanAt, visible } from "../src/lod.js";
import { Track } from "../src/tracks.js";
import { makeModel, randomSpans, seeded } from "./model.js";

function trackOf(spans) {
  const model = makeModel({ async: spans });
  return new Track(model.groups[0], [...spans.keys()]);
}

const entriesOf = (track, t0, t1, pixels) => {
  const out = new Int32Array(2 * entryCapacity(pixels));
  const count = visible(track, t0, t1, (t1 - t0) / pixels, out);
  return Array.from({ length: count }, (_, e) => [out[2 * e], out[2 * e + 1]]);
};

test("every span in view is in exactly one entry, and no entry is out of view", () => {
  for (let seed = 1; seed <= 20; seed++) {
    const spans = randomSpans(2000, seed);
    const track = trackOf(spans);
    const random = seeded(seed + 100);
    for (let round = 0; round < 10; round++) {
      const t0 = random() * track.end[1999] * 0.8;
      const t1 = t0 + 50 + random() * track.end[1999] * 0.3;
      const listed = entriesOf(track, t0, t1, 300).flatMap(([from, to]) => Array.from({ length: to - from }, (_, i) => from + i));
      const expected = spans.flatMap((span, k) => (span.end > t0 && span.start < t1 ? [k] : []));
      // A crowd that begins in view may hold spans that start in its pixel just beyond the edge.
      assert.deepEqual(listed.slice(0, expected.length), expected);
      const pitch = (t1 - t0) / 300;
      for (const k of listed.slice(expected.length)) assert.ok(spans[k].start < t1 + pitch);
    }
  }
});

test("entries stay within two a pixel however many spans there are", () => {
  const track = trackOf(randomSpans(200_000, 5));
  const entries = entriesOf(track, 0, track.end.at(-1), 400);
  assert.ok(entries.length <= 2 * 401, `${entries.length} entries`);
  assert.equal(entries.at(-1)[1], 200_000);
});

test("spans of a pixel or more stand alone; only spans that start in one pixel share", () => {
  const track = trackOf(randomSpans(3000, 9));
  const pitch = track.end.at(-1) / 500;
  for (const [from, to] of entriesOf(track, 0, track.end.at(-1), 500)) {
    if (to - from === 1) continue;
    assert.equal(Math.floor(track.start[from] / pitch), Math.floor(track.start[to - 1] / pitch));
    for (let k = from; k < to; k++) assert.ok(track.end[k] - track.start[k] < pitch);
  }
});

test("panning by whole pixels does not change what shares a pixel", () => {
  const track = trackOf(randomSpans(3000, 11));
  const pitch = 64;
  const inner = (first) => entriesOf(track, first * pitch, (first + 300) * pitch, 300)
    .filter(([from]) => track.start[from] > 120 * pitch && track.start[from] < 290 * pitch);
  assert.deepEqual(inner(100), inner(101));
});

test("coverage is the share of the pixel that is busy", () => {
  const track = trackOf([{ start: 0, end: 3 }, { start: 5, end: 7 }].map((span) => ({ kind: "kernel", lane: 1, ...span })));
  assert.equal(coverage(track, 0, 2, 10), 0.5);
  assert.equal(coverage(track, 0, 2, 4), 1);
});

test("the longest of any run is found", () => {
  const spans = randomSpans(5000, 3);
  const { longest } = trackOf(spans);
  const random = seeded(4);
  for (let round = 0; round < 500; round++) {
    const from = Math.floor(random() * 4999);
    const to = from + 1 + Math.floor(random() * (5000 - from - 1));
    const most = Math.max(...spans.slice(from, to).map((span) => span.end - span.start));
    const found = longest.find(from, to);
    assert.ok(found >= from && found < to);
    assert.equal(spans[found].end - spans[found].start, most);
  }
});

test("a filtered span wins over a longer hidden one", () => {
  const track = trackOf([{ start: 0, end: 900 }, { start: 900, end: 901 }].map((span) => ({ kind: "kernel", lane: 1, ...span })));
  track.longest.rebuild(Uint8Array.of(0, 1));
  assert.equal(track.longest.find(0, 2), 1);
});

const kernels = (stretches) => trackOf(stretches.map(([start, end]) => ({ kind: "kernel", lane: 1, start, end })));

test("pointing finds the span under the pointer, else the nearest within reach, else nothing", () => {
  const track = kernels([[0, 100], [100, 104], [104, 110], [400, 500]]);
  assert.equal(spanAt(track, 50, 10), 0);
  assert.equal(spanAt(track, 99.9, 1), 0);
  assert.equal(spanAt(track, 100, 1), 1);
  assert.equal(spanAt(track, 450, 10), 3);
  assert.equal(spanAt(track, 250, 10), -1);
  assert.equal(spanAt(track, 390, 10), 3);
});

test("in a dense lane the pointer picks what lies under it, not its neighbours to the left", () => {
  // Kernels of 10 ns each 15 ns: at 0, 15, 30, …; at the zooms a kernel is 10, 0.44, 0.044 and 0.0044 pixels wide.
  const track = kernels(Array.from({ length: 1000 }, (_, i) => [15 * i, 15 * i + 10]));
  for (const pitch of [1, 22.5, 225, 2250]) {
    assert.equal(spanAt(track, 7500, pitch), 500, "where it starts");
    assert.equal(spanAt(track, 7509.9, pitch), 500, "just before it ends");
    assert.equal(spanAt(track, 7511, pitch), 500, "1 ns behind it, 4 before the next");
    assert.equal(spanAt(track, 7514, pitch), 501, "4 ns behind it, 1 before the next");
    assert.equal(spanAt(track, 7512.5, pitch), 501, "as far from both: the later, whose pixel it is");
    assert.equal(spanAt(track, -2, pitch), 0);
    assert.equal(spanAt(track, 15006, pitch), pitch === 1 ? -1 : 999, "11 ns behind the last");
  }
});

test("distance is to the edges: a long span far to the left is near where it ends", () => {
  const track = kernels([[0, 1000], [1010, 1011], [1011, 1011], [1030, 1031]]);
  assert.equal(spanAt(track, 1004, 5), 0);
  assert.equal(spanAt(track, 1006, 5), 1);
  assert.equal(spanAt(track, 1022, 5), 3);
  assert.equal(spanAt(track, 1046, 5), -1);
});

test("of spans that lie over each other the one on top is picked, and one far below is found", () => {
  const track = kernels([[0, 1000], [10, 20], [12, 500], [600, 610]]);
  assert.equal(spanAt(track, 15, 1), 2);
  assert.equal(spanAt(track, 605, 1), 3);
  assert.equal(spanAt(track, 700, 1), 0);
  assert.equal(spanAt(track, 1002, 1), 0, "it ends last");
  const under = kernels([[0, 1e6], ...Array.from({ length: 5000 }, (_, i) => [10 * i, 10 * i + 5])]);
  assert.equal(spanAt(under, 40008, 1), 0);
});

test("pointing agrees with a search through all spans, at every zoom", () => {
  for (let seed = 1; seed <= 10; seed++) {
    const spans = randomSpans(400, seed);
    const track = trackOf(spans);
    const random = seeded(seed + 50);
    for (let round = 0; round < 100; round++) {
      const [t, pitch] = [random() * track.end[399], 10 ** (4 * random() - 1)];
      const found = spanAt(track, t, pitch);
      const away = spans.map(({ start, end }) => Math.max(start - t, t - end, 0));
      const least = Math.min(...away);
      if (least >= 3 * pitch) assert.equal(found, -1);
      else assert.equal(away[found], least);
    }
  }
});

test("where a filter hides the span of a crowd under the pointer, the nearest match is picked", () => {
  const track = kernels(Array.from({ length: 100 }, (_, i) => [10 * i, 10 * i + 8]));
  track.longest.rebuild(Uint8Array.from({ length: 100 }, (_, i) => i === 50 || i === 53));
  assert.equal(spanAt(track, 513, 20), 50, "51 is under the pointer, 50 ended 5 ns before");
  assert.equal(spanAt(track, 528, 20), 53);
  assert.equal(spanAt(track, 513, 5), 51, "wide enough to be seen");
  assert.equal(spanAt(track, 203, 20), 20, "no match is near");
});
