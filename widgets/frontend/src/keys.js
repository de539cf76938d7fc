// What each key does while the canvas has the focus; help.js has the words for it.

import { showHelp } from "./help.js";

/**
 * @import { AlignMode } from "./align.js"
 * @import { Choosing } from "./choosing.js"
 * @import { Finding } from "./finding.js"
 * @import { HelpTarget } from "./help.js"
 * @import { OverlapSwitches } from "./switches.js"
 * @import { Viewer } from "./viewing.js"
 */

/**
 * The timeline as the keys know it.
 *
 * @typedef {HelpTarget & {
 *   viewer: Pick<Viewer, "mode" | "zoomBy" | "panShare">,
 *   choosing: Pick<Choosing, "fit" | "neighbour" | "acrossEngines" | "followLaunch" | "followWait" | "followDependent" | "measure">,
 *   finding: Pick<Finding, "step">, switches: Pick<OverlapSwitches, "toggle">, toolbar: { search: { input: HTMLElement } },
 *   align(mode: AlignMode): void, reset(): void, clear(): void, foldAll(): void,
 * }} KeyTarget
 */

/**
 * Whether a key belongs to the page, as Ctrl S does; AltGr only makes a sign, as [ on many keyboards.
 *
 * @param {KeyboardEvent} event
 */
export const isCombined = (event) => (event.ctrlKey || event.metaKey || event.altKey) && !event.getModifierState("AltGraph");

/**
 * Keep keys pressed in an element from the page, but for those that are the page's. Returns a function that lets all through.
 *
 * @param {HTMLElement} root
 */
export function keepKeys(root) {
  // Before JupyterLab looks at the element (dom.js).
  /** @param {KeyboardEvent} event */
  const mark = (event) => {
    const { target } = event;
    if (target instanceof Element && root.contains(target)) target.toggleAttribute("data-lm-suppress-shortcuts", !isCombined(event));
  };
  addEventListener("keydown", mark, true);
  root.addEventListener("keydown", (event) => isCombined(event) || event.stopPropagation());
  return () => removeEventListener("keydown", mark, true);
}

/** @param {KeyTarget} timeline */
const zoomIn = (timeline) => timeline.viewer.zoomBy(1 / 1.5);
/** @param {KeyTarget} timeline */
const zoomOut = (timeline) => timeline.viewer.zoomBy(1.5);
/** @param {KeyTarget} timeline */
const left = (timeline) => timeline.viewer.panShare(-0.2);
/** @param {KeyTarget} timeline */
const right = (timeline) => timeline.viewer.panShare(0.2);

/** @type {Record<string, (timeline: KeyTarget, event: KeyboardEvent) => void>} */
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
  o: (timeline) => timeline.switches.toggle("overlap"),
  c: (timeline) => timeline.switches.toggle("path"),
  b: (timeline) => timeline.switches.toggle("code"),
  v: (timeline) => timeline.switches.toggle("counters"),
  x: (timeline) => timeline.foldAll(),
  "/": (timeline) => timeline.toolbar.search.input.focus(),
  Enter: (timeline, event) => timeline.finding.step(event.shiftKey ? -1 : 1),
  "?": showHelp,
  Escape: (timeline) => {
    timeline.pointing.leave();
    timeline.clear();
  },
};
