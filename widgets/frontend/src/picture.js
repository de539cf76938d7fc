// A picture of the view, as PNG or SVG, drawn by what draws the screen, with the legend above it.

import { contextOf, make } from "./dom.js";
import { drawBase } from "./draw.js";
import { fillRectangle } from "./filling.js";
import { entryCapacity } from "./lod.js";
import { drawOverlay } from "./overlay.js";
import { buildScene } from "./scene.js";
import { hatchPattern } from "./spans.js";
import { SvgContext } from "./svg_context.js";
import { font, writeText } from "./text.js";

/**
 * @import { Marks } from "./overlay.js"
 * @import { Ranking } from "./palette.js"
 * @import { FrameSource, Scene } from "./scene.js"
 * @import { Context } from "./svg_context.js"
 * @import { Theme } from "./theme.js"
 */

/** @typedef {FrameSource & Marks & { ranking: Ranking }} PictureSource */

const LEGEND = 30;
const PNG_SCALE = 2;

/**
 * The view as a picture.
 *
 * @param {PictureSource} timeline
 * @param {"png" | "svg"} format
 * @returns {Promise<Blob>}
 */
export async function pictureOf(timeline, format) {
  const { width, height } = timeline.layout;
  const scale = format === "png" ? PNG_SCALE : 1;
  const canvas = make("canvas", "");
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round((height + LEGEND) * scale);
  const pen = contextOf(canvas);
  if (format === "png") {
    draw(pen, timeline, scale, hatchPattern(pen, timeline.theme, scale));
    return new Promise((done) => canvas.toBlob((picture) => done(/** @type {Blob} */ (picture)), "image/png"));
  }
  const svg = new SvgContext(canvas.width, canvas.height, pen);
  draw(svg, timeline, scale, "url(#hatch)");
  return new Blob([svg.toString(hatchDefinition(timeline.theme))], { type: "image/svg+xml" });
}

/**
 * @param {Context} ctx
 * @param {PictureSource} timeline
 * @param {number} scale
 * @param {string | CanvasPattern} hatch
 */
function draw(ctx, timeline, scale, hatch) {
  const { layout, model } = timeline;
  /** @type {PictureSource} */
  const other = Object.create(timeline, Object.fromEntries(Object.entries({
    dpr: scale, hatch, pixels: null, pairs: new Int32Array(2 * entryCapacity(Math.ceil(layout.width * scale))),
    labelWidths: new Float32Array(model.names.length).fill(NaN),
  }).map(([name, value]) => [name, { value }])));
  const scene = buildScene(other);
  fillRectangle(ctx, timeline.theme.ground, 0, 0, ctx.canvas.width, ctx.canvas.height);
  drawLegend(ctx, scene, timeline);
  ctx.translate(0, LEGEND * scale);
  drawBase(ctx, scene);
  const { selected, measured } = timeline;
  drawOverlay(ctx, scene, { selected, measured, hovered: null, rubber: null, cursor: null }, false);
}

/**
 * The operators, as many as fit into a line.
 *
 * @param {Context} ctx
 * @param {Scene} scene
 * @param {Pick<PictureSource, "ranking">} timeline
 */
function drawLegend(ctx, scene, { ranking }) {
  const { geometry: g, model, theme } = scene;
  ctx.font = font(scene, 11);
  ctx.textBaseline = "middle";
  let x = 0;
  for (const code of ranking.order) {
    const width = ctx.measureText(model.names[code]).width + g.px(30);
    if (x + width > ctx.canvas.width) return;
    fillRectangle(ctx, theme.operators[code].fill, x, g.px(LEGEND / 2 - 5), g.px(10), g.px(10));
    writeText(ctx, theme.ink, model.names[code], x + g.px(15), g.px(LEGEND / 2));
    x += width;
  }
}

/** @param {Theme} theme */
const hatchDefinition = (theme) => (
  `<pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse"><rect width="6" height="6" fill="${commas(theme.hatchGround)}"/>`
  + `<path d="M-1 7L7 -1M-4 4L4 -4M2 10L10 2" stroke="${commas(theme.hatch)}"/></pattern>`
);

/** @param {string} colour */
const commas = (colour) => colour.replace(/(\d) (?=\d)/g, "$1,");

/**
 * Hand the picture to the reader as a file.
 *
 * @param {PictureSource} timeline
 * @param {"png" | "svg"} format
 */
export async function savePicture(timeline, format) {
  const address = URL.createObjectURL(await pictureOf(timeline, format));
  const link = make("a", "");
  link.href = address;
  link.download = `${timeline.model.program || "timeline"}.${format}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}
