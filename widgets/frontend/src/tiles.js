// Long timelines: the browser draws what it has, and asks Python (tiles.py) for what is missing when the view rests.

import { offAxis } from "./align.js";
import { decodePart } from "./decode.js";
import { FOLLOWING } from "./stage.js";
import { buildLanes } from "./tracks.js";

const REST_MS = 120;
const AGAIN_MS = 2000;
const MOST_WAIT_MS = 60_000;
const MOST_KEPT = 12;

export class Tiles {
  /** @param {(question: object) => Promise<{header, block}>} ask answers what tile_questions.py can */
  constructor(timeline, ask, model) {
    Object.assign(this, { timeline, ask, kept: new Map(), wait: AGAIN_MS, going: null, turn: 0 });
    this.whole = this.entry(model);
    /** Group and row in the trace of what is selected, wherever it is loaded. */
    this.held = null;
  }

  /** What can be drawn; `key` says as the answer to what, and `windows` which stretch of each group's time it holds. */
  entry(model, key, { windows, find } = {}) {
    const parts = model.groups.map((group) => ({ group, lanes: buildLanes(group) }));
    const shown = find ? model.groups.map(({ hits, count }) => Uint8Array.from(hits ?? new Uint8Array(count), (found) => found > 0)) : null;
    if (shown) for (const { group, lanes } of parts) for (const { rows } of lanes) for (const track of rows) track.longest.rebuild(shown[group.index]);
    return { model, parts, shown, key, windows };
  }

  /** What would be sharp in this view: of each shown group [level, reach, index], which tiles.py explains. */
  get question() {
    const { viewer, arrangement, finding, overlap, dpr } = this.timeline;
    const windows = viewer.alignments.map((alignment, index) => {
      if (!arrangement.shown.includes(index)) return null;
      const [t0, t1] = this.stretch(alignment);
      const reach = Math.ceil(Math.log2(t1 - t0));
      // Four to eight marks a pixel: fewer would share it unevenly.
      return [Math.max(0, Math.floor(Math.log2((t1 - t0) / (viewer.plotWidth * dpr))) - 2), reach, Math.floor(t0 / 2 ** reach)];
    });
    return { type: "tile", windows, find: finding.sought, paths: overlap.shows.path };
  }

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

  holdsView({ windows }) {
    const { arrangement, viewer } = this.timeline;
    return !windows || arrangement.shown.every((group) => {
      const [, reach, index] = windows[group] ?? [0, 0, NaN];
      const [t0, t1] = this.stretch(viewer.alignments[group]);
      return index * 2 ** reach <= t0 && t1 <= (index + 2) * 2 ** reach;
    });
  }

  /** Ask for one tile at a time: where the view rests when the answer is there is asked for next. */
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
    } catch ({ message, refused }) {
      // What Python refuses it refuses again.
      if (refused) this.kept.set(key, this.whole);
      else this.wait = Math.min(2 * (wait = this.wait), MOST_WAIT_MS);
      stage.nudge(`${refused ? "No detail" : "The detail is asked for again"}: ${message}`);
    }
    if (this.kept.size > MOST_KEPT) this.kept.delete(this.kept.keys().next().value);
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

  /** Ask something; null where no answer comes, which the reader is told. */
  async tell(question) {
    try {
      return (await this.ask(question)).header;
    } catch (error) {
      this.timeline.stage.nudge(`No answer: ${error.message}`);
      return null;
    }
  }

  /** Hold what is selected now. Steps that were asked for before lead nowhere any more. */
  hold(held) {
    if (held?.row !== this.held?.row || held?.group !== this.held?.group || !held) this.turn++;
    this.held = held;
  }

  /** Take a step, from where the step before it leads. */
  go(...step) {
    const { turn } = this;
    return (this.going = Promise.resolve(this.going).then(() => turn === this.turn && this.step(turn, ...step)));
  }

  /** Select what a step leads to, wherever it lies in the trace, and bring it into view unless `reveal` is false. */
  async step(turn, question, reveal = true) {
    const { arrangement: { shown }, finding, viewer, choosing } = this.timeline;
    const { group = shown[0], row = -1 } = this.held ?? {};
    const found = await this.tell({ type: "go", group, span: row, shown, find: finding.sought, ...question });
    if (this.ended || turn !== this.turn || !(found?.span >= 0)) return;
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
    const { group, row } = this.held ?? {};
    const { span, merged } = this.timeline.model.groups[group] ?? {};
    const place = span ? span.indexOf(row) : -1;
    const found = place >= 0 && merged[place] === 1;
    if (found) this.timeline.choosing.select(group, place);
    return found;
  }
}
