// Levels of detail: which spans of a track get a rectangle of their own, and which share a pixel.
//
// A frame costs at most two entries for each pixel and track, however many spans there are, and allocates nothing.

import { gallop, lowerBound, upperBound } from "./search.js";

/** @import { Track } from "./tracks.js" */

const MOST_OVER = 1000;

/**
 * Entries that `visible` can give for `pixels` pixels.
 *
 * @param {number} pixels
 */
export const entryCapacity = (pixels) => 4 * pixels + 64;

/**
 * Write the entries to draw into `out` as pairs (from, to) of positions in the track, and return how many pairs.
 * A pair of one span at least a pixel long is that span; any other pair is the spans that start in one pixel.
 *
 * Pixels are counted from time zero, not from the edge of the view, so that panning does not change what shares one.
 *
 * @param {number} pitch nanoseconds a pixel
 * @param {Int32Array} out of length 2 * entryCapacity(pixels)
 * @param {Track} track
 * @param {number} t0
 * @param {number} t1
 */
export function visible(track, t0, t1, pitch, out) {
  const { start, end, length } = track;
  const most = out.length >> 1;
  let count = 0;
  let k = upperBound(track.reach, t0);
  while (k < length && start[k] < t1 && count < most) {
    let to = k + 1;
    if (end[k] - start[k] < pitch) {
      to = gallop(start, (Math.floor(start[k] / pitch) + 1) * pitch, k + 1);
      // Only the last of them can be long, and it is drawn by itself.
      if (to > k + 1 && end[to - 1] - start[to - 1] >= pitch) to--;
    }
    out[2 * count] = k;
    out[2 * count + 1] = to;
    count++;
    k = to;
  }
  return count;
}

/**
 * Share of `pitch` that the spans [from, to) cover, at most 1.
 *
 * @param {Track} track
 * @param {number} from
 * @param {number} to
 * @param {number} pitch
 */
export const coverage = (track, from, to, pitch) => Math.min(1, (track.before[to] - track.before[from]) / pitch);

/**
 * Position of the span that holds time `t`; else of the nearest within three pixels of `pitch`, by its edges; -1 for none. Where a filter
 * hides a span that is narrower than a pixel, a match as near wins.
 *
 * @param {Track} track
 * @param {number} t
 * @param {number} pitch
 */
export function spanAt({ start, end, reach, spans, longest }, t, pitch) {
  /** @param {number} slack */
  const within = (slack) => [upperBound(reach, t - slack), lowerBound(start, t + slack)];
  const [from, to] = within(3 * pitch);
  if (from >= to) return -1;
  // Of those that end after `t` the first, and of those that began by then the last.
  const first = upperBound(reach, t);
  const last = upperBound(start, t) - 1;
  let k = last;
  // Only spans for which there was no row of their own lie over each other: the one on top is picked.
  for (const stop = Math.max(first, last - MOST_OVER); k > stop && end[k] <= t; ) k--;
  if (first > last) {
    // Nothing runs.
    const before = lowerBound(reach, reach[last]);
    k = last < from || (last + 1 < to && start[last + 1] - t <= t - reach[last]) ? last + 1 : before;
  } else if (end[k] <= t) k = first;
  const { shown } = longest;
  if (shown && !shown[spans[k]] && end[k] - start[k] < pitch) {
    for (let slack = pitch / 2; slack < 3 * pitch; slack += pitch / 2) {
      const [near, far] = within(slack);
      const match = longest.find(near, far);
      if (near < far && shown[spans[match]]) return match;
    }
  }
  return k;
}
