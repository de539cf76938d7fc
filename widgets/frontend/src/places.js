// A place in the code, file:line. In JupyterLab it is a button that opens the file there: lab.js listens to its event.

import { make, makeButton } from "./dom.js";

/** @import { Stage } from "./stage.js" */

/** @typedef {{ file: string, line: number, say: (words: string) => void }} Place what the event's detail holds; `say` tells why nothing opens */

export const OPEN = "streamscope:open";

const NO_FILE = /^(In\[|<)/; // a notebook's cell, or code that was never in a file

/**
 * Whether somebody may open a file: only JupyterLab says so of its theme.
 *
 * @param {string} file
 */
export const canOpen = (file) => document.body.dataset.jpThemeLight !== undefined && !NO_FILE.test(file);

/** @param {{ file: string, line: number }} place */
export const wordsOf = ({ file, line }) => (line ? `${file}:${line}` : file);

/**
 * @param {{ file: string, line: number }} place
 * @param {Pick<Stage, "nudge">} stage
 */
export function placeOf({ file, line }, stage) {
  const words = wordsOf({ file, line });
  if (!canOpen(file)) return make("span", "ss-place", words);
  /** @param {string} text */
  const say = (text) => stage.nudge(text, 4000);
  const button = makeButton(words, `Open ${words}`, () => {
    /** @type {Place} */
    const detail = { file, line, say };
    const untouched = button.dispatchEvent(new CustomEvent(OPEN, { bubbles: true, cancelable: true, detail }));
    if (untouched) say("Streamscope's extension of JupyterLab opens files, and is not there");
  });
  button.classList.add("ss-place");
  return button;
}
