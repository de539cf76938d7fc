import assert from "node:assert/strict";
import test from "node:test";

import { comparable, decodeCounters, stepsOf, valueAt, valueWords } from "../src/counter_lines.js";
import { columnsOf, seeded } from "./model.js";

const axis = (left, right, t0, pitch) => ({ left, right, t0, pitch, x: (time) => left + (time - t0) / pitch });
const line = (time, value) => ({ name: "", time: Float64Array.from(time), value: Float64Array.from(value) });

test("a value holds until the next one", () => {
  const loss = line([10, 20, 20, 40], [1, 2, 3, -1]);
  assert.deepEqual([9, 10, 19, 20, 39, 40, 1e9].map((time) => valueAt(loss, time)), [null, 1, 1, 3, 3, -1, -1]);
});

test("steps: the value in force at the left edge, then one step for each pixel with values", () => {
  const loss = line([10, 20, 21, 22, 40, 95], [1, 2, 9, 3, 4, 5]);
  assert.deepEqual(stepsOf(loss, axis(0, 10, 0, 10)), [
    { x: 1, first: 1, least: 1, largest: 1, last: 1 }, { x: 2, first: 2, least: 2, largest: 9, last: 3 },
    { x: 4, first: 4, least: 4, largest: 4, last: 4 }, { x: 10, first: 5, least: 5, largest: 5, last: 5 },
  ]);
  assert.deepEqual(stepsOf(loss, axis(3, 3.5, 30, 10)), [{ x: 3, first: 3, least: 3, largest: 3, last: 3 }]);
  assert.deepEqual(stepsOf(line([], []), axis(0, 10, 0, 10)), []);
});

test("a step tells first, least, largest and last of the values in its pixel, however many there are", () => {
  const random = seeded(3);
  const times = Array.from({ length: 2000 }, () => random() * 1000).sort((a, b) => a - b);
  const values = times.map(() => random());
  for (const [right, t0, pitch] of [[100, 0, 10], [3, 0, 400], [200, 300, 0.5]]) {
    const at = axis(0, right, t0, pitch);
    const steps = stepsOf(line(times, values), at);
    const before = times.findLastIndex((time) => time <= t0);
    const pixels = new Map();
    times.forEach((time, i) => {
      const x = Math.max(0, Math.round(at.x(time)));
      if (i >= before && x <= right) pixels.set(x, [...(pixels.get(x) ?? []), values[i]]);
    });
    const wanted = [...pixels].map(([x, here]) => ({ x, first: here[0], least: Math.min(...here), largest: Math.max(...here), last: here.at(-1) }));
    assert.deepEqual(steps, wanted);
  }
});

test("the same counter of several engines: lanes below each other, with one range", () => {
  const lane = (label, low, high) => ({ label, unit: "", low, high, peak: null, lines: [] });
  const rows = [["a", lane("memory", 0, 8)], ["a", lane("loss", -1, 2)], ["b", lane("loss", 0, 5)], ["b", lane("memory", 0, 4)]].map(([group, each]) => ({ group, lane: each }));
  const found = comparable(rows).map(({ group, lane: { label, low, high } }) => [group, label, low, high]);
  assert.deepEqual(found, [["a", "memory", 0, 8], ["b", "memory", 0, 8], ["a", "loss", -1, 5], ["b", "loss", -1, 5]]);
});

test("values in words", () => {
  assert.deepEqual([0, 512, 4096, 3 << 20, 2 ** 31].map((bytes) => valueWords(bytes, "B")), ["0", "512 B", "4.0 KiB", "3.0 MiB", "2.00 GiB"]);
  assert.deepEqual([0, 3, 12345, -1.5, 0.25, 1e9, -2e-7].map((value) => valueWords(value, "W")), ["0", "3", "12,345", "−1.50", "0.250", "1.000e+9", "−2.000e−7"]);
});

test("lanes and markers are read from the block", () => {
  const [columns, block] = columnsOf({ time: [5, 6], value: [0.5, -2], name: [1, 0] });
  const { time, value, name } = columns;
  const lane = { label: "loss", unit: "", low: -2, high: 0.5, peak: null, lines: [{ name: "", count: 2, time, value }] };
  const notes = [{ number: 2, start: 5, end: 5, text: "late", lane: "" }];
  const found = decodeCounters({ lanes: [lane], left_out: 1, markers: { count: 2, time, name, texts: ["a", "b"] }, notes }, block);
  assert.equal(found.notes, notes);
  assert.deepEqual([...found.lanes[0].lines[0].value], [0.5, -2]);
  assert.deepEqual([[...found.markers.time], [...found.markers.name], found.left_out], [[5, 6], [1, 0], 1]);
});
