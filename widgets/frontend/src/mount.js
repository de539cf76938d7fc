// Putting a timeline into a page.

import { decode } from "./decode.js";
import { make } from "./dom.js";
import { keepKeys } from "./keys.js";
import style from "./timeline.css";
import { Timeline } from "./timeline.js";

/**
 * @import { Header } from "./header.js"
 * @import { Ask, Block } from "./messages.js"
 * @import { Second } from "./details.js"
 */

/**
 * Draw a timeline into an element, in place of what is in it.
 *
 * @param {HTMLElement & { timeline?: Timeline }} element
 * @param {Header} header and
 * @param {Block} block as `payload.py` writes them
 * @param {Ask | null} ask has Python say what the header leaves out: critical paths, and parts of long traces
 * @param {Second | null} second has what is loaded when it is needed (details.js)
 * @returns {Timeline} also reachable as `element.timeline`; its `replace(decode(header, block))` shows other spans in the same view
 */
export function mount(element, header, block, ask = null, second = null) {
  const root = make("div", "");
  element.replaceChildren(make("style", "", style), root);
  const timeline = new Timeline(root, decode(header, block), ask, second);
  timeline.stopListening.push(keepKeys(root));
  element["timeline"] = timeline; // in quotes: build.js
  return timeline;
}
