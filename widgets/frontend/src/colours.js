// Colours as [r, g, b] triples: reading CSS's notation, mixing, contrast.

/** @typedef {readonly number[]} Colour red, green and blue, 0 to 255 */

/**
 * Parse what a browser computes for a colour: "rgb(1, 2, 3)", "rgba(…)", "color(srgb …)"; or "#rrggbb".
 *
 * @param {string} text
 * @param {Colour} backdrop
 * @returns {Colour}
 */
export function parseColour(text, backdrop = [255, 255, 255]) {
  if (text.startsWith("#")) return [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16));
  const numbers = (text.match(/[\d.]+(e-?\d+)?/g) ?? ["0", "0", "0"]).map(Number);
  const rgb = numbers.slice(0, 3).map((part) => (text.startsWith("color(") ? part * 255 : part));
  return mix(rgb, backdrop, numbers[3] ?? 1);
}

/**
 * `share` of colour `a`, the rest `b`.
 *
 * @param {Colour} a
 * @param {Colour} b
 * @param {number} share
 */
export const mix = (a, b, share) => a.map((part, i) => part * share + b[i] * (1 - share));

/** @param {number} part */
const hex = (part) => Math.round(part).toString(16).padStart(2, "0");

/**
 * As "#rrggbb" or "#rrggbbaa": what a canvas reads quickest.
 *
 * @param {Colour} rgb
 * @param {number} alpha
 */
export const css = (rgb, alpha = 1) => `#${rgb.map(hex).join("")}${alpha < 1 ? hex(255 * alpha) : ""}`;

/** @param {number} part */
const linear = (part) => (part <= 10.31475 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4);

/**
 * Relative luminance, 0 to 1 (WCAG 2).
 *
 * @param {Colour} rgb
 */
export const luminance = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);

/**
 * Contrast ratio, 1 to 21 (WCAG 2).
 *
 * @param {Colour} a
 * @param {Colour} b
 */
export function contrast(a, b) {
  const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y);
  return (high + 0.05) / (low + 0.05);
}
