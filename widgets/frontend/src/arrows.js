// Arrows from a launch call to what it put on the device.

import { firstOnDevice } from "./join.js";
import { lowerBound, upperBound } from "./search.js";

/**
 * @import { LaneBox, Row } from "./layout.js"
 * @import { Scene } from "./scene.js"
 * @import { Context } from "./svg_context.js"
 */

const MOST_WITHOUT_ASKING = 40;
// Where calls are narrower than this, their arrows would be a thicket.
const LEAST_CALL = 5;

/**
 * The row that a span is drawn in, and its position in that row's track; null where its engine, or lane, is not shown. In a collapsed GPU the row
 * is the lane "at once", and there is no position: -1.
 *
 * @param {Pick<Scene, "model" | "layout">} scene
 * @param {number} groupIndex
 * @param {number} span
 * @param {number} [lane] of its two, if it is a copy between GPUs
 * @returns {{ row: Row, k: number } | { row: LaneBox, k: -1 } | null}
 */
export function rowOf(scene, groupIndex, span, lane = scene.model.groups[groupIndex].lane[span]) {
  const box = scene.layout.boxes[groupIndex]?.boxOfLane.get(lane);
  if (!box) return null;
  for (const row of box.band ? [box.band, ...box.rows] : box.rows) {
    // Spans of a track are in the group's order.
    const k = lowerBound(row.track.spans, span);
    if (row.track.spans[k] === span) return { row, k };
  }
  return box.rows.length || box.band ? null : { row: box, k: -1 };
}

/**
 * Draw one arrow from the start of a host call to the start of a device span. `scene` is the engine's own.
 *
 * @param {Context} ctx
 * @param {Scene} scene
 * @param {number} groupIndex
 * @param {number} launch
 * @param {number} span
 */
export function drawArrow(ctx, scene, groupIndex, launch, span) {
  const { geometry: g, model } = scene;
  const from = rowOf(scene, groupIndex, launch);
  const to = rowOf(scene, groupIndex, span);
  if (!from || !to) return;
  const group = model.groups[groupIndex];
  const [x0, x1] = [g.x(group.start[launch]), g.x(group.start[span])];
  if (Math.max(x0, x1) < g.left || Math.min(x0, x1) > g.right) return;
  const y0 = g.px(from.row.y + from.row.height);
  const y1 = g.px(to.row.y);
  const head = 3.5 * g.dpr;
  const lean = Math.max((y1 - y0) * 0.55, 5 * g.dpr);
  ctx.beginPath();
  ctx.moveTo(x0, y0);
  ctx.bezierCurveTo(x0, y0 + lean, x1, y1 - head - lean, x1, y1 - head);
  ctx.stroke();
  drawHead(ctx, x1, y1, head);
}

/**
 * An arrow's head with its tip at a point; upwards where `head` is negative.
 *
 * @param {Context} ctx
 * @param {number} x
 * @param {number} y
 * @param {number} head
 */
export function drawHead(ctx, x, y, head) {
  ctx.beginPath();
  ctx.moveTo(x - head * 0.8, y - head * 1.3);
  ctx.lineTo(x + head * 0.8, y - head * 1.3);
  ctx.lineTo(x, y);
  ctx.fill();
}

/**
 * Faint arrows for every launch in view, as long as there are few.
 *
 * @param {Context} ctx
 * @param {Scene} scene
 * @param {number} groupIndex
 */
export function drawAllArrows(ctx, scene, groupIndex) {
  const { geometry: g, model } = scene;
  const group = model.groups[groupIndex];
  const rows = scene.layout.boxes[groupIndex].lanes.filter(({ lane }) => lane.host).flatMap((lane) => lane.rows);
  const ranges = rows.map(({ track }) => [upperBound(track.reach, g.t0), lowerBound(track.start, g.t1)]);
  if (ranges.reduce((sum, [from, to]) => sum + Math.max(0, to - from), 0) > MOST_WITHOUT_ASKING) return;
  ctx.strokeStyle = ctx.fillStyle = scene.theme.faint;
  ctx.lineWidth = Math.max(1, 0.75 * g.dpr);
  rows.forEach(({ track }, index) => {
    const [from, to] = ranges[index];
    for (let k = from; k < to; k++) {
      const launch = track.spans[k];
      if (group.kind[launch] !== model.kinds.launch && group.kind[launch] !== model.kinds.graph_launch) continue;
      if ((track.end[k] - track.start[k]) / g.pitch < LEAST_CALL * g.dpr) continue;
      const span = firstOnDevice(group, model.kinds, group.correlation[launch]);
      if (span >= 0) drawArrow(ctx, scene, groupIndex, launch, span);
    }
  });
}
