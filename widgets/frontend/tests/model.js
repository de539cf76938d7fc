// A model as `decode` makes it, from rows that are easy to read.

import { Activity } from "../src/activity.js";
import { decode } from "../src/decode.js";

export const KINDS = ["launch", "graph_launch", "event", "sync", "host", "compile", "api", "range", "kernel", "copy", "set", "graph"];
export const OCCUPATIONS = ["running", "host_function", "host_wait", "launch", "kernel_wait", "other"];
const COLUMNS = ["kind", "name", "lane", "start", "duration", "operation", "part", "correlation", "basis", "blocks", "threads", "bytes", "flops", "symbol", "graph_node", "row"];
const BAND = 8;

export const NO_WAITS = { count: 0, earlier: { dtype: "u8", constant: 0 }, later: { dtype: "u8", constant: 0 } };
const IDS = ["operation", "correlation", "symbol", "graph_node"];

/**
 * @param groups {label: [{kind, name, lane, row, start, end, …}]}; lane 0 is the host's. Rows are given by Python: here all spans are in the
 * first one of their lane, and graphs in its band, if nothing else is said.
 */
export function makeModel(groups, { lanes = ["host", "main", "aux"], ...more } = {}) {
  const names = [];
  const code = (name) => (names.includes(name) ? names.indexOf(name) : names.push(name) - 1);
  const columns = [];
  const headers = Object.entries(groups).map(([label, spans]) => {
    const values = {
      kind: spans.map((span) => KINDS.indexOf(span.kind)),
      name: spans.map((span) => code(span.name ?? span.kind)),
      lane: spans.map((span) => span.lane ?? 0),
      start: spans.map((span) => span.start),
      duration: spans.map((span) => span.end - span.start),
    };
    values.row = spans.map((span) => span.row ?? (span.kind === "graph" ? BAND : 0));
    const used = [...new Set(values.lane)].sort((a, b) => a - b);
    const rowsOf = (lane) => [...new Set(values.row.filter((_, i) => values.lane[i] === lane))];
    const drawn = more.drawn ?? used.map((lane) => [lane, 1 + Math.max(-1, ...rowsOf(lane).filter((row) => row < BAND)), rowsOf(lane).includes(BAND), 0]);
    for (const id of IDS) values[id] = spans.map((span) => (span[id] ?? -1) + 1);
    for (const column of COLUMNS) values[column] ??= spans.map((span) => span[column] ?? 0);
    const described = {};
    for (const column of COLUMNS) {
      described[column] = { dtype: "f64", offset: 8 * columns.length };
      for (const value of values[column]) columns.push(value);
    }
    for (const id of IDS) described[id].shift = -1;
    return {
      label, engine: label, program: "step", device: { kind: "cuda", name: "NVIDIA H200" },
      extent_ns: spans.reduce((most, span) => Math.max(most, span.end), 0), makespan_text: "1 µs", remarks: [], details: [], notes: [],
      lanes: lanes.map((name, index) => ({ name, host: index === 0, gpu: index ? 0 : -1 })), gpus: [{ gpu: 0 }], activities: [], count: spans.length, shown_until_ns: null, columns: described, waits: NO_WAITS, drawn, lanes_left_out: 0, ...more,
    };
  });
  const onDevice = (name) => Object.values(groups).flat().some((span) => ["kernel", "copy"].includes(span.kind) && (span.name ?? span.kind) === name);
  const order = names.flatMap((name, index) => (onDevice(name) ? [index] : []));
  const header = { program: "step", kinds: KINDS, bases: ["measured", "derived", "placed"], names, order, groups: headers };
  return decode(header, new Uint8Array(Float64Array.from(columns).buffer));
}

/** Numbers in [0, 1) that are the same in every run. */
export function seeded(seed) {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

/** One track of `count` spans with random lengths and gaps, some touching, some a thousand times longer than others. */
export function randomSpans(count, seed) {
  const random = seeded(seed);
  let now = 0;
  return Array.from({ length: count }, () => {
    const start = now + (random() < 0.3 ? 0 : Math.floor(random() * 50));
    now = start + Math.ceil(random() * (random() < 0.02 ? 20000 : 40));
    return { kind: "kernel", name: "k", lane: 1, start, end: now };
  });
}

/** Columns as payload.py describes them, all as doubles. */
export function columnsOf(columns) {
  const names = Object.keys(columns);
  const count = columns[names[0]].length;
  const block = new Uint8Array(Float64Array.from(names.flatMap((name) => columns[name])).buffer);
  return [{ count, ...Object.fromEntries(names.map((name, at) => [name, { dtype: "f64", offset: 8 * count * at }])) }, block];
}

/** What the device does, from stretches {start, end, kernels, copies, occupation, full}. */
export function activityOf(stretches) {
  const [spec, block] = columnsOf({
    start: stretches.map(({ start }) => start), kernels: stretches.map(({ kernels = 0 }) => kernels),
    copies: stretches.map(({ copies = 0 }) => copies), occupation: stretches.map(({ occupation = 0 }) => occupation),
    fullness: stretches.map(({ full = 255 }) => full), collectives: stretches.map(({ collectives = 0 }) => collectives),
    peers: stretches.map(({ peers = 0 }) => peers),
  });
  return new Activity({ ...spec, end_ns: stretches.at(-1).end }, block, OCCUPATIONS);
}
