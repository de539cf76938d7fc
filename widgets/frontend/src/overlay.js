// The upper canvas: what follows the pointer and the selection.

import { offAxis } from "./align.js";
import { drawArrow, rowOf } from "./arrows.js";
import { fillRectangle } from "./filling.js";
import { exactTime, inUnit } from "./format.js";
import { between } from "./geometry.js";
import { partsOf } from "./grouping.js";
import { drawWaitsOf } from "./overlap.js";
import { axisUnit } from "./scale.js";
import { sceneOf } from "./scene.js";
import { drawSpan, stretch } from "./spans.js";
import { font, writeText } from "./text.js";

/**
 * @import { Highlight } from "./join.js"
 * @import { Row } from "./layout.js"
 * @import { Scene } from "./scene.js"
 * @import { Context } from "./svg_context.js"
 * @import { Area } from "./totals.js"
 */

/**
 * What is pointed at, selected and measured.
 *
 * @typedef {object} Marks
 * @property {Highlight | null} selected
 * @property {Highlight | null} hovered
 * @property {Area | null} rubber the stretch that zooming will show
 * @property {Area | null} measured
 * @property {number | null} cursor where the pointer is on the axis
 */

const LEAST_HIGHLIGHT = 3;

/**
 * `alone` on a canvas of its own, which is cleared first.
 *
 * @param {Context} ctx
 * @param {Scene} scene
 * @param {Marks} state
 * @param {boolean} alone
 */
export function drawOverlay(ctx, scene, state, alone = true) {
  const { geometry: g, layout } = scene;
  if (alone) ctx.clearRect(0, 0, ctx.canvas.width, ctx.canvas.height);
  ctx.textBaseline = "middle";
  ctx.font = font(scene, 11);
  ctx.save();
  ctx.beginPath();
  ctx.rect(g.left, 0, g.right - g.left, g.px(layout.overview.top - 6));
  ctx.clip();
  if (state.selected) drawHighlight(ctx, scene, state.selected, true);
  if (state.hovered) drawHighlight(ctx, scene, state.hovered, false);
  ctx.restore();
  const stretched = state.rubber ?? state.measured;
  if (stretched) drawMeasure(ctx, scene, stretched);
  else if (state.cursor !== null) drawCursor(ctx, scene, state.cursor);
}

/**
 * Outline every member of a highlight; a selected one is drawn again, while all others are dimmed.
 *
 * @param {Context} ctx
 * @param {Scene} frame
 * @param {Highlight} highlight
 * @param {boolean} selected
 */
function drawHighlight(ctx, frame, highlight, selected) {
  const { theme, model } = frame;
  for (const { group: index, spans, links } of highlight.members) {
    const group = model.groups[index];
    const scene = { ...sceneOf(frame, index), dim: false };
    const { geometry: g } = scene;
    const least = Math.round(LEAST_HIGHLIGHT * g.dpr);
    let [last, top, bottom] = [-Infinity, Infinity, -Infinity];
    const ends = spans.flatMap((span) => [[span, group.lane[span]], [span, group.far?.[span] || -1]]);
    for (const [span, lane] of ends) {
      const place = rowOf(scene, index, span, lane);
      if (!place) continue;
      const y = g.px(place.row.y);
      const height = g.px(place.row.y + place.row.height) - y;
      if (partsOf(group, span).length || group.far?.[span]) [last, top, bottom] = [Math.max(last, group.start[span]), Math.min(top, y), Math.max(bottom, y + height)];
      if (group.end[span] < g.t0 || group.start[span] > g.t1) {
        if (selected) drawPointer(ctx, scene, group.start[span] > g.t1, y, height);
        continue;
      }
      const [x, width] = stretch(g, group.start[span], group.end[span], least);
      if (selected && place.k >= 0) drawSpan(ctx, scene, /** @type {Row} */ (place.row), place.k, true, y, height);
      const own = index === highlight.group && span === highlight.span;
      if (group.thin && !own) continue;
      ctx.strokeStyle = selected || own ? theme.ink : theme.soft;
      ctx.lineWidth = Math.max(1, (own ? 2 : 1) * Math.round(g.dpr));
      ctx.strokeRect(x - 0.5, y - 0.5, width + 1, height + 1);
    }
    ctx.strokeStyle = ctx.fillStyle = selected || index === highlight.group ? theme.ink : theme.faint;
    ctx.lineWidth = g.hair;
    // When the last part of a collective begins, all GPUs go on; both ends of a copy begin together.
    if (last > g.t0 && last < g.t1) ctx.fillRect(Math.round(g.x(last)), top, ctx.lineWidth, bottom - top);
    for (const span of spans) drawWaitsOf(ctx, scene, index, span);
    for (const [launch, span] of links) drawArrow(ctx, scene, index, launch, span);
  }
}

/**
 * A small triangle at the edge of the plot: what was selected lies further that way.
 *
 * @param {Context} ctx
 * @param {Scene} scene
 * @param {boolean} toRight
 * @param {number} y
 * @param {number} height
 */
function drawPointer(ctx, scene, toRight, y, height) {
  const { geometry: g, theme } = scene;
  const size = 5 * g.dpr;
  const tip = toRight ? g.right - 2 * g.dpr : g.left + 2 * g.dpr;
  const back = toRight ? tip - size : tip + size;
  ctx.fillStyle = theme.ink;
  ctx.beginPath();
  ctx.moveTo(tip, y + height / 2);
  ctx.lineTo(back, y + height / 2 - size * 0.8);
  ctx.lineTo(back, y + height / 2 + size * 0.8);
  ctx.fill();
}

/**
 * A hairline through all engines at the pointer, with its time on the axis.
 *
 * @param {Context} ctx
 * @param {Scene} scene
 * @param {number} time
 */
function drawCursor(ctx, scene, time) {
  const { geometry: g, theme, layout } = scene;
  if (time < g.t0 || time > g.t1) return;
  const x = Math.round(g.x(time));
  fillRectangle(ctx, theme.faint, x, g.px(layout.axis - 6), g.hair, g.px(layout.foot) - g.px(layout.axis - 6));
  for (const { axis, of } of axes(scene)) drawPill(ctx, scene, inUnit(of(time), axisUnit(scene.view)), x, axis, theme.ink);
}

/**
 * A stretch of the axis; `rows` says from which height to which, if not all.
 *
 * @param {Context} ctx
 * @param {Scene} scene
 * @param {Area} area
 */
function drawMeasure(ctx, scene, { from, to, top: above, bottom: below }) {
  const { geometry: g, theme, layout } = scene;
  const [x, width] = stretch(g, Math.min(from, to), Math.max(from, to), 1);
  const [top, bottom] = [g.px(above ?? layout.axis - 6), g.px(below ?? layout.foot)];
  fillRectangle(ctx, theme.accentWash, x, top, width, bottom - top);
  for (const edge of [x, x + width - g.hair]) fillRectangle(ctx, theme.accent, edge, top, g.hair, bottom - top);
  for (const { axis, of } of axes(scene)) drawPill(ctx, scene, exactTime(Math.abs(of(to) - of(from))), x + width / 2, axis, theme.accent);
}

/**
 * Where times are written, and which: the common axis, or that of each engine at its own scale.
 *
 * @param {Scene} scene
 * @returns {{ axis: number, of: (time: number) => number }[]}
 */
function axes({ layout, mode, alignments }) {
  if (mode !== "scale") return [{ axis: layout.axis - 16, of: (time) => time }];
  return layout.groups.filter(({ lanes }) => lanes.length)
    .map(({ axis, index }) => ({ axis: axis - 9, of: (time) => offAxis(alignments[index], time) }));
}

/**
 * @param {Context} ctx
 * @param {Scene} scene
 * @param {string} text
 * @param {number} centre
 * @param {number} axis
 * @param {string} fill
 */
function drawPill(ctx, scene, text, centre, axis, fill) {
  const { geometry: g, theme } = scene;
  const width = ctx.measureText(text).width + g.px(12);
  const x = between(g.left, centre - width / 2, ctx.canvas.width - width);
  const middle = g.px(axis);
  ctx.fillStyle = fill;
  ctx.beginPath();
  ctx.roundRect(x, middle - g.px(9), width, g.px(18), g.px(4));
  ctx.fill();
  writeText(ctx, theme.ground, text, x + g.px(6), middle + g.px(0.5));
}
