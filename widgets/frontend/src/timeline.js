// The timeline: holds the state, and asks for a frame when something changed.

import { Animation } from "./animation.js";
import { BusyTimes } from "./busy.js";
import { launchedNames } from "./decode.js";
import { describeGroup, describeSpan } from "./describe.js";
import { drawBase } from "./draw.js";
import { shownSpans } from "./filter.js";
import { frameGeometry, positionOf, timeAt } from "./geometry.js";
import { ofCorrelation, ofOperation } from "./grouping.js";
import { whenIdle } from "./idle.js";
import { attach } from "./interact.js";
import { highlightExtent, highlightOf } from "./join.js";
import { buildLayout, hitTest } from "./layout.js";
import { entryCapacity, spanAt } from "./lod.js";
import { describeOverlap } from "./overlap.js";
import { drawOverlay } from "./overlay.js";
import { rankNames } from "./palette.js";
import { Panel } from "./panel.js";
import { rowOf } from "./arrows.js";
import { clampView, fitView, fullView, panView, zoomView } from "./scale.js";
import { snapToEdge } from "./snap.js";
import { hatchPattern, swatchOf } from "./spans.js";
import { buildStage } from "./stage.js";
import { OverlapSwitches } from "./switches.js";
import { prefersDark, readTheme, watchPrint, watchTheme } from "./theme.js";
import { Toolbar } from "./toolbar.js";
import { Tooltip } from "./tooltip.js";
import { buildLanes } from "./tracks.js";

export class Timeline {
  /** @param {HTMLElement} root an empty element @param model what `decode` returns @param ask gets the critical paths, where they come later */
  constructor(root, model, ask = null) {
    this.root = root;
    this.model = model;
    this.ranking = rankNames(model);
    this.bounds = fullView(model.extent);
    this.view = this.bounds;
    this.parts = model.groups.map((group) => ({
      group, lanes: buildLanes(group, model.kinds), busy: new BusyTimes(group, model.kinds),
    }));
    this.shown = null;
    this.selected = this.hovered = this.measure = this.cursor = null;
    this.hoveredKey = "";

    this.overlap = new OverlapSwitches(this, ask);

    root.classList.add("ss-timeline");
    this.toolbar = new Toolbar(root, {
      onFilter: (filter) => this.setFilter(filter),
      onZoom: (factor) => this.zoomBy(factor),
      onReset: () => this.reset(),
    }, this.overlap);
    this.stage = buildStage(root, model);
    this.panel = new Panel(root, { onClose: () => this.clear(), onFit: () => this.fitSelection() });
    this.tooltip = new Tooltip(root);
    this.animation = new Animation((view) => this.setView(view));

    this.dirty = { base: false, overlay: false };
    this.frame = 0;
    this.stopListening = [
      attach(this.stage.overlay, this),
      watchTheme(() => this.applyTheme()),
      watchPrint(() => this.applyTheme(false), () => this.applyTheme()),
      whenIdle(model.groups.flatMap((group) => [
        () => ofCorrelation(group, 0), () => ofOperation(group, 0), () => launchedNames(model, group),
      ])),
    ];
    this.resizes = new ResizeObserver(() => this.resize());
    this.applyTheme();
    this.resizes.observe(this.stage.box);
  }

  destroy() {
    this.resizes.disconnect();
    this.stopListening.forEach((stop) => stop());
    this.animation.stop();
    cancelAnimationFrame(this.frame);
    this.tooltip.hide();
    this.root.replaceChildren();
  }

  // ---- frames

  applyTheme(dark = prefersDark()) {
    if (!this.root.isConnected) return; // Styles are known only in a document; the resize observer comes back then.
    this.root.classList.toggle("ss-dark", dark);
    this.theme = readTheme(this.root, this.model, this.ranking.ranks);
    this.overlap.applyTheme(this.theme);
    this.toolbar.fill(this.model, this.ranking, this.theme);
    this.resize();
  }

  resize() {
    // While JupyterLab changes its theme the page has no width; the one it had will come back.
    const width = this.stage.box.clientWidth || this.layout?.width;
    if (!width) return;
    if (!this.theme) {
      this.applyTheme();
      return;
    }
    this.dpr = window.devicePixelRatio || 1;
    this.layout = buildLayout(this.parts, width, (index) => this.overlap.shows.overlap && this.model.groups[index].activity !== null);
    this.stage.size(width, this.layout.height, this.dpr);
    this.entries = new Int32Array(2 * entryCapacity(Math.ceil(width * this.dpr)));
    this.labelWidths = new Float32Array(this.model.names.length).fill(NaN);
    this.hatch = hatchPattern(this.stage.baseContext, this.theme, this.dpr);
    // A canvas that has been sized is blank; drawing it now and not in the next frame keeps it from flashing.
    this.drawNow();
  }

  redraw(base = true) {
    this.dirty.base ||= base;
    this.dirty.overlay = true;
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      this.drawDirty();
    });
  }

  drawNow() {
    if (!this.layout) return;
    this.dirty.base = this.dirty.overlay = true;
    this.drawDirty();
  }

  drawDirty() {
    const scene = this.scene();
    if (this.dirty.base) drawBase(this.stage.baseContext, scene);
    if (this.dirty.overlay) drawOverlay(this.stage.overlayContext, scene, this);
    this.dirty.base = this.dirty.overlay = false;
  }

  scene() {
    const { model, layout, view, bounds, theme, parts: groups, shown, entries, labelWidths, hatch, dpr, overlap } = this;
    const geometry = frameGeometry(view, layout, dpr);
    return { model, layout, view, bounds, theme, groups, shown, entries, labelWidths, hatch, geometry, overlap };
  }

  // ---- view

  setView(view) {
    this.view = clampView(view, this.bounds);
    this.redraw();
  }

  zoomAt(x, factor) {
    this.animation.stop();
    this.setView(zoomView(this.view, timeAt(this.view, this.layout.plot, x), factor, this.bounds));
  }

  zoomBy(factor) {
    const { t0, t1 } = this.animation.target ?? this.view;
    const anchor = this.cursor !== null && this.cursor > t0 && this.cursor < t1 ? this.cursor : (t0 + t1) / 2;
    this.animation.run(this.view, zoomView({ t0, t1 }, anchor, factor, this.bounds));
  }

  panPixels(pixels) {
    this.animation.stop();
    const { left, right } = this.layout.plot;
    this.setView(panView(this.view, (pixels / (right - left)) * (this.view.t1 - this.view.t0), this.bounds));
  }

  panShare(share) {
    const from = this.animation.target ?? this.view;
    this.animation.run(this.view, panView(from, share * (from.t1 - from.t0), this.bounds));
  }

  reset() {
    this.animation.run(this.view, this.bounds);
  }

  fitSelection() {
    if (!this.selected) return;
    this.animation.run(this.view, fitView(...highlightExtent(this.model, this.selected), this.bounds));
  }

  centreOverview(x) {
    const middle = timeAt(this.bounds, this.layout.plot, x);
    this.setView(panView(this.view, middle - (this.view.t0 + this.view.t1) / 2, this.bounds));
  }

  // ---- pointer

  dragMode({ y }, shift) {
    const { area } = hitTest(this.layout, y);
    if (area === "overview") return "overview";
    return shift || area === "axis" ? "measure" : "pan";
  }

  /** The span at a point: {group, span} or null. */
  pick({ x, y }) {
    const { plot } = this.layout;
    const hit = hitTest(this.layout, y);
    if (hit.area !== "lane" || x < plot.left || x > plot.right) return null;
    const { track } = hit.row;
    const pitch = (this.view.t1 - this.view.t0) / (plot.right - plot.left);
    const k = spanAt(track, timeAt(this.view, plot, x), pitch);
    return k < 0 ? null : { group: hit.group.index, span: track.spans[k] };
  }

  hover(at) {
    const { plot } = this.layout;
    const hit = hitTest(this.layout, at.y);
    const inside = at.x >= plot.left && at.x <= plot.right && hit.area !== "overview";
    this.cursor = inside ? timeAt(this.view, plot, at.x) : null;
    const found = this.pick(at);
    const key = found ? `${found.group}/${found.span}` : hit.area === "header" ? `header/${hit.group.index}` : "";
    if (key !== this.hoveredKey) {
      this.hoveredKey = key;
      this.hovered = found && highlightOf(this.model, found.group, found.span);
    }
    this.showTip(found, hit, at);
    this.redraw(false);
  }

  showTip(found, hit, { clientX, clientY }) {
    if (found) {
      const group = this.model.groups[found.group];
      const text = describeSpan(this.model, group, found.span);
      this.tooltip.show(text, swatchOf(this, group, found.span).fill, clientX, clientY);
    } else if (hit.area === "at once") {
      const told = describeOverlap(this.scene(), hit.group.index, this.cursor);
      if (told) this.tooltip.show(told, told.fill, clientX, clientY);
      else this.tooltip.hide();
    } else if (hit.area === "header") {
      this.tooltip.show(describeGroup(this.model, this.model.groups[hit.group.index]), null, clientX, clientY);
    } else {
      this.tooltip.hide();
    }
  }

  leave() {
    this.cursor = this.hovered = null;
    this.hoveredKey = "";
    this.tooltip.hide();
    this.redraw(false);
  }

  click(at) {
    const found = this.pick(at);
    if (found) this.select(found.group, found.span);
    else this.clear();
  }

  measureBetween(from, to) {
    const [start, end] = [from, to].map((at) => snapToEdge(this, at));
    this.measure = { from: start, to: end };
    this.cursor = this.selected = this.hovered = null;
    this.tooltip.hide();
    this.panel.showMeasure(this.parts, this.measure);
    this.redraw(false);
  }

  nudge() {
    this.stage.nudge();
  }

  // ---- selection and filter

  select(group, span) {
    this.measure = null;
    this.selected = highlightOf(this.model, group, span);
    const onDevice = this.ranking.ranks[this.selected.nameCode] >= 0;
    const fill = onDevice ? this.theme.operators[this.selected.nameCode].fill : this.theme.soft;
    this.panel.showOperation(this.model, this.selected, fill);
    this.redraw(false);
  }

  /** The next or previous operation of the program, in the engine where the selection was made. */
  selectNeighbour(step) {
    const index = this.selected?.group ?? 0;
    const group = this.model.groups[index];
    const wanted = this.selected?.operation >= 0 ? this.selected.operation + step : 0;
    const span = ofOperation(group, wanted).find((i) => this.model.kinds.isDevice(group.kind[i]));
    if (span === undefined) return;
    this.select(index, span);
    if (group.start[span] < this.view.t0 || group.end[span] > this.view.t1) {
      const middle = (group.start[span] + group.end[span]) / 2;
      this.animation.run(this.view, panView(this.view, middle - (this.view.t0 + this.view.t1) / 2, this.bounds));
    }
  }

  clear() {
    this.selected = this.measure = null;
    this.panel.hide();
    this.redraw(false);
  }

  setFilter(filter) {
    this.shown = shownSpans(this.model, filter);
    this.parts.forEach(({ lanes }, index) => {
      for (const { rows } of lanes) for (const track of rows) track.longest.rebuild(this.shown?.[index] ?? null);
    });
    this.redraw();
    return !this.shown || this.shown.some((spans) => spans.includes(1));
  }

  /** Where a span is drawn, in CSS pixels of the stage: {x, y, width, height}; null if it has no place. */
  locate(group, span) {
    const place = rowOf(this.scene(), group, span);
    if (!place) return null;
    const { start, end } = this.model.groups[group];
    const x = positionOf(this.view, this.layout.plot, start[span]);
    const width = positionOf(this.view, this.layout.plot, end[span]) - x;
    return { x, y: place.row.y, width, height: place.row.height };
  }
}
