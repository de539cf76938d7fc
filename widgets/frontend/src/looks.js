// Colours of the lane "at once" and of overlap, from the header's palette, which the charts share.

import { mix, parseColour } from "./colours.js";
import { swatch } from "./palette.js";
import { entriesOf } from "./records.js";

/**
 * @import { LookName } from "./header.js"
 * @import { Model } from "./model.js"
 * @import { Swatch } from "./palette.js"
 * @import { Theme } from "./theme.js"
 */

/** @typedef {Record<LookName, { words: string, note: string } & Swatch>} Looks */

/** @type {Record<string, number>} */
const IN_THE_DARK = { other: 0.65, kernel_wait: 0.75, host_wait: 0.85, launch: 0.85 };

/**
 * Colour and words by name, fitting the theme: {kernel: {words, note, fill, shades, …}, …}.
 *
 * @param {Model["looks"]} looks
 * @param {Pick<Theme, "ground" | "dark">} theme
 * @returns {Looks}
 */
export function looksOf(looks, theme) {
  const ground = parseColour(theme.ground);
  return /** @type {Looks} */ (Object.fromEntries(entriesOf(looks).map(([name, [words, light, dark, note]]) => {
    const rgb = theme.dark ? mix(parseColour(dark), ground, IN_THE_DARK[name] ?? 1) : parseColour(light);
    return [name, { words, note, ...swatch(rgb, ground) }];
  })));
}
