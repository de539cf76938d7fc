// The two canvases, the nudge over them and the hint below.

import { aria, make } from "./dom.js";

const NUDGE_MS = 1200;

/** What takes Python long, of a long trace seconds, is said until the answer is there. */
export const FOLLOWING = ["Following the critical path …", 1e6];
const HOW_TO_ZOOM = "Click the timeline first, or hold Ctrl, to zoom with the wheel";
const hintOf = ({ groups }) => [
  "click, then ", ["wheel"], " zooms · drag pans · ", ["Shift"], "-drag measures · ", ["Ctrl"], "-drag zooms · ",
  `click selects${groups.length > 1 ? " in every engine" : ""} · `, ["W"], " ", ["A"], " ", ["S"], " ", ["D"], " move · ", ["0"], " resets · ",
  ["?"], " all keys",
];

function describe(model) {
  const groups = model.groups.map((group) => `${group.label}: ${group.makespan_text}`).join("; ");
  return `Timelines of ${model.groups.length} engine runs on one ${model.nature && `${model.nature} `}time axis. ${groups}. `
    + "W and S zoom, A and D pan, 0 shows everything, N and P select the next and previous operation; question mark tells all keys.";
}

export function buildStage(root, model) {
  const base = make("canvas", "ss-base");
  aria(base, { hidden: "true" });
  const overlay = make("canvas", "ss-overlay");
  overlay.tabIndex = 0;
  aria(overlay, { role: "application" });
  const nudge = make("div", "ss-nudge");
  aria(nudge, { role: "status" });
  const box = make("div", "ss-stage", base, overlay, nudge);
  root.append(box, make("div", "ss-hint", ...hintOf(model).map((part) => (Array.isArray(part) ? make("kbd", "", part[0]) : part))));

  let timer = 0;
  const stage = {
    box,
    overlay,
    baseContext: base.getContext("2d", { alpha: false }),
    overlayContext: overlay.getContext("2d"),
    size(width, height, dpr) {
      for (const canvas of [base, overlay]) {
        canvas.width = Math.round(width * dpr);
        canvas.height = Math.round(height * dpr);
        canvas.style.height = `${height}px`;
      }
    },
    describe(shown) {
      aria(overlay, { label: describe(shown) });
    },
    /** Say something for a moment; no words end it. */
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
