// The stretch of the axis that is in view: zoom, pan, and how the engines are aligned on the axis.

import { alignmentsOf, onAxis, reachOf } from "./align.js";
import { Animation } from "./animation.js";
import { timeAt, timeWithin } from "./geometry.js";
import { clampView, fitView, fullView, panView, zoomView } from "./scale.js";

/**
 * @import { AlignMode, Alignment } from "./align.js"
 * @import { Arrangement } from "./arrangement.js"
 * @import { Layout } from "./layout.js"
 * @import { Model } from "./model.js"
 * @import { View } from "./scale.js"
 * @import { Area } from "./totals.js"
 * @import { Trait } from "./traits.js"
 */

/**
 * The timeline as the viewer knows it.
 *
 * @typedef {object} Owner
 * @property {Model} whole
 * @property {Model} model
 * @property {Pick<Arrangement, "shown">} arrangement
 * @property {Pick<Layout, "plot">} layout
 * @property {number | null} cursor
 * @property {Area | null} rubber
 * @property {(base?: boolean) => void} redraw
 * @property {(what: Trait) => void} tell
 */

const LEAST_PIXELS = 24;

export class Viewer {
  /** @param {Owner} timeline */
  constructor(timeline) {
    this.timeline = timeline;
    this.animation = new Animation((view) => this.set(view));
    /** @type {AlignMode} */
    this.mode = "time";
    /** @type {number | (number | null)[] | null} */
    this.operation = null;
    this.align("time");
  }

  /**
   * Align the engines anew. What was shown whole stays whole; where the scale stays, so does the length of time in view.
   *
   * @param {AlignMode} mode
   * @param {number | (number | null)[] | null} operation
   */
  align(mode, operation = null) {
    const { whole: model, arrangement } = this.timeline;
    const whole = !this.view || this.isWhole();
    const sameScale = this.mode !== "scale" && mode !== "scale";
    [this.mode, this.operation] = [mode, operation];
    /** @type {Alignment[]} */
    this.alignments = alignmentsOf(model, mode, operation, arrangement.shown);
    /** @type {View} */
    this.home = fullView(...reachOf(model, this.alignments, arrangement.shown));
    const early = fullView(...reachOf(model, this.alignments, arrangement.shown, true));
    /** @type {View} */
    this.bounds = { t0: Math.min(early.t0, this.home.t0), t1: this.home.t1 };
    this.set(whole || !sameScale ? this.home : this.view);
  }

  isWhole() {
    const { home, view } = this;
    return Math.abs(view.t0 - home.t0) + Math.abs(view.t1 - home.t1) < 0.005 * (home.t1 - home.t0);
  }

  /** @param {View} view */
  set(view) {
    /** @type {View} */
    this.view = clampView(view, this.bounds);
    this.timeline.redraw();
    this.timeline.tell("range");
  }

  /**
   * Show [start, end] of the axis at once; null for everything.
   *
   * @param {[number, number] | null} range
   */
  show(range) {
    this.animation.stop();
    const [t0, t1] = range ?? [NaN, NaN];
    this.set(Number.isFinite(t0) && t1 > t0 ? { t0, t1 } : this.home);
  }

  get plotWidth() {
    const { left, right } = this.timeline.layout.plot;
    return right - left;
  }

  /**
   * @param {number} x
   * @param {number} factor
   */
  zoomAt(x, factor) {
    this.animation.stop();
    this.set(zoomView(this.view, timeAt(this.view, this.timeline.layout.plot, x), factor, this.bounds));
  }

  /** @param {number} factor */
  zoomBy(factor) {
    const { t0, t1 } = this.animation.target ?? this.view;
    const { cursor } = this.timeline;
    const anchor = cursor !== null && cursor > t0 && cursor < t1 ? cursor : (t0 + t1) / 2;
    this.glide(zoomView({ t0, t1 }, anchor, factor, this.bounds));
  }

  /** @param {number} pixels */
  panPixels(pixels) {
    this.animation.stop();
    this.set(panView(this.view, (pixels / this.plotWidth) * (this.view.t1 - this.view.t0), this.bounds));
  }

  /** @param {number} share */
  panShare(share) {
    const from = this.animation.target ?? this.view;
    this.glide(panView(from, share * (from.t1 - from.t0), this.bounds));
  }

  reset() {
    this.glide(this.home);
  }

  /** @param {View} view */
  glide(view) {
    this.animation.run(this.view, clampView(view, this.bounds));
  }

  /**
   * Zoom to a stretch of the axis, with some air on both sides. Tells whether the view changes.
   *
   * @param {number} start
   * @param {number} end
   * @param {number} [margin]
   */
  fit(start, end, margin) {
    const wanted = fitView(start, end, this.bounds, margin);
    const { t0, t1 } = this.animation.target ?? this.view;
    const changes = Math.abs(wanted.t0 - t0) + Math.abs(wanted.t1 - t1) > 1e-3 * (t1 - t0);
    this.glide(wanted);
    return changes;
  }

  /**
   * Bring a span into view: moved, and zoomed in where the span would be too narrow to see; of a longer one its start.
   *
   * @param {number} group
   * @param {number} span
   */
  reveal(group, span) {
    const { start, end } = this.timeline.model.groups[group];
    this.revealStretch(group, start[span], end[span]);
  }

  /**
   * @param {number} group
   * @param {number} start
   * @param {number} end
   */
  revealStretch(group, start, end) {
    const [from, to] = [start, end].map((time) => onAxis(this.alignments[group], time));
    const { t0, t1 } = this.view;
    const wide = ((to - from) / (t1 - t0)) * this.plotWidth >= 3;
    const longer = to - from > t1 - t0;
    if (wide && (longer ? from < t1 && to > t0 : from >= t0 && to <= t1)) return;
    const width = wide ? t1 - t0 : Math.min(t1 - t0, (Math.max(to - from, 1) * this.plotWidth) / LEAST_PIXELS);
    const left = longer ? from - 0.1 * width : (from + to - width) / 2;
    this.glide({ t0: left, t1: left + width });
  }

  /**
   * Mark the stretch that zooming will show, from one place of the canvas to another.
   *
   * @param {number} from
   * @param {number} to
   */
  stretchRubber(from, to) {
    const { plot } = this.timeline.layout;
    const [start, end] = [from, to].map((x) => timeWithin(this.view, plot, x));
    this.timeline.rubber = { from: start, to: end };
    this.timeline.redraw(false);
  }

  zoomToRubber() {
    const { rubber } = this.timeline;
    this.timeline.rubber = null;
    if (rubber) this.glide({ t0: Math.min(rubber.from, rubber.to), t1: Math.max(rubber.from, rubber.to) });
    this.timeline.redraw(false);
  }

  /** @param {number} x */
  centreOverview(x) {
    const middle = timeAt(this.home, this.timeline.layout.plot, x);
    this.set(panView(this.view, middle - (this.view.t0 + this.view.t1) / 2, this.bounds));
  }
}
