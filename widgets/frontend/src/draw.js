// The lower canvas: everything that changes only with the view. The upper one (overlay.js) follows the pointer.

import { drawAllArrows } from "./arrows.js";
import { grouped } from "./format.js";
import { axisUnit, tickDecimals, tickStep } from "./scale.js";
import { drawOverlap, drawOverlapAbove } from "./overlap.js";
import { drawRow, stretch } from "./spans.js";

export const font = (scene, size, weight = "") => `${weight} ${size * scene.geometry.dpr}px ${scene.theme.font}`;

export function drawBase(ctx, scene) {
  const { theme, layout } = scene;
  const { width, height } = ctx.canvas;
  ctx.fillStyle = theme.ground;
  ctx.fillRect(0, 0, width, height);
  ctx.textBaseline = "middle";
  layout.groups.forEach((box) => drawLaneGrounds(ctx, scene, box));
  drawAxis(ctx, scene);
  ctx.font = font(scene, 11);
  layout.groups.forEach((box) => {
    drawOverlap(ctx, scene, box);
    drawLanes(ctx, scene, box);
  });
  layout.groups.forEach((box) => drawHeader(ctx, scene, box));
  drawOverview(ctx, scene);
}

/** Lanes are tinted as long as their engine ran, so that the lengths of the runs can be compared at a glance. */
function drawLaneGrounds(ctx, scene, box) {
  const { geometry: g, theme, model } = scene;
  const group = model.groups[box.index];
  for (const lane of box.lanes) {
    const [y, height] = [g.px(lane.y), g.px(lane.height)];
    if (group.extent_ns <= g.t0) continue;
    const [x, width] = stretch(g, Math.min(0, group.extent_ns), group.extent_ns, 0);
    ctx.fillStyle = theme.lane;
    ctx.fillRect(x, y, width, height);
  }
}

function drawAxis(ctx, scene) {
  const { geometry: g, theme, layout, view } = scene;
  const unit = axisUnit(view);
  const step = tickStep(view, layout.plot.right - layout.plot.left, 84);
  const decimals = tickDecimals(step, unit);
  const bottom = g.px(layout.overview.top - 8);
  ctx.font = font(scene, 11);
  ctx.textAlign = "center";
  for (let tick = Math.ceil(view.t0 / step); tick * step <= view.t1; tick++) {
    const x = Math.round(g.x(tick * step));
    ctx.fillStyle = theme.grid;
    ctx.fillRect(x, g.px(layout.axis - 7), Math.max(1, Math.floor(g.dpr)), bottom - g.px(layout.axis - 7));
    const label = `${grouped((tick * step) / unit.ns, decimals)} ${unit.name}`;
    const half = ctx.measureText(label).width / 2;
    ctx.fillStyle = theme.soft;
    const centre = Math.min(Math.max(x, g.left + (tick ? half : 0)), ctx.canvas.width - half);
    ctx.fillText(label, centre, g.px(layout.axis - 16));
  }
  ctx.textAlign = "left";
  drawTimeKind(ctx, scene);
}

/** A simulated time is labelled as such on the axis, always. */
function drawTimeKind(ctx, scene) {
  const { geometry: g, theme, layout, model } = scene;
  if (!model.simulated) return;
  ctx.font = font(scene, 11, "600");
  ctx.fillStyle = theme.accent;
  ctx.fillText(layout.plot.left < 100 ? "simulated" : "simulated time", 0, g.px(layout.axis - 16));
}

function drawLanes(ctx, scene, box) {
  const { geometry: g, theme, layout, model } = scene;
  const group = model.groups[box.index];
  for (const lane of box.lanes) {
    if (lane.band) drawRow(ctx, scene, lane.band);
    for (const row of lane.rows) drawRow(ctx, scene, row);
    ctx.fillStyle = theme.soft;
    const first = lane.rows[0] ?? lane.band;
    ctx.fillText(fitted(ctx, lane.lane.name, g.px(layout.plot.left - 14)), g.px(6), g.px(first.y + first.height / 2));
  }
  ctx.save();
  ctx.beginPath();
  ctx.rect(g.left, 0, g.right - g.left, ctx.canvas.height);
  ctx.clip();
  drawAllArrows(ctx, scene, box.index);
  drawEnds(ctx, scene, box, group);
  drawOverlapAbove(ctx, scene, box);
  ctx.restore();
}

/** The end of a run; and, in a report that had to leave spans out, the stretch that it does not hold. */
function drawEnds(ctx, scene, box, group) {
  const { geometry: g, theme } = scene;
  const [top, bottom] = [g.px(box.body), g.px(box.bottom)];
  if (group.shown_until_ns !== null) {
    const [x, width] = stretch(g, group.shown_until_ns, group.extent_ns, 0);
    ctx.fillStyle = scene.hatch;
    ctx.fillRect(x, top, width, bottom - top);
  }
  ctx.fillStyle = theme.soft;
  ctx.fillRect(Math.round(g.x(group.extent_ns)), g.px(box.body - 3), Math.max(1, Math.round(g.dpr)), bottom - g.px(box.body - 3));
}

function drawHeader(ctx, scene, box) {
  const { geometry: g, theme, layout, model } = scene;
  const group = model.groups[box.index];
  const middle = g.px(box.top + layout.header / 2);
  let x = 0;
  const write = (text, size, weight, ink, gap) => {
    ctx.font = font(scene, size, weight);
    const shown = fitted(ctx, text, g.right - x);
    ctx.fillStyle = ink;
    ctx.fillText(shown, x, middle);
    x += ctx.measureText(shown).width + g.px(gap);
  };
  write(group.label, 13, "600", theme.ink, 12);
  x = Math.max(x, g.left);
  write(group.makespan_text, 13, "600", theme.ink, 10);
  const bound = scene.overlap.shows.path && group.path?.words;
  if (bound) write(`critical path: ${bound}`, 12, "600", theme.path, 16);
  else for (const remark of group.remarks) write(remark, 12, "", theme.soft, 16);
  ctx.font = font(scene, 11);
}

/** The text, or as much of its beginning as fits. */
export function fitted(ctx, text, room) {
  const width = ctx.measureText(text).width;
  if (width <= room) return text;
  const letters = Math.floor((text.length * room) / width) - 1;
  return letters > 0 ? `${text.slice(0, letters)}…` : "";
}

/** The strip at the foot: each engine's whole run with the times its device was busy, and where the view lies in it. */
function drawOverview(ctx, scene) {
  const { geometry: g, theme, layout, view, bounds } = scene;
  const { top, row } = layout.overview;
  const width = g.right - g.left;
  const pitch = (bounds.t1 - bounds.t0) / width;
  const grain = g.px(3);
  const x = (t) => g.left + Math.round((t - bounds.t0) / pitch);
  scene.groups.forEach((part, index) => {
    const y = g.px(top + 3 + index * row);
    const height = g.px(row - 2);
    ctx.fillStyle = theme.grid;
    ctx.fillRect(x(0), y, Math.max(1, x(part.group.extent_ns) - x(0)), height);
    const columns = Math.ceil(width / grain);
    if (part.busyShare?.length !== columns) part.busyShare = busyShare(part, bounds.t0, pitch * grain, columns);
    ctx.fillStyle = theme.faint;
    for (let column = 0; column < columns; column++) {
      if (!part.busyShare[column]) continue;
      ctx.globalAlpha = part.busyShare[column];
      ctx.fillRect(g.left + column * grain, y, Math.min(grain, width - column * grain), height);
    }
    ctx.globalAlpha = 1;
  });
  if (view.t1 - view.t0 > 0.995 * (bounds.t1 - bounds.t0)) return;
  const [x0, x1] = [x(view.t0), Math.max(x(view.t0) + g.px(3), x(view.t1))];
  ctx.fillStyle = theme.accentWash;
  ctx.fillRect(x0, g.px(top), x1 - x0, g.px(layout.overview.height));
  ctx.strokeStyle = theme.accent;
  ctx.lineWidth = Math.max(1, Math.round(g.dpr));
  ctx.strokeRect(x0 + 0.5, g.px(top) + 0.5, x1 - x0 - 1, g.px(layout.overview.height) - 1);
}

/** Share of each column of `pitch` nanoseconds that the device is busy. */
function busyShare({ busy }, t0, pitch, length) {
  const columns = new Float32Array(length);
  for (let column = 0, before = busy.until(t0); column < length; column++) {
    const until = busy.until(t0 + (column + 1) * pitch);
    columns[column] = Math.min(1, (until - before) / pitch);
    before = until;
  }
  return columns;
}
