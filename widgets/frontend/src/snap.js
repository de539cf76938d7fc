// A measurement's ends stick to the edges of spans, so that what is read is exact.

import { offAxis, onAxis } from "./align.js";
import { timeWithin } from "./geometry.js";
import { hitTest } from "./layout.js";
import { upperBound } from "./search.js";

/**
 * @import { Alignment } from "./align.js"
 * @import { Layout } from "./layout.js"
 * @import { View } from "./scale.js"
 */

const REACH = 5;

/**
 * The position on the axis of a point, or of the edge of a span within a few pixels of it in the row that the point lies in.
 *
 * @param {{ layout: Layout, viewer: { view: View, alignments: Alignment[] } }} timeline
 * @param {{ x: number, y: number }} at
 */
export function snapToEdge({ layout, viewer }, { x, y }) {
  const { view, alignments } = viewer;
  const position = timeWithin(view, layout.plot, x);
  const hit = hitTest(layout, y);
  if (hit.area !== "lane") return position;
  const alignment = alignments[hit.group.index];
  const t = offAxis(alignment, position);
  const { start, end, length } = hit.row.track;
  const reach = (REACH * (view.t1 - view.t0)) / alignment.factor / (layout.plot.right - layout.plot.left);
  const k = upperBound(start, t);
  let best = t;
  for (let near = Math.max(0, k - 2); near < Math.min(length, k + 2); near++) {
    for (const edge of [start[near], end[near]]) {
      if (Math.abs(edge - t) < Math.min(reach, best === t ? Infinity : Math.abs(best - t))) best = edge;
    }
  }
  return onAxis(alignment, best);
}
