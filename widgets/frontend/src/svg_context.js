// A drawing context that writes SVG: as much of a canvas's as the timeline uses.

/**
 * As much of a canvas's context as the timeline uses.
 *
 * @typedef {Pick<CanvasRenderingContext2D, "fillStyle" | "strokeStyle" | "lineWidth" | "globalAlpha" | "font" | "textAlign" | "textBaseline"
 *   | "lineJoin" | "save" | "restore" | "translate" | "clearRect" | "fillRect" | "strokeRect" | "beginPath" | "moveTo" | "lineTo"
 *   | "bezierCurveTo" | "rect" | "roundRect" | "stroke" | "measureText" | "fillText">
 *   & Partial<Pick<CanvasRenderingContext2D, "drawImage" | "imageSmoothingEnabled">>
 *   & { canvas: { width: number, height: number }, clip(): void, fill(): void }} Context
 */

/** @param {unknown} text */
const escaped = (text) => String(text).replace(/[&<>"]/g, (sign) => /** @type {Record<string, string>} */ ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[sign])
  // What XML 1.0 has no sign for.
  .replace(/[^\t\n\r\x20-\uD7FF\uE000-\uFFFD\u{10000}-\u{10FFFF}]/gu, "\uFFFD");
/** @param {number} value */
const short = (value) => String(Math.round(value * 100) / 100);

/** @implements {Context} */
export class SvgContext {
  /**
   * @param measure a canvas's context, which knows how wide text is
   *
   * @param {number} width
   * @param {number} height
   * @param {Pick<CanvasRenderingContext2D, "font" | "measureText">} measure
   */
  constructor(width, height, measure) {
    this.canvas = { width, height };
    this.measure = measure;
    /** @type {string[]} */
    this.parts = [];
    this.clips = 0;
    this.depths = [0];
    /** @type {Context["fillStyle"]} */
    this.fillStyle = "#000";
    /** @type {Context["strokeStyle"]} */
    this.strokeStyle = "#000";
    this.lineWidth = this.globalAlpha = 1;
    this.font = this.path = "";
    /** @type {CanvasTextAlign} */
    this.textAlign = "left";
    /** @type {CanvasTextBaseline} */
    this.textBaseline = "middle";
    /** @type {CanvasLineJoin} */
    this.lineJoin = "miter";
    /** @type {Pick<Context, "fillStyle" | "strokeStyle" | "lineWidth" | "globalAlpha" | "font">[]} */
    this.saved = [];
  }

  /**
   * The picture. `defs` are what fills refer to.
   *
   * @param {string} defs
   */
  toString(defs = "") {
    const { width, height } = this.canvas;
    return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}">`
      + `<defs>${defs}</defs>${this.parts.join("")}${"</g>".repeat(this.depths.reduce((sum, depth) => sum + depth, 0))}</svg>`;
  }

  /**
   * Colour and opacity apart, which every program that reads SVG understands.
   *
   * @param {string} what
   * @param {Context["fillStyle"]} style
   */
  paint(what, style) {
    const [, colour = style, alpha = "ff"] = /^(#[\da-f]{6})([\da-f]{2})$/.exec(`${style}`) ?? [];
    const opacity = this.globalAlpha * (parseInt(alpha, 16) / 255);
    return `${what}="${escaped(colour)}"${opacity < 1 ? ` ${what}-opacity="${short(opacity)}"` : ""}`;
  }

  /** @param {string} tag */
  open(tag) {
    this.parts.push(tag);
    this.depths[this.depths.length - 1]++;
  }

  save() {
    const { fillStyle, strokeStyle, lineWidth, globalAlpha, font } = this;
    this.depths.push(0);
    this.saved.push({ fillStyle, strokeStyle, lineWidth, globalAlpha, font });
  }

  restore() {
    this.parts.push("</g>".repeat(this.depths.pop() ?? 0));
    Object.assign(this, this.saved.pop());
  }

  /**
   * @param {number} x
   * @param {number} y
   */
  translate(x, y) {
    this.open(`<g transform="translate(${short(x)} ${short(y)})">`);
  }

  clip() {
    this.clips++;
    this.parts.push(`<clipPath id="clip${this.clips}"><path d="${this.path}"/></clipPath>`);
    this.open(`<g clip-path="url(#clip${this.clips})">`);
  }

  clearRect() {}

  /**
   * @param {number} x
   * @param {number} y
   * @param {number} width
   * @param {number} height
   */
  fillRect(x, y, width, height) {
    if (width > 0 && height > 0) this.parts.push(`<rect ${box(x, y, width, height)} ${this.paint("fill", this.fillStyle)}/>`);
  }

  /**
   * @param {number} x
   * @param {number} y
   * @param {number} width
   * @param {number} height
   */
  strokeRect(x, y, width, height) {
    this.parts.push(`<rect ${box(x, y, width, height)} fill="none" ${this.paint("stroke", this.strokeStyle)} stroke-width="${short(this.lineWidth)}"/>`);
  }

  beginPath() {
    this.path = "";
  }

  /**
   * @param {number} x
   * @param {number} y
   */
  moveTo(x, y) {
    this.path += `M${short(x)} ${short(y)}`;
  }

  /**
   * @param {number} x
   * @param {number} y
   */
  lineTo(x, y) {
    this.path += `L${short(x)} ${short(y)}`;
  }

  /** @param {...number} points */
  bezierCurveTo(...points) {
    this.path += `C${points.map(short).join(" ")}`;
  }

  /**
   * @param {number} x
   * @param {number} y
   * @param {number} width
   * @param {number} height
   */
  rect(x, y, width, height) {
    this.path += `M${short(x)} ${short(y)}h${short(width)}v${short(height)}h${short(-width)}z`;
  }

  /**
   * @param {number} x
   * @param {number} y
   * @param {number} width
   * @param {number} height
   */
  roundRect(x, y, width, height) {
    this.rect(x, y, width, height);
  }

  fill() {
    this.parts.push(`<path d="${this.path}" ${this.paint("fill", this.fillStyle)}/>`);
  }

  stroke() {
    this.parts.push(`<path d="${this.path}" fill="none" ${this.paint("stroke", this.strokeStyle)} stroke-width="${short(this.lineWidth)}"/>`);
  }

  /** @param {string} text */
  measureText(text) {
    this.measure.font = this.font;
    return this.measure.measureText(text);
  }

  /**
   * @param {string} text
   * @param {number} x
   * @param {number} y
   */
  fillText(text, x, y) {
    const anchor = this.textAlign === "center" ? ' text-anchor="middle"' : "";
    this.parts.push(
      `<text x="${short(x)}" y="${short(y)}" dominant-baseline="central"${anchor} style="font:${escaped(this.font)}" `
      + `${this.paint("fill", this.fillStyle)}>${escaped(text)}</text>`,
    );
  }
}

/**
 * @param {number} x
 * @param {number} y
 * @param {number} width
 * @param {number} height
 */
const box = (x, y, width, height) => `x="${short(x)}" y="${short(y)}" width="${short(width)}" height="${short(height)}"`;
