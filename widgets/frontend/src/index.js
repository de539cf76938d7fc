// The doors: `widget` for anywidget, `mountPage` for a report, `mount` for whoever has the data at hand.

import { decode } from "./decode.js";
import { make } from "./dom.js";
import { linkPage } from "./link.js";
import { readPage } from "./page.js";
import style from "./timeline.css";
import { Timeline } from "./timeline.js";
import { linkTraits } from "./traits.js";

export { decode };

const PATIENCE_MS = 4000;

/**
 * Draw a timeline into an element, in place of what is in it.
 *
 * @param {HTMLElement} element
 * @param {object} header and
 * @param {Uint8Array | DataView} block as `payload.py` writes them
 * @param {() => void} ask gets the critical paths, where the header has none; `timeline.overlap.take` takes them
 * @returns {Timeline} also reachable as `element.timeline`; its `replace(decode(header, block))` shows other spans in the same view
 */
export function mount(element, header, block, ask = null) {
  const root = make("div", "");
  element.replaceChildren(make("style", "", style), root);
  element.timeline = new Timeline(root, decode(header, block), ask);
  // Combined keys, such as Ctrl S, are the page's.
  root.addEventListener("keydown", (event) => event.ctrlKey || event.metaKey || event.altKey || event.stopPropagation());
  return element.timeline;
}

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

/** Follows https://anywidget.dev/en/afm/. Asks the kernel for the spans, which are no part of the saved notebook. */
export const widget = {
  render({ model, el }) {
    const view = `${Date.now()}-${Math.random()}`;
    let timeline = null;
    let unlink = () => {};
    const message = make("div", "ss-message", "Waiting for the kernel to send the timeline …");
    const root = make("div", "ss-timeline", message);
    el.replaceChildren(make("style", "", style), root);
    const timer = setTimeout(() => {
      message.textContent = "No answer from the kernel yet. If it is busy, the timeline appears when it is free; "
        + "if this notebook was reopened, run the cell again.";
    }, PATIENCE_MS);
    const receive = (content, buffers) => {
      // Without a view, they are new spans for all views.
      if ((content.view ?? view) !== view) return;
      if (content.type === "paths") timeline?.overlap.take(content.header, buffers[0]);
      if (content.type !== "spans") return;
      clearTimeout(timer);
      if (timeline) {
        timeline.replace(decode(content.header, buffers[0]));
        return;
      }
      timeline = mount(el, content.header, buffers[0], () => model.send({ type: "paths", view }));
      unlink = linkTraits(model, timeline);
    };
    model.on("msg:custom", receive);
    model.send({ type: "ready", view });
    return () => {
      clearTimeout(timer);
      model.off("msg:custom", receive);
      unlink();
      timeline?.destroy();
    };
  },
};
