// Event waits: arrows from the end of what was waited for to the start of what waited, from one stream to another.

import { drawHead, rowOf } from "./arrows.js";
import { decodeColumn } from "./decode_column.js";
import { SpansById } from "./grouping.js";
import { lowerBound } from "./search.js";

/**
 * @import { Column } from "./decode_column.js"
 * @import { WaitsHeader } from "./header.js"
 * @import { Block } from "./messages.js"
 * @import { Group } from "./model.js"
 * @import { Scene } from "./scene.js"
 * @import { Context } from "./svg_context.js"
 */

/** @typedef {{ count: number, earlier: Column, later: Column, bySpan?: SpansById[] }} Waits */

const MOST_WITHOUT_ASKING = 60;

/**
 * Rows of the spans: `earlier[k]` was waited for by `later[k]`; `later` ascends.
 *
 * @param {WaitsHeader} header
 * @param {Block} block
 * @returns {Waits}
 */
export const decodeWaits = ({ count, earlier, later }, block) => ({
  count, earlier: decodeColumn(earlier, block, count), later: decodeColumn(later, block, count),
});

/**
 * The waits that a span takes part in, as positions.
 *
 * @param {Pick<Group, "waits">} group
 * @param {number} span
 * @returns {number[]}
 */
export function waitsOf({ waits }, span) {
  if (!waits.count) return [];
  waits.bySpan ??= [new SpansById(waits.later), new SpansById(waits.earlier)];
  return waits.bySpan.flatMap((ends) => [...ends.of(span)]);
}

/**
 * Faint arrows for the waits in view, as long as there are few.
 *
 * @param {Context} ctx
 * @param {Scene} scene
 * @param {number} index
 */
export function drawWaits(ctx, scene, index) {
  const { geometry: g, model } = scene;
  const group = model.groups[index];
  const { waits } = group;
  if (!waits.count) return;
  // Rows ascend with the starts, so the waits in view are neighbours, but for one that began long before.
  const from = lowerBound(waits.later, lowerBound(group.start, g.t0));
  const to = lowerBound(waits.later, lowerBound(group.start, g.t1));
  if (to - from > MOST_WITHOUT_ASKING) return;
  ctx.strokeStyle = ctx.fillStyle = scene.theme.soft;
  ctx.lineWidth = g.hair;
  for (let k = from; k < to; k++) drawWait(ctx, scene, index, k);
}

/**
 * One arrow; nothing where one of its ends is not drawn.
 *
 * @param {Context} ctx
 * @param {Scene} scene
 * @param {number} index
 * @param {number} k
 */
export function drawWait(ctx, scene, index, k) {
  const { geometry: g, model } = scene;
  const { waits, start, end } = model.groups[index];
  const [from, to] = [rowOf(scene, index, waits.earlier[k]), rowOf(scene, index, waits.later[k])];
  // Of a collapsed GPU all lanes are one row.
  if (!from || !to || from.row.lane.index === to.row.lane.index || from.row.y === to.row.y) return;
  const down = to.row.y > from.row.y ? 1 : -1;
  const x0 = g.x(end[waits.earlier[k]]);
  const x1 = g.x(start[waits.later[k]]) + 2 * g.dpr;
  if (Math.max(x0, x1) < g.left || Math.min(x0, x1) > g.right) return;
  const y0 = g.px(from.row.y + (down > 0 ? from.row.height * 0.6 : from.row.height * 0.4));
  const y1 = g.px(down > 0 ? to.row.y : to.row.y + to.row.height);
  const head = 3.5 * g.dpr * down;
  ctx.beginPath();
  ctx.moveTo(x0, y0);
  ctx.bezierCurveTo(x0 + 3 * g.dpr, y0 + (y1 - y0) * 0.5, x1, y0 + (y1 - y0) * 0.4, x1, y1 - head);
  ctx.stroke();
  drawHead(ctx, x1, y1, head);
}
