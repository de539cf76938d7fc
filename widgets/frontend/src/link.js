// A link to a report that opens it with the same view.

import { ALIGNMENTS } from "./align.js";
import { makeButton, rove } from "./dom.js";

/** @import { State } from "./state.js" */

/** @typedef {{ get state(): State, set state(wanted: Partial<State>), toolbar: { buttons: HTMLElement } }} LinkTarget */

const MARK = "#view=";

/** @param {Partial<State>} state */
export const writeLink = (state) => MARK + encodeURIComponent(JSON.stringify(state));

/** @param {unknown} value */
const isText = (value) => typeof value === "string";
/**
 * @param {unknown} value
 * @returns {value is Record<string, unknown>}
 */
const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
/** @param {unknown} value */
const isTexts = (value) => Array.isArray(value) && value.every(isText);
/**
 * @param {(value: unknown) => boolean} check
 * @returns {(value: unknown) => boolean}
 */
const orNull = (check) => (value) => value === null || check(value);
/** @param {unknown} value */
const isRange = (value) => Array.isArray(value) && value.length === 2 && value.every(Number.isFinite);
/** @param {Record<string, unknown>} value */
const isSelection = ({ engine = "", name = null, operation = null, span = -1 }) => (
  isText(engine) && orNull(isText)(name) && orNull(Number.isInteger)(operation) && Number.isInteger(span)
);

// What each part of a state must look like: anybody can write a link.
/** @type {Record<keyof State, (value: unknown) => boolean>} */
const SHAPES = {
  range: orNull(isRange),
  selection: orNull((value) => isObject(value) && isSelection(value)),
  engines: isTexts,
  pinned: isTexts,
  collapsed: isTexts,
  align: (value) => typeof value === "string" && Object.hasOwn(ALIGNMENTS, value),
  shows: isTexts,
  find: (value) => isObject(value) && orNull(isText)(value.name) && isText(value.text),
};

/**
 * The state that a link's last part says, without what is no part of one; null if it says none.
 *
 * @param {string} hash
 * @returns {Partial<State> | null}
 */
export function readLink(hash) {
  if (!hash.startsWith(MARK)) return null;
  try {
    /** @type {unknown} */
    const state = JSON.parse(decodeURIComponent(hash.slice(MARK.length)));
    if (!isObject(state)) return null;
    const fitting = Object.entries(SHAPES).filter(([part, fits]) => Object.hasOwn(state, part) && fits(state[part]));
    return Object.fromEntries(fitting.map(([part]) => [part, state[part]]));
  } catch {
    return null;
  }
}

/**
 * Show what the page's address says, now and when it changes, and offer a link to what is shown.
 *
 * @param {LinkTarget} timeline
 * @param {Window} page
 */
export function linkPage(timeline, page = window) {
  const follow = () => {
    const state = readLink(page.location.hash);
    if (state) timeline.state = state;
  };
  follow();
  page.addEventListener("hashchange", follow);
  const button = makeButton("link", "Copy a link to this view", async () => {
    page.history.replaceState(null, "", writeLink(timeline.state));
    try {
      await page.navigator.clipboard.writeText(page.location.href);
      button.textContent = "copied";
    } catch {
      button.textContent = "in the address";
    }
    setTimeout(() => (button.textContent = "link"), 1500);
  });
  timeline.toolbar.buttons.append(button);
  rove(timeline.toolbar.buttons);
}
