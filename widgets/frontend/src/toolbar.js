// The line above the canvas: what the colours mean, the filter, and zoom for those without a wheel.

import { make, makeButton, makeSwatch } from "./dom.js";

const MOST_CHIPS = 8;
const HOST_WORDS = {
  launch: "launch", graph_launch: "graph launch", event: "event", sync: "host waits", host: "host function", compile: "compilation",
};

export class Toolbar {
  /** @param {{onFilter, onZoom, onReset}} actions `onFilter` tells whether anything matches */
  constructor(root, actions, overlap) {
    this.overlap = overlap;
    this.actions = actions;
    this.chosen = null;
    this.legend = make("div", "ss-legend");
    this.legend.setAttribute("role", "group");
    this.legend.setAttribute("aria-label", "Operators");
    this.filter = make("input", "ss-filter");
    this.filter.type = "search";
    this.filter.placeholder = "filter by name";
    this.filter.setAttribute("aria-label", "Show only spans whose name contains this");
    this.filter.addEventListener("input", () => this.apply(null));
    const tools = make(
      "div", "ss-tools", ...overlap.buttons, this.filter,
      makeButton("−", "Zoom out (S)", () => actions.onZoom(1.6)),
      makeButton("+", "Zoom in (W)", () => actions.onZoom(1 / 1.6)),
      makeButton("reset", "Show everything (0)", actions.onReset),
    );
    this.overlapLegend = make("div", "ss-legend ss-legend-overlap");
    root.append(make("div", "ss-bar", this.legend, tools, this.overlapLegend));
  }

  /** Write the legend anew; called when the theme changes. */
  fill(model, ranking, theme) {
    const chips = ranking.order.slice(0, MOST_CHIPS).map((code) => {
      const chip = makeButton("", `Show only ${model.names[code]}`, () => this.apply(this.chosen === code ? null : code));
      chip.className = "ss-chip";
      chip.append(makeSwatch(theme.operators[code].fill), make("span", "", model.names[code]));
      chip.dataset.code = code;
      return chip;
    });
    const rest = ranking.order.length - chips.length;
    const more = rest > 0 ? [make("span", "ss-more", `+ ${rest} more`)] : [];
    this.legend.replaceChildren(...chips, ...more, ...hostLegend(model, theme));
    const atOnce = this.overlap.legend().map(([words, fill]) => make("span", "ss-key", makeSwatch(fill), words));
    this.overlapLegend.replaceChildren(...(atOnce.length ? [make("span", "ss-key", "at once:"), ...atOnce] : []));
    this.markChosen();
  }

  /** Filter by one operator, or by the text in the box. */
  apply(code) {
    this.chosen = code;
    if (code !== null) this.filter.value = "";
    this.markChosen();
    const found = this.actions.onFilter({ code, text: this.filter.value.trim().toLowerCase() });
    this.filter.setAttribute("aria-invalid", String(!found));
  }

  markChosen() {
    for (const chip of this.legend.querySelectorAll(".ss-chip")) {
      chip.setAttribute("aria-pressed", String(Number(chip.dataset.code) === this.chosen));
    }
  }
}

/** What the greys of the host lanes mean; kinds that occur nowhere are left out. */
function hostLegend(model, theme) {
  const present = (kind) => model.groups.some(({ kindCounts }) => kindCounts[model.kinds[kind]]);
  return Object.keys(HOST_WORDS).filter(present).map((kind) => {
    const swatch = makeSwatch(theme.host[kind].fill);
    if (kind === "sync") swatch.style.background = `repeating-linear-gradient(135deg, ${theme.hatchGround} 0 2px, ${theme.hatch} 2px 3px)`;
    return make("span", "ss-key", swatch, HOST_WORDS[kind]);
  });
}
