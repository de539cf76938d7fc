// The flame chart: where a GPU's time goes by code, in frames that lie in each other. Frames are buttons, so keys and screen readers reach them.

import { aria, make, makeButton, makeChoice } from "./dom.js";
import { around, boxesOf, bottomUp, decodeTree, drawnIn, foundIn, spansIn, wraps } from "./flame_tree.js";
import { grouped, shareText, timeText } from "./format.js";
import { placeOf } from "./places.js";
import { shortened } from "./text.js";

/**
 * @import { Cost, Frame, Tree } from "./flame_tree.js"
 * @import { Finding } from "./finding.js"
 * @import { Ask, Filter } from "./messages.js"
 * @import { Model } from "./model.js"
 * @import { Stage } from "./stage.js"
 * @import { Theme } from "./theme.js"
 * @import { Toolbar } from "./toolbar.js"
 * @import { Tiles } from "./tiles.js"
 */

/**
 * The timeline as the flame chart knows it.
 *
 * @typedef {object} Owner
 * @property {Model} model
 * @property {Model} whole
 * @property {Theme} theme
 * @property {Pick<Finding, "filter" | "show" | "find">} finding
 * @property {Pick<Toolbar, "find">} toolbar
 * @property {Pick<Tiles, "tell"> | null} tiles
 * @property {Pick<Stage, "nudge">} stage
 */

/** @typedef {"code" | "range"} By */

/** @type {Record<Cost, string>} */
const COSTS = { gpu: "GPU time", exposed: "exposed communication", idle: "idle caused" };
const MEANINGS = {
  gpu: "Sum of the durations of kernels, copies and sets.", exposed: "Time of communication in which no kernel computes.",
  idle: "Gaps of the GPU that end with work of this code.",
};
const DIRECTIONS = { down: "top-down", up: "bottom-up" };
const BYS = { code: "modules and lines", range: "ranges" };
const ROW = 21;
const LEAST_PIXELS = 1.5;
const MOST_FRAMES = 1500;
/** Width of a letter and of a frame's padding in pixels, and the shortest label that still tells frames apart: numbers of modules are at the end. */
const LETTER = 6.6;
const PADDING = 9;
const MOST_CUT = 5;
/** @type {Record<Cost, string>} */
const NOTHING = { gpu: "No work here.", exposed: "No communication here, or kernels compute during all of it.", idle: "No gap ends with work of this code." };

export class FlameChart {
  /**
   * @param {Owner} timeline
   * @param {Ask} ask
   */
  constructor(timeline, ask) {
    this.timeline = timeline;
    this.ask = ask;
    /** @type {Map<string, Promise<Tree>>} */
    this.trees = new Map();
    /** @type {Map<string, Tree>} those that have come */
    this.known = new Map();
    /** @type {Tree | null} */
    this.tree = null;
    /** @type {Frame | null} the frame that fills the width */
    this.top = null;
    /** @type {Frame[]} where Escape leads back to */
    this.before = [];
    /** @type {Frame | null} the frame of the selected span */
    this.lit = null;
    this.group = 0;
    /** @type {By} */
    this.by = "code";
    /** @type {Cost} */
    this.cost = "gpu";
    this.up = false;
    this.sought = "";
    /** @type {Map<HTMLButtonElement, Frame>} */
    this.frames = new Map();

    const { groups } = timeline.whole;
    const engines = Object.fromEntries(groups.flatMap(({ label, thin }, index) => (thin ? [] : [[index, label]])));
    this.engine = makeChoice("Engine", engines, (index) => this.open(Number(index), this.by));
    this.engine.hidden = Object.keys(engines).length < 2;
    this.kind = makeChoice("Frames", BYS, (by) => this.open(this.group, by));
    const cost = makeChoice("What is added up", COSTS, (value) => this.change(() => (this.cost = value)));
    const direction = makeChoice("Direction", DIRECTIONS, (value) => this.change(() => (this.up = value === "up")));
    this.back = makeButton("← back", "Back to the frame before (Escape)", () => this.leave());
    const head = make("div", "ss-panel-head", make("strong", "", "Time by code"), this.engine, this.kind, cost, direction, this.back);
    this.chart = make("div", "ss-flame");
    aria(this.chart, { role: "group", label: "Frames: arrow keys go from one to the next, Enter opens one and shows its spans, Escape goes back" });
    this.chart.addEventListener("keydown", (event) => this.press(event));
    this.told = make("div", "ss-flame-told");
    aria(this.told, { live: "polite" });
    this.box = make("section", "ss-details", head, this.chart, this.told);
    aria(this.box, { label: "Time by code" });
    this.box.hidden = true;
  }

  /**
   * The tree of a group, asked for once.
   *
   * @param {number} group
   * @param {By} by
   */
  treeOf(group, by) {
    const key = `${group}/${by}`;
    const known = this.trees.get(key);
    if (known) return known;
    const asked = this.ask({ type: "tree", group, by }).then(({ header, block }) => {
      const tree = decodeTree(header, block);
      this.known.set(key, tree);
      return tree;
    });
    asked.catch(() => this.trees.delete(key));
    this.trees.set(key, asked);
    return asked;
  }

  /**
   * Show the tree of a group.
   *
   * @param {number} group
   * @param {By} by
   */
  async open(group, by = this.by) {
    [this.group, this.by] = [group, by];
    try {
      const tree = await this.treeOf(group, by);
      if (this.group !== group || this.by !== by) return;
      [this.by, this.tree] = [tree.header.by, tree];
      this.kind.hidden = !tree.header.other;
      this.engine.value = `${group}`;
      this.kind.value = this.by;
      this.change(() => {});
    } catch (error) {
      this.told.textContent = `No time by code: ${/** @type {Error} */ (error).message}`;
    }
  }

  /**
   * Change what is drawn, and begin with the whole: the timeline shows all spans again, too.
   *
   * @param {() => void} change
   */
  change(change) {
    change();
    const { finding, toolbar } = this.timeline;
    if (finding.filter.frame) toolbar.find(null, "");
    if (!this.tree) return;
    this.top = this.up ? bottomUp(this.tree) : this.tree.frames[0];
    this.before = [];
    this.draw();
  }

  /** Draw the frames as wide as the page is now. */
  draw() {
    const { top, cost, timeline: { theme, model } } = this;
    if (!top || this.box.hidden) return;
    const held = this.chart.contains(document.activeElement);
    const width = this.chart.clientWidth || 1;
    const boxes = boxesOf(top, cost, LEAST_PIXELS / width, MOST_FRAMES);
    const depth = Math.max(...boxes.map((box) => box.depth)) + 1;
    const total = whole(top).cost[cost];
    this.frames.clear();
    const codes = new Map(model.names.map((name, code) => [name, code]));
    const buttons = boxes.map(({ frame, depth: row, left, width: share }) => {
      const button = make("button", `ss-frame ss-of-${frame.kind}`, shortened(labelOf(frame), Math.max(MOST_CUT, Math.floor((share * width - PADDING) / LETTER))));
      button.type = "button";
      button.tabIndex = -1;
      Object.assign(button.style, { left: `${left * 100}%`, width: `calc(${share * 100}% - 1px)`, top: `${row * ROW}px` });
      const operator = frame.kind === "kernel" && theme.operators[codes.get(frame.name) ?? -1];
      if (operator) Object.assign(button.style, { background: operator.fill, color: operator.ink });
      aria(button, { label: `${frame.name}, ${shareText(total ? frame.cost[cost] / total : 0)}, ${timeText(frame.cost[cost])}` });
      button.addEventListener("click", () => this.enter(frame));
      button.addEventListener("pointerenter", () => this.tell(frame));
      button.addEventListener("focus", () => this.tell(frame));
      this.frames.set(button, frame);
      return button;
    });
    this.chart.style.setProperty("--high", `${depth * ROW}px`);
    this.chart.replaceChildren(make("div", "ss-flame-room", ...buttons));
    this.back.disabled = !this.before.length;
    this.mark();
    const first = this.buttonOf(top);
    if (first) {
      first.tabIndex = 0;
      if (held) first.focus({ preventScroll: true });
    }
    this.tell(top);
  }

  /** Show which frames a search finds, and that of the selected span with those around it. */
  mark() {
    const lit = new Set();
    for (let at = this.up ? null : this.lit; at; at = at.parent) lit.add(at);
    for (const [button, frame] of this.frames) {
      button.classList.toggle("ss-lit", lit.has(frame) || (this.up && !!this.lit && frame.parent === whole(frame) && frame.name === this.lit.name));
      button.classList.toggle("ss-hit", this.sought !== "" && `${frame.name} ${frame.file}`.toLowerCase().includes(this.sought));
    }
  }

  /** @param {Frame | null} frame */
  buttonOf(frame) {
    return [...this.frames].find(([, each]) => each === frame)?.[0] ?? null;
  }

  /** @param {Frame} frame */
  tell(frame) {
    const { cost, tree } = this;
    const total = whole(frame).cost;
    /** @param {Cost} each */
    const words = (each) => `${COSTS[each]} ${timeText(frame.cost[each])}${total[each] ? ` (${shareText(frame.cost[each] / total[each])})` : ""}`;
    const wrappers = around(frame).slice(1);
    const callers = wrappers[0] && wraps(wrappers[0]) ? [make("div", "ss-soft", `called through ${wrappers.map(({ name }) => name).join(" ← ")}`)] : [];
    const place = frame.file ? [frame.kind === "function" ? " defined at " : " at ", placeOf(frame, this.timeline.stage)] : [];
    const shown = [cost, .../** @type {Cost[]} */ (Object.keys(COSTS)).filter((each) => each !== cost && total[each])];
    const gpu = tree?.header.gpu ?? null;
    this.told.replaceChildren(
      make("div", "", make("strong", "", frame.parent || gpu === null ? frame.name : `GPU ${gpu}`), ...place),
      make("div", "ss-soft", [...shown.map(words), `${grouped(frame.kernels)} kernel${frame.kernels === 1 ? "" : "s"}`].join(" · ")),
      ...callers, total[cost] ? "" : make("div", "", NOTHING[cost]),
    );
    this.told.title = MEANINGS[cost];
  }

  /**
   * Open a frame, and show its spans in the timeline.
   *
   * @param {Frame} frame
   */
  enter(frame) {
    if (!this.top || frame === this.top) return;
    this.before.push(this.top);
    this.go(frame);
  }

  leave() {
    const before = this.before.pop();
    if (before) this.go(before);
  }

  /** @param {Frame} frame */
  go(frame) {
    this.top = frame;
    this.draw();
    const { timeline: { toolbar, finding, model, tiles }, tree, group, by } = this;
    toolbar.find(null, "");
    if (!frame.parent || !tree || !(frame.kernels || frame.cost.gpu)) return; // Nothing ran in the idle time after the last work.
    const { numbers } = frame;
    /** @type {Filter} */
    const filter = { code: null, text: "", frame: { group, by, numbers } };
    if (tiles) {
      finding.find(filter);
      return;
    }
    finding.filter = filter;
    finding.show(foundIn(model, group, spansIn(tree, numbers)));
  }

  /** @param {KeyboardEvent} event */
  press(event) {
    const button = /** @type {HTMLButtonElement} */ (event.target);
    const frame = this.frames.get(button);
    const act = frame && KEYS[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act(this, frame, button);
  }

  /** @param {Frame | null | undefined} frame */
  focus(frame) {
    const next = frame && this.buttonOf(frame);
    if (!next) return;
    for (const button of this.frames.keys()) button.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
    next.scrollIntoView({ block: "nearest" });
  }

  /**
   * Light the frame of a span, of the tree that is drawn.
   *
   * @param {Frame | null} frame
   */
  light(frame) {
    this.lit = frame;
    this.mark();
  }

  /** @param {string} text in lower case */
  search(text) {
    this.sought = text;
    this.mark();
  }
}

/**
 * A frame's name; of a module only what its path has more than that of the module around it.
 *
 * @param {Frame} frame
 */
function labelOf({ name, kind, parent }) {
  return kind === "module" && parent?.kind === "module" && name.startsWith(`${parent.name}.`) ? name.slice(parent.name.length + 1) : name;
}

/** @param {Frame} frame */
function whole(frame) {
  let at = frame;
  while (at.parent) at = at.parent;
  return at;
}

/**
 * The frame beside another in its row, as it is drawn.
 *
 * @param {FlameChart} chart
 * @param {HTMLButtonElement} button
 * @param {number} step
 */
function beside({ frames }, button, step) {
  const row = [...frames.keys()].filter(({ style }) => style.top === button.style.top);
  row.sort((a, b) => parseFloat(a.style.left) - parseFloat(b.style.left));
  const next = row[row.indexOf(button) + step];
  return next && frames.get(next);
}

/** @type {Record<string, (chart: FlameChart, frame: Frame, button: HTMLButtonElement) => void>} */
const KEYS = {
  ArrowDown: (chart, frame) => chart.focus(drawnIn(frame).sort((a, b) => b.cost[chart.cost] - a.cost[chart.cost]).find((child) => chart.buttonOf(child))),
  ArrowUp: (chart, frame) => chart.focus([...around(frame).slice(1), whole(frame)].find((each) => chart.buttonOf(each))),
  ArrowLeft: (chart, _, button) => chart.focus(beside(chart, button, -1)),
  ArrowRight: (chart, _, button) => chart.focus(beside(chart, button, 1)),
  Enter: (chart, frame) => chart.enter(frame),
  Escape: (chart) => chart.leave(),
  Backspace: (chart) => chart.leave(),
  Home: (chart) => chart.change(() => chart.timeline.toolbar.find(null, "")),
};
