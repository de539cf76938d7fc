// What each key does while the canvas has the focus; help.js has the words for it.

import { showHelp } from "./help.js";

/** Whether a key belongs to the page, as Ctrl S does; AltGr only makes a sign, as [ on many keyboards. */
export const isCombined = (event) => (event.ctrlKey || event.metaKey || event.altKey) && !event.getModifierState("AltGraph");

/** Keep keys pressed in an element from the page, but for those that are the page's. Returns a function that lets all through. */
export function keepKeys(root) {
  // Before JupyterLab looks at the element (dom.js).
  const mark = (event) => root.contains(event.target) && event.target.toggleAttribute("data-lm-suppress-shortcuts", !isCombined(event));
  window.addEventListener("keydown", mark, true);
  root.addEventListener("keydown", (event) => isCombined(event) || event.stopPropagation());
  return () => window.removeEventListener("keydown", mark, true);
}

const zoomIn = (timeline) => timeline.viewer.zoomBy(1 / 1.5);
const zoomOut = (timeline) => timeline.viewer.zoomBy(1.5);
const left = (timeline) => timeline.viewer.panShare(-0.2);
const right = (timeline) => timeline.viewer.panShare(0.2);

export const KEYS = {
  w: zoomIn, "+": zoomIn, "=": zoomIn, s: zoomOut, "-": zoomOut, a: left, ArrowLeft: left, d: right, ArrowRight: right,
  0: (timeline) => timeline.reset(),
  Home: (timeline) => timeline.reset(),
  f: (timeline) => timeline.choosing.fit(),
  n: (timeline) => timeline.choosing.neighbour(1),
  p: (timeline) => timeline.choosing.neighbour(-1),
  ArrowDown: (timeline) => timeline.choosing.acrossEngines(1),
  ArrowUp: (timeline) => timeline.choosing.acrossEngines(-1),
  l: (timeline) => timeline.choosing.followLaunch(),
  "[": (timeline) => timeline.choosing.followWait(),
  "]": (timeline) => timeline.choosing.followDependent(),
  g: (timeline) => timeline.align(timeline.viewer.mode === "operation" ? "time" : "operation"),
  m: (timeline) => timeline.choosing.measure(),
  o: (timeline) => timeline.overlap.toggle("overlap"),
  c: (timeline) => timeline.overlap.toggle("path"),
  "/": (timeline) => timeline.toolbar.search.input.focus(),
  Enter: (timeline, event) => timeline.finding.step(event.shiftKey ? -1 : 1),
  "?": showHelp,
  Escape: (timeline) => {
    timeline.pointing.leave();
    timeline.clear();
  },
};
