// Long timelines: the browser draws what it has, and asks Python (tiles.py) for what is missing when the view rests.

import { offAxis } from "./align.js";
import { decodePart } from "./decode.js";
import { FOLLOWING } from "./stage.js";
import { buildLanes } from "./tracks.js";

/**
 * @import { Alignment } from "./align.js"
 * @import { Arrangement } from "./arrangement.js"
 * @import { Refusal } from "./asking.js"
 * @import { Choosing } from "./choosing.js"
 * @import { Finding } from "./finding.js"
 * @import { Answers, Ask, Filter, Go, Questions, TileWindow } from "./messages.js"
 * @import { Model } from "./model.js"
 * @import { View } from "./scale.js"
 * @import { Stage } from "./stage.js"
 * @import { Shows } from "./switches.js"
 * @import { Part } from "./tracks.js"
 * @import { Viewer } from "./viewing.js"
 */

/**
 * What can be drawn; `key` says as the answer to what, and `windows` which stretch of each group's time it holds.
 *
 * @typedef {object} Tile
 * @property {Model} model
 * @property {Part[]} parts
 * @property {Uint8Array[] | null} shown
 * @property {string} [key]
 * @property {(TileWindow | null)[]} [windows]
 */

/** @typedef {typeof Tiles} TilesClass */

/** @typedef {Partial<Go> & Pick<Go, "how">} StepQuestion a step; where it begins is known */

/**
 * The timeline as its tiles know it.
 *
 * @typedef {object} Owner
 * @property {Model} model
 * @property {View} view
 * @property {number} dpr
 * @property {Tile} [tile] the one that is drawn
 * @property {Pick<Viewer, "alignments" | "plotWidth" | "revealStretch">} viewer
 * @property {Pick<Arrangement, "shown">} arrangement
 * @property {Pick<Finding, "sought" | "at">} finding
 * @property {{ shows: Shows }} switches
 * @property {Pick<Stage, "nudge">} stage
 * @property {Pick<Choosing, "select" | "clear">} choosing
 * @property {(tile: Tile) => void} draw
 * @property {() => void} redraw
 */

const REST_MS = 120;
const AGAIN_MS = 2000;
const MOST_WAIT_MS = 60_000;
const MOST_KEPT = 12;

export class Tiles {
  /**
   * @param {Owner} timeline
   * @param {Ask} ask answers what tile_questions.py can
   * @param {Model} model
   */
  constructor(timeline, ask, model) {
    this.timeline = timeline;
    this.ask = ask;
    /** @type {Map<string, Tile>} */
    this.kept = new Map();
    this.wait = AGAIN_MS;
    this.turn = 0;
    this.ended = this.loading = this.followed = false;
    /** @type {Promise<unknown> | null} */
    this.going = null;
    /** @type {string | null} the question that is answered, or waits */
    this.key = null;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.timer = undefined;
    this.whole = this.entry(model);
    /** @type {{ group: number, row: number } | null} group and row in the trace of what is selected, wherever it is loaded. */
    this.held = null;
  }

  /**
   * What can be drawn; `key` says as the answer to what, and `windows` which stretch of each group's time it holds.
   *
   * @param {Model} model
   * @param {string} [key]
   * @param {{ windows?: (TileWindow | null)[], find?: Filter | null }} [question]
   * @returns {Tile}
   */
  entry(model, key, { windows, find } = {}) {
    const parts = model.groups.map((group) => ({ group, lanes: buildLanes(group) }));
    const shown = find ? model.groups.map(({ hits, count }) => Uint8Array.from(hits ?? new Uint8Array(count), (found) => +(found > 0))) : null;
    if (shown) for (const { group, lanes } of parts) for (const { rows } of lanes) for (const track of rows) track.longest.rebuild(shown[group.index]);
    return { model, parts, shown, key, windows };
  }

  /** What would be sharp in this view: of each shown group [level, reach, index], which tiles.py explains. */
  get question() {
    const { viewer, arrangement, finding, switches, dpr } = this.timeline;
    /** @type {(TileWindow | null)[]} */
    const windows = viewer.alignments.map((alignment, index) => {
      if (!arrangement.shown.includes(index)) return null;
      const [t0, t1] = this.stretch(alignment);
      const reach = Math.ceil(Math.log2(t1 - t0));
      // Four to eight marks a pixel: fewer would share it unevenly.
      return [Math.max(0, Math.floor(Math.log2((t1 - t0) / (viewer.plotWidth * dpr))) - 2), reach, Math.floor(t0 / 2 ** reach)];
    });
    return { type: /** @type {const} */ ("tile"), windows, find: finding.sought, paths: switches.shows.path };
  }

  /**
   * @param {Alignment} alignment
   * @returns {[number, number]}
   */
  stretch(alignment) {
    const { t0, t1 } = this.timeline.view;
    return [offAxis(alignment, t0), offAxis(alignment, t1)];
  }

  /** Called before each frame: draw the best that is there, and ask for better once the view rests. */
  update() {
    const { question, timeline } = this;
    const key = JSON.stringify(question);
    const known = this.kept.get(key);
    if (!known && key === this.key && this.holdsView(timeline.tile)) return;
    clearTimeout(this.timer);
    this.key = key;
    if (known) timeline.draw(known);
    else {
      if (!this.holdsView(timeline.tile)) timeline.draw(this.whole);
      this.timer = setTimeout(() => this.load(question, key), REST_MS);
    }
  }

  /** @param {Pick<Tile, "windows">} [tile] */
  holdsView({ windows } = {}) {
    const { arrangement, viewer } = this.timeline;
    return !windows || arrangement.shown.every((group) => {
      const [, reach, index] = windows[group] ?? [0, 0, NaN];
      const [t0, t1] = this.stretch(viewer.alignments[group]);
      return index * 2 ** reach <= t0 && t1 <= (index + 2) * 2 ** reach;
    });
  }

  /**
   * Ask for one tile at a time: where the view rests when the answer is there is asked for next.
   *
   * @param {Tiles["question"]} question
   * @param {string} key
   */
  async load(question, key) {
    if (this.loading) return;
    this.loading = true;
    const { model } = this.whole;
    let wait = 0;
    const { stage } = this.timeline;
    const first = question.paths && !this.followed;
    if (first) stage.nudge(...FOLLOWING);
    try {
      const { header, block } = await this.ask(question);
      if (first) stage.nudge("");
      this.followed ||= question.paths;
      this.wait = AGAIN_MS;
      const groups = header.groups.map((group, index) => (group ? decodePart(model, index, group, block) : model.groups[index]));
      this.kept.set(key, this.entry({ ...model, groups }, key, question));
    } catch (error) {
      const { message, refused } = /** @type {Refusal} */ (error);
      // What Python refuses it refuses again.
      if (refused) this.kept.set(key, this.whole);
      else this.wait = Math.min(2 * (wait = this.wait), MOST_WAIT_MS);
      stage.nudge(`${refused ? "No detail" : "The detail is asked for again"}: ${message}`);
    }
    const [oldest] = this.kept.keys();
    if (this.kept.size > MOST_KEPT) this.kept.delete(oldest);
    if (this.ended) return;
    setTimeout(() => {
      this.loading = false;
      this.key = null;
      this.timeline.redraw();
    }, wait);
  }

  /** Ask nothing more. */
  end() {
    this.ended = true;
    clearTimeout(this.timer);
  }

  /**
   * Ask something; null where no answer comes, which the reader is told.
   *
   * @template {keyof Questions} Q
   * @param {{ type: Q } & Questions[Q]} question
   * @returns {Promise<Answers[Q] | null>}
   */
  async tell(question) {
    try {
      return (await this.ask(question)).header;
    } catch (error) {
      this.timeline.stage.nudge(`No answer: ${/** @type {Error} */ (error).message}`);
      return null;
    }
  }

  /**
   * Hold what is selected now. Steps that were asked for before lead nowhere any more.
   *
   * @param {Tiles["held"]} held
   */
  hold(held) {
    if (held?.row !== this.held?.row || held?.group !== this.held?.group || !held) this.turn++;
    this.held = held;
  }

  /**
   * Take a step, from where the step before it leads.
   *
   * @param {StepQuestion} question
   * @param {boolean} [reveal]
   */
  go(question, reveal) {
    const { turn } = this;
    return (this.going = Promise.resolve(this.going).then(() => turn === this.turn ? this.step(turn, question, reveal) : undefined));
  }

  /**
   * Select what a step leads to, wherever it lies in the trace, and bring it into view unless `reveal` is false.
   *
   * @param {number} turn
   * @param {StepQuestion} question
   * @param {boolean} reveal
   */
  async step(turn, question, reveal = true) {
    const { arrangement: { shown }, finding, viewer, choosing } = this.timeline;
    const { group = shown[0], row = -1 } = this.held ?? {};
    const found = await this.tell({ type: "go", group, span: row, shown, find: finding.sought, ...question });
    if (this.ended || turn !== this.turn || !found || found.span === undefined) return;
    choosing.clear();
    this.turn = turn;
    finding.at = found.position;
    this.held = { group: found.group, row: found.span };
    if (reveal) viewer.revealStretch(found.group, found.start, found.end);
    if (found.hidden) this.timeline.stage.nudge(`On a lane that is not drawn: ${found.hidden}`);
    this.select();
  }

  /** Select what is held, if it is loaded as one span. */
  select() {
    if (!this.held) return false;
    const { group, row } = this.held;
    const { span, merged } = this.timeline.model.groups[group];
    const place = span ? span.indexOf(row) : -1;
    const found = place >= 0 && merged?.[place] === 1;
    if (found) this.timeline.choosing.select(group, place);
    return found;
  }
}
