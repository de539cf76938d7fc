// The timeline: holds the state, and asks for a frame when something changed.

import { onAxis } from "./align.js";
import { Arrangement } from "./arrangement.js";
import { rowOf } from "./arrows.js";
import { Choosing } from "./choosing.js";
import { launchedNames } from "./decode.js";
import { Details } from "./details.js";
import { drawBase } from "./draw.js";
import { Pixels } from "./filling.js";
import { Finding } from "./finding.js";
import { positionOf } from "./geometry.js";
import { gpuName, gpuNames } from "./gpus.js";
import { ofCorrelation, ofOperation } from "./grouping.js";
import { Heads } from "./heads.js";
import { whenIdle } from "./idle.js";
import { attach } from "./interact.js";
import { buildLayout } from "./layout.js";
import { entryCapacity } from "./lod.js";
import { drawOverlay } from "./overlay.js";
import { rankNames } from "./palette.js";
import { Panel } from "./panel.js";
import { Pointing } from "./pointing.js";
import { buildScene } from "./scene.js";
import { hatchPattern } from "./spans.js";
import { buildStage } from "./stage.js";
import { applyState, readState } from "./state.js";
import { OverlapSwitches } from "./switches.js";
import { prefersDark, readLook, themeOf, watchPrint, watchTheme } from "./theme.js";
import { Toolbar } from "./toolbar.js";
import { Tooltip } from "./tooltip.js";
import { buildLanes } from "./tracks.js";
import { Viewer } from "./viewing.js";

/**
 * @import { AlignMode } from "./align.js"
 * @import { Highlight } from "./join.js"
 * @import { Second } from "./details.js"
 * @import { Layout } from "./layout.js"
 * @import { Ask } from "./messages.js"
 * @import { Model } from "./model.js"
 * @import { Ranking } from "./palette.js"
 * @import { Dragging } from "./pointing.js"
 * @import { View } from "./scale.js"
 * @import { State } from "./state.js"
 * @import { Theme } from "./theme.js"
 * @import { Tile, Tiles } from "./tiles.js"
 * @import { Area } from "./totals.js"
 * @import { Part } from "./tracks.js"
 * @import { Trait } from "./traits.js"
 */

// How far from the window a timeline is drawn, in pixels, so that it is there when the page scrolls.
const NEAR = 300;

/** @param {HTMLElement} element */
function isNear(element) {
  const { top, bottom } = element.getBoundingClientRect();
  return bottom > -NEAR && top < innerHeight + NEAR;
}

export class Timeline {
  /**
   * @param {HTMLElement} root an empty element
   * @param {Model} model what `decode` returns
   * @param {Ask | null} ask takes a question as tile_questions.py answers it, and promises {header, block}; null where nobody answers
   * @param {Second | null} second what is loaded when it is needed (details.js); null where nobody has it
   */
  constructor(root, model, ask = null, second = null) {
    this.root = root;
    this.dirty = { base: false, overlay: false };
    this.frame = 0;
    /** @type {[Pixels, Pixels]} */
    this.pixels = [new Pixels(), new Pixels()];
    /** @type {Set<(what: Trait) => void>} */
    this.watchers = new Set();
    /** @type {Dragging} */
    this.dragging = "pan";
    this.stopPreparing = () => {};
    this.ask = ask;
    this.second = second;
    /** @type {Tiles | null} */
    this.tiles = null;
    /** @type {Highlight | null} */
    this.selected = null;
    /** @type {Highlight | null} */
    this.hovered = null;
    /** @type {Area | null} */
    this.measured = null;
    /** @type {Area | null} the stretch that zooming will show */
    this.rubber = null;
    /** @type {number | null} where the pointer is on the axis */
    this.cursor = null;
    this.switches = new OverlapSwitches(this, ask);
    this.details = new Details(this, second);
    this.load(model);

    root.classList.add("ss-timeline");
    this.toolbar = new Toolbar(root, this);
    this.stage = buildStage(root, model);
    this.heads = new Heads(this.stage.box, this);
    this.panel = new Panel(root, this);
    this.tooltip = new Tooltip(root);
    this.stopListening = [
      attach(this.stage.overlay, this),
      watchTheme(() => this.applyTheme()),
      watchPrint(() => this.print(), () => this.applyTheme()),
    ];
    // What is out of sight is not drawn: twenty timelines in one notebook cost as much as those that are seen.
    this.seen = isNear(root);
    this.sight = new IntersectionObserver(([entry]) => this.see(entry.isIntersecting), { rootMargin: `${NEAR}px` });
    this.sight.observe(root);
    this.resizes = new ResizeObserver(() => this.resized());
    this.applyTheme();
    this.resizes.observe(this.stage.box);
  }

  /**
   * Take a model, and forget all that belongs to another.
   *
   * @param {Model} model
   */
  load(model) {
    this.stopPreparing();
    /** @type {Model} */
    this.model = model;
    this.look = "";
    /** @type {Ranking} */
    this.ranking = rankNames(model);
    this.tiles?.end();
    const Tiles = this.second?.Tiles;
    this.tiles = model.groups[0]?.tiled && this.ask && Tiles ? new Tiles(this, this.ask, model) : null;
    /** @type {Tile | undefined} */
    this.tile = this.tiles?.whole;
    /** @type {Part[]} */
    this.parts = this.tile?.parts ?? model.groups.map((group) => ({ group, lanes: buildLanes(group) }));
    /** @type {Part[]} */
    this.wholeParts = this.parts;
    /** @type {Arrangement} */
    this.arrangement = new Arrangement(model.groups.length, gpuNames(model, false));
    this.selected = this.hovered = this.measured = this.rubber = this.cursor = null;
    /** @type {Viewer} */
    this.viewer = new Viewer(this);
    /** @type {Pointing} */
    this.pointing = new Pointing(this);
    /** @type {Choosing} */
    this.choosing = new Choosing(this);
    /** @type {Finding} */
    this.finding = new Finding(this);
    this.stopPreparing = whenIdle([
      ...model.groups.map((group) => () => group.operation),
      ...model.groups.flatMap((group) => [
        () => launchedNames(group), () => ofCorrelation(group, 0), () => ofOperation(group, 0),
      ]),
    ]);
  }

  /**
   * Show another model, of spans that came later or of another run, in the same way as far as it has the same engines.
   *
   * @param {Model} model
   */
  replace(model) {
    const state = readState(this);
    const known = new Set([...this.model.groups.map(({ label }) => label), ...gpuNames(this.model, true)]);
    /** @param {Iterable<string>} names */
    const unknown = (names) => [...names].filter((name) => !known.has(name));
    state.engines.push(...unknown(model.groups.map(({ label }) => label)));
    this.load(model);
    state.collapsed.push(...unknown(this.arrangement.closed));
    this.stage.describe(model);
    this.tooltip.hide();
    this.panel.hide();
    this.applyTheme(this.theme?.dark);
    applyState(this, state);
    this.switches.askForPaths();
  }

  /** The model of all of the runs: of a long trace, the overview. */
  get whole() {
    return this.tiles ? this.tiles.whole.model : this.model;
  }

  /**
   * Draw another part of a long trace.
   *
   * @param {Tile} tile
   */
  draw(tile) {
    if (this.tile === tile) return;
    this.tile = tile;
    this.model = tile.model;
    this.parts = tile.parts;
    this.hovered = null;
    this.pointing.key = "";
    if (this.layout) this.layOut(this.layout.width);
    const { selected } = this;
    if (!this.tiles?.select() && selected) this.selected = { ...selected, span: -1, members: [] };
    this.redraw();
  }

  destroy() {
    this.tiles?.end();
    this.resizes.disconnect();
    this.sight.disconnect();
    this.stopListening.forEach((stop) => stop());
    this.stopPreparing();
    this.viewer.animation.stop();
    cancelAnimationFrame(this.frame);
    this.tooltip.hide();
    this.root.replaceChildren();
  }

  /**
   * Call `changed(what)` whenever "range", "selection" or "engines" changes. Returns a function that stops it.
   *
   * @param {(what: Trait) => void} changed
   */
  watch(changed) {
    this.watchers.add(changed);
    return () => this.watchers.delete(changed);
  }

  /** @param {Trait} what */
  tell(what) {
    for (const changed of this.watchers) changed(what);
  }

  // ---- frames

  /** @param {boolean} dark */
  applyTheme(dark = prefersDark()) {
    if (!this.root.isConnected) return; // Styles are known only in a document; the resize observer comes back then.
    this.root.classList.toggle("ss-dark", dark);
    // Pages change the classes of their body for many reasons; what looks the same is not drawn again, and keeps its focus.
    const look = readLook(this.root);
    if (JSON.stringify(look) === this.look) return;
    this.look = JSON.stringify(look);
    /** @type {Theme} */
    this.theme = themeOf(look, this.model, this.ranking.ranks);
    this.switches.applyTheme(this.theme);
    this.toolbar.fill();
    this.resize();
  }

  /** What has the size that it was drawn for is not drawn again, as when it is first observed. */
  resized() {
    const drawn = this.layout?.width === this.stage.box.clientWidth && this.dpr === (devicePixelRatio || 1);
    if (!drawn) this.resize();
  }

  resize() {
    // While JupyterLab changes its theme the page has no width; the one it had will come back.
    const width = this.stage.box.clientWidth || this.layout?.width;
    if (!width) return;
    if (!this.theme) {
      this.applyTheme();
      return;
    }
    /** @type {number} */
    this.dpr = devicePixelRatio || 1;
    this.layOut(width);
    this.stage.size(width, this.layout, this.dpr);
    this.heads.place();
    /** @type {Int32Array} */
    this.pairs = new Int32Array(2 * entryCapacity(Math.ceil(width * this.dpr)));
    /** @type {Float32Array} */
    this.labelWidths = new Float32Array(this.model.names.length).fill(NaN);
    /** @type {CanvasPattern | string} */
    this.hatch = hatchPattern(this.stage.baseContext, this.theme, this.dpr);
    // A canvas that has been sized is blank; drawing it now and not in the next frame keeps it from flashing.
    this.drawNow();
  }

  /** @param {number} width */
  layOut(width) {
    const { arrangement, viewer } = this;
    /** @param {number} index */
    const atOnceOf = (index) => this.switches.shows.overlap && this.model.groups[index].activities.length > 0;
    /**
     * @param {number} index
     * @param {number} of
     */
    const isClosed = (index, of) => arrangement.closed.has(gpuName(this.model.groups[index], of));
    const more = { collapsed: arrangement.collapsed, ownAxes: viewer.mode === "scale", atOnceOf, isClosed };
    /** @type {Layout} */
    this.layout = buildLayout(this.parts, width, arrangement.shown, more);
  }

  /** @param {boolean} base */
  redraw(base = true) {
    this.dirty.base ||= base;
    this.dirty.overlay = true;
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      if (this.layout) this.drawDirty();
    });
  }

  drawNow() {
    if (!this.layout) return;
    this.dirty.base = this.dirty.overlay = true;
    this.drawDirty();
  }

  /** @param {boolean} seen */
  see(seen) {
    this.seen = seen;
    if (seen && this.layout) this.drawDirty();
  }

  /** Paper is white, and shows all. */
  print() {
    this.seen = true;
    this.pointing.leave();
    this.applyTheme(false);
    if (!this.layout) return;
    this.drawNow();
    const { axis, groups, height } = this.layout;
    const tops = groups.flatMap(({ top, sections }) => [top, ...sections.flatMap((section) => section.top ?? [])]);
    this.stage.paper([0, axis, ...tops.slice(1), height], this.dpr);
  }

  drawDirty() {
    if (!this.seen) return;
    this.tiles?.update();
    if (this.dirty.base) this.pointing.follow();
    const scene = buildScene(this);
    if (this.dirty.base) drawBase(this.stage.baseContext, scene);
    if (this.dirty.overlay) drawOverlay(this.stage.overlayContext, scene, this);
    this.details.drawn(scene);
    this.dirty.base = this.dirty.overlay = false;
    this.stage.show();
  }

  // ---- what other files, and pages, ask for

  get view() {
    return this.viewer.view;
  }

  /** @param {View} view */
  set view(view) {
    this.viewer.view = view;
  }

  get bounds() {
    return this.viewer.bounds;
  }

  get shown() {
    return this.finding.shown;
  }

  /** @param {View} view */
  setView(view) {
    this.viewer.set(view);
  }

  reset() {
    this.viewer.reset();
  }

  /**
   * @param {number} group
   * @param {number} span
   */
  select(group, span) {
    this.choosing.select(group, span);
  }

  clear() {
    this.choosing.clear();
  }

  /**
   * Align the engines on the axis; `mode` is a key of ALIGNMENTS.
   *
   * @param {AlignMode} mode
   */
  align(mode) {
    const operation = mode === "operation" ? this.choosing.operation : null;
    const known = mode !== "operation" || operation !== null;
    if (operation !== null && this.tiles) this.tiles.tell({ type: "starts", operation }).then((found) => found && this.alignAt(mode, found.starts));
    else if (known) this.alignAt(mode, operation);
    else this.stage.nudge("Select an operation first: click its bar, or press N");
    this.toolbar.refresh();
  }

  /**
   * @param {AlignMode} mode
   * @param {number | (number | null)[] | null} operation
   */
  alignAt(mode, operation) {
    this.viewer.align(mode, operation);
    this.toolbar.refresh();
    this.resize();
  }

  /**
   * Change which engines are shown and how, and lay them out anew.
   *
   * @param {() => void} change
   */
  arrange(change) {
    change();
    this.viewer.align(this.viewer.mode, this.viewer.operation);
    this.toolbar.refresh();
    this.resize();
    this.tell("engines");
  }

  /**
   * Collapse a GPU, or expand it.
   *
   * @param {number} group
   * @param {number} of
   */
  fold(group, of) {
    this.arrange(() => this.arrangement.fold(gpuName(this.model.groups[group], of)));
  }

  /** Expand all GPUs, or collapse them where none is collapsed. */
  foldAll() {
    const { arrangement, model } = this;
    const names = gpuNames(model, true);
    if (names.length) this.arrange(() => (arrangement.closed = new Set(arrangement.closed.size ? [] : names)));
  }

  /**
   * What is shown, as plain data (state.js); setting it shows it again.
   *
   * @returns {State}
   */
  get state() {
    return readState(this);
  }

  /** @param {Partial<State>} state */
  set state(state) {
    applyState(this, state);
  }

  /** @param {Dragging} mode */
  setDragging(mode) {
    this.dragging = mode;
    this.toolbar.refresh();
  }

  /**
   * Measure a stretch of the axis, in all rows, or in those of an area: {top, bottom, rows}.
   *
   * @param {number} from
   * @param {number} to
   * @param {Pick<Area, "top" | "bottom">} area
   */
  measureStretch(from, to, area = {}) {
    this.choosing.clear();
    this.measured = { from: Math.min(from, to), to: Math.max(from, to), ...area };
    this.panel.showMeasure(this.measured);
    this.redraw(false);
  }

  /**
   * Where a span is drawn, in CSS pixels of the stage: {x, y, width, height}; null if it has no place.
   *
   * @param {number} group
   * @param {number} span
   */
  locate(group, span) {
    const place = rowOf(buildScene(this), group, span);
    if (!place) return null;
    const { view, alignments } = this.viewer;
    const { start, end } = this.model.groups[group];
    const [x, right] = [start[span], end[span]].map((time) => positionOf(view, this.layout.plot, onAxis(alignments[group], time)));
    return { x, y: place.row.y, width: right - x, height: place.row.height };
  }
}
