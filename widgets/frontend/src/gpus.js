// Several GPUs of one run: their headers, and arrows for copies from one to another.

import { drawHead, rowOf } from "./arrows.js";
import { fillRectangle } from "./filling.js";
import { lowerBound } from "./search.js";
import { fitted, font, writeText } from "./text.js";

/**
 * @import { Box } from "./layout.js"
 * @import { Group, Model } from "./model.js"
 * @import { Scene } from "./scene.js"
 * @import { Context } from "./svg_context.js"
 */

const MOST_ARROWS = 60;
const INDENT = 25;
const COLUMNS = [96, 196, 104];

/**
 * What a GPU of an engine is called, in a timeline's state, too; the engine alone where it has one GPU.
 *
 * @param {Pick<Group, "label" | "gpus">} group
 * @param {number} of
 */
export const gpuName = ({ label, gpus }, of) => (gpus.length > 1 ? `${label} · ${gpus[of].name}` : label);

/**
 * The names of all GPUs, or of those that begin collapsed.
 *
 * @param {Pick<Model, "groups">} model
 * @param {boolean} all
 */
export const gpuNames = ({ groups }, all) => groups.flatMap((group) => (
  group.gpus.flatMap(({ folded }, of) => (group.gpus.length > 1 && (all || folded) ? gpuName(group, of) : []))
));

/**
 * The headers of an engine's GPUs. Arrows of copies and launches go through them, behind their words.
 *
 * @param {Context} ctx
 * @param {Scene} scene
 * @param {Box} box
 */
export function drawGpuHeads(ctx, scene, { index, sections }) {
  const { geometry: g, theme, layout, model } = scene;
  for (const { of, top, bottom } of sections) {
    if (top === null) continue;
    const { name, words, slowest } = model.groups[index].gpus[of];
    const middle = g.px(top + layout.gpuHeader / 2);
    fillRectangle(ctx, theme.grid, 0, g.px(top), g.right, g.hair);
    ctx.font = font(scene, 12, "600");
    writeText(ctx, slowest ? theme.path : theme.ink, name, g.px(INDENT), middle);
    if (slowest) {
      fillRectangle(ctx, theme.path, 0, g.px(top), g.px(3), g.px(bottom) - g.px(top));
    }
    let x = g.left;
    [...words, slowest].forEach((text, column) => {
      ctx.font = font(scene, 12, words[column] ? "" : "600");
      const shown = fitted(ctx, text, g.right - x);
      fillRectangle(ctx, theme.ground, x, middle - g.px(6), ctx.measureText(shown).width, g.px(11));
      writeText(ctx, words[column] ? theme.soft : theme.path, shown, x, middle);
      x += g.px(COLUMNS[column]);
    });
  }
}

/**
 * Arrows for the copies in view, as long as there are few.
 *
 * @param {Context} ctx
 * @param {Scene} scene
 * @param {Box} box
 */
export function drawPeerCopies(ctx, scene, box) {
  const { geometry: g, model, theme } = scene;
  const group = model.groups[box.index];
  const copies = [...group.far?.keys() ?? []].filter((span) => group.far?.[span] && group.end[span] > g.t0 && group.start[span] < g.t1);
  if (copies.length > MOST_ARROWS) return;
  ctx.strokeStyle = ctx.fillStyle = theme.soft;
  ctx.lineWidth = g.hair;
  for (const span of copies) drawPeerCopy(ctx, scene, box.index, span);
}

/**
 * An arrow from the row of a copy on the GPU that it reads to the one on the GPU that it writes; nothing where one of them is not drawn.
 *
 * @param {Context} ctx
 * @param {Scene} scene
 * @param {number} index
 * @param {number} span
 */
export function drawPeerCopy(ctx, scene, index, span) {
  const { geometry: g, model } = scene;
  const group = model.groups[index];
  const far = group.far?.[span] ?? 0;
  const rows = [group.lane[span], far].map((lane) => rowOf(scene, index, span, lane)?.row);
  const [from, to] = group.lanes[far].ends?.[0] === group.lanes[far].gpu ? rows.reverse() : rows;
  if (!far || !from || !to) return;
  const down = from.y < to.y;
  const [x0, y0] = [group.start[span], g.px(down ? from.y + from.height : from.y)];
  const [x1, y1] = [group.end[span], g.px(down ? to.y : to.y + to.height)];
  const head = 3.5 * g.dpr * Math.sign(y1 - y0);
  const [left, right] = [g.x(x0), g.x(x1)];
  ctx.beginPath();
  ctx.moveTo(left, y0);
  ctx.bezierCurveTo(left, y0 + (y1 - y0) * 0.5, right, y0 + (y1 - y0) * 0.5, right, y1 - head);
  ctx.stroke();
  drawHead(ctx, right, y1, head);
}
