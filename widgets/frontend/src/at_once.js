// The lane under each engine: how many streams run at once, how full the GPU is, and idle time by its cause. And where two streams overlap.

import { COMPUTE, COPIES, EXPOSED, HIDDEN, IDLE, KERNELS, OVERLAPPED, RUNNING } from "./activity.js";
import { css } from "./colours.js";
import { Pen } from "./filling.js";
import { percent } from "./format.js";
import { SHADES } from "./palette.js";
import { stretch } from "./spans.js";

/**
 * @import { Activity } from "./activity.js"
 * @import { LookName } from "./header.js"
 * @import { Section } from "./layout.js"
 * @import { Looks } from "./looks.js"
 * @import { Model } from "./model.js"
 * @import { Swatch } from "./palette.js"
 * @import { Scene } from "./scene.js"
 * @import { Context } from "./svg_context.js"
 */

/** @typedef {{ name: string, fill?: string, stretch?: [number, number], fullness?: string | null, note?: string | null }} AtOnce */

const MOST_LEVELS = 6;
// Of several GPUs the rows are scanned for colours, so these are given height.
const MOST_OF_SEVERAL = 3;
const IDLE_HEIGHT = 3;
const SHADE = 0.3;
const SHADE_OF_SEVERAL = 0.12;
// Narrower, a line is a blot.
const LEAST_LINE = 12;

/**
 * Height of one stream at once, in device pixels: the same under every engine, so that their heights compare.
 *
 * @param {Scene} scene
 * @param {number} height
 */
function levelHeight(scene, height) {
  const most = Math.max(2, ...scene.groups.flatMap(({ group }) => group.activities.map((activity) => activity.most)));
  return height / Math.min(most, scene.groups.some(({ group }) => group.gpus[1]) ? MOST_OF_SEVERAL : MOST_LEVELS);
}

/**
 * Draw the lane of one GPU, and shade its streams where two or more of them run at once.
 *
 * @param {Context} ctx
 * @param {Scene} scene
 * @param {number} index of the engine
 * @param {Section} section
 */
export function drawAtOnce(ctx, scene, index, { of, top: header, lanes, atOnce }) {
  const { geometry: g, model } = scene;
  const activity = model.groups[index].activities[of];
  if (!activity || !atOnce) return;
  const { looks } = scene.switches;
  // The first, of what runs, is never that of idle time.
  const idle = model.occupations.map((name) => looks[/** @type {LookName} */ (name)]);
  const [top, bottom] = [g.px(atOnce.y), g.px(atOnce.y + atOnce.height)];
  const foot = Math.max(1, g.px(IDLE_HEIGHT));
  const unit = levelHeight(scene, bottom - foot - top);
  const streams = lanes.filter(({ lane }) => !lane.host);
  const [shadeTop, shadeBottom] = streams.length > 1 ? [g.px(streams[0].y), top] : [0, 0];
  const [lanePixels, shadePixels] = scene.pixels ?? [];
  lanePixels?.begin(g, top, bottom - top);
  shadePixels?.begin(g, shadeTop, 1);
  const [kernelPen, copyPen, idlePen, communicationPen] = Array.from({ length: 4 }, () => new Pen(lanePixels ?? ctx));
  const shadePen = new Pen(shadePixels ?? ctx);
  const shades = Array.from({ length: SHADES + 1 }, (_, level) => css(looks.kernels.rgb, ((header === null ? SHADE : SHADE_OF_SEVERAL) * level) / SHADES));

  let [x, width, shade, ground, streamsBelow] = [0, 0, 0, 0, 0];
  /**
   * A layer of a bar, on those before it.
   *
   * @param {Pen} pen
   * @param {Swatch} look
   * @param {number} more how many streams it stands for
   */
  const layer = (pen, look, more) => {
    if (!more) return;
    streamsBelow += more;
    const upper = Math.max(top, Math.round(bottom - foot - unit * streamsBelow));
    if (pen !== kernelPen || upper < ground) pen.rectangle(x, width, upper, Math.max(1, ground - upper), look.shades[shade]);
    ground = upper;
  };
  /** @param {number} level */
  const overlapped = (level) => {
    if (level && shadeBottom) shadePen.rectangle(x, width, shadeTop, shadeBottom - shadeTop, shades[level]);
  };

  // A bar of one stretch stands on the ground; in a crowd the foot is that of idle time.
  activity.visit(g, (i) => {
    [x, width] = stretch(g, activity.start[i], activity.end[i]);
    const [kernels, communication, copies] = activity.streamsAt(i);
    const streams = kernels + communication + copies;
    if (!streams) {
      idlePen.rectangle(x, width, bottom - foot, foot, idle[activity.occupation[i]].fill);
      return;
    }
    shade = SHADES;
    ground = bottom;
    streamsBelow = 0;
    layer(kernelPen, kernels > 1 ? looks.kernels : looks.kernel, kernels);
    layer(communicationPen, kernels ? looks.hidden : looks.exposed, communication);
    layer(copyPen, looks.copy, copies);
    overlapped(streams > 1 ? SHADES : 0);
    const full = activity.fullness[i];
    if (!activity.kernels[i] || full === model.fullness_unknown || width < LEAST_LINE * g.dpr) return;
    kernelPen.flush();
    kernelPen.rectangle(x, width, Math.round(bottom - (bottom - top) * (full / model.fullness_steps)), g.hair, scene.theme.ink);
  }, (from, to) => {
    const sum = activity.sumOf(from, to);
    x = g.column(activity.start[from]);
    width = 1;
    /** @param {number} time */
    const level = (time) => Math.min(SHADES, Math.ceil((time / g.pitch) * SHADES));
    const running = sum[RUNNING];
    let longest = 1;
    let unused = 0;
    for (let occupation = 1; occupation < idle.length; occupation++) {
      unused += sum[IDLE + occupation];
      if (sum[IDLE + occupation] > sum[IDLE + longest]) longest = occupation;
    }
    if (unused) idlePen.rectangle(x, 1, bottom - foot, foot, idle[longest].shades[level(unused)]);
    if (!running) return;
    shade = level(running);
    ground = bottom - foot;
    streamsBelow = 0;
    layer(kernelPen, sum[KERNELS] > 1.5 * sum[COMPUTE] ? looks.kernels : looks.kernel, sum[KERNELS] / running);
    layer(communicationPen, looks.hidden, sum[HIDDEN] / running);
    layer(communicationPen, looks.exposed, sum[EXPOSED] / running);
    layer(copyPen, looks.copy, sum[COPIES] / running);
    overlapped(level(sum[OVERLAPPED]));
  });
  for (const pen of [shadePen, idlePen, kernelPen, communicationPen, copyPen]) pen.flush();
  shadePixels?.drawOn(ctx, shadeBottom - shadeTop);
  lanePixels?.drawOn(ctx, bottom - top);
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
 * @param {Activity | undefined} activity
 * @param {Looks} looks
 * @param {number} t
 * @returns {AtOnce | null}
 */
export function describeAtOnce(model, activity, looks, t) {
  const i = activity ? activity.at(t) : -1;
  if (!activity || i < 0) return null;
  const [kernels, communication, copies] = activity.streamsAt(i);
  const occupation = /** @type {LookName} */ (model.occupations[activity.occupation[i]]);
  if (activity.crowd?.[i]) return { name: "many short stretches", fill: looks[occupation]?.fill, note: "Zoom in to see each." };
  const running = [
    ...(kernels ? [times(kernels, "kernel", "kernels")] : []), ...(communication ? ["communication"] : []),
    ...(copies ? [times(copies, "copy", "copies")] : []),
  ].join(" and ");
  return {
    name: running ? `${running} at once` : looks[occupation].words,
    stretch: [activity.start[i], activity.end[i]],
    fullness: kernels ? fullnessWords(model, activity.fullness[i]) : null,
    fill: looks[!running ? occupation : kernels > 1 ? "kernels" : kernels ? "kernel" : communication ? "exposed" : "copy"].fill,
    note: !running ? looks[occupation].note : communication ? looks[kernels ? "hidden" : "exposed"].note : null,
  };
}

/**
 * @param {Model} model
 * @param {number} full
 */
const fullnessWords = (model, full) => (
  full === model.fullness_unknown ? "unknown" : `at most ${percent(full / model.fullness_steps)}`
);
