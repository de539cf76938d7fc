// The two canvases, the axis that stays in sight, the nudge on it, the hint below, and what is printed.

import { aria, contextOf, make, withKeys } from "./dom.js";

/**
 * @import { Layout } from "./layout.js"
 * @import { Model } from "./model.js"
 */

/** @typedef {ReturnType<typeof buildStage>} Stage */

const NUDGE_MS = 1200;

/** @type {[string, number]} what takes Python long, of a long trace seconds, is said until the answer is there. */
export const FOLLOWING = ["Following the critical path …", 1e6];
const HOW_TO_ZOOM = "Click the timeline first, or hold Ctrl, to zoom with the wheel";
/** @param {Model} model */
const hintOf = ({ groups }) => [
  "click, then |wheel| zooms", "drag pans", "|Shift|-drag measures", "|Ctrl|-drag zooms", `click selects${groups.length > 1 ? " in every engine" : ""}`,
  "|W| |A| |S| |D| move", "|0| resets", "|?| all keys",
];

/** @param {Model} model */
function describe(model) {
  const { length } = model.groups;
  const groups = model.groups.map((group) => `${group.label}: ${group.makespan_text}`).join("; ");
  return `Timelines of ${length} engine run${length === 1 ? "" : "s"} on one ${model.nature && `${model.nature} `}time axis. ${groups}. `
    + "W and S zoom, A and D pan, 0 shows everything, N and P select the next and previous operation; question mark tells all keys.";
}

/**
 * @param {HTMLElement} root
 * @param {Model} model
 */
export function buildStage(root, model) {
  const base = make("canvas", "ss-base");
  aria(base, { hidden: "true" });
  const overlay = make("canvas", "ss-overlay");
  overlay.tabIndex = 0;
  aria(overlay, { role: "application" });
  const nudge = make("div", "ss-nudge");
  aria(nudge, { role: "status" });
  const axis = make("canvas", "");
  aria(axis, { hidden: "true" });
  const pinned = make("div", "ss-pinned", axis, nudge);
  const paper = make("div", "ss-paper ss-pieces");
  const box = make("div", "ss-stage", pinned, base, overlay, paper);
  // Each part stays on one line.
  root.append(box, make("div", "ss-hint", ...hintOf(model).flatMap((part, place) => [place ? " · " : "", make("span", "", ...withKeys(part))])));

  let timer = 0;
  const stage = {
    box,
    overlay,
    baseContext: contextOf(base, { alpha: false }),
    overlayContext: contextOf(overlay),
    /**
     * @param {number} width
     * @param {Pick<Layout, "height" | "axis">} layout
     * @param {number} dpr
     */
    size(width, { height, axis: top }, dpr) {
      for (const [canvas, high] of /** @type {[HTMLCanvasElement, number][]} */ ([[base, height], [overlay, height], [axis, top]])) {
        canvas.width = Math.round(width * dpr);
        canvas.height = Math.round(high * dpr);
        canvas.style.height = `${high}px`;
      }
      base.style.visibility = "hidden"; // Until it is drawn, it is black.
    },
    /** Where the axis lies now, which stays in sight while the page scrolls. */
    axisTop: () => pinned.getBoundingClientRect().top,
    /** What has been drawn is seen, and its axis stays in sight. */
    show() {
      base.style.visibility = "";
      for (const canvas of [base, overlay]) contextOf(axis).drawImage(canvas, 0, 0);
    },
    /**
     * What is printed instead of the canvases: a table whose head, the axis, stands on each page, with a row an engine.
     *
     * @param {number[]} cuts
     * @param {number} dpr
     */
    paper(cuts, dpr) {
      paper.replaceChildren(...cuts.slice(1).map((end, row) => {
        const piece = make("canvas", "");
        piece.width = base.width;
        piece.height = Math.round((end - cuts[row]) * dpr);
        for (const canvas of [base, overlay]) contextOf(piece).drawImage(canvas, 0, -Math.round(cuts[row] * dpr));
        // Chromium prints a canvas that is scaled too narrow, and only once where a head stands on each page.
        const picture = make("img", "");
        picture.alt = "";
        picture.src = piece.toDataURL();
        return make("div", "", picture);
      }));
    },
    /** @param {Model} shown */
    describe(shown) {
      aria(overlay, { label: describe(shown) });
    },
    /**
     * Say something for a moment; no words end it.
     *
     * @param {string} words
     * @param {number} ms
     */
    nudge(words = HOW_TO_ZOOM, ms = NUDGE_MS) {
      nudge.textContent = words;
      nudge.classList.toggle("ss-shown", words !== "");
      clearTimeout(timer);
      timer = setTimeout(() => nudge.classList.remove("ss-shown"), ms);
    },
  };
  stage.describe(model);
  return stage;
}
