// The axis and its ticks: one for all engines, or one for each where each has its own scale.

import { grouped } from "./format.js";
import { axisUnit, tickDecimals, tickStep } from "./scale.js";
import { sceneOf } from "./scene.js";
import { fitted, font } from "./text.js";

const TICK_GAP = 84;

export function drawAxes(ctx, scene) {
  const { layout, mode } = scene;
  if (mode === "scale") {
    for (const box of layout.groups) {
      if (box.lanes.length) drawTicks(ctx, sceneOf(scene, box.index), box.axis, box.bottom);
    }
  } else {
    drawTicks(ctx, scene, layout.axis, layout.foot);
  }
  drawAxisKind(ctx, scene);
}

/** Ticks with their labels above `axis`, and lines from there to `bottom`. */
function drawTicks(ctx, scene, axis, bottom) {
  const { geometry: g, theme, layout, view } = scene;
  const unit = axisUnit(view);
  const step = tickStep(view, layout.plot.right - layout.plot.left, TICK_GAP);
  const decimals = tickDecimals(step, unit);
  const above = axis === layout.axis ? 16 : 9;
  const top = g.px(axis - above + 9);
  ctx.font = font(scene, 11);
  ctx.textAlign = "center";
  for (let tick = Math.ceil(view.t0 / step); tick * step <= view.t1; tick++) {
    const x = Math.round(g.x(tick * step));
    ctx.fillStyle = theme.grid;
    ctx.fillRect(x, top, Math.max(1, Math.floor(g.dpr)), g.px(bottom) - top);
    const label = `${grouped((tick * step) / unit.ns, decimals)} ${unit.name}`;
    const half = ctx.measureText(label).width / 2;
    ctx.fillStyle = theme.soft;
    const centre = Math.min(Math.max(x, g.left + (tick ? half : 0)), ctx.canvas.width - half);
    ctx.fillText(label, centre, g.px(axis - above));
  }
  ctx.textAlign = "left";
}

/** What the axis shows, where that is not the time of the run; and a time that was not measured is labelled as such, always. */
function drawAxisKind(ctx, scene) {
  const { geometry: g, theme, layout, model, mode } = scene;
  const middle = g.px(layout.axis - 16);
  if (model.nature) {
    ctx.font = font(scene, 11, "600");
    ctx.fillStyle = theme.accent;
    ctx.fillText([`${model.nature} time`, model.nature].find((words) => ctx.measureText(words).width < g.left) ?? "not measured", 0, middle);
  }
  if (mode !== "scale") return;
  ctx.font = font(scene, 11);
  ctx.fillStyle = theme.soft;
  ctx.fillText(fitted(ctx, "each engine at its own scale: lengths of different engines do not compare", g.right - g.left), g.left, middle);
}
