// What shows overlap, engine by engine: under the spans, above them, and in words.

import { describeAtOnce, drawAtOnce } from "./at_once.js";
import { drawPath } from "./critical_path.js";
import { terms } from "./describe.js";
import { exactTime } from "./format.js";
import { gpuName } from "./gpus.js";
import { timeWords } from "./nature.js";
import { drawWait, drawWaits, waitsOf } from "./waits.js";

/**
 * @import { Told } from "./describe.js"
 * @import { Box } from "./layout.js"
 * @import { Looks } from "./looks.js"
 * @import { Model } from "./model.js"
 * @import { Scene } from "./scene.js"
 * @import { Context } from "./svg_context.js"
 */

/**
 * Under the spans: the shade where streams overlap, and the lane "at once".
 *
 * @param {Context} ctx
 * @param {Scene} scene
 * @param {Box} box
 */
export function drawOverlap(ctx, scene, box) {
  for (const section of box.sections) drawAtOnce(ctx, scene, box.index, section);
}

/**
 * Above the spans: event waits, and the critical path.
 *
 * @param {Context} ctx
 * @param {Scene} scene
 * @param {Box} box
 */
export function drawOverlapAbove(ctx, scene, box) {
  if (scene.switches.shows.overlap) drawWaits(ctx, scene, box.index);
  if (scene.switches.shows.path) drawPath(ctx, scene, box);
}

/**
 * The waits of a highlighted span, in the ink of the highlight.
 *
 * @param {Context} ctx
 * @param {Scene} scene
 * @param {number} index
 * @param {number} span
 */
export function drawWaitsOf(ctx, scene, index, span) {
  const group = scene.model.groups[index];
  for (const k of waitsOf(group, span)) drawWait(ctx, scene, index, k);
}

/**
 * What a tooltip says of the lane "at once" at a time; null where it has nothing.
 *
 * @param {{ model: Model, switches: { looks: Looks } }} scene
 * @param {number} index
 * @param {number} of the place of the GPU
 * @param {number} t
 * @returns {Told & { fill?: string } | null}
 */
export function describeOverlap(scene, index, of, t) {
  const { model } = scene;
  const group = model.groups[index];
  const told = describeAtOnce(model, group.activities[of], scene.switches.looks, t);
  if (!told) return null;
  return {
    name: told.name,
    where: `at once · ${gpuName(group, of)}${timeWords(group)}`,
    rows: [
      ...terms(
        told.stretch && ["start", exactTime(told.stretch[0])], told.stretch && ["duration", exactTime(told.stretch[1] - told.stretch[0])],
        told.fullness && ["multiprocessors with a block", told.fullness],
      ),
    ],
    notes: told.note ? [told.note] : [],
    fill: told.fill,
  };
}
