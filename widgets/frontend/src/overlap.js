// What shows overlap, engine by engine: under the spans, above them, and in words.

import { describeAtOnce, drawAtOnce } from "./at_once.js";
import { drawPath } from "./critical_path.js";
import { exactTime } from "./format.js";
import { timeWords } from "./nature.js";
import { drawWait, drawWaits, waitsOf } from "./waits.js";

/** Under the spans: the shade where streams overlap, and the lane "at once". */
export function drawOverlap(ctx, scene, box) {
  if (box.atOnce) drawAtOnce(ctx, scene, box);
}

/** Above the spans: event waits, and the critical path. */
export function drawOverlapAbove(ctx, scene, box) {
  if (scene.overlap.shows.overlap) drawWaits(ctx, scene, box.index);
  if (scene.overlap.shows.path) drawPath(ctx, scene, box);
}

/** The waits of a highlighted span, in the ink of the highlight. */
export function drawWaitsOf(ctx, scene, index, span) {
  const group = scene.model.groups[index];
  for (const k of waitsOf(group, span)) drawWait(ctx, scene, index, k);
}

/** What a tooltip says of the lane "at once" at a time; null where it has nothing. */
export function describeOverlap(scene, index, t) {
  const { model } = scene;
  const group = model.groups[index];
  const told = group.activity && describeAtOnce(model, group, scene.overlap.looks, t);
  if (!told) return null;
  const [start, end] = told.stretch ?? [];
  return {
    name: told.name,
    where: `at once · ${group.label}${timeWords(group)}`,
    rows: [
      ...(told.stretch ? [["start", exactTime(start)], ["duration", exactTime(end - start)]] : []),
      ...(told.fullness ? [["multiprocessors with a block", told.fullness]] : []),
    ],
    notes: told.note ? [told.note] : [],
    fill: told.fill,
  };
}
