// Switches of what the timeline shows besides the spans. What is switched is state of the timeline: `timeline.switches.shows`.

import { attachPaths } from "./critical_path.js";
import { aria, make, makeButton, makeSwatch, rove } from "./dom.js";
import { looksOf } from "./looks.js";
import { entriesOf } from "./records.js";
import { FOLLOWING } from "./stage.js";

/**
 * @import { Looks } from "./looks.js"
 * @import { Ask } from "./messages.js"
 * @import { Model } from "./model.js"
 * @import { Stage } from "./stage.js"
 * @import { Theme } from "./theme.js"
 * @import { Tiles } from "./tiles.js"
 * @import { Trait } from "./traits.js"
 */

/** @typedef {{ overlap: boolean, path: boolean, code: boolean, counters: boolean }} Shows */

/**
 * The timeline as the switches know it.
 *
 * @typedef {object} Owner
 * @property {Model} model
 * @property {Model} whole
 * @property {Tiles | null} tiles
 * @property {Pick<Stage, "nudge">} [stage] not there at first
 * @property {() => void} resize
 * @property {() => void} redraw
 * @property {(what: Trait) => void} tell
 */

/** @type {Record<keyof Shows, [string, string]>} */
const SWITCHES = {
  overlap: ["overlap", "Show what runs at once, idle time by its cause, and event waits (O)"],
  path: ["critical path", "Show what made each run as long as it was (C)"],
  code: ["by code", "Show which code takes the GPU's time (B)"],
  counters: ["counters", "Show counters, markers and memory (V)"],
};

export class OverlapSwitches {
  /**
   * `ask` answers where the critical paths are wanted and not there.
   *
   * @param {Owner} timeline
   * @param {Ask | null} ask
   */
  constructor(timeline, ask = null) {
    this.timeline = timeline;
    this.ask = ask;
    /** @type {Model | null} */
    this.asked = null;
    /** @type {Shows} */
    this.shows = { overlap: true, path: false, code: false, counters: true };
    this.buttons = entriesOf(SWITCHES).map(([name, [text, words]]) => {
      const button = makeButton(text, words, () => this.toggle(name));
      button.dataset.shows = name;
      return button;
    });
    this.legend = make("div", "ss-legend");
    this.box = make("div", "ss-switches", ...this.buttons, this.legend);
    aria(this.box, { role: "toolbar", label: "What is shown" });
    rove(this.box);
    this.tell();
  }

  /**
   * Take the theme's colours, and write the legend of the lane "at once" anew; what occurs nowhere is left out.
   *
   * @param {Theme} theme
   */
  applyTheme(theme) {
    const { groups, looks, occupations } = this.timeline.whole;
    /** @type {Looks} */
    this.looks = looksOf(looks, theme);
    const found = new Set(groups.flatMap(({ activities }) => activities.flatMap((activity) => [...activity.looks(occupations)])));
    for (const button of this.buttons) button.hidden = !this.has(/** @type {keyof Shows} */ (button.dataset.shows), found.size > 0);
    this.box.hidden = this.buttons.every(({ hidden }) => hidden);
    const shown = entriesOf(this.looks).filter(([name]) => found.has(name));
    const keys = shown.map(([, { words, fill }]) => make("span", "ss-key", makeSwatch(fill), words));
    const known = groups.some(({ activities }) => activities.some((activity) => activity.tellsFullness(this.timeline.model.fullness_unknown)));
    const line = makeSwatch(theme.ink);
    line.classList.add("ss-line");
    this.legend.replaceChildren(...keys, ...(known ? [make("span", "ss-key", line, "how full the GPU is")] : []));
  }

  /**
   * Whether there is something to switch.
   *
   * @param {keyof Shows} name
   * @param {boolean} active whether something ran
   */
  has(name, active = true) {
    return name === "code" || name === "counters" ? this.timeline.model.details.includes(name) : active;
  }

  /** @param {keyof Shows} name */
  toggle(name) {
    this.set({ ...this.shows, [name]: !this.shows[name] });
  }

  /** What is shown, as a list of the buttons' words. */
  get words() {
    return entriesOf(SWITCHES).filter(([name]) => this.shows[name] && this.has(name)).map(([, [text]]) => text);
  }

  /** @param {string[]} words */
  set words(words) {
    if (JSON.stringify(words) === JSON.stringify(this.words)) return;
    this.set(/** @type {Shows} */ (Object.fromEntries(entriesOf(SWITCHES).map(([name, [text]]) => [name, words.includes(text)]))));
  }

  /**
   * Show what `shows` says.
   *
   * @param {Shows} shows
   */
  set(shows) {
    const grows = shows.overlap !== this.shows.overlap;
    this.shows = shows;
    this.tell();
    this.askForPaths();
    if (grows) this.timeline.resize();
    else this.timeline.redraw();
    this.timeline.tell("shows");
  }

  /** Ask for the critical paths of the model, once, if they are to be shown and not there. */
  askForPaths() {
    const { model, tiles } = this.timeline;
    if (tiles || !this.shows.path || !this.ask || this.asked === model || model.groups.every(({ path }) => path)) return;
    this.asked = model;
    this.timeline.stage?.nudge(...FOLLOWING);
    this.ask({ type: "paths" }).then(({ header, block }) => {
      if (this.timeline.model !== model) return;
      this.timeline.stage?.nudge("");
      attachPaths(model, header, block);
      this.timeline.redraw();
    }, /** @param {Error} error */ ({ message }) => {
      if (this.timeline.model !== model) return;
      this.asked = null;
      this.timeline.stage?.nudge(`No critical path: ${message}`);
      this.set({ ...this.shows, path: false });
    });
  }

  tell() {
    for (const button of this.buttons) aria(button, { pressed: this.shows[/** @type {keyof Shows} */ (button.dataset.shows)] });
    this.legend.hidden = !this.shows.overlap;
  }
}
