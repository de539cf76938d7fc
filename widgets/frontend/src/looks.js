// Colours of the lane "at once" and of overlap, from the header's palette, which the charts share.

import { mix, parseColour } from "./colours.js";
import { swatch } from "./palette.js";

const IN_THE_DARK = { other: 0.65, kernel_wait: 0.75, host_wait: 0.85, launch: 0.85 };

/** Colour and words by name, fitting the theme: {kernel: {words, fill, shades, …}, …}. */
export function looksOf(looks, theme) {
  const ground = parseColour(theme.ground);
  return Object.fromEntries(Object.entries(looks).map(([name, [words, light, dark]]) => {
    const rgb = theme.dark ? mix(parseColour(dark), ground, IN_THE_DARK[name] ?? 1) : parseColour(light);
    return [name, { words, ...swatch(rgb, ground) }];
  }));
}
