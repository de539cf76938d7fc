// The box that finds spans by name: how many there are, the next, the one before.

import { aria, make, makeButton } from "./dom.js";
import { grouped } from "./format.js";

/**
 * @import { Finding } from "./finding.js"
 * @import { Trait } from "./traits.js"
 */

/**
 * The timeline as the search box knows it.
 *
 * @typedef {object} SearchTarget
 * @property {Pick<Finding, "step" | "position" | "count" | "groups">} finding
 * @property {{ overlay: HTMLElement }} stage
 * @property {(changed: (what: Trait) => void) => void} watch
 */

export class SearchBox {
  /**
   * @param {SearchTarget} timeline
   * @param {() => void} onInput
   */
  constructor(timeline, onInput) {
    this.timeline = timeline;
    this.input = make("input", "ss-filter");
    this.input.type = "search";
    this.input.placeholder = "find by name";
    aria(this.input, { label: "find by name: show only spans whose name contains this; Enter goes to the next, Escape to the timeline" });
    this.input.addEventListener("input", onInput);
    this.input.addEventListener("keydown", (event) => {
      if (event.key === "Enter") timeline.finding.step(event.shiftKey ? -1 : 1);
      if (event.key !== "Escape") return;
      event.preventDefault(); // It would empty the box. What is found stays, and Enter goes on.
      timeline.stage.overlay.focus({ preventScroll: true });
    });
    this.count = make("span", "ss-count");
    aria(this.count, { role: "status" });
    this.steps = make(
      "span", "ss-steps", makeButton("‹", "Previous hit (Shift Enter)", () => timeline.finding.step(-1)),
      makeButton("›", "Next hit (Enter)", () => timeline.finding.step(1)),
    );
    this.box = make("div", "ss-search", this.input, this.count, this.steps);
    timeline.watch((what) => what === "selection" && this.tell());
  }

  get text() {
    return this.input.value.trim().toLowerCase();
  }

  /** Say how many hits there are, and at which the selection is. */
  tell() {
    const { finding } = this.timeline;
    const { position, count } = finding;
    this.steps.hidden = !count;
    aria(this.input, { invalid: finding.groups !== null && !count });
    this.count.textContent = !finding.groups ? "" : !count ? "no hit" : position ? `${grouped(position)} of ${grouped(count)}` : grouped(count);
  }
}
