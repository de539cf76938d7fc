// The lane under each engine: how many streams run at once, how full the GPU is, and idle time by its cause. And where two streams overlap.

import { COPIES, IDLE, KERNEL, KERNELS, OVERLAPPED, RUNNING } from "./activity.js";
import { percent } from "./format.js";
import { stretch } from "./spans.js";

const MOST_LEVELS = 6;
const IDLE_HEIGHT = 3;
const LEAST_SHARE = 0.25;
const SHADE = 0.3;
// Narrower, a line is a blot.
const LEAST_LINE = 12;

/** What is drawn of a crowd must be seen, however little of the pixel it fills. */
const strength = (share) => LEAST_SHARE + (1 - LEAST_SHARE) * Math.min(1, share);

/** Height of one stream at once, in device pixels: the same under every engine, so that their heights compare. */
function levelHeight(scene, height) {
  const most = Math.max(2, ...scene.model.groups.map(({ activity }) => activity?.most ?? 0));
  return height / Math.min(most, MOST_LEVELS);
}

/** Draw the lane of one engine. */
export function drawAtOnce(ctx, scene, box) {
  const { geometry: g, model } = scene;
  const { activity } = model.groups[box.index];
  const { looks, occupations } = { ...model, looks: scene.overlap.looks };
  const [top, bottom] = [g.px(box.atOnce.y), g.px(box.atOnce.y + box.atOnce.height)];
  const unit = levelHeight(scene, bottom - top);
  const idleHeight = Math.max(1, g.px(IDLE_HEIGHT));
  const bar = (x, width, kernels, copies, overlapped) => {
    const middle = Math.max(top, Math.round(bottom - unit * kernels));
    ctx.fillStyle = looks[overlapped ? "kernels" : "kernel"].fill;
    ctx.fillRect(x, middle, width, bottom - middle);
    if (!copies) return;
    const upper = Math.max(top, Math.round(bottom - unit * (kernels + copies)));
    ctx.fillStyle = looks.copy.fill;
    ctx.fillRect(x, upper, width, Math.max(1, middle - upper));
  };
  const idle = (x, width, occupation) => {
    ctx.fillStyle = looks[occupations[occupation]].fill;
    ctx.fillRect(x, bottom - idleHeight, width, idleHeight);
  };
  activity.visit(g, (i) => {
    const [x, width] = stretch(g, activity.start[i], activity.end[i]);
    const kernels = activity.kernels[i];
    if (kernels || activity.copies[i]) bar(x, width, kernels, activity.copies[i], kernels > 1);
    else idle(x, width, activity.occupation[i]);
  }, (from, to) => {
    const sum = activity.sumOf(from, to);
    const x = Math.max(g.left, Math.floor(g.x(activity.start[from]) + 1e-6));
    const running = sum[RUNNING];
    let longest = 1;
    let unused = 0;
    for (let occupation = 1; occupation < occupations.length; occupation++) {
      unused += sum[IDLE + occupation];
      if (sum[IDLE + occupation] > sum[IDLE + longest]) longest = occupation;
    }
    if (unused) {
      ctx.globalAlpha = strength(unused / g.pitch);
      idle(x, 1, longest);
    }
    if (running) {
      ctx.globalAlpha = strength(running / g.pitch);
      bar(x, 1, sum[KERNELS] / running, sum[COPIES] / running, sum[KERNELS] > 1.5 * sum[KERNEL]);
    }
    ctx.globalAlpha = 1;
  });
  drawFullness(ctx, scene, activity, top, bottom);
}

/** A line over the bars, from the foot (nothing runs) to the top (each multiprocessor has a block); none where that is unknown. */
function drawFullness(ctx, scene, activity, top, bottom) {
  const { geometry: g, model } = scene;
  const thick = Math.max(1, Math.round(g.dpr));
  ctx.fillStyle = scene.theme.ink;
  activity.visit(g, (i) => {
    const full = activity.fullness[i];
    if (!activity.kernels[i] || full === model.fullness_unknown) return;
    const [x, width] = stretch(g, activity.start[i], activity.end[i]);
    if (width < LEAST_LINE * g.dpr) return;
    ctx.fillRect(x, Math.round(bottom - (bottom - top) * (full / model.fullness_steps)), width, thick);
  }, () => {});
}

/** Shade the streams of an engine where two or more of them run at once. */
export function drawShade(ctx, scene, box) {
  const { geometry: g, model } = scene;
  const { activity } = model.groups[box.index];
  const streams = box.lanes.filter(({ lane }) => !lane.host);
  if (streams.length < 2) return;
  const [top, bottom] = [g.px(streams[0].y), g.px(box.atOnce.y)];
  const shade = (x, width, share) => {
    ctx.globalAlpha = SHADE * share;
    ctx.fillRect(x, top, width, bottom - top);
  };
  ctx.fillStyle = scene.overlap.looks.kernels.fill;
  activity.visit(g, (i) => {
    if (activity.kernels[i] + activity.copies[i] < 2) return;
    const [x, width] = stretch(g, activity.start[i], activity.end[i]);
    shade(x, width, 1);
  }, (from, to) => {
    const share = activity.sumOf(from, to)[OVERLAPPED] / g.pitch;
    if (share) shade(Math.max(g.left, Math.floor(g.x(activity.start[from]) + 1e-6)), 1, Math.min(1, share));
  });
  ctx.globalAlpha = 1;
}

const times = (count, one, more) => (count === 1 ? `one ${one}` : `${count} ${more}`);

/** What a tooltip says of the lane at a time; null where it has nothing. */
export function describeAtOnce(model, group, looks, t) {
  const { activity } = group;
  const i = activity.at(t);
  if (i < 0) return null;
  const [kernels, copies] = [activity.kernels[i], activity.copies[i]];
  const occupation = model.occupations[activity.occupation[i]];
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

const IDLE_NOTES = {
  host_function: "Nothing runs on the device while a host function of the program does.",
  host_wait: "Nothing runs: what comes next had not been launched in time.",
  kernel_wait: "Nothing runs: what comes next is launched; this is the device's own delay between two kernels.",
  other: "Nothing runs: what comes next waits for an event or a dependency, or the run is over and the host has yet to notice.",
};

const fullnessWords = (model, full) => (
  full === model.fullness_unknown ? "unknown" : `at most ${percent(full / model.fullness_steps)}`
);
