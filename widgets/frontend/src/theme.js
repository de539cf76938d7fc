// What the page looks like: colours from JupyterLab's theme or, in a report, from the reader's preference.

import { css, luminance, mix, parseColour } from "./colours.js";
import { make } from "./dom.js";
import { hostColours, operatorColour, swatch } from "./palette.js";

/**
 * @import { Colour } from "./colours.js"
 * @import { Model } from "./model.js"
 */

/** @typedef {{ ground: Colour, ink: Colour, accent: Colour, font: string }} Look what the page says */

/** @typedef {ReturnType<typeof themeOf>} Theme */

/**
 * Whether the page is dark: JupyterLab, VS Code and Colab each say so in their own way; else the system's preference.
 *
 * @param {Window} view
 */
export function prefersDark(view = window) {
  const { body, documentElement } = view.document;
  if (body.dataset.jpThemeLight) return body.dataset.jpThemeLight === "false";
  const named = body.dataset.vscodeThemeKind ?? documentElement.getAttribute("theme"); // "vscode-dark", "vscode-high-contrast", "dark", …
  const kind = /(light|dark|high-contrast)$/.exec(named ?? ""); // Other names, such as "default", do not say.
  if (kind) return kind[1] !== "light";
  return view.matchMedia("(prefers-color-scheme: dark)").matches;
}

/**
 * Call `changed` whenever the answer may be another. Returns a function that stops it.
 *
 * @param {() => void} changed
 * @param {Window} view
 */
export function watchTheme(changed, view = window) {
  const observer = new MutationObserver(changed);
  const attributeFilter = ["data-jp-theme-light", "data-jp-theme-name", "data-vscode-theme-kind", "theme"];
  for (const node of [view.document.body, view.document.documentElement]) observer.observe(node, { attributes: true, attributeFilter });
  const preference = view.matchMedia("(prefers-color-scheme: dark)");
  preference.addEventListener("change", changed);
  return () => {
    observer.disconnect();
    preference.removeEventListener("change", changed);
  };
}

/**
 * Paper is white, whatever the screen is. Returns a function that stops watching.
 *
 * @param {() => void} before
 * @param {() => void} after
 * @param {Window} view
 */
export function watchPrint(before, after, view = window) {
  view.addEventListener("beforeprint", before);
  view.addEventListener("afterprint", after);
  return () => {
    view.removeEventListener("beforeprint", before);
    view.removeEventListener("afterprint", after);
  };
}

/**
 * @param {HTMLElement} root
 * @param {string} variable
 * @param {Colour} backdrop
 */
function computed(root, variable, backdrop) {
  const probe = make("span", "");
  probe.style.color = `var(${variable})`;
  probe.style.display = "none";
  root.append(probe);
  const colour = parseColour(getComputedStyle(probe).color, backdrop);
  probe.remove();
  return colour;
}

/**
 * What the page says: the colours of the root element's CSS variables, and its font. All else follows from it.
 *
 * @param {HTMLElement} root
 * @returns {Look}
 */
export function readLook(root) {
  const ground = computed(root, "--ground", [255, 255, 255]);
  return { ground, ink: computed(root, "--ink", ground), accent: computed(root, "--accent", ground), font: getComputedStyle(root).fontFamily };
}

/**
 * All colours and fonts that the canvas needs.
 *
 * @param {Look} look
 * @param {Pick<Model, "names">} model
 * @param {Int32Array} ranks
 */
export function themeOf({ ground, ink, accent, font }, model, ranks) {
  const dark = luminance(ground) < 0.2;
  /** @param {number} share */
  const tone = (share) => mix(ink, ground, share);
  const lane = tone(dark ? 0.085 : 0.055);
  return {
    dark,
    ground: css(ground),
    lane: css(lane),
    grid: css(tone(dark ? 0.13 : 0.09)),
    rule: css(tone(0.2)),
    ink: css(tone(0.94)),
    soft: css(tone(0.68)),
    faint: css(tone(0.5)),
    accent: css(accent),
    path: css(dark ? [255, 107, 129] : [200, 16, 68]),
    accentWash: css(accent, dark ? 0.16 : 0.1),
    band: css(tone(0.42)),
    hatch: css(tone(dark ? 0.3 : 0.24)),
    hatchGround: css(tone(dark ? 0.13 : 0.085)),
    host: Object.fromEntries(Object.entries(hostColours(ink, ground)).map(([kind, colour]) => [kind, swatch(colour, lane)])),
    operators: model.names.map((_, code) => swatch(operatorColour(Math.max(ranks[code], 0)), lane)),
    font,
  };
}
