// Lanes broken up into tracks: rows of spans that do not lie over each other, each sorted by start.

import { LongestTree } from "./longest.js";

const MOST_ROWS = 8;
// Spans whose position was worked out, not read from a clock, may touch their neighbour by the recorder's error; that is
// no reason to show two kernels of one stream as running at once.
const SLACK_NS = 200;

/** More lanes than this nobody can see; the rest is told in numbers. A hundred threads leave room for the streams. */
export const MOST_LANES = 100;
const MOST_HOST_LANES = 40;
// A graph that CUDA places by itself has a lane for each of its branches, and most may hold a single kernel: those are then left out.
const MANY_STREAMS = 32;
// Multiprocessors are drawn in thin rows, one for each kernel whose blocks they run at one time.
const MOST_MULTIPROCESSORS = 320;
const MOST_AT_ONCE = 3;

/**
 * The lanes of a group that hold any spans: {name, host, rows, band, deeper}, where `rows` are tracks, `band` is the track of graph replays,
 * which enclose kernels and so are drawn apart, and `deeper` counts the ranges nested deeper than there are rows. No more than `MOST_LANES`.
 */
export function buildLanes(group, kinds) {
  if (group.drawn) return givenLanes(group);
  const drawn = firstLanes(group);
  const place = (group.place = new Int32Array(group.lanes.length).fill(-1)); // −1 for lanes that are not drawn.
  drawn.forEach((index, position) => (place[index] = position));
  const slots = MOST_ROWS + 1; // Each lane has a slot for each of its rows, and one for its band.
  const sizes = new Uint32Array(drawn.length * slots + 1);
  const deeper = new Uint32Array(drawn.length);
  const slot = assignSlots(group, kinds, place, slots, sizes, deeper);
  const lists = spansBySlot(slot, sizes);
  return drawn.map((index, position) => {
    const tracks = lists.slice(position * slots, (position + 1) * slots).map((spans) => (spans.length ? new Track(group, spans) : null));
    return { ...group.lanes[index], rows: tracks.slice(0, MOST_ROWS).filter(Boolean), band: tracks[MOST_ROWS], deeper: deeper[position] };
  });
}

/** The lanes of a long trace, whose rows Python knows: they stay where they are, whatever is loaded. */
function givenLanes(group) {
  const slots = MOST_ROWS + 1;
  const place = new Int32Array(group.lanes.length);
  const sizes = new Uint32Array(group.drawn.length * slots);
  group.drawn.forEach(([index], position) => (place[index] = position * slots));
  const slot = new Uint16Array(group.count);
  for (let i = 0; i < group.count; i++) sizes[slot[i] = place[group.lane[i]] + group.row[i]]++;
  const lists = spansBySlot(slot, sizes);
  group.lanesLeftOut = group.lanes_left_out;
  return group.drawn.map(([index, rows, band, deeper], position) => {
    const track = (row) => new Track(group, lists[position * slots + row]);
    return { ...group.lanes[index], rows: Array.from({ length: rows }, (_, row) => track(row)), band: band ? track(MOST_ROWS) : null, deeper };
  });
}

/** Indices of the lanes that are drawn: of many, those with most spans. How many others hold spans is left with the group. */
function firstLanes(group) {
  const sizes = new Uint32Array(group.lanes.length);
  const { lane, count } = group;
  for (let i = 0; i < count; i++) sizes[lane[i]]++;
  const used = [...sizes.keys()].filter((index) => sizes[index]);
  const fullest = (indices, most) => indices.sort((a, b) => sizes[b] - sizes[a] || a - b).slice(0, most);
  const [host, streams] = [true, false].map((side) => used.filter((index) => group.lanes[index].host === side));
  const hosts = fullest(host, Math.max(MOST_HOST_LANES, MOST_LANES - streams.length));
  const long = streams.length > MANY_STREAMS ? streams.filter((index) => sizes[index] > 1) : streams;
  const drawn = [...hosts, ...fullest(long.length ? long : streams, MOST_LANES - hosts.length)].sort((a, b) => a - b);
  const kept = group.thin ? used.slice(0, MOST_MULTIPROCESSORS) : drawn;
  group.lanesLeftOut = used.length - kept.length;
  return kept;
}

/**
 * The slot of each span: the first row of its lane in which nothing runs when it starts; the last for lanes that are not drawn.
 * Counts in `sizes` how many each slot gets, in `deeper` how many ranges of each lane lie over others for want of a row.
 */
function assignSlots(group, kinds, place, slots, sizes, deeper) {
  const { lane, kind, start, end, basis, count, thin } = group;
  const none = sizes.length - 1;
  const { graph, range } = kinds;
  const slot = new Uint16Array(count);
  const rowEnds = new Float64Array(none).fill(-Infinity);
  const rowOperations = new Int32Array(none).fill(-1);
  const order = outerFirst(group, kinds);
  for (let position = 0; position < count; position++) {
    const i = order ? order[position] : position;
    const first = place[lane[i]] * slots;
    if (first < 0) slot[i] = none;
    else if (kind[i] === graph) slot[i] = first + MOST_ROWS;
    else {
      const from = start[i] + (basis[i] ? SLACK_NS : 0);
      let row = thin ? ownRow(rowOperations, rowEnds, first, group.operation[i], from) : first;
      const last = first + (thin ? MOST_AT_ONCE : MOST_ROWS) - 1;
      while (rowEnds[row] > from && row < last && !(thin && rowOperations[row] === group.operation[i])) row++;
      if (kind[i] === range && rowEnds[row] > from) deeper[place[lane[i]]]++;
      if (end[i] > rowEnds[row]) rowEnds[row] = end[i];
      if (thin) rowOperations[row] = group.operation[i];
      slot[i] = row;
    }
    sizes[slot[i]]++;
  }
  return slot;
}

/** The row of a multiprocessor in which blocks of an operation run; its first one where they do not. */
function ownRow(rowOperations, rowEnds, first, operation, from) {
  for (let row = first; row < first + MOST_AT_ONCE; row++) if (rowOperations[row] === operation && rowEnds[row] > from) return row;
  return first;
}

/** Positions of the spans in the order in which rows are given: of ranges that begin at one time the longest first, as it holds the others. */
function outerFirst({ kind, start, end, count, kindCounts }, { range }) {
  if (!kindCounts[range]) return null;
  const order = Uint32Array.from({ length: count }, (_, i) => i);
  const length = (i) => (kind[i] === range ? end[i] : -Infinity);
  for (let from = 0, to; from < count; from = to) {
    for (to = from + 1; to < count && start[to] === start[from]; ) to++;
    if (to > from + 1) order.subarray(from, to).sort((a, b) => (length(b) > length(a)) - (length(b) < length(a)) || a - b);
  }
  return order;
}

/** For each slot the spans in it, ascending. */
function spansBySlot(slot, sizes) {
  const ends = new Uint32Array(sizes.length);
  for (let s = 0, end = 0; s < sizes.length; s++) ends[s] = end += sizes[s];
  const next = ends.map((end, s) => end - sizes[s]);
  const order = new Uint32Array(slot.length);
  for (let i = 0; i < slot.length; i++) order[next[slot[i]]++] = i;
  return Array.from(sizes, (size, s) => order.subarray(ends[s] - size, ends[s]));
}

/** One row of spans. `spans[k]` is the index in the group of the track's k-th span. */
export class Track {
  constructor(group, spans) {
    const { length } = spans;
    this.group = group;
    this.length = length;
    this.spans = spans instanceof Uint32Array ? spans : Uint32Array.from(spans);
    this.start = new Float64Array(length);
    this.end = new Float64Array(length);
    // Time covered by all spans before the k-th.
    this.before = new Float64Array(length + 1);
    const ascending = gather(this.spans, group, this.start, this.end, this.before);
    // Largest end so far: ascending even where spans overlap, so it can be searched.
    this.reach = ascending ? this.end : largestSoFar(this.end);
    this.longest = new LongestTree(this);
  }
}

/** Fill a track's columns from its group's; tells whether the ends ascend. */
function gather(spans, { start: groupStart, end: groupEnd, busy }, start, end, before) {
  let ascending = true;
  let covered = 0;
  let last = -Infinity;
  for (let k = 0; k < spans.length; k++) {
    const from = groupStart[spans[k]];
    const to = groupEnd[spans[k]];
    start[k] = from;
    end[k] = to;
    before[k + 1] = covered += busy ? busy[spans[k]] : to - from;
    if (to < last) ascending = false;
    last = to;
  }
  return ascending;
}

function largestSoFar(values) {
  const largest = new Float64Array(values.length);
  for (let k = 0, most = -Infinity; k < values.length; k++) largest[k] = most = Math.max(most, values[k]);
  return largest;
}
