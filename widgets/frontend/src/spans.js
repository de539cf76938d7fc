// Drawing the spans of one track.

import { isCrowd, launchedName } from "./decode.js";
import { contextOf, make } from "./dom.js";
import { fillRectangle, Pen } from "./filling.js";
import { between } from "./geometry.js";
import { coverage, visible } from "./lod.js";
import { fittingName } from "./origins.js";
import { SHADES } from "./palette.js";
import { fitted, writeText } from "./text.js";

/**
 * @import { Geometry } from "./geometry.js"
 * @import { Row } from "./layout.js"
 * @import { Group } from "./model.js"
 * @import { Scene } from "./scene.js"
 * @import { Context } from "./svg_context.js"
 * @import { Theme } from "./theme.js"
 * @import { Track } from "./tracks.js"
 */

const LABEL_LEAST = 26;
const LABEL_HEIGHT = 10;
const HAIRLINE_LEAST = 6;

/**
 * The swatch that a span wears: its operator's on the device, its kind's on the host.
 *
 * @param {Pick<Scene, "model" | "theme">} scene
 * @param {Group} group
 * @param {number} span
 */
export function swatchOf(scene, group, span) {
  const { kinds } = scene.model;
  const kind = group.kind[span];
  return kinds.isDevice(kind) ? scene.theme.operators[group.name[span]] : scene.theme.host[kinds.names[kind]];
}

/**
 * Draw what of a row is in view: long spans one by one, crowds a pixel at a time.
 *
 * @param {Context} ctx
 * @param {Scene} scene
 * @param {Row} row
 */
export function drawRow(ctx, scene, row) {
  const { geometry: g, pairs } = scene;
  const { track } = row;
  const { group } = track;
  const y = g.px(row.y);
  const height = g.px(row.y + row.height) - y;
  const shown = scene.shown?.[group.index];
  const count = visible(track, g.t0, g.t1, g.pitch, pairs);
  const pixels = scene.pixels?.[0];
  pixels?.begin(g, y, 1);
  const pen = new Pen(pixels ?? ctx);
  for (let e = 0; e < count; e++) {
    const from = pairs[2 * e];
    const to = pairs[2 * e + 1];
    if (to - from === 1 && track.end[from] - track.start[from] >= g.pitch) {
      drawSpan(ctx, scene, row, from, !shown || shown[track.spans[from]] === 1, y, height);
      continue;
    }
    const span = track.spans[track.longest.find(from, to)];
    const swatch = swatchOf(scene, group, span);
    const shade = Math.ceil(coverage(track, from, to, g.pitch) * SHADES);
    const x = g.column(track.start[from]);
    pen.rectangle(x, 1, y, height, !shown || shown[span] ? swatch.shades[shade] : swatch.faded);
  }
  pen.flush();
  pixels?.drawOn(ctx, height);
}

/**
 * Left edge and width in device pixels of a stretch of time, cut to the plot; never narrower than `least`.
 *
 * @param {Geometry} g
 * @param {number} start
 * @param {number} end
 * @param {number} least
 */
export function stretch(g, start, end, least = 1) {
  const x0 = between(g.left, Math.round(g.x(start)), g.right);
  const x1 = between(g.left, Math.round(g.x(end)), g.right);
  return [x0, Math.max(least, x1 - x0)];
}

/**
 * Where a span ends on the screen: at its neighbour, if the gap is far below a pixel, lest rounding blow it up to a whole one.
 *
 * @param {Track} track
 * @param {number} k
 * @param {number} pitch
 */
function visibleEnd(track, k, pitch) {
  const next = track.start[k + 1];
  return next > track.end[k] && next - track.end[k] < 0.3 * pitch ? next : track.end[k];
}

/**
 * @param {Context} ctx
 * @param {Scene} scene
 * @param {Row} row
 * @param {number} k
 * @param {boolean} shown
 * @param {number} y
 * @param {number} height
 */
export function drawSpan(ctx, scene, row, k, shown, y, height) {
  const { geometry: g, theme, model } = scene;
  const { track } = row;
  const { group } = track;
  const span = track.spans[k];
  const kind = group.kind[span];
  const swatch = swatchOf(scene, group, span);
  let [x, width] = stretch(g, track.start[k], visibleEnd(track, k, g.pitch));
  // A hairline between neighbours, where there is room for one.
  if ((track.end[k] - track.start[k]) / g.pitch >= HAIRLINE_LEAST * g.dpr && width > 2) width -= Math.max(1, Math.floor(g.dpr / 2));
  if (kind === model.kinds.graph) {
    fillRectangle(ctx, shown ? theme.band : theme.rule, x, y, width, height);
    return;
  }
  const crowd = isCrowd(group, span);
  if (crowd) ctx.fillStyle = shown ? swatch.shades[Math.ceil((SHADES * (group.busy?.[span] ?? 0)) / group.duration[span])] : swatch.faded;
  else ctx.fillStyle = !shown ? swatch.faded : kind === model.kinds.sync && width > 3 * g.dpr ? scene.hatch : swatch.fill;
  ctx.fillRect(x, y, width, height);
  if (!shown || crowd) return;
  const part = group.collective?.[span] ?? -1;
  const waiting = group.collectives?.waiting[part] ?? 0;
  const transfer = waiting && stretch(g, track.start[k] + waiting, track.end[k])[0];
  if (transfer > x) {
    // The time until the last GPU began is hatched as the host's waits are; the foot tells whose it is.
    fillRectangle(ctx, scene.hatch, x, y, Math.min(transfer - x, width), height - g.px(4));
  }
  const onDevice = model.kinds.isDevice(kind);
  if (group.basis[span] && width >= 10 * g.dpr) notchEdges(ctx, g, scene, group.basis[span], x, width, y, height);
  if (!onDevice) drawOperatorStripe(ctx, scene, launchedName(group, span), x, width, y, height);
  if (height < LABEL_HEIGHT * g.dpr) return;
  // The name of a collective stands on its transfer, or on the hatching where that is too narrow.
  const after = transfer > x && x + width - transfer >= LABEL_LEAST * g.dpr;
  const ink = kind === model.kinds.sync || (transfer > x && !after) ? theme.ink : swatch.ink;
  if (after) [x, width] = [transfer, x + width - transfer];
  if (width >= LABEL_LEAST * g.dpr) drawLabel(ctx, scene, group, span, ink, x, width, y + height / 2);
}

/**
 * A start (and, for a placed span, an end) that no clock was read at looks perforated.
 *
 * @param {Context} ctx
 * @param {Geometry} g
 * @param {Scene} scene
 * @param {number} basis
 * @param {number} x
 * @param {number} width
 * @param {number} y
 * @param {number} height
 */
function notchEdges(ctx, g, scene, basis, x, width, y, height) {
  const tooth = Math.max(1, Math.round(2 * g.dpr));
  const depth = Math.max(1, Math.round(1.5 * g.dpr));
  ctx.fillStyle = scene.theme.lane;
  for (let top = y + tooth; top < y + height - 1; top += 2 * tooth) {
    ctx.fillRect(x, top, depth, tooth);
    if (basis > 1) ctx.fillRect(x + width - depth, top, depth, tooth);
  }
}

/**
 * Host calls wear the colour of what they launch as a thin foot, so that the eye finds it.
 *
 * @param {Context} ctx
 * @param {Scene} scene
 * @param {number} name
 * @param {number} x
 * @param {number} width
 * @param {number} y
 * @param {number} height
 */
function drawOperatorStripe(ctx, scene, name, x, width, y, height) {
  if (name < 0) return;
  const stripe = scene.geometry.px(3);
  fillRectangle(ctx, scene.theme.operators[name].fill, x, y + height - stripe, width, stripe);
}

/**
 * A span's name, shortened to the room there is, or with its label and shapes where there is plenty.
 *
 * @param {Context} ctx
 * @param {Scene} scene
 * @param {Group} group
 * @param {number} span
 * @param {string} ink
 * @param {number} x
 * @param {number} width
 * @param {number} middle
 */
export function drawLabel(ctx, scene, group, span, ink, x, width, middle) {
  const nameCode = group.name[span];
  const { dpr } = scene.geometry;
  const name = scene.model.names[nameCode];
  const room = width - 8 * dpr;
  let wide = scene.labelWidths[nameCode];
  if (!(wide >= 0)) wide = scene.labelWidths[nameCode] = ctx.measureText(name).width;
  let text = name;
  if (wide > room) {
    text = fitted(ctx, name, room);
    if (text.length < 3) return;
  } else if (room - wide > LABEL_LEAST * dpr) {
    text = fittingName(ctx, scene.model, group, span, name, room);
  }
  const { globalAlpha } = ctx;
  ctx.globalAlpha = 1;
  // On a bar that is dimmed, only the full ink can be read.
  writeText(ctx, scene.dim ? scene.theme.ink : ink, text, x + 4 * dpr, middle);
  ctx.globalAlpha = globalAlpha;
}

/**
 * The diagonal hatching of time that the host spends blocked.
 *
 * @param {CanvasRenderingContext2D} ctx
 * @param {Theme} theme
 * @param {number} dpr
 */
export function hatchPattern(ctx, theme, dpr) {
  const size = Math.round(6 * dpr);
  const tile = make("canvas", "");
  tile.width = tile.height = size;
  const pen = contextOf(tile);
  fillRectangle(pen, theme.hatchGround, 0, 0, size, size);
  pen.strokeStyle = theme.hatch;
  pen.lineWidth = Math.max(1, dpr);
  pen.beginPath();
  for (const shift of [-size, 0, size]) {
    pen.moveTo(shift - 1, size + 1);
    pen.lineTo(shift + size + 1, -1);
  }
  pen.stroke();
  return /** @type {CanvasPattern} */ (ctx.createPattern(tile, "repeat"));
}
