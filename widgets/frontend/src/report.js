// The door for a report, which holds all that it shows.

import { make } from "./dom.js";
import { linkPage } from "./link.js";
import { mount } from "./mount.js";
import { answersOf, readPage } from "./page.js";
import { sortTables } from "./sorting.js";

/** @import { SecondBundle } from "./details.js" */

/**
 * What is wider than its place is scrolled with keys, too; what fits is no stop for Tab.
 *
 * @param {Document} page
 */
function reachWide(page) {
  /** @type {NodeListOf<HTMLElement>} */
  const wide = page.querySelectorAll("section, section div");
  const boxes = [...wide].filter((box) => getComputedStyle(box).overflowX === "auto");
  new ResizeObserver(() => {
    for (const box of boxes) {
      if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
      else box.removeAttribute("tabindex");
    }
  }).observe(page.body);
}

/**
 * Draw the timeline of a report into its element.
 *
 * @param {Document} page
 * @param {SecondBundle} [bundle] where the report holds what it shows
 */
export async function mountPage(page, bundle) {
  const element = /** @type {HTMLElement} */ (page.getElementById("timeline"));
  reachWide(page);
  sortTables(page);
  try {
    const { header, block } = await readPage(page);
    linkPage(mount(element, header, block, null, bundle ? { ask: answersOf(page), load: () => Promise.resolve(bundle) } : null));
  } catch (error) {
    element.replaceChildren(make("p", "missing", `The timeline could not be drawn: ${/** @type {Error} */ (error).message}`));
    throw error;
  }
}
