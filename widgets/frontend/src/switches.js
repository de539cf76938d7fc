// Switches of what the timeline shows besides the spans. What is switched is state of the timeline: `timeline.overlap.shows`.

import { attachPaths } from "./critical_path.js";
import { aria, make, makeButton, makeSwatch, rove } from "./dom.js";
import { looksOf } from "./looks.js";
import { FOLLOWING } from "./stage.js";

const SWITCHES = {
  overlap: ["overlap", "Show what runs at once, idle time by its cause, and event waits (O)"],
  path: ["critical path", "Show what made each run as long as it was (C)"],
};

export class OverlapSwitches {
  /** `ask` answers where the critical paths are wanted and not there. */
  constructor(timeline, ask = null) {
    this.timeline = timeline;
    this.ask = ask;
    this.shows = { overlap: true, path: false };
    this.buttons = Object.entries(SWITCHES).map(([name, [text, words]]) => {
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

  /** Take the theme's colours, and write the legend of the lane "at once" anew; what occurs nowhere is left out. */
  applyTheme(theme) {
    const { groups, looks, occupations } = this.timeline.whole;
    this.looks = looksOf(looks ?? {}, theme);
    const found = new Set(groups.flatMap(({ activity }) => (activity ? [...activity.looks(occupations)] : [])));
    this.box.hidden = !found.size;
    const shown = Object.entries(this.looks).filter(([name]) => found.has(name));
    const keys = shown.map(([, { words, fill }]) => make("span", "ss-key", makeSwatch(fill), words));
    const known = groups.some(({ activity }) => activity?.tellsFullness(this.timeline.model.fullness_unknown));
    const line = make("span", "ss-key", makeSwatch(theme.ink), "how full the GPU is");
    line.firstChild.classList.add("ss-line");
    this.legend.replaceChildren(...keys, ...(known ? [line] : []));
  }

  toggle(name) {
    this.set({ ...this.shows, [name]: !this.shows[name] });
  }

  /** What is shown, as a list of the buttons' words. */
  get words() {
    return Object.keys(SWITCHES).filter((name) => this.shows[name]).map((name) => SWITCHES[name][0]);
  }

  set words(words) {
    if (JSON.stringify(words) === JSON.stringify(this.words)) return;
    this.set(Object.fromEntries(Object.entries(SWITCHES).map(([name, [text]]) => [name, words.includes(text)])));
  }

  /** Show what `shows` says: {overlap, path}. */
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
      this.timeline.stage.nudge("");
      attachPaths(model, header, block);
      this.timeline.redraw();
    }, ({ message }) => {
      if (this.timeline.model !== model) return;
      this.asked = null;
      this.timeline.stage.nudge(`No critical path: ${message}`);
      this.set({ ...this.shows, path: false });
    });
  }

  tell() {
    for (const button of this.buttons) aria(button, { pressed: this.shows[button.dataset.shows] });
    this.legend.hidden = !this.shows.overlap;
  }
}
