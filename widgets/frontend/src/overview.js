// The strip at the foot: all of every run, where the device is busy, what was found, and where the view lies.

import { onAxis } from "./align.js";
import { fillRectangle } from "./filling.js";
import { between } from "./geometry.js";
import { writeText } from "./text.js";

/**
 * @import { Group } from "./model.js"
 * @import { Scene } from "./scene.js"
 * @import { Context } from "./svg_context.js"
 */

const BUSY_SHADES = 12;
// More hits than this are everywhere.
const MOST_MARKS = 500;
const EARLIER = "‹ earlier";

/**
 * The strip at the foot: each engine's whole run with the times its device was busy, and where the view lies in it. What the host did long
 * before the first call, as the ranges of a framework, has no room in it, only a mark.
 *
 * @param {Context} ctx
 * @param {Scene} scene
 */
export function drawOverview(ctx, scene) {
  const { geometry: g, theme, layout, view, home, bounds } = scene;
  const { top, row } = layout.overview;
  const width = g.right - g.left;
  const pitch = (home.t1 - home.t0) / width;
  const grain = g.px(3);
  /** @param {number} t */
  const x = (t) => g.left + Math.round((t - home.t0) / pitch);
  const strips = layout.groups.flatMap(({ index }) => scene.groups[index].group.gpus.map((_, of) => ({ index, of })));
  strips.forEach(({ index, of }, position) => {
    const part = scene.groups[index];
    const alignment = scene.alignments[index];
    const y = g.px(top + 3 + position * row);
    const height = g.px(row - 2);
    const [from, to] = [x(onAxis(alignment, 0)), x(onAxis(alignment, part.group.extent_ns))];
    fillRectangle(ctx, theme.grid, from, y, Math.max(1, to - from), height);
    const columns = Math.max(1, Math.ceil((to - from) / grain));
    part.busyShares ??= [];
    const known = part.busyShares[of];
    const shares = known?.length === columns ? known : (part.busyShares[of] = busyShare(part.group, of, columns));
    ctx.fillStyle = theme.faint;
    // Neighbours of one shade are one rectangle.
    for (let column = 0, next = 0; column < columns; column = next) {
      const shade = shares[column];
      for (next = column + 1; next < columns && shares[next] === shade; ) next++;
      if (!shade) continue;
      ctx.globalAlpha = shade / BUSY_SHADES;
      ctx.fillRect(from + column * grain, y, Math.min((next - column) * grain, to - from - column * grain), height);
    }
    ctx.globalAlpha = 1;
    if (!of) drawHits(ctx, scene, index, x, y);
  });
  if (bounds.t0 < home.t0) {
    writeText(ctx, theme.soft, EARLIER, g.px(6), g.px(top + layout.overview.height / 2));
  }
  if (view.t0 <= home.t0 && view.t1 >= home.t1) return;
  const x0 = between(g.left, x(view.t0), g.right - g.px(3));
  const x1 = Math.max(x0 + g.px(3), Math.min(g.right, x(view.t1)));
  fillRectangle(ctx, theme.accentWash, x0, g.px(top), x1 - x0, g.px(layout.overview.height));
  ctx.strokeStyle = theme.accent;
  ctx.lineWidth = g.hair;
  ctx.strokeRect(x0 + 0.5, g.px(top) + 0.5, x1 - x0 - 1, g.px(layout.overview.height) - 1);
}

/**
 * How busy a GPU is in each of `length` equal parts of the run, from 0 to BUSY_SHADES.
 *
 * @param {Pick<Group, "activities" | "extent_ns">} group
 * @param {number} of the place of the GPU
 * @param {number} length
 */
function busyShare({ activities, extent_ns }, of, length) {
  const columns = new Uint8Array(length);
  const activity = activities[of];
  if (!activity) return columns;
  const pitch = Math.max(extent_ns, 1) / length;
  for (let column = 0, before = 0; column < length; column++) {
    const until = activity.busyUntil((column + 1) * pitch);
    columns[column] = Math.ceil(Math.min(1, (until - before) / pitch) * BUSY_SHADES);
    before = until;
  }
  return columns;
}

/**
 * A mark for each hit of the search.
 *
 * @param {Context} ctx
 * @param {Scene} scene
 * @param {number} index
 * @param {(t: number) => number} x
 * @param {number} y
 */
function drawHits(ctx, { geometry: g, theme, alignments, finding }, index, x, y) {
  if (!finding.groups || finding.countOf(index) > MOST_MARKS) return;
  ctx.fillStyle = theme.accent;
  for (const start of finding.startsOf(index)) ctx.fillRect(x(onAxis(alignments[index], start)), y - g.px(1), g.px(2), g.px(5));
}
