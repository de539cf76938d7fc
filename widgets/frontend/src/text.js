// Text on a canvas.

/** @import { Context } from "./svg_context.js" */

/** @typedef {Pick<Context, "measureText">} Measure */

/**
 * @param {{ geometry: { dpr: number }, theme: { font: string } }} scene
 * @param {number} size
 * @param {string} weight
 */
export const font = (scene, size, weight = "") => `${weight} ${size * scene.geometry.dpr}px ${scene.theme.font}`;

/**
 * @param {Context} ctx
 * @param {Context["fillStyle"]} ink
 * @param {string} text
 * @param {number} x
 * @param {number} y
 */
export function writeText(ctx, ink, text, x, y) {
  ctx.fillStyle = ink;
  ctx.fillText(text, x, y);
}

/**
 * At most so many letters of a text, its end among them: kernels' names often differ there.
 *
 * @param {string} text
 * @param {number} most
 */
export function shortened(text, most) {
  if (text.length <= most) return text;
  const end = Math.floor(most / 4);
  return `${text.slice(0, most - end - 1)}…${text.slice(-end)}`;
}

/**
 * The text, or as much of its beginning as fits.
 *
 * @param {Measure} ctx
 * @param {string} text
 * @param {number} room
 */
export function fitted(ctx, text, room) {
  let width = ctx.measureText(text).width;
  if (width <= room) return text;
  for (let letters = text.length; letters > 0; ) {
    letters = Math.min(letters - 1, Math.floor((letters * room) / width));
    const words = `${text.slice(0, letters)}…`;
    width = ctx.measureText(words).width;
    if (width <= room) return letters > 0 ? words : "";
  }
  return "";
}
