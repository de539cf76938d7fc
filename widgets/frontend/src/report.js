// The door for a report, which holds all that it shows.

import { make } from "./dom.js";
import { linkPage } from "./link.js";
import { mount } from "./mount.js";
import { readPage } from "./page.js";

/** Draw the timeline of a report into its element. */
export async function mountPage(page) {
  const element = page.getElementById("timeline");
  try {
    const { header, block } = await readPage(page);
    linkPage(mount(element, header, block));
  } catch (error) {
    element.replaceChildren(make("p", "missing", `The timeline could not be drawn: ${error.message}`));
    throw error;
  }
}
