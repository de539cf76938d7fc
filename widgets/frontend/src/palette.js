// Which colour an operator wears. The same operator has the same colour under every engine.

import { contrast, css, mix, parseColour } from "./colours.js";

/**
 * @import { Colour } from "./colours.js"
 * @import { Model } from "./model.js"
 */

/** @typedef {{ rgb: Colour, fill: string, shades: string[], faded: string, ink: string }} Swatch a colour with all that drawing needs */

/** @typedef {{ ranks: Int32Array, order: number[] }} Ranking */

// Okabe and Ito's palette (https://jfly.uni-koeln.de/color/), told apart under every common form of colour blindness;
// black is left out because dark pages have it for background.
const HUES = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442"].map((hex) => parseColour(hex));
const BLACK = [20, 22, 26];
const WHITE = [255, 255, 255];

/** Shades between the lane's background (little of the pixel is covered) and the full colour. */
export const SHADES = 8;

/**
 * Colour of the `rank`-th operator: the plain hues first, then lighter and darker turns of them; as in palette.py, for still pictures.
 *
 * @param {number} rank
 */
export function operatorColour(rank) {
  const hue = HUES[rank % HUES.length];
  const turn = Math.floor(rank / HUES.length) % 3;
  const softened = mix(hue, WHITE, 0.88);
  if (turn === 0) return softened;
  return turn === 1 ? mix(softened, WHITE, 0.55) : mix(softened, BLACK, 0.6);
}

// How much of its tint, and of the ink, is in the colour of a kind of call on the host; the rest is ground. As in palette.py.
/** @type {Record<string, number>} */
const HOST_SHARES = { launch: 0.3, graph_launch: 0.5, event: 0.72, sync: 0.19, host: 0.45, compile: 0.45, api: 0.4, range: 0.42 };
/** @type {Record<string, Colour>} */
const HOST_TINTS = { host: [176, 148, 92], compile: [140, 110, 190], range: [40, 165, 150], api: [225, 60, 105] };

/**
 * Colour of each kind of host call: greys and tinted greys, so that none is taken for an operator.
 *
 * @param {Colour} ink
 * @param {Colour} ground
 */
export const hostColours = (ink, ground) => Object.fromEntries(Object.entries(HOST_SHARES).map(
  ([kind, share]) => [kind, mix(kind in HOST_TINTS ? mix(HOST_TINTS[kind], ink, 0.5) : ink, ground, share)],
));

/**
 * White or black, with a contrast of 4.5 at least, as WCAG asks of text.
 *
 * @param {Colour} rgb
 */
export const inkOn = (rgb) => (contrast(rgb, WHITE) >= 4.5 ? WHITE : [0, 0, 0]);

/**
 * A colour with all that drawing needs, as CSS text made once: shades by coverage, faded for the filter, ink.
 *
 * @param {Colour} rgb
 * @param {Colour} ground
 * @returns {Swatch}
 */
export function swatch(rgb, ground) {
  const shades = [];
  for (let level = 0; level <= SHADES; level++) shades.push(css(mix(rgb, ground, 0.22 + (0.78 * level) / SHADES)));
  return { rgb, fill: css(rgb), shades, faded: css(mix(rgb, ground, 0.14)), ink: css(inkOn(rgb)) };
}

/**
 * Codes of the operators in the order in which they take colours, and the rank of each name in it, -1 for none: `payload.py` says so.
 *
 * @param {Pick<Model, "order" | "names">} model
 * @returns {Ranking}
 */
export function rankNames({ order, names }) {
  const ranks = new Int32Array(names.length).fill(-1);
  order.forEach((code, rank) => (ranks[code] = rank));
  return { ranks, order };
}
