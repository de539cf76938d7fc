// A link to a report that opens it with the same view.

import { ALIGNMENTS } from "./align.js";
import { makeButton, rove } from "./dom.js";

const MARK = "#view=";

export const writeLink = (state) => MARK + encodeURIComponent(JSON.stringify(state));

const isText = (value) => typeof value === "string";
const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
const isTexts = (value) => Array.isArray(value) && value.every(isText);
const orNull = (check) => (value) => value === null || check(value);
const isRange = (value) => Array.isArray(value) && value.length === 2 && value.every(Number.isFinite);
const isSelection = ({ engine = "", name = null, operation = null, span = -1 }) => (
  isText(engine) && orNull(isText)(name) && orNull(Number.isInteger)(operation) && Number.isInteger(span)
);

// What each part of a state must look like: anybody can write a link.
const SHAPES = {
  range: orNull(isRange),
  selection: orNull((value) => isObject(value) && isSelection(value)),
  engines: isTexts,
  pinned: isTexts,
  collapsed: isTexts,
  align: (value) => isText(value) && Object.hasOwn(ALIGNMENTS, value),
  shows: isTexts,
  find: (value) => isObject(value) && orNull(isText)(value.name) && isText(value.text),
};

/** The state that a link's last part says, without what is no part of one; null if it says none. */
export function readLink(hash) {
  if (!hash.startsWith(MARK)) return null;
  try {
    const state = JSON.parse(decodeURIComponent(hash.slice(MARK.length)));
    return isObject(state) ? Object.fromEntries(Object.entries(state).filter(([part, value]) => Object.hasOwn(SHAPES, part) && SHAPES[part](value))) : null;
  } catch {
    return null;
  }
}

/** Show what the page's address says, now and when it changes, and offer a link to what is shown. */
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
