// All that drawing one frame needs. Each engine has a scene of its own, whose geometry turns that engine's times into pixels.

import { offAxis } from "./align.js";
import { frameGeometry } from "./geometry.js";

/** The frame's scene; times of its geometry are those of the axis. `sceneOf` gives that of one engine. */
export function buildScene(timeline) {
  const { model, layout, viewer, theme, wholeParts: groups, overlap, shown, entries, labelWidths, hatch, dpr, finding, selected } = timeline;
  const { view, home, bounds, alignments, mode } = viewer;
  const common = { model, layout, view, home, bounds, theme, groups, overlap, shown, entries, labelWidths, hatch, finding, mode, alignments, dim: selected !== null };
  common.geometry = frameGeometry(view, layout, dpr);
  common.own = alignments.map((alignment) => {
    if (alignment.origin === 0 && alignment.factor === 1) return common;
    const own = { t0: offAxis(alignment, view.t0), t1: offAxis(alignment, view.t1) };
    return { ...common, view: own, geometry: frameGeometry(own, layout, dpr) };
  });
  return common;
}

export const sceneOf = (scene, index) => scene.own[index];
