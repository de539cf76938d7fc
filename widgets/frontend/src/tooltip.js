// The card beside the pointer.

import { aria, make, makeSwatch } from "./dom.js";

/** @import { Told } from "./describe.js" */

/**
 * The pointer on the page; what not to cover, if there is room; and the axis, which is never covered.
 *
 * @typedef {{ clientX: number, clientY: number, above: number, below: number, ceiling: number }} TipPlace
 */

const DISTANCE = 14;
const NEAR = 6;

export class Tooltip {
  /** @param {HTMLElement} root */
  constructor(root) {
    this.card = make("div", "ss-tip");
    aria(this.card, { role: "tooltip" });
    this.card.hidden = true;
    // In the top layer nothing clips it, wherever the notebook scrolls.
    if ("popover" in this.card) this.card.popover = "manual";
    root.append(this.card);
  }

  /**
   * @param {Told} text
   * @param {string | null | undefined} fill colour of the swatch
   * @param {TipPlace} place the pointer; what not to cover, if there is room; and the axis, which is never covered
   */
  show(text, fill, place) {
    const terms = make("dl", "");
    for (const [term, value] of text.rows) terms.append(make("dt", "", term), make("dd", "", value));
    this.card.replaceChildren(
      make("div", "ss-tip-title", fill ? makeSwatch(fill) : null, make("span", "", text.name)),
      make("div", "ss-tip-where", text.where),
      text.around ? make("div", "ss-tip-around", `in ${text.around}`) : "",
      text.symbol ? make("div", "ss-tip-symbol", text.symbol) : "",
      terms,
      ...(text.notes ?? []).map((note) => make("div", "ss-tip-note", note)),
    );
    this.card.hidden = false;
    if (this.card.popover && !this.card.matches(":popover-open")) this.card.showPopover();
    this.place(place);
  }

  /** @param {TipPlace} place */
  place({ clientX, clientY, above, below, ceiling }) {
    const { width, height } = this.card.getBoundingClientRect();
    const fitsRight = clientX + DISTANCE + width < innerWidth - 4;
    const x = fitsRight ? clientX + DISTANCE : clientX - DISTANCE - width;
    const most = innerHeight - 4 - height;
    const least = Math.max(4, ceiling);
    const y = [below + NEAR, above - NEAR - height, clientY + DISTANCE, clientY - DISTANCE - height].find((top) => top >= least && top <= most);
    this.card.style.left = `${Math.max(4, x)}px`;
    this.card.style.top = `${y ?? least}px`;
  }

  hide() {
    if (this.card.popover && this.card.matches(":popover-open")) this.card.hidePopover();
    this.card.hidden = true;
  }
}
