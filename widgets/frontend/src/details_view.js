// What is shown below the streams: counters, the flame chart, and in the panel which code launched the selected span.

import { CounterLanes } from "./counters.js";
import style from "./details.css";
import { make } from "./dom.js";
import { FlameChart } from "./flame.js";
import { around } from "./flame_tree.js";
import { originOf } from "./origins.js";
import { canOpen, placeOf, wordsOf } from "./places.js";
import { RankMap } from "./rank_map.js";

/**
 * @import { Owner as CountersOwner } from "./counters.js"
 * @import { Owner as FlameOwner } from "./flame.js"
 * @import { Frame } from "./flame_tree.js"
 * @import { Highlight } from "./join.js"
 * @import { Ask, Filter } from "./messages.js"
 * @import { Model } from "./model.js"
 * @import { Owner as MapOwner } from "./rank_map.js"
 * @import { Scene } from "./scene.js"
 * @import { Theme } from "./theme.js"
 */

/**
 * The timeline as what lies below it knows it.
 *
 * @typedef {FlameOwner & CountersOwner & MapOwner & {
 *   selected: Highlight | null, panel: { box: HTMLElement }, redraw: (base?: boolean) => void,
 * }} Owner
 */

export class DetailsView {
  /**
   * @param {Owner} timeline
   * @param {Ask} ask
   */
  constructor(timeline, ask) {
    this.timeline = timeline;
    this.ask = ask;
    /** @type {Highlight | null} */
    this.selected = null;
    /** @type {Filter | null} */
    this.filter = null;
    /** @type {Theme | null} */
    this.theme = null;
    this.width = 0;
    /** @type {RankMap | null} */
    this.map = null;
    timeline.panel.box.before(make("style", "", style));
    this.load();
  }

  /** Forget what belongs to another model. */
  load() {
    const { timeline, ask } = this;
    this.flame?.box.remove();
    this.lanes?.box.remove();
    this.model = timeline.whole;
    this.flame = new FlameChart(timeline, ask);
    this.lanes = new CounterLanes(timeline, ask);
    this.selected = null;
    if (this.model.details.includes("ranks")) this.map ??= new RankMap(timeline, ask);
    timeline.stage.box.after(this.lanes.box);
    timeline.panel.box.before(this.flame.box);
  }

  /**
   * Called with each frame of the timeline; what has not changed is not drawn again.
   *
   * @param {Scene} scene
   */
  drawn(scene) {
    const { timeline } = this;
    if (timeline.whole !== this.model) this.load();
    const { flame, lanes } = this;
    if (!flame || !lanes) return;
    const { shows } = scene.switches;
    const { details } = scene.model;
    const was = flame.box.hidden;
    flame.box.hidden = !(shows.code && details.includes("code"));
    const opens = was && !flame.box.hidden;
    if (!was && flame.box.hidden) flame.change(() => {}); // Nothing would tell any more why some spans are not shown.
    this.map?.draw(scene);
    lanes.draw(scene, shows.counters && details.includes("counters"));
    if (opens && !flame.tree) flame.open(timeline.selected?.group ?? 0);
    if (opens || scene.theme !== this.theme || scene.layout.width !== this.width) flame.draw();
    [this.theme, this.width] = [scene.theme, scene.layout.width];
    if (timeline.finding.filter !== this.filter) {
      this.filter = timeline.finding.filter;
      flame.search(this.filter.text);
    }
    if (timeline.selected !== this.selected) {
      this.selected = timeline.selected;
      if (details.includes("code")) this.follow(flame, this.selected);
    }
  }

  /**
   * Light the frame of the selected span, and say in the panel which code launched it.
   *
   * @param {FlameChart} flame
   * @param {Highlight | null} selected
   */
  async follow(flame, selected) {
    flame.light(null);
    if (!selected || this.timeline.model.groups[selected.group].thin) return;
    const { group, span, row = -1 } = selected;
    const { tiles } = this.timeline;
    try {
      const tree = await flame.treeOf(group, flame.by);
      const number = tiles ? (row < 0 ? -1 : (await this.ask({ type: "frame", group, by: tree.header.by, span: row })).header.frame) : tree.of?.[span] ?? -1;
      if (this.timeline.selected !== selected || number < 0) return;
      if (!flame.box.hidden && (flame.group !== group || flame.tree !== tree)) await flame.open(group);
      flame.light(tree.frames[number]);
      this.tell(tree.frames[number], selected);
    } catch {
      // Nothing is known of it, and the panel says nothing.
    }
  }

  /**
   * Say in the panel which code launched the selected span.
   *
   * @param {Frame} frame
   * @param {Highlight} selected
   */
  tell(frame, { group, span }) {
    const { line, words, where } = launchOf(frame);
    // Of an operation, the panel has the line; of all spans, the ranges around them.
    if (!words && !where) return;
    if (line?.kind === "line" && !canOpen(line.file) && this.hasLine(group, span)) return;
    const { box } = this.timeline.panel;
    box.querySelector(".ss-launched")?.remove();
    box.firstElementChild?.after(make("div", "ss-launched", words, line ? placeOf(line, this.timeline.stage) : "", where));
  }

  /**
   * Whether the operation of a span tells its line.
   *
   * @param {number} group
   * @param {number} span
   */
  hasLine(group, span) {
    const { model } = this.timeline;
    return !!originOf(model, model.groups[group], model.groups[group].operation[span]).line;
  }

  /**
   * Which code launched a span, for its tooltip; nothing where its tree has not come yet, or where the tooltip has the line.
   *
   * @param {number} group
   * @param {number} span
   * @returns {string[]}
   */
  codeOf(group, span) {
    const { flame, timeline: { model, tiles } } = this;
    if (!flame || tiles || model.groups[group].thin || !model.details.includes("code") || this.hasLine(group, span)) return [];
    const tree = flame.known.get(`${group}/${flame.by}`);
    if (!tree) flame.treeOf(group, flame.by).catch(() => {}); // The next tooltip has it.
    const frame = tree?.frames[tree.of?.[span] ?? -1];
    if (!frame) return [];
    const { line, words, where } = launchOf(frame);
    return [words + (line ? wordsOf(line) : "") + where].filter(Boolean);
  }
}

/**
 * Which code launched what lies in a frame: the line, the words before it, and the module after it.
 *
 * @param {Frame} frame
 */
function launchOf(frame) {
  const frames = around(frame);
  const line = frames.find(({ file }) => file);
  const inner = frames.find(({ kind }) => kind === "module");
  return {
    line,
    words: !line ? "" : line.kind === "function" ? `launched in ${line.name}, defined at ` : "launched at ",
    where: inner ? `${line ? " in" : "launched in"} module ${inner.name}` : "",
  };
}
