// The axis and its ticks: one for all engines, or one for each where each has its own scale.

import { fillRectangle } from "./filling.js";
import { inUnit } from "./format.js";
import { between } from "./geometry.js";
import { tickStep, tickWords } from "./scale.js";
import { sceneOf } from "./scene.js";
import { fitted, font, writeText } from "./text.js";

/**
 * @import { Scene } from "./scene.js"
 * @import { Context } from "./svg_context.js"
 */

const TICK_GAP = 84;
const LABEL_GAP = 8;

/**
 * @param {Context} ctx
 * @param {Scene} scene
 */
export function drawAxes(ctx, scene) {
  const { layout, mode } = scene;
  if (mode === "scale") {
    for (const box of layout.groups) {
      if (box.sections.length) drawTicks(ctx, sceneOf(scene, box.index), box.axis, box.bottom);
    }
  } else {
    drawTicks(ctx, scene, layout.axis, layout.foot);
  }
  drawAxisKind(ctx, scene);
}

/**
 * Ticks with their labels, as many as have room, above `axis`, and lines from there to `bottom`.
 *
 * @param {Context} ctx
 * @param {Scene} scene
 * @param {number} axis
 * @param {number} bottom
 */
function drawTicks(ctx, scene, axis, bottom) {
  const { geometry: g, theme, layout, view } = scene;
  const step = tickStep(view, layout.plot.right - layout.plot.left, TICK_GAP);
  const { base, unit, decimals, words } = tickWords(view, step);
  const above = axis === layout.axis ? 16 : 9;
  const top = g.px(axis - above + 9);
  ctx.font = font(scene, 11);
  ctx.textAlign = "center";
  let free = -Infinity;
  /**
   * @param {string} label
   * @param {number} x
   * @param {number} indent
   */
  const write = (label, x, indent) => {
    const half = ctx.measureText(label).width / 2;
    const centre = between(g.left + indent * half, x, ctx.canvas.width - half);
    if (centre - half < free) return;
    writeText(ctx, theme.soft, label, centre, g.px(axis - above));
    free = centre + half + g.px(LABEL_GAP);
  };
  if (words) write(words, 0, 1);
  for (let tick = Math.ceil((view.t0 - base) / step); base + tick * step <= view.t1; tick++) {
    const x = Math.round(g.x(base + tick * step));
    fillRectangle(ctx, theme.grid, x, top, g.hair, g.px(bottom) - top);
    write(inUnit(tick * step, unit, decimals), x, tick && 1);
  }
  ctx.textAlign = "left";
}

/**
 * What the axis shows, where that is not the time of the run; and a time that was not measured is labelled as such, always.
 *
 * @param {Context} ctx
 * @param {Scene} scene
 */
function drawAxisKind(ctx, scene) {
  const { geometry: g, theme, layout, model, mode } = scene;
  const middle = g.px(layout.axis - 16);
  if (model.nature) {
    ctx.font = font(scene, 11, "600");
    writeText(ctx, theme.accent, [`${model.nature} time`, model.nature].find((words) => ctx.measureText(words).width < g.left) ?? "not measured", 0, middle);
  }
  if (mode !== "scale") return;
  ctx.font = font(scene, 11);
  writeText(ctx, theme.soft, fitted(ctx, "each engine at its own scale: lengths of different engines do not compare", g.right - g.left), g.left, middle);
}
