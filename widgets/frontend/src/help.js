// The overlay that tells the keys; made when it is asked for.

import { aria, make, makeButton, withKeys } from "./dom.js";

/**
 * The timeline as the help knows it.
 *
 * @typedef {{ root: HTMLElement, stage: { overlay: HTMLElement }, pointing: { leave(): void } }} HelpTarget
 */

/** @type {[string, string][]} [what it does, with which keys or gestures]; what stands between bars is a key. */
const KEY_WORDS = [
  ["zoom", "|W| and |S|, |+| and |−|; |Ctrl| and the wheel; after a click the wheel alone; two fingers"],
  ["move", "|A| and |D|, |←| and |→|; drag; |Shift| and the wheel"],
  ["zoom to a stretch", "|Ctrl| and drag, or the mode zoom"],
  ["show everything", "|0|, |Home|, a double click"],
  ["select", "a click; |N| and |P| for the next and the previous operation; |↓| and |↑| for the same one under another engine, or GPU"],
  ["zoom to the selection", "|F|; again: in all engines"],
  ["from a call to its kernel, and back", "|L|"],
  ["to what it waited for, and to what waited for it", "|[| and |]|"],
  ["align the engines at the selection", "|G|"],
  ["measure a stretch", "|Shift| and drag; |M| measures the selection, or the view"],
  ["add up an area by name", "|Alt| and drag, or the mode area"],
  ["find", "|/|, then type; |Enter| and |Shift| |Enter| for the next and the previous hit; |Escape| leaves the box"],
  ["collapse, move, pin, hide an engine", "the buttons at its name; drag its name to move it; |X| collapses all GPUs"],
  ["collapse or expand GPUs", "a click on a GPU's header; |X| for all"],
  ["show overlap, or not", "|O|: the lane at once, shaded overlap, event waits"],
  ["show the critical path, or not", "|C|"],
  ["show time by code, or counters", "|B|, |V|"],
  ["clear the selection", "|Escape|"],
];

/** @param {HelpTarget} timeline */
export function showHelp(timeline) {
  const rows = KEY_WORDS.flatMap(([what, how]) => [
    make("dt", "", what),
    make("dd", "", ...withKeys(how)),
  ]);
  const close = makeButton("×", "Close (Escape)", () => card.close());
  const card = make("dialog", "ss-help", make("div", "ss-panel-head", make("strong", "", "Keys"), make("div", "ss-actions", close)), make("dl", "", ...rows));
  aria(card, { label: "Keys of the timeline" });
  card.addEventListener("click", (event) => event.target === card && card.close());
  card.addEventListener("close", () => {
    card.remove();
    timeline.stage.overlay.focus({ preventScroll: true });
  });
  timeline.pointing.leave();
  timeline.root.append(card);
  card.showModal();
}
