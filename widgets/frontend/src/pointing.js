// What lies under the pointer: the span, its tooltip, a measured stretch.

import { offAxis } from "./align.js";
import { describeGpu, describeGroup, describeSpan } from "./describe.js";
import { timeAt, timeWithin } from "./geometry.js";
import { highlightOf } from "./join.js";
import { hitTest } from "./layout.js";
import { spanAt } from "./lod.js";
import { describeOverlap } from "./overlap.js";
import { rangesAround } from "./ranges.js";
import { snapToEdge } from "./snap.js";
import { swatchOf } from "./spans.js";

/**
 * @import { Arrangement } from "./arrangement.js"
 * @import { Details } from "./details.js"
 * @import { Heads } from "./heads.js"
 * @import { Highlight } from "./join.js"
 * @import { Box, Hit, Layout } from "./layout.js"
 * @import { Looks } from "./looks.js"
 * @import { Model } from "./model.js"
 * @import { View } from "./scale.js"
 * @import { Stage } from "./stage.js"
 * @import { Theme } from "./theme.js"
 * @import { Tooltip } from "./tooltip.js"
 * @import { Area } from "./totals.js"
 * @import { Viewer } from "./viewing.js"
 */

/** @typedef {{ x: number, y: number }} Point on the canvas, in CSS pixels */

/** @typedef {Point & { clientX: number, clientY: number }} Pointer */

/** @typedef {"pan" | "zoom" | "measure" | "area"} Dragging */

/** @typedef {{ group: number, span: number }} Spot */

/**
 * The timeline as the pointer knows it.
 *
 * @typedef {object} Owner
 * @property {Model} model
 * @property {Layout} layout
 * @property {Theme} theme
 * @property {View} view
 * @property {Pick<Viewer, "view" | "alignments">} viewer
 * @property {Pick<Arrangement, "shown" | "move">} arrangement
 * @property {{ looks: Looks }} switches
 * @property {Dragging} dragging
 * @property {number | null} cursor
 * @property {Highlight | null} hovered
 * @property {Pick<Heads, "hover">} heads
 * @property {Pick<Tooltip, "show" | "hide">} tooltip
 * @property {Pick<Stage, "axisTop">} stage
 * @property {Pick<Details, "shown">} details
 * @property {(base?: boolean) => void} redraw
 * @property {(group: number, span: number) => void} select
 * @property {() => void} clear
 * @property {(group: number, of: number) => void} fold
 * @property {(change: () => void) => void} arrange
 * @property {(from: number, to: number, area?: Pick<Area, "top" | "bottom">) => void} measureStretch
 */

// How far from the pointer the edges of an engine may lie for a tooltip to keep clear of all of it, in pixels.
const NEAR = 160;

export class Pointing {
  /** @param {Owner} timeline */
  constructor(timeline) {
    this.timeline = timeline;
    this.key = "";
    /** @type {Pointer | null} where the pointer rests; null where nothing is told about what lies there. */
    this.place = null;
  }

  /**
   * What dragging from a point does.
   *
   * @param {Point} at
   * @param {{ shift: boolean, control: boolean, alt: boolean }} held
   */
  dragMode({ y }, { shift, control, alt }) {
    const { area } = hitTest(this.timeline.layout, y);
    if (area === "overview") return "overview";
    if (control) return "zoom";
    if (alt) return "area";
    if (shift || area === "axis") return "measure";
    if (area === "header") return "reorder";
    return this.timeline.dragging;
  }

  /**
   * The span at a point: {group, span} or null.
   *
   * @param {Point} at
   * @returns {Spot | null}
   */
  pick({ x, y }) {
    const { layout: { plot }, layout, viewer: { view, alignments } } = this.timeline;
    const hit = hitTest(layout, y);
    if (hit.area !== "lane" || x < plot.left || x > plot.right) return null;
    const { row: { track }, group: { index } } = hit;
    const [t, next] = [x, x + 1].map((place) => offAxis(alignments[index], timeAt(view, plot, place)));
    const k = spanAt(track, t, next - t);
    return k < 0 ? null : { group: index, span: track.spans[k] };
  }

  /** @param {Pointer} at */
  hover(at) {
    this.place = at;
    this.look(at);
    this.timeline.redraw(false);
  }

  /** The picture moved under the pointer: tell what lies there now. */
  follow() {
    if (this.place) this.look(this.place);
  }

  /** @param {Pointer} at */
  look(at) {
    const { timeline } = this;
    const { plot } = timeline.layout;
    const hit = hitTest(timeline.layout, at.y);
    const inside = at.x >= plot.left && at.x <= plot.right && hit.area !== "overview";
    timeline.cursor = inside ? timeAt(timeline.view, plot, at.x) : null;
    const found = this.pick(at);
    const key = found ? `${found.group}/${found.span}` : hit.area === "header" ? `header/${hit.group.index}` : "";
    if (key !== this.key) {
      this.key = key;
      timeline.hovered = found && highlightOf(timeline.model, found.group, found.span);
    }
    timeline.heads.hover(hit.area === "header" ? hit.group.index : null);
    this.showTip(found, hit, at);
  }

  /**
   * Where a tooltip goes: clear of the engine that it tells about, or of a high one's lane, so that the neighbours can be seen.
   *
   * @param {Hit & { group: Box }} hit
   * @param {Pointer} at
   */
  placeOf({ group, section, lane, area }, { y, clientX, clientY }) {
    const { stage, layout } = this.timeline;
    const near = y - group.top < NEAR && group.bottom - y < NEAR;
    const top = area === "header" ? group.top : area === "GPU" ? section.top ?? 0 : null;
    const part = near ? null : lane ?? (top === null ? section?.atOnce : { y: top, height: layout.header });
    const [above, below] = part ? [part.y, part.y + part.height] : [group.top, group.bottom];
    return { clientX, clientY, above: above - y + clientY, below: below - y + clientY, ceiling: stage.axisTop() + layout.axis };
  }

  /**
   * @param {Spot | null} found
   * @param {Hit} hit
   * @param {Pointer} at
   */
  showTip(found, hit, at) {
    const { model, tooltip, cursor, viewer, details } = this.timeline;
    if (found && hit.area === "lane") {
      const group = model.groups[found.group];
      const around = rangesAround(model, group, found.span);
      const told = describeSpan(model, group, found.span);
      const code = details.shown?.codeOf(found.group, found.span) ?? [];
      tooltip.show({ ...told, around, notes: [...code, ...told.notes ?? []] }, swatchOf(this.timeline, group, found.span).fill, this.placeOf(hit, at));
    } else if (hit.area === "at once" && cursor !== null) {
      const { index } = hit.group;
      const told = describeOverlap(this.timeline, index, hit.section.of, offAxis(viewer.alignments[index], cursor));
      if (told) return tooltip.show(told, told.fill, this.placeOf(hit, at));
      tooltip.hide();
    } else if (hit.area === "header") {
      tooltip.show(describeGroup(model, model.groups[hit.group.index]), null, this.placeOf(hit, at));
    } else if (hit.area === "GPU") {
      tooltip.show(describeGpu(model.groups[hit.group.index], hit.section.of), null, this.placeOf(hit, at));
    } else {
      tooltip.hide();
    }
  }

  leave() {
    this.timeline.cursor = this.timeline.hovered = this.place = null;
    this.key = "";
    this.timeline.heads.hover(null);
    this.timeline.tooltip.hide();
    this.timeline.redraw(false);
  }

  /** @param {Point} at */
  click(at) {
    const { group, section, area } = hitTest(this.timeline.layout, at.y);
    const found = this.pick(at);
    if (area === "GPU") this.timeline.fold(group.index, section.of);
    else if (found) this.timeline.select(found.group, found.span);
    else this.timeline.clear();
  }

  /**
   * @param {Point} from
   * @param {Point} to
   */
  measureBetween(from, to) {
    const [start, end] = [from, to].map((at) => snapToEdge(this.timeline, at));
    this.leave();
    this.timeline.measureStretch(start, end);
  }

  /**
   * Add up what lies in the rows and the stretch between two points.
   *
   * @param {Point} from
   * @param {Point} to
   */
  measureArea(from, to) {
    const { layout, view } = this.timeline;
    const [start, end] = [from, to].map(({ x }) => timeWithin(view, layout.plot, x));
    const [top, bottom] = [from.y, to.y].sort((a, b) => a - b);
    this.leave();
    this.timeline.measureStretch(start, end, { top: Math.max(top, layout.axis), bottom: Math.min(bottom, layout.foot) });
  }

  /**
   * The engine at a height, or null.
   *
   * @param {Point} at
   */
  engineAt({ y }) {
    return hitTest(this.timeline.layout, y).group?.index ?? null;
  }

  /**
   * Put a dragged engine where the pointer is, among the others.
   *
   * @param {number | null} engine
   * @param {Point} at
   */
  reorder(engine, { y }) {
    const { layout, arrangement } = this.timeline;
    const over = layout.groups.findIndex(({ bottom }) => y < bottom);
    if (engine === null || over < 0) return;
    const step = over - arrangement.shown.indexOf(engine);
    if (step) this.timeline.arrange(() => arrangement.move(engine, step));
  }
}
