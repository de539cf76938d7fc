// How often each name occurs in an area, and how long, under each engine.

import { offAxis } from "./align.js";
import { lowerBound, upperBound } from "./search.js";

/**
 * @import { Alignment } from "./align.js"
 * @import { Box, Row } from "./layout.js"
 * @import { Sums } from "./messages.js"
 * @import { Model } from "./model.js"
 * @import { Track } from "./tracks.js"
 */

/** @typedef {{ from: number, to: number, top?: number, bottom?: number }} Area a stretch of the axis, and from which height to which, if not all */

/** @typedef {{ name: string, call: boolean, range: boolean, cells: { count: number, time: number }[] }} Total */

// What stands behind a name: of what ran on the device nothing.
const SORTS = ["", " (call)", " (range)"];
const [CALL, RANGE] = [1, 2];

/**
 * Rows of an engine that an area covers: all on the device, those of collapsed GPUs included, or those that lie between two heights. The far
 * ends of copies between GPUs count where the near ones do not.
 *
 * @param {Box} box
 * @param {Pick<Area, "top" | "bottom">} area
 * @returns {Pick<Row, "track" | "lane">[]}
 */
export function rowsWithin(box, { top, bottom }) {
  if (top === undefined || bottom === undefined) {
    const lanes = box.sections.flatMap(({ own }) => own.filter(({ host, ends }) => !host && !ends));
    return lanes.flatMap((lane) => lane.rows.map((track) => ({ track, lane })));
  }
  const rows = box.lanes.flatMap((lane) => lane.rows).filter((row) => row.y < bottom && row.y + row.height > top);
  return rows.filter(({ lane: { gpu, ends } }) => !ends || !rows.some(({ lane }) => !lane.ends && lane.gpu !== gpu && ends.includes(lane.gpu)));
}

/**
 * @param {Area} area a stretch of the axis
 * @param {Sums[] | null} known of each shown engine, what Python says of a long trace
 * @returns {Total[]} what ran on the device, then calls and waits
 * of the host, then ranges, longest in total first; a cell for each shown engine; spans that reach out of the area count with what lies in it
 * @param {Model} model
 * @param {{ groups: Box[] }} layout
 * @param {Alignment[]} alignments
 */
export function totalsByName(model, layout, alignments, area, known = null) {
  /** @type {Map<number, Total["cells"]>} */
  const perName = new Map();
  layout.groups.forEach((box, column) => {
    const [from, to] = [area.from, area.to].map((position) => offAxis(alignments[box.index], position));
    const counts = new Uint32Array(SORTS.length * model.names.length);
    const times = new Float64Array(SORTS.length * model.names.length);
    if (known) for (const [key, count, time] of known[column].names) [counts[key], times[key]] = [count, time];
    else for (const { track } of rowsWithin(box, area)) addTrack(model, track, from, to, counts, times);
    counts.forEach((count, key) => {
      if (!count) return;
      const cells = perName.get(key) ?? layout.groups.map(() => ({ count: 0, time: 0 }));
      perName.set(key, cells);
      cells[column] = { count, time: times[key] };
    });
  });
  /** @param {Total["cells"]} cells */
  const total = (cells) => cells.reduce((sum, { time }) => sum + time, 0);
  return [...perName].map(([key, cells]) => {
    const sort = key % SORTS.length;
    const name = model.names[Math.floor(key / SORTS.length)] + SORTS[sort];
    return { name, call: sort === CALL, range: sort === RANGE, cells, total: total(cells), sort };
  }).sort((a, b) => a.sort - b.sort || b.total - a.total);
}

/**
 * Keys are a name's code and a sort: host calls are often called like the kernel that they launch. Ranges hold calls and each other.
 *
 * @param {Model} model
 * @param {Track} track
 * @param {number} from
 * @param {number} to
 * @param {Uint32Array} counts
 * @param {Float64Array} times
 */
function addTrack(model, track, from, to, counts, times) {
  const { start, end, spans, group } = track;
  const last = lowerBound(start, to);
  for (let k = upperBound(track.reach, from); k < last; k++) {
    if (end[k] <= from) continue;
    const span = spans[k];
    const kind = group.kind[span];
    const sort = kind >= model.kinds.kernel ? 0 : kind === model.kinds.range ? RANGE : CALL;
    const key = SORTS.length * group.name[span] + sort;
    counts[key]++;
    times[key] += Math.min(end[k], to) - Math.max(start[k], from);
  }
}
