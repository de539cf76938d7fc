// The critical path: a line through all that made a run as long as it was. Python finds it (analysis/critical_path.py), this only draws it.

import { decodeColumn } from "./decode_column.js";
import { upperBound } from "./search.js";

/**
 * @import { Column } from "./decode_column.js"
 * @import { PathHeader } from "./header.js"
 * @import { Box } from "./layout.js"
 * @import { Answers, Block } from "./messages.js"
 * @import { Model } from "./model.js"
 * @import { Scene } from "./scene.js"
 * @import { Context } from "./svg_context.js"
 */

/** @typedef {{ count: number, words: string, start: Column, end: Float64Array, bound: Column, lane: Column }} Path in stretches */

// Between spans, and not in one: the line then leads from the row of the stretch before.
const BETWEEN = new Set(["launches", "gaps"]);

/**
 * @param {PathHeader} header
 * @param {Block} block
 * @returns {Path}
 */
export function decodePath({ count, words, start, duration, bound, lane }, block) {
  const path = {
    count, words, start: decodeColumn(start, block, count), bound: decodeColumn(bound, block, count), lane: decodeColumn(lane, block, count),
    end: Float64Array.from(decodeColumn(duration, block, count)),
  };
  for (let k = 0; k < count; k++) path.end[k] += path.start[k];
  return path;
}

/**
 * Take the paths of all groups from a header with `paths`.
 *
 * @param {Model} model
 * @param {Answers["paths"]} header
 * @param {Block} block
 */
export function attachPaths(model, header, block) {
  header.paths.forEach((path, index) => (model.groups[index].path = path && decodePath(path, block)));
}

/**
 * Height of each lane of a group, by its index, at which the line runs: low in its first row, so that names stay legible; NaN for none.
 *
 * @param {Scene} scene
 * @param {Box} box
 * @param {number} count
 */
function heights(scene, box, count) {
  const found = new Float64Array(count).fill(NaN);
  for (const { lane, rows } of box.lanes) {
    if (rows[0]) found[lane.index] = scene.geometry.px(rows[0].y + rows[0].height - 1.5);
  }
  return found;
}

/**
 * @param {Context} ctx
 * @param {Scene} scene
 * @param {Box} box
 */
export function drawPath(ctx, scene, box) {
  const { geometry: g, model, theme } = scene;
  const group = model.groups[box.index];
  const { path } = group;
  if (!path?.count || !box.lanes.length) return;
  const at = heights(scene, box, group.lanes.length);
  const between = model.bounds.map((bound) => BETWEEN.has(bound));
  const host = box.lanes.find(({ lane }) => lane.host)?.lane.index;
  let k = Math.max(0, upperBound(path.start, g.t0) - 1);
  const before = k ? path.lane[k - 1] : host;
  let [x, y] = [g.x(path.start[k]), at[before ?? path.lane[k]]];
  ctx.beginPath();
  ctx.moveTo(x, y);
  // Stretches that end in one pixel are one line from the highest to the lowest of them.
  let [high, low] = [y, y];
  for (; k < path.count && path.start[k] < g.t1; k++) {
    const height = at[path.lane[k]];
    if (Number.isNaN(height)) continue;
    const next = (path.end[k] - g.t0) / g.pitch + g.left;
    if (next - x < 1) {
      high = Math.min(high, height);
      low = Math.max(low, height);
      y = height;
      continue;
    }
    if (high !== low) {
      ctx.lineTo(x, high);
      ctx.lineTo(x, low);
      ctx.lineTo(x, y);
    }
    if (!between[path.bound[k]] && height !== y) ctx.lineTo(g.x(path.start[k]), height);
    ctx.lineTo(next, height);
    [x, y, high, low] = [next, height, height, height];
  }
  ctx.lineTo(x, y);
  ctx.lineJoin = "round";
  for (const [ink, width] of /** @type {[string, number][]} */ ([[theme.ground, 4.5], [theme.path, 2]])) {
    ctx.strokeStyle = ink;
    ctx.lineWidth = width * g.dpr;
    ctx.stroke();
  }
}
