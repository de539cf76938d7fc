// Lanes broken up into tracks: rows of spans that do not lie over each other, each sorted by start.

import { LongestTree } from "./longest.js";

const MOST_ROWS = 8;
// Spans whose position was worked out, not read from a clock, may touch their neighbour by the recorder's error; that is
// no reason to show two kernels of one stream as running at once.
const SLACK_NS = 200;

/**
 * The lanes of a group that hold any spans: {name, host, rows, band}, where `rows` are tracks and `band` is the track of
 * graph replays, which enclose kernels and so are drawn apart.
 */
export function buildLanes(group, kinds) {
  const members = group.lanes.map(() => []);
  const bands = group.lanes.map(() => []);
  const rowEnds = group.lanes.map(() => []);
  for (let i = 0; i < group.count; i++) {
    const lane = group.lane[i];
    if (group.kind[i] === kinds.graph) {
      bands[lane].push(i);
    } else {
      const row = firstFree(rowEnds[lane], group.start[i] + (group.basis[i] ? SLACK_NS : 0));
      rowEnds[lane][row] = Math.max(rowEnds[lane][row] ?? 0, group.end[i]);
      (members[lane][row] ??= []).push(i);
    }
  }
  const lanes = group.lanes.map((lane, index) => ({
    ...lane,
    rows: members[index].map((spans) => new Track(group, spans)),
    band: bands[index].length ? new Track(group, bands[index]) : null,
  }));
  return lanes.filter((lane) => lane.rows.length || lane.band);
}

function firstFree(ends, start) {
  for (let row = 0; row < ends.length; row++) if (ends[row] <= start) return row;
  return Math.min(ends.length, MOST_ROWS - 1);
}

/** One row of spans. `spans[k]` is the index in the group of the track's k-th span. */
export class Track {
  constructor(group, spans) {
    const length = spans.length;
    this.group = group;
    this.length = length;
    this.spans = Uint32Array.from(spans);
    this.start = new Float64Array(length);
    this.end = new Float64Array(length);
    // Largest end so far: ascending even where spans overlap, so it can be searched.
    this.reach = new Float64Array(length);
    // Time covered by all spans before the k-th.
    this.before = new Float64Array(length + 1);
    for (let k = 0, reach = -Infinity; k < length; k++) {
      this.start[k] = group.start[spans[k]];
      this.end[k] = group.end[spans[k]];
      this.reach[k] = reach = Math.max(reach, this.end[k]);
      this.before[k + 1] = this.before[k] + this.end[k] - this.start[k];
    }
    this.longest = new LongestTree(this);
  }
}
