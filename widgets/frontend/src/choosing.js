// The selected operation: choosing it, stepping to its neighbours, bringing it into view.

import { onAxis } from "./align.js";
import { ofOperation, partsOf } from "./grouping.js";
import { firstOnDevice, highlightExtent, highlightOf, launchOf } from "./join.js";
import { waitsOf } from "./waits.js";

/**
 * @import { Arrangement } from "./arrangement.js"
 * @import { Highlight } from "./join.js"
 * @import { Group, Model } from "./model.js"
 * @import { Panel } from "./panel.js"
 * @import { Tiles } from "./tiles.js"
 * @import { Area } from "./totals.js"
 * @import { Trait } from "./traits.js"
 * @import { Viewer } from "./viewing.js"
 */

/**
 * The timeline as the selection knows it.
 *
 * @typedef {object} Owner
 * @property {Model} model
 * @property {Pick<Viewer, "view" | "alignments" | "fit" | "reveal">} viewer
 * @property {Pick<Arrangement, "shown">} arrangement
 * @property {Pick<Tiles, "hold" | "go"> | null} tiles
 * @property {Pick<Panel, "showOperation" | "hide">} panel
 * @property {Highlight | null} selected
 * @property {Area | null} measured
 * @property {Area | null} rubber
 * @property {(from: number, to: number) => void} measureStretch
 * @property {() => void} redraw
 * @property {(what: Trait) => void} tell
 */

export class Choosing {
  /** @param {Owner} timeline */
  constructor(timeline) {
    this.timeline = timeline;
  }

  /** Id of the selected operation; null for none. */
  get operation() {
    const { selected } = this.timeline;
    return selected && selected.operation >= 0 ? selected.operation : null;
  }

  /**
   * @param {number} group
   * @param {number} span
   */
  select(group, span) {
    const { timeline } = this;
    const { start, end, merged, span: rows } = timeline.model.groups[group];
    if (merged && merged[span] > 1) {
      const [from, to] = [start, end].map((times) => onAxis(timeline.viewer.alignments[group], times[span]));
      timeline.viewer.fit(from, to, 0.2);
      return;
    }
    timeline.measured = null;
    timeline.selected = highlightOf(timeline.model, group, span);
    if (timeline.tiles) timeline.tiles.hold({ group, row: timeline.selected.row = rows?.[span] ?? -1 });
    timeline.panel.showOperation(timeline.selected);
    timeline.redraw();
    timeline.tell("selection");
  }

  /**
   * @param {number} group
   * @param {number} span
   */
  selectAndReveal(group, span) {
    this.select(group, span);
    this.timeline.viewer.reveal(group, span);
  }

  clear() {
    const { timeline } = this;
    timeline.tiles?.hold(null);
    const chosen = timeline.selected;
    timeline.selected = timeline.measured = timeline.rubber = null;
    timeline.panel.hide();
    timeline.redraw();
    if (chosen) timeline.tell("selection");
  }

  /**
   * The next or previous operation of the program, in the engine where the selection was made; of other traces the next kernel or copy.
   *
   * @param {number} step
   */
  neighbour(step) {
    const { model, selected, arrangement, tiles } = this.timeline;
    if (tiles) return tiles.go({ how: step > 0 ? "next" : "previous" });
    const index = selected?.group ?? arrangement.shown[0];
    if (!hasOperations(model.groups[index])) {
      const next = nextOnDevice(model, model.groups[index], selected?.span ?? -1, step);
      if (next >= 0) this.selectAndReveal(index, next);
      return;
    }
    const wanted = this.operation === null ? 0 : this.operation + step;
    const span = this.onDevice(index, wanted);
    if (span >= 0) this.selectAndReveal(index, span);
    else if (this.operation === null && model.groups[index].count) this.selectAndReveal(index, 0);
  }

  /**
   * The next or previous part of a collective, or the same operation under the next or previous engine that is shown.
   *
   * @param {number} step
   */
  acrossEngines(step) {
    const { arrangement, selected, model } = this.timeline;
    if (!selected) return;
    const { shown } = arrangement;
    const home = model.groups[selected.group];
    const parts = [...partsOf(home, selected.span)].sort((a, b) => home.lane[a] - home.lane[b]);
    const part = parts[parts.indexOf(selected.span) + step];
    if (part !== undefined) {
      this.selectAndReveal(selected.group, part);
      return;
    }
    for (let at = shown.indexOf(selected.group) + step; at >= 0 && at < shown.length; at += step) {
      const member = selected.members.find(({ group }) => group === shown[at]);
      if (!member) continue;
      const span = member.spans.find((i) => model.kinds.isDevice(model.groups[member.group].kind[i])) ?? member.spans[0];
      this.selectAndReveal(member.group, span);
      return;
    }
  }

  /** From a launch call to what it put on the device, and from there back to the call. */
  followLaunch() {
    const { model, selected, tiles } = this.timeline;
    if (!selected) return;
    if (tiles) return tiles.go({ how: "launch" });
    const group = model.groups[selected.group];
    const onDevice = model.kinds.isDevice(group.kind[selected.span]);
    const id = group.correlation[selected.span];
    const span = onDevice ? launchOf(group, model.kinds, selected.span) : id >= 0 ? firstOnDevice(group, model.kinds, id) : -1;
    if (span >= 0) this.selectAndReveal(selected.group, span);
  }

  /** To what the selected span waited for: the end of another stream's span, else what came before it in its lane. */
  followWait() {
    this.follow("wait", (group, span) => {
      const k = waitsOf(group, span).find((wait) => group.waits.later[wait] === span);
      return k === undefined ? neighbourInLane(group, span, -1) : group.waits.earlier[k];
    });
  }

  /** To what waited for the selected span: in another stream, else what comes next in its lane. */
  followDependent() {
    this.follow("dependent", (group, span) => {
      const k = waitsOf(group, span).find((wait) => group.waits.earlier[wait] === span);
      return k === undefined ? neighbourInLane(group, span, 1) : group.waits.later[k];
    });
  }

  /**
   * @param {"wait" | "dependent"} how
   * @param {(group: Group, span: number) => number} other
   */
  follow(how, other) {
    const { model, selected, tiles } = this.timeline;
    if (tiles && selected) return tiles.go({ how });
    const span = selected ? other(model.groups[selected.group], selected.span) : -1;
    if (selected && span >= 0) this.selectAndReveal(selected.group, span);
  }

  /**
   * First device span of an operation under an engine; -1 for none.
   *
   * @param {number} index
   * @param {number} operation
   */
  onDevice(index, operation) {
    const { model } = this.timeline;
    const { kind } = model.groups[index];
    return ofOperation(model.groups[index], operation).find((i) => model.kinds.isDevice(kind[i])) ?? -1;
  }

  /** Zoom to the measured stretch, or to the selection in its engine; asked again, to the selection in all engines. */
  fit() {
    const { model, selected, measured, viewer } = this.timeline;
    if (measured) viewer.fit(measured.from, measured.to, 0.02);
    else if (selected && !selected.members.length) this.fitAll();
    else if (selected && !viewer.fit(...highlightExtent(model, selected, viewer.alignments, selected.group), 1)) this.fitAll();
  }

  /** Measure the selection in its engine, or what is in view. */
  measure() {
    const { model, selected, viewer } = this.timeline;
    const { t0, t1 } = viewer.view;
    this.timeline.measureStretch(...(selected?.members.length ? highlightExtent(model, selected, viewer.alignments, selected.group) : /** @type {[number, number]} */ ([t0, t1])));
  }

  fitAll() {
    const { model, selected, viewer, tiles } = this.timeline;
    // Of a long trace, the selection may not be loaded.
    if (selected && !selected.members.length) tiles?.go({ how: "span" });
    else if (selected) viewer.fit(...highlightExtent(model, selected, viewer.alignments));
  }
}

/**
 * Whether a trace says which operation of a program its spans belong to.
 *
 * @param {Group} group
 */
export const hasOperations = (group) => (group.hasOperations ??= group.operation.some((operation) => operation >= 0));

/**
 * The next kernel, copy or memory set after a span, or before it; -1 for none.
 *
 * @param {Model} model
 * @param {Group} group
 * @param {number} span
 * @param {number} step
 */
function nextOnDevice({ kinds }, { kind, count }, span, step) {
  for (let i = span + step; i >= 0 && i < count; i += step) if (kinds.isNode(kind[i])) return i;
  return -1;
}

/**
 * @param {Group} group
 * @param {number} span
 * @param {number} step
 */
function neighbourInLane({ lane, count }, span, step) {
  for (let i = span + step; i >= 0 && i < count; i += step) if (lane[i] === lane[span]) return i;
  return -1;
}
