// Levels of detail: which spans of a track get a rectangle of their own, and which share a pixel.
//
// A frame costs at most two entries for each pixel and track, however many spans there are, and allocates nothing.

import { gallop, upperBound } from "./search.js";

/** Entries that `visible` can give for `pixels` pixels. */
export const entryCapacity = (pixels) => 4 * pixels + 64;

/**
 * Write the entries to draw into `out` as pairs (from, to) of positions in the track, and return how many pairs.
 * A pair of one span at least a pixel long is that span; any other pair is the spans that start in one pixel.
 *
 * Pixels are counted from time zero, not from the edge of the view, so that panning does not change what shares one.
 *
 * @param {number} pitch nanoseconds a pixel
 * @param {Int32Array} out of length 2 * entryCapacity(pixels)
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

/** Share of `pitch` that the spans [from, to) cover, at most 1. */
export const coverage = (track, from, to, pitch) => Math.min(1, (track.before[to] - track.before[from]) / pitch);

/** Position of the span at time `t`; else the nearest crowd's longest within three pixels of `pitch`; -1 for none. */
export function spanAt(track, t, pitch) {
  const slack = 3 * pitch;
  const from = upperBound(track.reach, t - slack);
  const to = gallop(track.start, t + slack, from);
  if (from >= to) return -1;
  for (let k = upperBound(track.start, t, from, to) - 1; k >= from; k--) {
    if (t < track.end[k] && track.end[k] - track.start[k] >= pitch) return k;
    if (track.reach[k] <= t) break;
  }
  return track.longest.find(from, to);
}
