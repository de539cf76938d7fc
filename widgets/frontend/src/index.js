// The doors: `widget` for anywidget, `mount` for whoever has the data at hand; report.js is that of reports.

import { questionsBy } from "./asking.js";
import { decode } from "./decode.js";
import { make } from "./dom.js";
import { mount as mountWith } from "./mount.js";
import style from "./timeline.css";
import { Tiles } from "./tiles.js";
import { linkTraits } from "./traits.js";

export { decode };

export const mount = (element, header, block, ask) => mountWith(element, header, block, ask, Tiles);

const PATIENCE_MS = 4000;

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
    const { ask, answered } = questionsBy((question) => model.send({ ...question, view }));
    const receive = (content, buffers) => {
      // Without a view, they are new spans for all views.
      if ((content.view ?? view) !== view) return;
      if (content.type === "answer") answered(content, buffers[0]);
      if (content.type !== "spans") return;
      clearTimeout(timer);
      if (timeline) {
        timeline.replace(decode(content.header, buffers[0]));
        return;
      }
      timeline = mount(el, content.header, buffers[0], ask);
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
