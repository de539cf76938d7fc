// Switches of what the timeline shows besides the spans. What is switched is state of the timeline: `timeline.overlap.shows`.

import { attachPaths } from "./critical_path.js";
import { makeButton } from "./dom.js";
import { looksOf } from "./looks.js";

const SWITCHES = {
  overlap: ["overlap", "What runs at once, idle time by cause, event waits (O)"],
  path: ["critical path", "What made each run as long as it was (C)"],
};

export class OverlapSwitches {
  /** `ask` is called once when the critical paths are wanted and not there. */
  constructor(timeline, ask = null) {
    this.timeline = timeline;
    this.ask = ask;
    this.shows = { overlap: true, path: false };
    this.buttons = Object.entries(SWITCHES).map(([name, [text, words]]) => {
      const button = makeButton(text, words, () => this.toggle(name));
      button.dataset.shows = name;
      return button;
    });
    this.tell();
  }

  /** Colours that fit the theme. */
  applyTheme(theme) {
    this.looks = looksOf(this.timeline.model.looks ?? {}, theme);
  }

  /** What the colours of the lane "at once" mean, as [words, fill]; those that occur nowhere are left out. */
  legend() {
    const { groups, occupations } = this.timeline.model;
    const found = new Set(groups.flatMap(({ activity }) => (activity ? [...activity.looks(occupations)] : [])));
    return Object.entries(this.looks).filter(([name]) => this.shows.overlap && found.has(name)).map(([, { words, fill }]) => [words, fill]);
  }

  toggle(name) {
    this.set({ ...this.shows, [name]: !this.shows[name] });
  }

  /** Show what `shows` says: {overlap, path}. */
  set(shows) {
    const grows = shows.overlap !== this.shows.overlap;
    this.shows = shows;
    this.tell();
    if (shows.path && this.ask && this.timeline.model.groups.some(({ path }) => !path)) {
      this.ask();
      this.ask = null;
    }
    if (grows) this.timeline.applyTheme();
    else this.timeline.redraw();
  }

  /** Take the critical paths that were asked for. */
  take(header, block) {
    attachPaths(this.timeline.model, header, block);
    this.timeline.redraw();
  }

  tell() {
    for (const button of this.buttons) button.setAttribute("aria-pressed", String(this.shows[button.dataset.shows]));
  }
}
