// The buttons at each engine's header: collapse, and, where the pointer or the focus is, move, pin and hide.

import { aria, make, makeButton, rove } from "./dom.js";
import { gpuName } from "./gpus.js";

/**
 * @import { Arrangement } from "./arrangement.js"
 * @import { Layout, Section } from "./layout.js"
 * @import { Model } from "./model.js"
 */

/**
 * The timeline as the buttons at its headers know it.
 *
 * @typedef {object} Owner
 * @property {Model} model
 * @property {Pick<Layout, "groups" | "header" | "gpuHeader">} layout
 * @property {Arrangement} arrangement
 * @property {{ overlay: HTMLElement }} stage
 * @property {(group: number, of: number) => void} fold
 * @property {(change: () => void) => void} arrange
 */

/**
 * The button that collapses what has a name, or expands it.
 *
 * @param {boolean} collapsed
 * @param {string} name
 * @param {() => void} toggle
 */
function collapser(collapsed, name, toggle) {
  const button = makeButton(collapsed ? "▸" : "▾", `Lanes of ${name}`, toggle);
  aria(button, { expanded: !collapsed });
  button.className = "ss-collapse";
  return button;
}

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
    const gpus = layout.groups.flatMap(({ index, sections }) => sections.flatMap((section) => (section.top === null ? [] : this.gpuRow(index, section, section.top))));
    this.box.replaceChildren(...this.rows, ...gpus);
    if (!focused) return;
    const again = [...this.box.querySelectorAll("button")].find((button) => button.getAttribute("aria-label") === focused);
    (again ?? this.timeline.stage.overlay).focus({ preventScroll: true });
  }

  /**
   * @param {number} index
   * @param {Section} section
   * @param {number} top
   */
  gpuRow(index, { of, closed }, top) {
    const { layout, model } = this.timeline;
    const { words, slowest } = model.groups[index].gpus[of];
    const said = [gpuName(model.groups[index], of), ...words, slowest].filter(Boolean).join(", ");
    const row = make("div", "ss-head ss-gpu", collapser(closed, said, () => this.timeline.fold(index, of)));
    row.style.top = `${top}px`;
    row.style.height = `${layout.gpuHeader}px`;
    return row;
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
    const collapse = collapser(arrangement.collapsed.has(index), label, () => timeline.arrange(() => arrangement.toggle("collapsed", index)));
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
