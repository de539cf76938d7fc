// The lower canvas: everything that changes only with the view. The upper one (overlay.js) follows the pointer.

import { drawAllArrows } from "./arrows.js";
import { drawAxes } from "./axis.js";
import { fillRectangle } from "./filling.js";
import { grouped } from "./format.js";
import { drawGpuHeads, drawPeerCopies } from "./gpus.js";
import { natureOf } from "./nature.js";
import { drawOverlap, drawOverlapAbove } from "./overlap.js";
import { drawOverview } from "./overview.js";
import { sceneOf } from "./scene.js";
import { drawRow, stretch } from "./spans.js";
import { fitted, font, writeText } from "./text.js";

/**
 * @import { Geometry } from "./geometry.js"
 * @import { Box } from "./layout.js"
 * @import { Group } from "./model.js"
 * @import { Scene } from "./scene.js"
 * @import { Context } from "./svg_context.js"
 * @import { Lane } from "./tracks.js"
 */

// Room for the button that collapses the engine.
const HEADER_INDENT = 17;
// How much of their colour is left of bars while something else is selected.
export const DIMMED = 0.28;
// Lanes that are lower than their names leave some of them out.
const LEAST_LABEL = 13;

/**
 * @param {Context} ctx
 * @param {Scene} scene
 */
export function drawBase(ctx, scene) {
  const { theme, layout } = scene;
  const { width, height } = ctx.canvas;
  fillRectangle(ctx, theme.ground, 0, 0, width, height);
  ctx.textBaseline = "middle";
  layout.groups.forEach((box) => drawLaneGrounds(ctx, sceneOf(scene, box.index), box));
  drawAxes(ctx, scene);
  ctx.font = font(scene, 11);
  layout.groups.forEach((box) => {
    dimmed(ctx, scene, () => drawOverlap(ctx, sceneOf(scene, box.index), box));
    for (const { atOnce } of box.sections) if (atOnce) writeLane(ctx, scene, "at once", atOnce);
    dimmed(ctx, scene, () => drawLanes(ctx, sceneOf(scene, box.index), box));
    writeLanes(ctx, scene, box);
  });
  layout.groups.forEach((box) => {
    drawHeader(ctx, scene, box);
    drawGpuHeads(ctx, scene, box);
  });
  drawOverview(ctx, scene);
}

/**
 * Lanes are tinted as long as their engine ran, so that the lengths of the runs can be compared at a glance. Ranges of a profiler's file may
 * begin before the first call, at time 0.
 *
 * @param {Context} ctx
 * @param {Scene} scene
 * @param {Box} box
 */
export function drawLaneGrounds(ctx, scene, box) {
  const { geometry: g, theme, model } = scene;
  const group = model.groups[box.index];
  for (const lane of box.lanes) {
    const [y, height] = [g.px(lane.y), g.px(lane.height)];
    if (group.extent_ns <= g.t0) continue;
    const [x, width] = stretch(g, Math.min(0, group.extent_ns, group.start[0] || 0), group.extent_ns, 0);
    fillRectangle(ctx, theme.lane, x, y, width, height);
  }
}

/**
 * A lane's name, without that of the GPU whose header it stands below, of the ranges below their thread's lane only what is new; and how many
 * ranges are nested deeper than it has rows.
 *
 * @param {Group} group
 * @param {Pick<Lane, "index" | "name" | "deeper">} lane
 */
function laneLabel({ lanes, gpus }, { index, name, deeper }) {
  const label = name === `${lanes[index - 1]?.name} ranges` ? "ranges" : gpus.length > 1 ? name.replace(/^GPU \d+ /, "") : name;
  return deeper ? `${label} + ${grouped(deeper)} deeper` : label;
}

/**
 * Draw faintly where something is selected, which is drawn again above (overlay.js).
 *
 * @param {Context} ctx
 * @param {Scene} scene
 * @param {() => void} draw
 */
function dimmed(ctx, { dim }, draw) {
  ctx.globalAlpha = dim ? DIMMED : 1;
  draw();
  ctx.globalAlpha = 1;
}

/**
 * @param {Context} ctx
 * @param {Scene} scene
 * @param {string} name
 * @param {{ y: number, height: number }} place
 */
function writeLane(ctx, { geometry: g, theme, layout }, name, { y, height }) {
  writeText(ctx, theme.soft, fitted(ctx, name, g.px(layout.plot.left - 14)), g.px(6), g.px(y + height / 2));
}

/**
 * @param {Context} ctx
 * @param {Scene} scene
 * @param {Box} box
 */
function writeLanes(ctx, scene, { index, lanes }) {
  let labelled = -Infinity;
  for (const { rows, band, lane } of lanes) {
    const first = rows[0] ?? band;
    if (first.y < labelled + LEAST_LABEL) continue;
    labelled = first.y;
    writeLane(ctx, scene, laneLabel(scene.model.groups[index], lane), first);
  }
}

/**
 * @param {Context} ctx
 * @param {Scene} scene
 * @param {Box} box
 */
function drawLanes(ctx, scene, box) {
  const { geometry: g, model } = scene;
  const group = model.groups[box.index];
  // Arrows pass behind the bars, whose names they would cross out.
  within(ctx, g, () => drawAllArrows(ctx, scene, box.index));
  for (const lane of box.lanes) {
    if (lane.band) drawRow(ctx, scene, lane.band);
    for (const row of lane.rows) drawRow(ctx, scene, row);
  }
  within(ctx, g, () => {
    drawPeerCopies(ctx, scene, box);
    drawEnds(ctx, scene, box, group);
    drawOverlapAbove(ctx, scene, box);
  });
}

/**
 * Draw between the edges of the plot alone.
 *
 * @param {Context} ctx
 * @param {Geometry} g
 * @param {() => void} draw
 */
function within(ctx, g, draw) {
  ctx.save();
  ctx.beginPath();
  ctx.rect(g.left, 0, g.right - g.left, ctx.canvas.height);
  ctx.clip();
  draw();
  ctx.restore();
}

/**
 * The end of a run; and, in a report that had to leave spans out, the stretch that it does not hold.
 *
 * @param {Context} ctx
 * @param {Scene} scene
 * @param {Box} box
 * @param {Group} group
 */
function drawEnds(ctx, scene, box, group) {
  const { geometry: g, theme } = scene;
  if (!box.sections.length) return;
  const [top, bottom] = [g.px(box.body), g.px(box.bottom)];
  if (group.shown_until_ns !== null) {
    const [x, width] = stretch(g, group.shown_until_ns, group.extent_ns, 0);
    fillRectangle(ctx, scene.hatch, x, top, width, bottom - top);
  }
  fillRectangle(ctx, theme.soft, Math.round(g.x(group.extent_ns)), g.px(box.body - 3), g.hair, bottom - g.px(box.body - 3));
}

/**
 * @param {Context} ctx
 * @param {Scene} scene
 * @param {Box} box
 */
function drawHeader(ctx, scene, box) {
  const { geometry: g, theme, layout, model } = scene;
  const group = model.groups[box.index];
  const middle = g.px(box.top + layout.header / 2);
  let x = g.px(HEADER_INDENT);
  /**
   * @param {string} text
   * @param {number} size
   * @param {string} weight
   * @param {string} ink
   * @param {number} gap
   * @param {number} height
   */
  const write = (text, size, weight, ink, gap, height = middle) => {
    ctx.font = font(scene, size, weight);
    const shown = fitted(ctx, text, g.right - x);
    writeText(ctx, ink, shown, x, height);
    x += ctx.measureText(shown).width + g.px(gap);
  };
  write(group.label, 13, "600", theme.ink, 12);
  x = Math.max(x, g.left);
  if (group.makespan_text) write(group.makespan_text, 13, "600", theme.ink, 10);
  const leftOut = group.lanes_left_out ? [`lanes not drawn: ${grouped(group.lanes_left_out)}`] : [];
  const nature = natureOf(group);
  // The axis says so already, where it is true of all.
  if (nature && nature !== model.nature) write(nature, 12, "600", theme.accent, 12);
  const bound = scene.switches.shows.path && group.path?.words;
  if (bound) write(`critical path: ${bound}`, 12, "600", theme.path, 16);
  else {
    for (const remark of leftOut) write(remark, 12, "", theme.soft, 16);
    group.remarks.forEach((remark, line) => {
      const height = box.remarks[line];
      if (height) x = g.px(HEADER_INDENT);
      write(remark, 12, "", theme.soft, 16, height && g.px(height));
    });
  }
  ctx.font = font(scene, 11);
}
