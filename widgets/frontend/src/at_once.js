// The lane under each engine: how many streams run at once, how full the GPU is, and idle time by its cause. And where two streams overlap.

import { COPIES, IDLE, KERNEL, KERNELS, OVERLAPPED, RUNNING } from "./activity.js";
import { css } from "./colours.js";
import { percent } from "./format.js";
import { SHADES } from "./palette.js";
import { stretch } from "./spans.js";

/**
 * @import { LookName } from "./header.js"
 * @import { Box } from "./layout.js"
 * @import { Looks } from "./looks.js"
 * @import { Group, Model } from "./model.js"
 * @import { Swatch } from "./palette.js"
 * @import { Scene } from "./scene.js"
 * @import { Context } from "./svg_context.js"
 */

/** @typedef {{ name: string, fill?: string, stretch?: [number, number], fullness?: string | null, note?: string | null }} AtOnce */

const MOST_LEVELS = 6;
const IDLE_HEIGHT = 3;
const SHADE = 0.3;
// Narrower, a line is a blot.
const LEAST_LINE = 12;

/**
 * Height of one stream at once, in device pixels: the same under every engine, so that their heights compare.
 *
 * @param {Scene} scene
 * @param {number} height
 */
function levelHeight(scene, height) {
  const most = Math.max(2, ...scene.groups.map(({ group }) => group.activity?.most ?? 0));
  return height / Math.min(most, MOST_LEVELS);
}

/** Fills rectangles of one row; those that touch and are alike are filled as one. */
class Pen {
  /** @param {Context} ctx */
  constructor(ctx) {
    this.ctx = ctx;
    this.x = this.end = this.y = this.height = 0;
    this.fill = "";
  }

  /**
   * @param {number} x
   * @param {number} width
   * @param {number} y
   * @param {number} height
   * @param {string} fill
   */
  rectangle(x, width, y, height, fill) {
    if (x === this.end && y === this.y && height === this.height && fill === this.fill) {
      this.end = x + width;
      return;
    }
    this.flush();
    [this.x, this.end, this.y, this.height, this.fill] = [x, x + width, y, height, fill];
  }

  flush() {
    if (this.end <= this.x) return;
    this.ctx.fillStyle = this.fill;
    this.ctx.fillRect(this.x, this.y, this.end - this.x, this.height);
    this.end = this.x;
  }
}

/**
 * Draw the lane of one engine, and shade its streams where two or more of them run at once.
 *
 * @param {Context} ctx
 * @param {Scene} scene
 * @param {Box} box
 */
export function drawAtOnce(ctx, scene, box) {
  const { geometry: g, model } = scene;
  const { activity } = model.groups[box.index];
  const { atOnce } = box;
  if (!activity || !atOnce) return;
  const { looks } = scene.overlap;
  // The first, of what runs, is never that of idle time.
  const occupations = /** @type {LookName[]} */ (model.occupations);
  const [top, bottom] = [g.px(atOnce.y), g.px(atOnce.y + atOnce.height)];
  const foot = Math.max(1, g.px(IDLE_HEIGHT));
  const unit = levelHeight(scene, bottom - foot - top);
  const [kernelPen, copyPen, idlePen, shadePen] = [new Pen(ctx), new Pen(ctx), new Pen(ctx), new Pen(ctx)];
  const streams = box.lanes.filter(({ lane }) => !lane.host);
  const [shadeTop, shadeBottom] = streams.length > 1 ? [g.px(streams[0].y), top] : [0, 0];
  const shades = Array.from({ length: SHADES + 1 }, (_, level) => css(looks.kernels.rgb, (SHADE * level) / SHADES));

  // A bar of one stretch stands on the ground; in a crowd the foot is that of idle time.
  /**
   * @param {number} x
   * @param {number} width
   * @param {number} kernels
   * @param {number} copies
   * @param {Swatch} look
   * @param {number} shade
   * @param {number} ground
   */
  const bar = (x, width, kernels, copies, look, shade, ground) => {
    /** @param {number} streams */
    const upTo = (streams) => Math.max(top, Math.round(bottom - foot - unit * streams));
    const middle = kernels ? upTo(kernels) : ground;
    if (middle < ground) kernelPen.rectangle(x, width, middle, ground - middle, look.shades[shade]);
    const upper = upTo(kernels + copies);
    if (copies) copyPen.rectangle(x, width, upper, Math.max(1, middle - upper), looks.copy.shades[shade]);
  };
  /**
   * @param {number} x
   * @param {number} width
   * @param {number} level
   */
  const overlapped = (x, width, level) => {
    if (level && shadeBottom) shadePen.rectangle(x, width, shadeTop, shadeBottom - shadeTop, shades[level]);
  };

  activity.visit(g, (i) => {
    const [x, width] = stretch(g, activity.start[i], activity.end[i]);
    const [kernels, copies] = [activity.kernels[i], activity.copies[i]];
    if (!kernels && !copies) {
      idlePen.rectangle(x, width, bottom - foot, foot, looks[occupations[activity.occupation[i]]].fill);
      return;
    }
    bar(x, width, kernels, copies, kernels > 1 ? looks.kernels : looks.kernel, SHADES, bottom);
    overlapped(x, width, kernels + copies > 1 ? SHADES : 0);
    const full = activity.fullness[i];
    if (!kernels || full === model.fullness_unknown || width < LEAST_LINE * g.dpr) return;
    kernelPen.flush();
    ctx.fillStyle = scene.theme.ink;
    ctx.fillRect(x, Math.round(bottom - (bottom - top) * (full / model.fullness_steps)), width, Math.max(1, Math.round(g.dpr)));
  }, (from, to) => {
    const sum = activity.sumOf(from, to);
    const x = Math.max(g.left, Math.floor(g.x(activity.start[from]) + 1e-6));
    /** @param {number} time */
    const level = (time) => Math.min(SHADES, Math.ceil((time / g.pitch) * SHADES));
    const running = sum[RUNNING];
    let longest = 1;
    let unused = 0;
    for (let occupation = 1; occupation < occupations.length; occupation++) {
      unused += sum[IDLE + occupation];
      if (sum[IDLE + occupation] > sum[IDLE + longest]) longest = occupation;
    }
    if (unused) idlePen.rectangle(x, 1, bottom - foot, foot, looks[occupations[longest]].shades[level(unused)]);
    if (!running) return;
    const look = sum[KERNELS] > 1.5 * sum[KERNEL] ? looks.kernels : looks.kernel;
    bar(x, 1, sum[KERNELS] / running, sum[COPIES] / running, look, level(running), bottom - foot);
    overlapped(x, 1, level(sum[OVERLAPPED]));
  });
  for (const pen of [shadePen, idlePen, kernelPen, copyPen]) pen.flush();
}

/**
 * @param {number} count
 * @param {string} one
 * @param {string} more
 */
const times = (count, one, more) => (count === 1 ? `one ${one}` : `${count} ${more}`);

/**
 * What a tooltip says of the lane at a time; null where it has nothing.
 *
 * @param {Model} model
 * @param {Group} group
 * @param {Looks} looks
 * @param {number} t
 * @returns {AtOnce | null}
 */
export function describeAtOnce(model, group, looks, t) {
  const { activity } = group;
  const i = activity ? activity.at(t) : -1;
  if (!activity || i < 0) return null;
  const [kernels, copies] = [activity.kernels[i], activity.copies[i]];
  const occupation = /** @type {LookName} */ (model.occupations[activity.occupation[i]]);
  if (activity.crowd?.[i]) return { name: "many short stretches", fill: looks[occupation]?.fill, note: "Zoom in to see each." };
  const running = [
    ...(kernels ? [times(kernels, "kernel", "kernels")] : []), ...(copies ? [times(copies, "copy", "copies")] : []),
  ].join(" and ");
  return {
    name: running ? `${running} at once` : looks[occupation].words,
    stretch: [activity.start[i], activity.end[i]],
    fullness: kernels ? fullnessWords(model, activity.fullness[i]) : null,
    fill: running ? looks[kernels > 1 ? "kernels" : kernels ? "kernel" : "copy"].fill : looks[occupation].fill,
    note: running ? null : IDLE_NOTES[occupation],
  };
}

/** @type {Partial<Record<LookName, string>>} */
const IDLE_NOTES = {
  host_function: "Nothing runs on the device while a host function of the program does.",
  host_wait: "Nothing runs: the host has not yet called what comes next.",
  launch: "Nothing runs: what comes next has been called, and is on its way to the device.",
  kernel_wait: "Nothing runs: what comes next was launched before; this is the device's own delay between two kernels.",
  other: "Nothing runs: what comes next waits for an event, another stream or GPU, or the run is over and the host has yet to notice.",
};

/**
 * @param {Model} model
 * @param {number} full
 */
const fullnessWords = (model, full) => (
  full === model.fullness_unknown ? "unknown" : `at most ${percent(full / model.fullness_steps)}`
);
