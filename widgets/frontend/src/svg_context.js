// A drawing context that writes SVG: as much of a canvas's as the timeline uses.

const escaped = (text) => String(text).replace(/[&<>"]/g, (sign) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[sign])
  // What XML 1.0 has no sign for.
  .replace(/[^\t\n\r\x20-\uD7FF\uE000-\uFFFD\u{10000}-\u{10FFFF}]/gu, "\uFFFD");
const short = (value) => String(Math.round(value * 100) / 100);

export class SvgContext {
  /** @param measure a canvas's context, which knows how wide text is */
  constructor(width, height, measure) {
    this.canvas = { width, height };
    this.measure = measure;
    this.parts = [];
    this.clips = 0;
    this.depths = [0];
    Object.assign(this, { fillStyle: "#000", strokeStyle: "#000", lineWidth: 1, globalAlpha: 1, font: "", textAlign: "left", lineJoin: "miter" });
  }

  /** The picture. `defs` are what fills refer to. */
  toString(defs = "") {
    const { width, height } = this.canvas;
    return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}">`
      + `<defs>${defs}</defs>${this.parts.join("")}${"</g>".repeat(this.depths.reduce((sum, depth) => sum + depth, 0))}</svg>`;
  }

  /** Colour and opacity apart, which every program that reads SVG understands. */
  paint(what, style) {
    const [, colour = style, alpha = "ff"] = /^(#[\da-f]{6})([\da-f]{2})$/.exec(style) ?? [];
    const opacity = this.globalAlpha * (parseInt(alpha, 16) / 255);
    return `${what}="${escaped(colour)}"${opacity < 1 ? ` ${what}-opacity="${short(opacity)}"` : ""}`;
  }

  open(tag) {
    this.parts.push(tag);
    this.depths[this.depths.length - 1]++;
  }

  save() {
    const { fillStyle, strokeStyle, lineWidth, globalAlpha, font } = this;
    this.depths.push(0);
    (this.saved ??= []).push({ fillStyle, strokeStyle, lineWidth, globalAlpha, font });
  }

  restore() {
    this.parts.push("</g>".repeat(this.depths.pop()));
    Object.assign(this, this.saved.pop());
  }

  translate(x, y) {
    this.open(`<g transform="translate(${short(x)} ${short(y)})">`);
  }

  clip() {
    this.clips++;
    this.parts.push(`<clipPath id="clip${this.clips}"><path d="${this.path}"/></clipPath>`);
    this.open(`<g clip-path="url(#clip${this.clips})">`);
  }

  clearRect() {}

  fillRect(x, y, width, height) {
    if (width > 0 && height > 0) this.parts.push(`<rect ${box(x, y, width, height)} ${this.paint("fill", this.fillStyle)}/>`);
  }

  strokeRect(x, y, width, height) {
    this.parts.push(`<rect ${box(x, y, width, height)} fill="none" ${this.paint("stroke", this.strokeStyle)} stroke-width="${short(this.lineWidth)}"/>`);
  }

  beginPath() {
    this.path = "";
  }

  moveTo(x, y) {
    this.path += `M${short(x)} ${short(y)}`;
  }

  lineTo(x, y) {
    this.path += `L${short(x)} ${short(y)}`;
  }

  bezierCurveTo(...points) {
    this.path += `C${points.map(short).join(" ")}`;
  }

  rect(x, y, width, height) {
    this.path += `M${short(x)} ${short(y)}h${short(width)}v${short(height)}h${short(-width)}z`;
  }

  roundRect(x, y, width, height) {
    this.rect(x, y, width, height);
  }

  fill() {
    this.parts.push(`<path d="${this.path}" ${this.paint("fill", this.fillStyle)}/>`);
  }

  stroke() {
    this.parts.push(`<path d="${this.path}" fill="none" ${this.paint("stroke", this.strokeStyle)} stroke-width="${short(this.lineWidth)}"/>`);
  }

  measureText(text) {
    this.measure.font = this.font;
    return this.measure.measureText(text);
  }

  fillText(text, x, y) {
    const anchor = this.textAlign === "center" ? ' text-anchor="middle"' : "";
    this.parts.push(
      `<text x="${short(x)}" y="${short(y)}" dominant-baseline="central"${anchor} style="font:${escaped(this.font)}" `
      + `${this.paint("fill", this.fillStyle)}>${escaped(text)}</text>`,
    );
  }
}

const box = (x, y, width, height) => `x="${short(x)}" y="${short(y)}" width="${short(width)}" height="${short(height)}"`;
