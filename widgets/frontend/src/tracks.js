// Lanes broken up into tracks: rows of spans that do not lie over each other, each sorted by start.

import { LongestTree } from "./longest.js";

/** @import { Group, NamedLane } from "./model.js" */

/**
 * A lane that is drawn: its rows; the track of graph replays, which enclose kernels and so are drawn apart; and how many ranges are nested
 * deeper than there are rows.
 *
 * @typedef {NamedLane & { rows: Track[], band: Track | null, deeper: number }} Lane
 */

/** @typedef {{ group: Group, lanes: Lane[], busyShares?: Uint8Array[] }} Part */

// Each lane has a slot for each of its rows, and one for its band. As in rows.py, which says which span has which row.
const MOST_ROWS = 8;
const SLOTS = MOST_ROWS + 1;

/**
 * The lanes of a group that are drawn: {name, host, rows, band, deeper}, where `rows` are tracks, `band` is the track of graph replays,
 * which enclose kernels and so are drawn apart, and `deeper` counts the ranges nested deeper than there are rows.
 *
 * @param {Group} group
 * @returns {Lane[]}
 */
export function buildLanes(group) {
  const { drawn, lane, row, count } = group;
  const place = (group.place = new Int32Array(group.lanes.length).fill(-1)); // −1 for lanes that are not drawn.
  drawn.forEach(([index], position) => (place[index] = position));
  const none = drawn.length * SLOTS;
  const sizes = new Uint32Array(none + 1);
  const slot = new Uint16Array(count);
  for (let i = 0; i < count; i++) sizes[slot[i] = place[lane[i]] < 0 ? none : place[lane[i]] * SLOTS + row[i]]++;
  const lists = spansBySlot(slot, sizes);
  return drawn.map(([index, rows, band, deeper], position) => {
    const lane = group.lanes[index];
    const spans = lane.ends && Uint32Array.from(group.far?.keys() ?? []).filter((span) => group.far?.[span] === index);
    /** @param {number} at */
    const track = (at) => new Track(group, spans ?? lists[position * SLOTS + at]);
    return { ...lane, rows: Array.from({ length: rows }, (_, at) => track(at)), band: band ? track(MOST_ROWS) : null, deeper };
  });
}

/**
 * For each slot the spans in it, ascending.
 *
 * @param {Uint16Array} slot
 * @param {Uint32Array} sizes
 */
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
  /**
   * @param {Group} group
   * @param {Uint32Array | number[]} spans
   */
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

/**
 * Fill a track's columns from its group's; tells whether the ends ascend.
 *
 * @param {Uint32Array} spans
 * @param {Pick<Group, "start" | "end" | "busy">} group
 * @param {Float64Array} start
 * @param {Float64Array} end
 * @param {Float64Array} before
 */
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

/** @param {Float64Array} values */
function largestSoFar(values) {
  const largest = new Float64Array(values.length);
  for (let k = 0, most = -Infinity; k < values.length; k++) largest[k] = most = Math.max(most, values[k]);
  return largest;
}
