// From time to device pixels.

/** Geometry of one frame. All lengths are in device pixels; `pitch` is nanoseconds a pixel. */
export function frameGeometry(view, layout, dpr) {
  const left = Math.round(layout.plot.left * dpr);
  const right = Math.round(layout.plot.right * dpr);
  const pitch = (view.t1 - view.t0) / (right - left);
  // Whole pixels from time zero, so that what shares a pixel stays together while panning.
  const t0 = Math.round(view.t0 / pitch) * pitch;
  return {
    dpr,
    left,
    right,
    pitch,
    t0,
    t1: t0 + (right - left) * pitch,
    x: (t) => left + (t - t0) / pitch,
    px: (length) => Math.round(length * dpr),
  };
}

/** The value, or the end of [least, most] that is nearest to it; `most` where they cross. */
export const between = (least, value, most) => Math.min(Math.max(least, value), most);

export const timeAt = (view, plot, x) => view.t0 + ((x - plot.left) / (plot.right - plot.left)) * (view.t1 - view.t0);

/** The same, of places beside the plot the time at its edge. */
export const timeWithin = (view, plot, x) => timeAt(view, plot, between(plot.left, x, plot.right));

export const positionOf = (view, plot, t) => plot.left + ((t - view.t0) / (view.t1 - view.t0)) * (plot.right - plot.left);
