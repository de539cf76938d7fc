// Rectangles of one colour. Those a pixel wide are pixels of a picture that is drawn once: a call of the canvas for each would take most of a frame.

import { contextOf, make } from "./dom.js";

/**
 * @import { Geometry } from "./geometry.js"
 * @import { Context } from "./svg_context.js"
 */

/** @typedef {Pick<Context, "fillRect"> & { fillStyle: Context["fillStyle"] }} Brush */

/** @type {Record<string, number>} of a colour as `css` writes it, its pixel */
const known = {};

/** @param {string} fill */
const pixelOf = (fill) => (known[fill] ??= new Uint32Array(
  Uint8Array.from(fill.slice(1).padEnd(8, "f").match(/../g) ?? [], (part) => parseInt(part, 16)).buffer,
)[0]);

/**
 * @param {Brush} ctx
 * @param {Context["fillStyle"]} fill
 * @param {number} x
 * @param {number} y
 * @param {number} width
 * @param {number} height
 */
export function fillRectangle(ctx, fill, x, y, width, height) {
  ctx.fillStyle = fill;
  ctx.fillRect(x, y, width, height);
}

/** A strip as wide as the plot, for pens that would draw on a canvas. */
export class Pixels {
  constructor() {
    this.context = contextOf(make("canvas", ""), { willReadFrequently: true });
    this.image = new ImageData(1, 1);
    this.pixels = new Uint32Array(1);
    this.left = this.top = this.lines = 0;
    this.fillStyle = "";
  }

  /**
   * @param {Pick<Geometry, "left" | "right">} geometry
   * @param {number} top
   * @param {number} lines
   */
  begin({ left, right }, top, lines) {
    const { image, context: { canvas } } = this;
    if (image.width !== right - left || image.height < lines) {
      this.image = new ImageData(canvas.width = right - left, canvas.height = lines);
      this.pixels = new Uint32Array(this.image.data.buffer);
    }
    this.left = left;
    this.top = top;
    this.lines = lines;
  }

  /**
   * @param {number} x
   * @param {number} y
   * @param {number} width
   * @param {number} height
   */
  fillRect(x, y, width, height) {
    const { pixels, image: { width: wide }, left, top, lines } = this;
    const pixel = pixelOf(this.fillStyle);
    const end = Math.min(x - left + width, wide);
    for (let line = y - top; line < Math.min(lines, y - top + height); line++) {
      for (let at = x - left; at < end; at++) pixels[line * wide + at] = pixel;
    }
  }

  /**
   * Draw the strip, so high.
   *
   * @param {Context} ctx
   * @param {number} height
   */
  drawOn(ctx, height) {
    const { context, image, left, top, lines } = this;
    context.putImageData(image, 0, 0);
    ctx.imageSmoothingEnabled = false;
    ctx.drawImage?.(context.canvas, 0, 0, image.width, lines, left, top, image.width, height);
    this.pixels.fill(0);
  }
}

/** Fills rectangles of one row; those that touch and are alike are filled as one. */
export class Pen {
  /** @param {Brush} ctx */
  constructor(ctx) {
    this.ctx = ctx;
    this.x = this.end = this.y = this.height = 0;
    this.fill = "";
  }

  /**
   * @param {number} x
   * @param {number} width
   * @param {number} y
   * @param {number} height
   * @param {string} fill
   */
  rectangle(x, width, y, height, fill) {
    if (x === this.end && y === this.y && height === this.height && fill === this.fill) {
      this.end = x + width;
      return;
    }
    this.flush();
    this.x = x;
    this.end = x + width;
    this.y = y;
    this.height = height;
    this.fill = fill;
  }

  flush() {
    if (this.end <= this.x) return;
    fillRectangle(this.ctx, this.fill, this.x, this.y, this.end - this.x, this.height);
    this.end = this.x;
  }
}
