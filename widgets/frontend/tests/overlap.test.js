import assert from "node:assert/strict";
import test from "node:test";

import { COMPUTE, COPIES, EXPOSED, HIDDEN, IDLE, KERNEL, KERNELS, OVERLAPPED, RUNNING } from "../src/activity.js";
import { describeAtOnce } from "../src/at_once.js";
import { decodePath, drawPath } from "../src/critical_path.js";
import { looksOf } from "../src/looks.js";
import { decodeWaits, waitsOf } from "../src/waits.js";
import { activityOf, columnsOf, OCCUPATIONS, seeded } from "./model.js";

const LOOKS = Object.fromEntries(
  ["kernel", "kernels", "hidden", "exposed", "copy", ...OCCUPATIONS.slice(1)].map((name) => [name, [name, "#808080", "#404040", `note: ${name}`]]),
);

function randomStretches(count, random) {
  let start = 0;
  return Array.from({ length: count }, () => {
    const [from, kernels, copies] = [start, Math.floor(random() * 4), Math.floor(random() * 2)];
    start += 1 + Math.floor(random() ** 4 * 500);
    const [collectives, peers] = [Math.min(kernels, Math.floor(random() * 2)), Math.min(copies, Math.floor(random() * 2))];
    return { start: from, end: start, kernels, copies, collectives, peers, occupation: kernels + copies ? 0 : 1 + Math.floor(random() * 4) };
  });
}

test("busy time is that with a kernel or a copy, GPU busy that with a kernel alone, nanosecond by nanosecond", () => {
  const random = seeded(11);
  const stretches = randomStretches(120, random);
  const activity = activityOf(stretches);
  const { end } = stretches.at(-1);
  for (let turn = 0; turn < 40; turn++) {
    const [from, to] = [random() * end * 1.1, random() * end * 1.1].map(Math.floor).sort((a, b) => a - b);
    let [either, kernels] = [0, 0];
    for (const stretch of stretches) {
      const length = Math.max(0, Math.min(to, stretch.end) - Math.max(from, stretch.start));
      if (stretch.kernels || stretch.copies) either += length;
      if (stretch.kernels) kernels += length;
    }
    assert.equal(activity.busyWithin(from, to), either);
    assert.equal(activity.kernelTimeWithin(from, to), kernels);
  }
  const one = activityOf([{ start: 0, end: 10, occupation: 2 }, { start: 10, end: 40, kernels: 1 }, { start: 40, end: 90, occupation: 4 }]);
  assert.deepEqual([[0, 100], [15, 65], [41, 59], [20, 20]].map(([from, to]) => one.kernelTimeWithin(from, to)), [30, 25, 0, 0]);
});

test("sums over any run of stretches are those of its stretches", () => {
  const random = seeded(7);
  const stretches = randomStretches(300, random);
  const activity = activityOf(stretches);
  for (let turn = 0; turn < 200; turn++) {
    const [from, to] = [random() * 301, random() * 301].map(Math.floor).sort((a, b) => a - b);
    const wanted = new Float64Array(IDLE + OCCUPATIONS.length);
    for (const { start, end, kernels, copies, collectives, peers, occupation } of stretches.slice(from, to)) {
      const length = end - start;
      if (kernels + copies) wanted[RUNNING] += length;
      else wanted[IDLE + occupation] += length;
      if (kernels + copies > 1) wanted[OVERLAPPED] += length;
      if (kernels) wanted[KERNEL] += length;
      if (kernels > collectives) wanted[COMPUTE] += length;
      wanted[KERNELS] += length * (kernels - collectives);
      wanted[COPIES] += length * (copies - peers);
      wanted[kernels > collectives ? HIDDEN : EXPOSED] += length * (collectives + peers);
    }
    assert.deepEqual([...activity.sumOf(from, to)], [...wanted]);
  }
});

test("each stretch in view is visited once, alone or in a crowd that starts in one pixel", () => {
  const random = seeded(11);
  const stretches = randomStretches(400, random);
  const activity = activityOf(stretches);
  for (const pitch of [1, 7, 60, 900]) {
    const t0 = Math.floor(stretches[37].start / pitch) * pitch;
    const t1 = stretches[310].start + 0.5;
    const seen = [];
    activity.visit({ t0, t1, pitch }, (i) => {
      assert.ok(activity.end[i] - activity.start[i] >= pitch);
      seen.push(i);
    }, (from, to) => {
      assert.equal(Math.floor(activity.start[from] / pitch), Math.floor(activity.start[to - 1] / pitch));
      for (let i = from; i < to; i++) seen.push(i);
    });
    const inView = stretches.flatMap(({ start, end }, i) => (end > t0 && start < t1 ? [i] : []));
    assert.deepEqual(seen.filter((i) => inView.includes(i)), inView);
    assert.equal(new Set(seen).size, seen.length);
  }
});

test("the lane tells what runs at a time, how full the GPU is, and why it idles", () => {
  const activity = activityOf([
    { start: 0, end: 10, occupation: 2 }, { start: 10, end: 20, kernels: 1, full: 50 }, { start: 20, end: 30, kernels: 2, copies: 1, full: 200 },
    { start: 30, end: 40, kernels: 1 }, { start: 40, end: 50, copies: 1 }, { start: 50, end: 60, occupation: 3 },
  ]);
  const model = { occupations: OCCUPATIONS, fullness_steps: 200, fullness_unknown: 255 };
  const looks = looksOf(LOOKS, { ground: "rgb(255 255 255)", dark: false });
  const told = (t) => describeAtOnce(model, activity, looks, t);
  assert.deepEqual([told(-1), told(60)], [null, null]);
  assert.deepEqual([told(5).name, told(5).note], ["host_wait", "note: host_wait"]);
  assert.deepEqual([told(55).name, told(55).note], ["launch", "note: launch"]);
  assert.deepEqual([told(10).name, told(10).fullness, told(10).stretch], ["one kernel at once", "at most 25.0 %", [10, 20]]);
  assert.deepEqual([told(29).name, told(29).fullness], ["2 kernels and one copy at once", "at most 100.0 %"]);
  assert.equal(told(35).fullness, "unknown");
  assert.deepEqual([told(45).name, told(45).fullness], ["one copy at once", null]);
});

test("communication is hidden beside a kernel that computes, and exposed beside none or another collective", () => {
  const activity = activityOf([
    { start: 0, end: 10, kernels: 2, collectives: 1 }, { start: 10, end: 20, kernels: 2, collectives: 2 }, { start: 20, end: 30, copies: 2, peers: 1 },
  ]);
  const told = [5, 15, 25].map((t) => describeAtOnce({ occupations: OCCUPATIONS }, activity, looksOf(LOOKS, { ground: "#ffffff" }), t));
  assert.deepEqual(told.map(({ name, note }) => [name, note]), [
    ["one kernel and communication at once", "note: hidden"], ["communication at once", "note: exposed"],
    ["communication and one copy at once", "note: exposed"],
  ]);
  assert.deepEqual([...activity.sumOf(0, 3)].slice(COMPUTE, IDLE + 1), [10, 10, 10, 10, 30]);
  assert.equal(activity.kernelTimeWithin(0, 30), 20, "a collective keeps the GPU busy");
  assert.deepEqual([...activity.looks(OCCUPATIONS)].sort(), ["copy", "exposed", "hidden", "kernel"]);
});

test("only looks that occur are in the legend", () => {
  const one = activityOf([{ start: 0, end: 5, kernels: 1 }, { start: 5, end: 9, occupation: 4 }]);
  assert.deepEqual([...one.looks(OCCUPATIONS)].sort(), ["kernel", "kernel_wait"]);
  const two = activityOf([{ start: 0, end: 5, kernels: 2 }, { start: 5, end: 9, copies: 1 }]);
  assert.deepEqual([...two.looks(OCCUPATIONS)].sort(), ["copy", "kernel", "kernels"]);
});

test("waits are found by either of their ends", () => {
  const [spec, block] = columnsOf({ earlier: [0, 3, 0], later: [5, 5, 8] });
  const group = { waits: decodeWaits(spec, block) };
  assert.deepEqual([waitsOf(group, 5), waitsOf(group, 0), waitsOf(group, 4)], [[0, 1], [0, 2], []]);
});

test("a path's stretches have ends", () => {
  const [spec, block] = columnsOf({ start: [0, 4], duration: [4, 6], bound: [1, 2], lane: [0, 1] });
  const path = decodePath({ ...spec, words: "kernels 60 %" }, block);
  assert.deepEqual([[...path.start], [...path.end], path.words], [[0, 4], [4, 10], "kernels 60 %"]);
});

test("a path of many stretches costs a few lines a pixel, and touches each lane that it passes there", () => {
  const count = 50_000;
  const path = {
    count, start: Float64Array.from({ length: count }, (_, k) => k), end: Float64Array.from({ length: count }, (_, k) => k + 1),
    bound: new Uint8Array(count), lane: Uint32Array.from({ length: count }, (_, k) => k % 2),
  };
  const lines = [];
  const ctx = { beginPath() {}, moveTo() {}, stroke() {}, lineTo: (x, y) => lines.push([x, y]) };
  const box = { index: 0, lanes: [{ lane: { index: 0, host: true }, rows: [{ y: 0, height: 10 }] }, { lane: { index: 1 }, rows: [{ y: 20, height: 10 }] }] };
  const geometry = { dpr: 1, left: 0, right: 100, pitch: count / 100, t0: 0, t1: count, x: (t) => (t / count) * 100, px: Math.round };
  const group = { path, lanes: box.lanes };
  drawPath(ctx, { geometry, theme: {}, model: { groups: [group], bounds: ["host"] } }, box);
  assert.ok(lines.length < 6 * 101, `${lines.length} lines`);
  assert.deepEqual([...new Set(lines.map(([, y]) => y))].sort((a, b) => a - b), [9, 29]);
  assert.ok(lines.at(-1)[0] > 98);
});

test("the waits of a span are those that a search through all finds, and are looked up, not searched", () => {
  const random = seeded(3);
  const later = Array.from({ length: 3000 }, () => 500 + Math.floor(random() * 500)).sort((a, b) => a - b);
  const [spec, block] = columnsOf({ earlier: later.map((span) => Math.floor(random() * span)), later });
  const group = { waits: decodeWaits(spec, block) };
  const { waits } = group;
  for (const span of [0, 3, 499, 500, 731, 999, 1000]) {
    const wanted = later.flatMap((_, k) => (waits.later[k] === span || waits.earlier[k] === span ? [k] : []));
    assert.deepEqual([...new Set(waitsOf(group, span))].sort((a, b) => a - b), wanted);
  }
  // What is read of the columns for one more span does not grow with their length.
  let reads = 0;
  for (const column of ["earlier", "later"]) {
    waits[column] = new Proxy(waits[column], { get: (values, key) => {
      reads++;
      return values[key];
    } });
  }
  waitsOf(group, 731);
  assert.ok(reads < 10, `${reads} reads`);
  assert.deepEqual(waitsOf({ waits: { count: 0 } }, 3), []);
});
