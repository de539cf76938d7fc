// The buttons at each engine's header: collapse, and, where the pointer or the focus is, move, pin and hide.

import { aria, make, makeButton, rove } from "./dom.js";

/**
 * @import { Arrangement } from "./arrangement.js"
 * @import { Layout } from "./layout.js"
 * @import { Model } from "./model.js"
 */

/**
 * The timeline as the buttons at its headers know it.
 *
 * @typedef {object} Owner
 * @property {Model} model
 * @property {Pick<Layout, "groups" | "header">} layout
 * @property {Arrangement} arrangement
 * @property {{ overlay: HTMLElement }} stage
 * @property {(change: () => void) => void} arrange
 */

export class Heads {
  /**
   * @param {HTMLElement} stage
   * @param {Owner} timeline
   */
  constructor(stage, timeline) {
    this.timeline = timeline;
    this.box = make("div", "ss-heads");
    stage.append(this.box);
  }

  /** One row of buttons for each shown engine, where its header lies; the focus stays where it was. */
  place() {
    const { layout, model } = this.timeline;
    const focused = this.box.contains(document.activeElement) ? document.activeElement?.getAttribute("aria-label") : null;
    /** @type {HTMLElement[]} */
    this.rows = layout.groups.map((box) => {
      const row = this.row(box.index, model.groups[box.index].label);
      row.style.top = `${box.top}px`;
      row.style.height = `${layout.header}px`;
      return row;
    });
    this.box.replaceChildren(...this.rows);
    if (!focused) return;
    const again = [...this.box.querySelectorAll("button")].find((button) => button.getAttribute("aria-label") === focused);
    (again ?? this.timeline.stage.overlay).focus({ preventScroll: true });
  }

  /**
   * @param {number} index
   * @param {string} label
   */
  row(index, label) {
    const { timeline } = this;
    const { arrangement } = timeline;
    /**
     * @param {string} text
     * @param {string} words
     * @param {() => void} change
     */
    const button = (text, words, change) => makeButton(text, `${words} ${label}`, () => timeline.arrange(change));
    const collapsed = arrangement.collapsed.has(index);
    const collapse = button(collapsed ? "▸" : "▾", "Lanes of", () => arrangement.toggle("collapsed", index));
    aria(collapse, { expanded: !collapsed });
    collapse.classList.add("ss-collapse");
    const pin = button("pin", "Pin to the top:", () => arrangement.toggle("pinned", index));
    aria(pin, { pressed: arrangement.pinned.has(index) });
    const more = make(
      "span", "ss-head-more", button("↑", "Move up:", () => arrangement.move(index, -1)),
      button("↓", "Move down:", () => arrangement.move(index, 1)), pin, button("hide", "Hide", () => arrangement.hide(index)),
    );
    const row = make("div", "ss-head", collapse, more);
    aria(row, { role: "toolbar", label });
    rove(row);
    return row;
  }

  /**
   * The buttons of the engine that the pointer is over are seen.
   *
   * @param {number | null} index
   */
  hover(index) {
    this.timeline.layout.groups.forEach((box, place) => this.rows[place].classList.toggle("ss-hot", box.index === index));
  }
}
