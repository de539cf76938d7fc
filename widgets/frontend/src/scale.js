// The visible stretch of time, as {t0, t1} in nanoseconds, and the ticks on its axis.

import { inUnit, unitOf } from "./format.js";
import { between } from "./geometry.js";

/** @import { Unit } from "./format.js" */

/** @typedef {{ t0: number, t1: number }} View a stretch of the axis in nanoseconds */

// What more digits in a label than these tell of one tick is the same in all of them.
const MOST_DIGITS = 8;

export const NARROWEST_NS = 20;

/**
 * All from `start` to `end` with a little air at both ends.
 *
 * @param {number} start
 * @param {number} end
 * @returns {View}
 */
export function fullView(start, end) {
  const length = end - start;
  return length > 0 ? { t0: start - 0.008 * length, t1: end + 0.012 * length } : { t0: start, t1: start + 1000 };
}

/**
 * The same view moved and shrunk, if need be, to lie within `bounds`.
 *
 * @param {View} view
 * @param {View} bounds
 * @returns {View}
 */
export function clampView(view, bounds) {
  const widest = bounds.t1 - bounds.t0;
  if (view.t1 - view.t0 >= widest) return bounds;
  const width = Math.max(view.t1 - view.t0, Math.min(NARROWEST_NS, widest));
  const middle = (view.t0 + view.t1) / 2;
  let t0 = width === view.t1 - view.t0 ? view.t0 : middle - width / 2;
  t0 = between(bounds.t0, t0, bounds.t1 - width);
  return { t0, t1: t0 + width };
}

/**
 * Zoomed by `factor` (below 1 shows less time), with the time `anchor` staying where it is on the screen.
 *
 * @param {View} view
 * @param {number} anchor
 * @param {number} factor
 * @param {View} bounds
 */
export function zoomView(view, anchor, factor, bounds) {
  const width = view.t1 - view.t0;
  const wanted = between(NARROWEST_NS, width * factor, bounds.t1 - bounds.t0);
  const t0 = anchor - (anchor - view.t0) * (wanted / width);
  return clampView({ t0, t1: t0 + wanted }, bounds);
}

/**
 * @param {View} view
 * @param {number} delta
 * @param {View} bounds
 */
export const panView = (view, delta, bounds) => clampView({ t0: view.t0 + delta, t1: view.t1 + delta }, bounds);

/**
 * The view that shows [start, end] with `margin` of its length on either side.
 *
 * @param {number} start
 * @param {number} end
 * @param {View} bounds
 * @param {number} [margin]
 */
export function fitView(start, end, bounds, margin = 0.15) {
  const pad = Math.max((end - start) * margin, NARROWEST_NS);
  return clampView({ t0: start - pad, t1: end + pad }, bounds);
}

/**
 * Between two views, `share` of the way; widths are interpolated by ratio so that a zoom looks even.
 *
 * @param {View} from
 * @param {View} to
 * @param {number} share
 */
export function blendViews(from, to, share) {
  if (share >= 1) return to;
  const [a, b] = [from.t1 - from.t0, to.t1 - to.t0];
  const width = a * (b / a) ** share;
  // The centre moves with the width, else a zoom far in would swing past its target.
  const progress = Math.abs(b - a) > 1e-9 * a ? (width - a) / (b - a) : share;
  const centre = (from.t0 + from.t1) / 2 + ((to.t0 + to.t1) / 2 - (from.t0 + from.t1) / 2) * progress;
  return { t0: centre - width / 2, t1: centre + width / 2 };
}

/**
 * Step of 1, 2 or 5 times a power of ten that leaves at least `gap` pixels between ticks.
 *
 * @param {View} view
 * @param {number} width
 * @param {number} gap
 */
export function tickStep(view, width, gap) {
  const least = ((view.t1 - view.t0) / Math.max(width, 1)) * gap;
  const power = 10 ** Math.floor(Math.log10(least));
  const factor = [1, 2, 5].find((multiple) => multiple * power >= least * 0.999999) ?? 10;
  return Math.max(factor * power, 1);
}

/** @param {View} view */
const largestOf = ({ t0, t1 }) => Math.max(Math.abs(t0), Math.abs(t1));

/** @param {View} view */
export const axisUnit = (view) => unitOf(largestOf(view));

/**
 * Decimals that tell neighbouring ticks apart.
 *
 * @param {number} step
 * @param {Unit} unit
 */
export const tickDecimals = (step, unit) => Math.max(0, -Math.floor(Math.log10(step / unit.ns) + 1e-9));

/**
 * How ticks `step` nanoseconds apart are told: {base, unit, decimals, words}. Where all of their digits would be too many, ticks count from
 * `base`, in nanoseconds, which `words` tell once ("4,147.972 ms +"); else `base` is 0.
 *
 * @param {View} view
 * @param {number} step
 * @returns {{ base: number, unit: Unit, decimals: number, words?: string }}
 */
export function tickWords(view, step) {
  const unit = axisUnit(view);
  const decimals = tickDecimals(step, unit);
  if (`${Math.floor(largestOf(view) / unit.ns)}`.length + decimals <= MOST_DIGITS) return { base: 0, unit, decimals };
  let round = 1e3;
  while (round < view.t1 - view.t0) round *= 1e3;
  const base = Math.floor(view.t0 / round) * round;
  const own = axisUnit({ t0: 0, t1: view.t1 - base });
  return { base, unit: own, decimals: tickDecimals(step, own), words: `${inUnit(base, unit, tickDecimals(round, unit))} +` };
}
