// The doors: `widget` for anywidget, `mount` and `open` for whoever has the data at hand; report.js is that of reports.

import { questionsBy } from "./asking.js";
import { decode } from "./decode.js";
import { make } from "./dom.js";
import { mount } from "./mount.js";
import style from "./timeline.css";
import { linkTraits } from "./traits.js";

/**
 * @import { Second, SecondBundle } from "./details.js"
 * @import { Header } from "./header.js"
 * @import { Ask, Block, ToBrowser, ToPython } from "./messages.js"
 * @import { Timeline } from "./timeline.js"
 * @import { WidgetModel } from "./traits.js"
 */

export { decode, mount };

/**
 * The second bundle, as Python sends it.
 *
 * @param {Ask} ask
 * @returns {Promise<SecondBundle>}
 */
async function imported(ask) {
  const { block } = await ask({ type: "details" });
  return import(URL.createObjectURL(new Blob([block], { type: "text/javascript" })));
}

/**
 * Draw a timeline into an element (mount.js), with the second bundle at hand: at once where the trace is long, else when it is needed.
 *
 * @param {HTMLElement} element
 * @param {Header} header
 * @param {Block} block
 * @param {Ask} ask
 * @param {() => Promise<SecondBundle>} load
 */
export async function open(element, header, block, ask, load = () => imported(ask)) {
  /** @type {Promise<SecondBundle> | null} */
  let loading = null;
  /** @type {Second} */
  const second = {
    ask,
    load: () => (loading ??= load().catch(/** @param {Error} error */ (error) => {
      loading = null;
      throw error;
    })),
  };
  if (header.groups[0]?.tiled) second.Tiles = (await second.load()).Tiles;
  return mount(element, header, block, ask, second);
}

/**
 * @template {keyof ToBrowser} T
 * @typedef {{ type: T } & ToBrowser[T]} Message
 */

/** @typedef {{ [T in keyof ToBrowser]: (message: Message<T>, block: Block) => void }} Receivers */

/**
 * The model, and how messages go to Python and come from there.
 *
 * @typedef {object} Comm
 * @property {(message: { [T in keyof ToPython]: { type: T } & ToPython[T] }[keyof ToPython]) => void} send
 * @property {<T extends keyof ToBrowser>(name: "msg:custom", receive: (message: Message<T>, blocks: Block[]) => void) => void} on
 * @property {<T extends keyof ToBrowser>(name: "msg:custom", receive: (message: Message<T>, blocks: Block[]) => void) => void} off
 */

const PATIENCE_MS = 4000;

/** A line about the extension in JupyterLab, which says of itself what it is; "" where it belongs to these sources, or there is none. */
export const notice = () => ((document.body.dataset.streamscope ?? EXTENSION) === EXTENSION ? "" : "The extension in JupyterLab is of another build than "
  + "Streamscope: install Streamscope again where JupyterLab runs (in a clone: make lab), then reload this page.");

/** Follows https://anywidget.dev/en/afm/. Asks the kernel for the spans, which are no part of the saved notebook. */
export const widget = {
  /** @param {{ model: WidgetModel & Comm, el: HTMLElement }} view */
  render({ model, el }) {
    const view = `${Date.now()}-${Math.random()}`;
    /** @type {Promise<Timeline> | null} */
    let opened = null;
    let unlink = () => {};
    const message = make("div", "ss-message", "Waiting for the kernel to send the timeline …");
    const root = make("div", "ss-timeline", message);
    el.replaceChildren(make("style", "", style), root);
    const timer = setTimeout(() => {
      message.textContent = "No answer from the kernel yet. If it is busy, the timeline appears when it is free; "
        + "if this notebook was reopened, run the cell again.";
    }, PATIENCE_MS);
    const { ask, answered } = questionsBy((question) => model.send({ ...question, view }));
    /** @type {Receivers} */
    const receivers = {
      answer: answered,
      spans({ header }, block) {
        clearTimeout(timer);
        if (opened) opened.then((timeline) => timeline.replace(decode(header, block)));
        else {
          opened = open(el, header, block, ask);
          opened.then((timeline) => {
            unlink = linkTraits(model, timeline);
            if (notice()) timeline.root.prepend(make("div", "ss-message", notice()));
          });
        }
      },
    };
    /**
     * @template {keyof ToBrowser} T
     * @param {Message<T>} content
     * @param {Block[]} blocks
     */
    const receive = (content, blocks) => {
      // Without a view, they are new spans for all views.
      if ((content.view ?? view) === view) receivers[content.type]?.(content, blocks[0]);
    };
    model.on("msg:custom", receive);
    model.send({ type: "ready", view });
    return () => {
      clearTimeout(timer);
      model.off("msg:custom", receive);
      unlink();
      opened?.then((timeline) => timeline.destroy());
    };
  },
};
