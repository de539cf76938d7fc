// The line above the canvas: what the colours mean, the search, how the engines are aligned, what dragging does, zoom.

import { ALIGNMENTS } from "./align.js";
import { aria, make, makeButton, makeChoice, makeSwatch, rove } from "./dom.js";
import { showHelp } from "./help.js";
import { savePicture } from "./picture.js";
import { entriesOf } from "./records.js";
import { SearchBox } from "./search_box.js";
import { shortened } from "./text.js";

/**
 * @import { AlignMode } from "./align.js"
 * @import { Arrangement } from "./arrangement.js"
 * @import { Finding } from "./finding.js"
 * @import { KindName } from "./header.js"
 * @import { HelpTarget } from "./help.js"
 * @import { Model } from "./model.js"
 * @import { PictureSource } from "./picture.js"
 * @import { Dragging } from "./pointing.js"
 * @import { SearchTarget } from "./search_box.js"
 * @import { Theme } from "./theme.js"
 * @import { Viewer } from "./viewing.js"
 */

/**
 * The timeline as the line above it knows it.
 *
 * @typedef {PictureSource & HelpTarget & SearchTarget & {
 *   arrangement: Pick<Arrangement, "hidden">, viewer: Pick<Viewer, "mode" | "zoomBy">, finding: Pick<Finding, "find">,
 *   switches: { box: HTMLElement }, dragging: Dragging, align(mode: AlignMode): void, setDragging(mode: Dragging): void, reset(): void,
 *   arrange(change: () => void): void,
 * }} Owner
 */

const MOST_CHIPS = 8;
const LONGEST_NAME = 32;
/** @type {Record<Dragging, [string, string]>} */
const DRAGGING = {
  pan: ["pan", "Drag to move"],
  zoom: ["zoom", "Drag to zoom to a stretch (Ctrl and drag)"],
  measure: ["measure", "Drag to measure a stretch (Shift and drag)"],
  area: ["area", "Drag to add up an area by name (Alt and drag)"],
};
/** @type {Partial<Record<KindName, string>>} */
const HOST_WORDS = {
  launch: "launch", graph_launch: "graph launch", event: "event", sync: "host waits", host: "host function", compile: "compilation",
  api: "other call", range: "range",
};

export class Toolbar {
  /**
   * @param {HTMLElement} root
   * @param {Owner} timeline
   */
  constructor(root, timeline) {
    this.timeline = timeline;
    /** @type {number | null} */
    this.chosen = null;
    this.legend = make("div", "ss-legend");
    aria(this.legend, { role: "toolbar", label: "Operators" });
    this.search = new SearchBox(timeline, () => this.apply(null));
    this.alignment = makeChoice("Align the engines", ALIGNMENTS, (mode) => timeline.align(mode));
    this.modes = entriesOf(DRAGGING).map(([mode, [text, words]]) => {
      const button = makeButton(text, words, () => timeline.setDragging(mode));
      button.dataset.mode = mode;
      return button;
    });
    const modes = make("div", "ss-modes", ...this.modes);
    aria(modes, { role: "group", label: "What dragging does" });
    this.buttons = make(
      "div", "ss-buttons", modes,
      makeButton("−", "Zoom out (S)", () => timeline.viewer.zoomBy(1.6)),
      makeButton("+", "Zoom in (W)", () => timeline.viewer.zoomBy(1 / 1.6)),
      makeButton("reset", "Show everything (0)", () => timeline.reset()),
      makeButton("PNG", "Save this view as PNG", () => savePicture(timeline, "png")),
      makeButton("SVG", "Save this view as SVG", () => savePicture(timeline, "svg")),
      makeButton("?", "Tell the keys (?)", () => showHelp(timeline)),
    );
    aria(this.buttons, { role: "toolbar", label: "View" });
    rove(this.buttons);
    root.append(make("div", "ss-bar", this.legend, make("div", "ss-tools", this.search.box, this.alignment, this.buttons), timeline.switches.box));
  }

  /** Write the legend anew; called when the theme changes. */
  fill() {
    const { model, ranking, theme } = this.timeline;
    const chips = ranking.order.slice(0, MOST_CHIPS).flatMap((code) => {
      const name = shortened(model.names[code], LONGEST_NAME);
      const key = () => [makeSwatch(theme.operators[code].fill), make("span", "", name)];
      const chip = makeButton(name, `Show only ${model.names[code]}`, () => this.apply(this.chosen === code ? null : code));
      chip.className = "ss-chip";
      chip.replaceChildren(...key());
      chip.dataset.code = `${code}`;
      // Nothing that can be pressed is printed.
      return [chip, make("span", "ss-key ss-paper", ...key())];
    });
    const rest = ranking.order.length - MOST_CHIPS;
    const more = rest > 0 ? [make("span", "ss-more", `+ ${rest} more`)] : [];
    this.back = make("span", "ss-back");
    this.legend.replaceChildren(...chips, ...more, ...hostLegend(model, theme), this.back);
    this.refresh();
  }

  /**
   * Show only one name, by its code, or what has a text in its name.
   *
   * @param {number | null} code
   * @param {string} text
   */
  find(code, text) {
    this.search.input.value = text;
    this.apply(code === -1 ? null : code);
  }

  /**
   * Filter by one operator, or by the text in the box.
   *
   * @param {number | null} code
   */
  apply(code) {
    this.chosen = code;
    if (code !== null) this.search.input.value = "";
    this.timeline.finding.find({ code, text: this.search.text });
    this.refresh();
  }

  /** Say in the buttons what is chosen, and which engines are hidden. */
  refresh() {
    const { arrangement, model, viewer, dragging } = this.timeline;
    /**
     * @param {HTMLElement} button
     * @param {boolean} pressed
     */
    const press = (button, pressed) => aria(button, { pressed });
    for (const chip of /** @type {NodeListOf<HTMLElement>} */ (this.legend.querySelectorAll(".ss-chip"))) press(chip, Number(chip.dataset.code) === this.chosen);
    for (const button of this.modes) press(button, button.dataset.mode === dragging);
    this.alignment.value = viewer.mode;
    this.back?.replaceChildren(...[...arrangement.hidden].map((index) => {
      const { label } = model.groups[index];
      return makeButton(`+ ${label}`, `Show ${label} again`, () => this.timeline.arrange(() => arrangement.hidden.delete(index)));
    }));
    rove(this.legend);
    this.search.tell();
  }
}

/**
 * What the greys of the host lanes mean; kinds that occur nowhere are left out.
 *
 * @param {Model} model
 * @param {Theme} theme
 */
function hostLegend(model, theme) {
  const present = entriesOf(HOST_WORDS).filter(([kind]) => model.groups.some(({ kindCounts }) => kindCounts[model.kinds[kind]]));
  const hatched = `repeating-linear-gradient(135deg, ${theme.hatchGround} 0 2px, ${theme.hatch} 2px 3px)`;
  /** @type {[string, string][]} */
  const keys = present.map(([kind, words]) => [kind === "sync" ? hatched : theme.host[kind].fill, words]);
  if (model.groups.some(({ collectives }) => collectives?.waiting.some(Boolean))) keys.push([hatched, "waits for other GPUs"]);
  return keys.map(([fill, words]) => make("span", "ss-key", makeSwatch(fill), words));
}
