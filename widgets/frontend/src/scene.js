// All that drawing one frame needs. Each engine has a scene of its own, whose geometry turns that engine's times into pixels.

import { offAxis } from "./align.js";
import { frameGeometry } from "./geometry.js";

/**
 * @import { Finding } from "./finding.js"
 * @import { Geometry } from "./geometry.js"
 * @import { Highlight } from "./join.js"
 * @import { Layout } from "./layout.js"
 * @import { Looks } from "./looks.js"
 * @import { Model } from "./model.js"
 * @import { Pixels } from "./filling.js"
 * @import { Shows } from "./switches.js"
 * @import { Theme } from "./theme.js"
 * @import { Part } from "./tracks.js"
 * @import { Viewer } from "./viewing.js"
 */

/**
 * What a frame is drawn of.
 *
 * @typedef {object} FrameSource
 * @property {Model} model
 * @property {Layout} layout
 * @property {Pick<Viewer, "view" | "home" | "bounds" | "alignments" | "mode">} viewer
 * @property {Theme} theme
 * @property {Part[]} wholeParts
 * @property {{ shows: Shows, looks: Looks }} switches
 * @property {(Uint8Array | null)[] | null} shown of each group, which spans a search finds
 * @property {Int32Array} pairs room for what `visible` writes
 * @property {[Pixels, Pixels] | null} pixels what bars of a pixel are drawn with; null for a picture of shapes
 * @property {Float32Array} labelWidths of each name, NaN where it is not known
 * @property {string | CanvasPattern} hatch
 * @property {number} dpr
 * @property {Pick<Finding, "groups" | "countOf" | "startsOf">} finding
 * @property {Highlight | null} selected
 */

/**
 * @typedef {Pick<FrameSource, "model" | "layout" | "theme" | "switches" | "shown" | "pairs" | "pixels" | "labelWidths" | "hatch" | "finding">
 *   & FrameSource["viewer"] & { groups: Part[], dim: boolean, geometry: Geometry, own: Scene[] }} Scene
 */

/**
 * The frame's scene; times of its geometry are those of the axis. `sceneOf` gives that of one engine.
 *
 * @param {FrameSource} timeline
 * @returns {Scene}
 */
export function buildScene(timeline) {
  const { model, layout, viewer, theme, wholeParts: groups, switches, shown, pairs, pixels, labelWidths, hatch, dpr, finding, selected } = timeline;
  const { view, home, bounds, alignments, mode } = viewer;
  /** @type {Scene} */
  const common = {
    model, layout, view, home, bounds, theme, groups, switches, shown, pairs, pixels, labelWidths, hatch, finding, mode, alignments,
    dim: selected !== null, geometry: frameGeometry(view, layout, dpr), own: [],
  };
  common.own = alignments.map((alignment) => {
    if (alignment.origin === 0 && alignment.factor === 1) return common;
    const own = { t0: offAxis(alignment, view.t0), t1: offAxis(alignment, view.t1) };
    return { ...common, view: own, geometry: frameGeometry(own, layout, dpr) };
  });
  return common;
}

/**
 * @param {Scene} scene
 * @param {number} index
 */
export const sceneOf = (scene, index) => scene.own[index];
