// A measurement's ends stick to the edges of spans, so that what is read is exact.

import { timeAt } from "./geometry.js";
import { hitTest } from "./layout.js";
import { upperBound } from "./search.js";

const REACH = 5;

/** The time at a point, or the edge of a span within a few pixels of it in the row that the point lies in. */
export function snapToEdge({ layout, view }, { x, y }) {
  const t = timeAt(view, layout.plot, Math.min(Math.max(x, layout.plot.left), layout.plot.right));
  const hit = hitTest(layout, y);
  if (hit.area !== "lane") return t;
  const { start, end, length } = hit.row.track;
  const reach = (REACH * (view.t1 - view.t0)) / (layout.plot.right - layout.plot.left);
  const k = upperBound(start, t);
  let best = t;
  for (let near = Math.max(0, k - 2); near < Math.min(length, k + 2); near++) {
    for (const edge of [start[near], end[near]]) {
      if (Math.abs(edge - t) < Math.min(reach, best === t ? Infinity : Math.abs(best - t))) best = edge;
    }
  }
  return best;
}
