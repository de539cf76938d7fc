// From time to device pixels.

/** @import { View } from "./scale.js" */

/** @typedef {{ left: number, right: number }} Plot */

/** @typedef {ReturnType<typeof frameGeometry>} Geometry */

/**
 * Geometry of one frame. All lengths are in device pixels; `pitch` is nanoseconds a pixel.
 *
 * @param {View} view
 * @param {{ plot: Plot }} layout
 * @param {number} dpr
 */
export function frameGeometry(view, layout, dpr) {
  const left = Math.round(layout.plot.left * dpr);
  const right = Math.round(layout.plot.right * dpr);
  const pitch = (view.t1 - view.t0) / (right - left);
  // Whole pixels from time zero, so that what shares a pixel stays together while panning.
  const t0 = Math.round(view.t0 / pitch) * pitch;
  return {
    dpr,
    /** How thick a thin line is. */
    hair: Math.max(1, Math.round(dpr)),
    left,
    right,
    pitch,
    t0,
    t1: t0 + (right - left) * pitch,
    /** @param {number} t */
    x: (t) => left + (t - t0) / pitch,
    /**
     * The pixel of what shares one with what begins soon after it.
     *
     * @param {number} t
     */
    column: (t) => Math.max(left, Math.floor(left + (t - t0) / pitch + 1e-6)),
    /** @param {number} length */
    px: (length) => Math.round(length * dpr),
  };
}

/**
 * The value, or the end of [least, most] that is nearest to it; `most` where they cross.
 *
 * @param {number} least
 * @param {number} value
 * @param {number} most
 */
export const between = (least, value, most) => Math.min(Math.max(least, value), most);

/**
 * @param {View} view
 * @param {Plot} plot
 * @param {number} x
 */
export const timeAt = (view, plot, x) => view.t0 + ((x - plot.left) / (plot.right - plot.left)) * (view.t1 - view.t0);

/**
 * The same, of places beside the plot the time at its edge.
 *
 * @param {View} view
 * @param {Plot} plot
 * @param {number} x
 */
export const timeWithin = (view, plot, x) => timeAt(view, plot, between(plot.left, x, plot.right));

/**
 * @param {View} view
 * @param {Plot} plot
 * @param {number} t
 */
export const positionOf = (view, plot, t) => plot.left + ((t - view.t0) / (view.t1 - view.t0)) * (plot.right - plot.left);
