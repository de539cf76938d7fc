// The table below the timeline: one operation, or one stretch of time, under every engine.

import { offAxis } from "./align.js";
import { hasOperations } from "./choosing.js";
import { aria, make, makeButton, makeSwatch } from "./dom.js";
import { exactTime, grouped, percent } from "./format.js";
import { gpuName } from "./gpus.js";
import { callUnknown, latencyCallOf, launchOf } from "./join.js";
import { originOf, symbolOf } from "./origins.js";
import { rangesAround } from "./ranges.js";
import { lowerBound } from "./search.js";
import { shortened } from "./text.js";
import { rowsWithin, totalsByName } from "./totals.js";

/**
 * @import { AlignMode, Alignment } from "./align.js"
 * @import { Choosing } from "./choosing.js"
 * @import { Highlight } from "./join.js"
 * @import { Layout } from "./layout.js"
 * @import { AreaOfGroup, Sums } from "./messages.js"
 * @import { Group, Model } from "./model.js"
 * @import { Ranking } from "./palette.js"
 * @import { Theme } from "./theme.js"
 * @import { Tiles } from "./tiles.js"
 * @import { Area, Total } from "./totals.js"
 * @import { Viewer } from "./viewing.js"
 */

/** @typedef {string[]} Cells */

/**
 * The timeline as the table knows it.
 *
 * @typedef {object} Owner
 * @property {Model} model
 * @property {Theme} theme
 * @property {Ranking} ranking
 * @property {Pick<Layout, "groups">} layout
 * @property {Pick<Choosing, "followLaunch" | "followWait" | "followDependent" | "fit" | "fitAll">} choosing
 * @property {Pick<Viewer, "alignments" | "mode">} viewer
 * @property {Pick<Tiles, "tell"> | null} tiles
 * @property {Area | null} measured
 * @property {{ overlay: HTMLElement }} stage
 * @property {(mode: AlignMode) => void} align
 * @property {() => void} clear
 */

/**
 * The spans of a highlight that the table has rows for, of each group the first ones: {group, spans, left}, where `left` are not told.
 *
 * @param {Model} model
 * @param {Highlight} highlight
 */
function told(model, { members }) {
  return members.filter(({ group }) => !model.groups[group].thin).map(({ group: index, spans }) => {
    const group = model.groups[index];
    const onDevice = spans.filter((i) => model.kinds.isDevice(group.kind[i]));
    const wanted = onDevice.length ? onDevice : spans;
    return { group, spans: wanted.slice(0, MOST_ROWS), left: Math.max(0, wanted.length - MOST_ROWS) };
  });
}

/**
 * The kernels' own names in the rows of a highlight, a column [heading, cells…] of its own where they tell more than the title.
 *
 * @param {Model} model
 * @param {Highlight} highlight
 * @returns {[string, ...string[]] | null}
 */
export function kernelColumn(model, highlight) {
  const names = told(model, highlight).flatMap(({ group, spans }) => spans.map((i) => symbolOf(model, group, i) || model.names[group.name[i]]));
  return names.every((name) => name === highlight.name) ? null : ["kernel", ...names.map((name) => shortened(name, LONGEST_NAME))];
}

/**
 * Rows [engine, stream, start, kernel time, API time, launch latency] of a highlighted operation.
 *
 * @param {Model} model
 * @param {Highlight} highlight
 * @returns {Cells[]}
 */
export function operationRows(model, highlight) {
  const { kinds } = model;
  return told(model, highlight).flatMap(({ group, spans }) => {
    return spans.map((i) => {
      const launch = launchOf(group, kinds, i);
      const inGraph = launch >= 0 && group.kind[launch] === kinds.graph_launch;
      const latency = latencyCallOf(group, kinds, i) >= 0 ? exactTime(group.start[i] - group.start[launch]) : "–";
      const call = launch < 0 ? (callUnknown(group, kinds, i) ? "call not loaded" : "–") : inGraph ? "in graph" : exactTime(group.duration[launch]);
      return [group.label, group.lanes[group.lane[i]].name, exactTime(group.start[i]), exactTime(group.duration[i]), call, latency];
    });
  });
}

/**
 * Rows [engine or GPU, running, GPU busy, busy share, idle, kernels] of a stretch of the axis.
 *
 * @param {Model} model
 * @param {Group[]} groups
 * @param {number} from
 * @param {number} to
 * @param {Alignment[] | null} alignments
 * @param {Sums[] | null} known
 * @returns {Cells[]}
 */
export function measureRows(model, groups, from, to, alignments = null, known = null) {
  return groups.flatMap((group, at) => {
    const ends = alignments ? [from, to].map((position) => offAxis(alignments[group.index], position)) : [from, to];
    const [start, end] = [Math.max(ends[0], 0), Math.min(ends[1], group.extent_ns)];
    const running = Math.max(0, end - start);
    return group.gpus.map(({ gpu }, of) => {
      const label = gpuName(group, of);
      if (!running) return [label, "–", "–", "–", "–", "–"];
      // Without activity it has no kernels and no copies. As in `ss.analysis.summary`, a copy alone is neither busy nor idle.
      const activity = group.activities[of];
      const [kernels, busy, occupied] = known?.[at].gpus[of] ?? [
        kernelsWithin(group, model.kinds.kernel, start, end, gpu), activity?.kernelTimeWithin(start, end) ?? 0, activity?.busyWithin(start, end) ?? 0,
      ];
      return [label, exactTime(running), exactTime(busy), percent(busy / running), exactTime(running - occupied), grouped(kernels)];
    });
  });
}

/**
 * Kernels of a GPU that start in [from, to).
 *
 * @param {Group} group
 * @param {number} kernel
 * @param {number} from
 * @param {number} to
 * @param {number} gpu
 */
function kernelsWithin({ kind, start, lane, lanes }, kernel, from, to, gpu) {
  const last = lowerBound(start, to);
  let count = 0;
  for (let i = lowerBound(start, from); i < last; i++) if (kind[i] === kernel && lanes[lane[i]].gpu === gpu) count++;
  return count;
}

/**
 * Rows [name, a cell an engine] of totals: what TOTALS_WORDS says. Calls are never added to what ran on the device, and ranges, which hold
 * calls and each other, have no share.
 *
 * @param {Total[]} totals
 * @param {number} columns
 * @returns {Cells[]}
 */
export function totalRows(totals, columns) {
  const wholes = [false, true].map((calls) => Array.from({ length: columns }, (_, column) => (
    totals.reduce((sum, { call, range, cells }) => sum + (!range && call === calls ? cells[column].time : 0), 0)
  )));
  /**
   * @param {boolean} call
   * @param {number} time
   * @param {number} column
   */
  const share = (call, time, column) => ` · ${percent(time / (wholes[Number(call)][column] || 1))}`;
  return totals.map(({ name, call, range, cells }) => [name, ...cells.map(({ count, time }, column) => (
    count ? `${grouped(count)} × · ${exactTime(time)}${range ? "" : share(call, time, column)}` : "–"
  ))]);
}

const TOTALS_WORDS = "How often · how long · share of the time of the engine's kernels and copies there; of a call: of its calls and waits there. A range has none: ranges hold each other.";

const OPERATION_HEAD = ["lane", "start", "duration", "API time", "launch latency"];
const MEASURE_HEAD = ["running", "GPU busy", "busy share", "idle", "kernels started"];
const MOST_NAMES = 12;
const MOST_ROWS = 12;
const LONGEST_NAME = 64;
const LONGEST_TITLE = 160;

export class Panel {
  /**
   * @param {HTMLElement} root
   * @param {Owner} timeline
   */
  constructor(root, timeline) {
    this.timeline = timeline;
    this.box = make("div", "ss-panel");
    this.box.hidden = true;
    aria(this.box, { role: "region", label: "Selection", live: "polite" });
    root.append(this.box);
  }

  /** @param {Highlight} highlight */
  showOperation(highlight) {
    const { model, theme, ranking, choosing, tiles } = this.timeline;
    const onDevice = ranking.ranks[highlight.nameCode] >= 0;
    const fill = onDevice ? theme.operators[highlight.nameCode].fill : theme.soft;
    const known = highlight.operation >= 0;
    const actions = [
      makeButton("call ⇄ kernel", "Go from the launch call to the kernel, or back (L)", () => choosing.followLaunch()),
      makeButton("← waited for", "Go to what it waited for ([)", () => choosing.followWait()),
      makeButton("waited for it →", "Go to what waited for it (])", () => choosing.followDependent()),
      known ? makeButton("align here", "Put this operation at 0 under every engine (G)", () => this.timeline.align("operation")) : null,
      makeButton("zoom to it", "Zoom until all of them are in view (F twice)", () => choosing.fitAll()),
    ];
    const by = model.groups[highlight.group].joined_by ?? "operation";
    const label = known ? `${by} #${highlight.operation} ${by === "pair" ? "in both traces" : "under every engine"}` : "";
    const origin = originOf(model, model.groups[highlight.group], highlight.operation);
    const title = origin.label ? `${highlight.name} · ${origin.label}` : highlight.name;
    const around = rangesAround(model, model.groups[highlight.group], highlight.span);
    const words = [around && `in ${around}`, origin.shapes, origin.line].filter(Boolean).map((text) => make("div", "", text));
    const [head, ...kernels] = kernelColumn(model, highlight) ?? [""];
    /**
     * @param {Cells} cells
     * @param {string} kernel
     */
    const withKernel = (cells, kernel) => (head ? [cells[0], kernel, ...cells.slice(1)] : cells);
    const rows = operationRows(model, highlight).map((cells, row) => withKernel(cells, kernels[row]));
    const left = told(model, highlight).reduce((sum, part) => sum + part.left, 0);
    this.fill(
      makeSwatch(fill), shortened(title, LONGEST_TITLE), label, actions, words.length ? make("div", "ss-origin", ...words) : null,
      table(withKernel([whose(model), ...OPERATION_HEAD], head), rows, head ? 1 : -1), left ? make("div", "ss-more", `+ ${grouped(left)} more`) : null,
      tiles && known ? make("div", "ss-more", "Of its spans, those around this view.") : null,
    );
  }

  /**
   * Have Python add up what a long trace has there.
   *
   * @param {Area} measure
   */
  async askTotals(measure) {
    this.fill(null, "Adding up …", "", []);
    const areas = this.areasOf(measure);
    const found = await this.timeline.tiles?.tell({ type: "totals", areas });
    if (this.timeline.measured !== measure) return;
    // Other engines may be shown by now, or the same ones in another order or alignment: these are asked for.
    if (found) this.showMeasure(measure, JSON.stringify(areas) === JSON.stringify(this.areasOf(measure)) ? found.groups : null);
    else this.timeline.clear();
  }

  /**
   * What of each shown engine is measured, as tile_questions.py takes it.
   *
   * @param {Area} measure
   * @returns {AreaOfGroup[]}
   */
  areasOf(measure) {
    const { viewer } = this.timeline;
    return this.boxesOf(measure).map((box) => {
      const [start, end] = [measure.from, measure.to].map((position) => offAxis(viewer.alignments[box.index], position));
      return { group: box.index, start, end, rows: rowsWithin(box, measure).map((row) => [row.lane.index, row.lane.rows.indexOf(row.track)]) };
    });
  }

  /**
   * The engines that a stretch of the axis measures, or those that an area touches. Blocks are parts of kernels: what is added up are the kernels.
   *
   * @param {Area} measure
   */
  boxesOf(measure) {
    const { model, layout } = this.timeline;
    const boxes = layout.groups.filter(({ index }) => !model.groups[index].thin);
    return measure.top === undefined ? boxes : boxes.filter((box) => rowsWithin(box, measure).length);
  }

  /**
   * @param {Area} measure
   * @param {Sums[] | null} known
   */
  showMeasure(measure, known = null) {
    const { model, viewer, choosing, tiles } = this.timeline;
    if (tiles && !known) {
      this.askTotals(measure);
      return;
    }
    const layout = { groups: this.boxesOf(measure) };
    const { from, to } = measure;
    const shown = layout.groups.map(({ index }) => model.groups[index]);
    const totals = totalsByName(model, layout, viewer.alignments, measure, known);
    const own = viewer.mode === "scale";
    const title = own ? "measured" : exactTime(to - from);
    const detail = own ? "each engine at its own scale" : `from ${exactTime(from)} to ${exactTime(to)}`;
    const names = table(["name", ...shown.map(({ label }) => label)], totalRows(totals, shown.length).slice(0, MOST_NAMES), 0);
    const rest = totals.length - MOST_NAMES;
    this.fill(
      null, title, detail, [makeButton("zoom to it", "Zoom to this stretch (F)", () => choosing.fit())],
      shown.length ? table([whose(model), ...MEASURE_HEAD], measureRows(model, shown, from, to, viewer.alignments, known)) : make("div", "ss-more", "No lane lies in this area."),
      totals.length ? names : null, totals.length ? make("div", "ss-more", TOTALS_WORDS) : null, rest > 0 ? make("div", "ss-more", `+ ${rest} more`) : null,
    );
  }

  /**
   * @param {HTMLElement | null} swatch
   * @param {string} title
   * @param {string} detail
   * @param {(HTMLElement | null)[]} actions
   * @param {...(HTMLElement | null)} content
   */
  fill(swatch, title, detail, actions, ...content) {
    const close = makeButton("×", "Close (Escape)", () => {
      this.timeline.clear();
      this.timeline.stage.overlay.focus({ preventScroll: true });
    });
    const buttons = make("div", "ss-actions", ...actions, close);
    this.box.replaceChildren(
      make("div", "ss-panel-head", swatch, make("strong", "", title), make("span", "", detail), buttons),
      ...content.filter((part) => part !== null),
    );
    // A low timeline is seen with the panel below it; in front of it, the panel would cover the bar that was clicked.
    this.box.style.position = this.timeline.stage.overlay.clientHeight < innerHeight / 2 ? "static" : "";
    this.box.hidden = false;
  }

  hide() {
    this.box.hidden = true;
  }
}

/**
 * What the rows of a table are of: runs under engines, or traces that somebody else recorded.
 *
 * @param {Model} model
 */
const whose = (model) => (model.groups.some(hasOperations) ? "engine" : "trace");

/**
 * A table; `kernels` is the number of the column with names of kernels, which may be long, or -1.
 *
 * @param {Cells} head
 * @param {Cells[]} rows
 * @param {number} kernels
 */
function table(head, rows, kernels = -1) {
  /**
   * @param {Cells} cells
   * @param {"th" | "td"} tag
   */
  const line = (cells, tag) => make("tr", "", ...cells.map((cell, column) => make(tag, column === kernels ? "ss-kernel" : "", cell)));
  return make("table", "", make("thead", "", line(head, "th")), make("tbody", "", ...rows.map((row) => line(row, "td"))));
}
