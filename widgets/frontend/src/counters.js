// Lanes of memory and counters under the streams, on their axis; markers and the reader's notes through all lanes.

import { offAxis } from "./align.js";
import { comparable, decodeCounters, stepsOf, valueAt, valueWords } from "./counter_lines.js";
import { aria, contextOf, make } from "./dom.js";
import { fillRectangle } from "./filling.js";
import { timeAt } from "./geometry.js";
import { sceneOf } from "./scene.js";
import { gallop, lowerBound } from "./search.js";
import { fitted, font, writeText } from "./text.js";

/**
 * @import { CounterLane, Counters, Line } from "./counter_lines.js"
 * @import { NoteHeader } from "./header.js"
 * @import { Ask } from "./messages.js"
 * @import { Model } from "./model.js"
 * @import { Scene } from "./scene.js"
 * @import { Stage } from "./stage.js"
 * @import { Viewer } from "./viewing.js"
 */

/**
 * The timeline as the lanes know it.
 *
 * @typedef {object} Owner
 * @property {Model} whole
 * @property {Pick<Stage, "box" | "nudge" | "baseContext">} stage
 * @property {Pick<Viewer, "view" | "alignments">} viewer
 * @property {number | null} cursor
 * @property {number} dpr
 * @property {(base?: boolean) => void} redraw
 */

/** @typedef {{ group: number, lane: CounterLane, top: number, height: number, line: number }} Row `line` is the height of what is drawn in it */

// In CSS pixels; of several engines there are more lanes, which are lower.
const SIZES = { one: { height: 40, line: 30 }, several: { height: 30, line: 26 } };
const GAP = 4;
const NAMES = 16;

export class CounterLanes {
  /**
   * @param {Owner} timeline
   * @param {Ask} ask
   */
  constructor(timeline, ask) {
    this.timeline = timeline;
    this.ask = ask;
    /** @type {Counters[] | null} of each group */
    this.groups = null;
    this.asked = false;
    this.look = "";
    this.canvas = make("canvas", "");
    aria(this.canvas, { role: "img" });
    this.canvas.addEventListener("pointermove", (event) => this.point(event.offsetX));
    this.canvas.addEventListener("pointerleave", () => this.point(null));
    this.box = make("div", "ss-lanes", this.canvas);
    this.box.hidden = true;
    /** @type {{ left: number, right: number } | null} */
    this.plot = null;
  }

  async load() {
    this.asked = true;
    try {
      const { header, block } = await this.ask({ type: "counters" });
      this.groups = header.groups.map((group) => decodeCounters(group, block));
      this.timeline.redraw();
    } catch (error) {
      this.timeline.stage.nudge(`No counters: ${/** @type {Error} */ (error).message}`);
    }
  }

  /**
   * The pointer is over a place of the lanes: show the values there, and the line on the streams, too.
   *
   * @param {number | null} x
   */
  point(x) {
    const { plot, timeline } = this;
    timeline.cursor = x === null || !plot || x < plot.left || x > plot.right ? null : timeAt(timeline.viewer.view, plot, x);
    timeline.redraw(false);
  }

  /**
   * @param {Scene} scene
   * @param {boolean} shown
   */
  draw(scene, shown) {
    if (!shown) this.asked = this.groups !== null; // Switched on again, it is asked for again.
    else if (!this.asked) this.load();
    const { groups } = this;
    this.box.hidden = !shown || !groups;
    if (!groups || !shown) return;
    this.plot = scene.layout.plot;
    const marked = scene.layout.groups.filter(({ index }) => groups[index].markers.time.length);
    const noted = scene.layout.groups.filter(({ index }) => groups[index].notes.length);
    const heads = NAMES * (marked.length + noted.length);
    const rows = rowsOf(scene, groups, heads);
    this.size(scene, rows.length ? rows[rows.length - 1].top + rows[0].height + GAP : heads);
    const ctx = contextOf(this.canvas);
    fillRectangle(ctx, scene.theme.ground, 0, 0, this.canvas.width, this.canvas.height);
    ctx.textBaseline = "middle";
    for (const row of rows) this.drawLane(ctx, scene, row, rows);
    marked.forEach((group, place) => this.drawMarkers(ctx, scene, group, NAMES * place, marked.length > 1 ? rows : null));
    noted.forEach((group, place) => this.drawNotes(ctx, scene, group, NAMES * (marked.length + place), noted.length > 1));
    const left = scene.layout.groups.reduce((sum, { index }) => sum + groups[index].left_out, 0);
    const words = noted.flatMap(({ index }) => this.notesAt(scene, index));
    this.canvas.title = words.join("\n") || (left ? `${left} more counters are not drawn: those with most values are.` : "");
    this.describe(rows, noted.flatMap(({ index }) => groups[index].notes));
  }

  /**
   * @param {Scene} scene
   * @param {number} height
   */
  size({ geometry: g, layout }, height) {
    const { canvas } = this;
    const [wide, high] = [Math.round(layout.width * g.dpr), g.px(height)];
    if (canvas.width === wide && canvas.height === high) return;
    canvas.width = wide;
    canvas.height = high;
    canvas.style.height = `${height}px`;
  }

  /**
   * @param {Row[]} rows
   * @param {NoteHeader[]} notes
   */
  describe(rows, notes) {
    const words = rows.map(({ lane }) => `${lane.label} from ${valueWords(lane.low, lane.unit)} to ${valueWords(lane.high, lane.unit)}`);
    if (notes.length) words.push(`your notes: ${notes.slice(0, 20).map(noteWords).join(", ")}`);
    aria(this.canvas, { label: `Counters under the streams: ${words.join("; ") || "markers"}` });
  }

  /**
   * The notes at the pointer, in words.
   *
   * @param {Scene} scene
   * @param {number} group
   */
  notesAt(scene, group) {
    const { geometry: g } = sceneOf(scene, group);
    const { cursor, viewer } = this.timeline;
    if (cursor === null) return [];
    const x = g.x(offAxis(viewer.alignments[group], cursor));
    return this.notes(group).filter(({ start, end }) => g.x(start) - g.px(3) <= x && x <= g.x(end) + g.px(3)).map(noteWords);
  }

  /** @param {number} group */
  notes(group) {
    return /** @type {Counters[]} */ (this.groups)[group].notes;
  }

  /**
   * A dashed line at each end of a note through the lanes of its group, a bar from one to the other, and its number and text below.
   *
   * @param {CanvasRenderingContext2D} ctx
   * @param {Scene} scene
   * @param {{ index: number, body: number, bottom: number }} group
   * @param {number} top of the row of texts
   * @param {boolean} several whether other groups have notes, too
   */
  drawNotes(ctx, scene, { index, body, bottom }, top, several) {
    const { geometry: g, theme } = sceneOf(scene, index);
    const above = this.timeline.stage.baseContext;
    const wide = g.hair;
    const middle = g.px(top + NAMES / 2);
    const notes = this.notes(index);
    ctx.font = font(scene, 11);
    writeText(ctx, theme.soft, fitted(ctx, several ? `${scene.model.groups[index].label} · notes` : "notes", g.left - g.px(14)), g.px(6), middle);
    let free = g.left;
    notes.forEach((note, place) => {
      const ends = [...new Set([note.start, note.end].map((time) => Math.round(g.x(time))))];
      const [from, to] = [Math.max(ends[0], g.left), Math.min(ends[ends.length - 1], g.right)];
      if (from > to) return;
      // What lies over the streams is opaque: a frame that draws the lanes alone draws it once more.
      above.fillStyle = ctx.fillStyle = theme.ink;
      above.fillRect(from, g.px(body), to - from, 2 * wide);
      for (const x of ends.filter((each) => each === from || each === to)) {
        for (let y = g.px(body); y < g.px(bottom); y += 6 * wide) above.fillRect(x, y, wide, 3 * wide);
      }
      ctx.globalAlpha = 0.12;
      ctx.fillRect(from, g.px(top), Math.max(wide, to - from), several ? g.px(NAMES) : this.canvas.height - g.px(top));
      ctx.globalAlpha = 1;
      if (from < free) return;
      const number = `${note.number}`;
      const badge = ctx.measureText(number).width + g.px(8);
      ctx.fillRect(from, g.px(top + 1), badge, g.px(NAMES - 2));
      writeText(ctx, theme.ground, number, from + g.px(4), middle);
      const next = place + 1 < notes.length ? Math.min(g.right, g.x(notes[place + 1].start)) : g.right;
      const words = fitted(ctx, note.text, next - from - badge - g.px(8));
      writeText(ctx, theme.ink, words, from + badge + g.px(4), middle);
      free = from + badge + g.px(4) + (words ? ctx.measureText(words).width : 0);
    });
  }

  /**
   * @param {CanvasRenderingContext2D} ctx
   * @param {Scene} scene
   * @param {Row} row
   * @param {Row[]} rows
   */
  drawLane(ctx, scene, { group, lane, top, height, line: high }, rows) {
    const { geometry: g, theme } = sceneOf(scene, group);
    const { cursor, viewer } = this.timeline;
    const now = cursor === null ? null : offAxis(viewer.alignments[group], cursor);
    const [y, base] = [g.px(top + (height - high) / 2), g.px(top + (height + high) / 2)];
    fillRectangle(ctx, theme.lane, g.left, y, g.right - g.left, base - y);
    const labels = isOfSeveral(rows) ? [lane.label, scene.model.groups[group].label] : [lane.label];
    ctx.font = font(scene, 11);
    ctx.fillStyle = theme.soft;
    labels.forEach((label, place) => ctx.fillText(fitted(ctx, label, g.left - g.px(14)), g.px(6), y + g.px(7 + 13 * place)));
    const largest = Math.max(Math.abs(lane.low), Math.abs(lane.high)) || 1; // The range of two doubles may be no double.
    const range = lane.high / largest - lane.low / largest;
    /** @param {number} value */
    const toY = (value) => base - (range > 0 ? (value / largest - lane.low / largest) / range : 0.5) * (base - y - 1);
    ctx.save();
    ctx.beginPath();
    ctx.rect(g.left, y - 2, g.right - g.left, base - y + 4);
    ctx.clip();
    // Of memory the first line is what is lent; all that was taken from the driver lies behind it.
    [...lane.lines].reverse().forEach((line, place) => {
      const front = place === lane.lines.length - 1;
      drawLine(ctx, scene, group, line, toY, lane.unit === "B" && lane.peak !== null ? base : null, front);
    });
    if (lane.peak !== null) drawPeak(ctx, scene, group, lane, toY);
    ctx.font = font(scene, 10);
    const ends = lane.high > lane.low ? [lane.high, lane.low] : [lane.high];
    ends.forEach((value, place) => {
      const words = valueWords(value, lane.unit);
      write(ctx, scene, words, g.right - g.px(4) - ctx.measureText(words).width, place ? base - g.px(6) : y + g.px(7), theme.soft);
    });
    if (now !== null) {
      const x = Math.round(g.x(now));
      fillRectangle(ctx, theme.ink, x, y, g.hair, base - y);
      ctx.font = font(scene, 11);
      const words = valuesAt(lane, now);
      const width = ctx.measureText(words).width;
      write(ctx, scene, words, x + g.px(8) + width > g.right ? x - g.px(6) - width : x + g.px(6), (y + base) / 2, theme.ink);
    }
    ctx.restore();
  }

  /**
   * A line for each marker through the lanes of its group and of its counters, with its name where there is room.
   *
   * @param {CanvasRenderingContext2D} ctx
   * @param {Scene} scene
   * @param {{ index: number, body: number, bottom: number }} group
   * @param {number} top of the row of names
   * @param {Row[] | null} rows lanes of all groups, where several have markers
   */
  drawMarkers(ctx, scene, { index: group, body, bottom }, top, rows) {
    const { geometry: g, theme } = sceneOf(scene, group);
    const { time, name, texts } = /** @type {Counters[]} */ (this.groups)[group].markers;
    const above = this.timeline.stage.baseContext;
    ctx.font = font(scene, 11);
    ctx.fillStyle = theme.soft;
    const label = rows ? `${scene.model.groups[group].label} · markers` : "markers";
    ctx.fillText(fitted(ctx, label, g.left - g.px(14)), g.px(6), g.px(top + NAMES / 2));
    const own = rows?.filter((row) => row.group === group).map((row) => [row.top, row.top + row.height]) ?? [];
    const below = rows ? [[top, top + NAMES], ...own].map((ends) => ends.map(g.px)) : [[0, this.canvas.height]];
    let free = g.left;
    // Those that lie closer to each other than a line and a gap are one.
    for (let i = lowerBound(time, g.t0), after = i; i < time.length; i = after) {
      const x = Math.round(g.x(time[i]));
      if (x > g.right) break;
      after = gallop(time, g.t0 + (x + 2 * g.dpr - g.left) * g.pitch, i + 1);
      for (const [context, from, to] of /** @type {[CanvasRenderingContext2D, number, number][]} */ ([
        [above, g.px(body), g.px(bottom)], ...below.map((ends) => [ctx, ...ends]),
      ])) {
        fillRectangle(context, theme.accent, x, from, g.hair, to - from);
      }
      const next = after < time.length ? Math.min(g.right, g.x(time[after])) : g.right;
      const words = x >= free ? fitted(ctx, texts[name[i]], next - x - g.px(8)) : "";
      if (!words) continue;
      writeText(ctx, theme.ink, words, x + g.px(4), g.px(top + NAMES / 2));
      free = x + g.px(8) + ctx.measureText(words).width;
    }
  }
}

/** @param {NoteHeader} note */
const noteWords = ({ number, text, lane }) => `${number}: ${text}${lane ? ` (${lane})` : ""}`;

/** @param {{ group: number }[]} rows */
const isOfSeveral = (rows) => rows.some(({ group }) => group !== rows[0].group);

/**
 * Where each lane of the shown groups lies.
 *
 * @param {Scene} scene
 * @param {Counters[]} groups
 * @param {number} top
 * @returns {Row[]}
 */
function rowsOf(scene, groups, top) {
  const rows = scene.layout.groups.flatMap(({ index }) => groups[index].lanes.map((lane) => ({ group: index, lane })));
  const size = SIZES[isOfSeveral(rows) ? "several" : "one"];
  return (isOfSeveral(rows) ? comparable(rows) : rows).map((row, place) => ({ ...row, ...size, top: top + place * (size.height + GAP) }));
}

/**
 * @param {CanvasRenderingContext2D} ctx
 * @param {Scene} scene
 * @param {number} group
 * @param {Line} line
 * @param {(value: number) => number} toY
 * @param {number | null} base where its area ends; null for a line without one
 * @param {boolean} front
 */
function drawLine(ctx, scene, group, line, toY, base, front) {
  const { geometry: g, theme } = sceneOf(scene, group);
  const steps = stepsOf(line, g);
  if (!steps.length) return;
  const colour = front ? theme.accent : theme.faint;
  ctx.lineWidth = g.hair;
  ctx.strokeStyle = colour;
  ctx.beginPath();
  steps.forEach(({ x, first, least, largest, last }, at) => {
    if (at) ctx.lineTo(x, toY(steps[at - 1].last));
    else ctx.moveTo(x, toY(first));
    for (const value of first === last && least === largest ? [first] : [first, least, largest, last]) ctx.lineTo(x, toY(value));
  });
  ctx.lineTo(g.right, toY(steps[steps.length - 1].last));
  ctx.stroke();
  if (base === null) return;
  ctx.lineTo(g.right, base);
  ctx.lineTo(steps[0].x, base);
  ctx.globalAlpha = front ? 0.34 : 0.16;
  ctx.fillStyle = colour;
  ctx.fill();
  ctx.globalAlpha = 1;
}

/**
 * @param {CanvasRenderingContext2D} ctx
 * @param {Scene} scene
 * @param {number} group
 * @param {CounterLane} lane
 * @param {(value: number) => number} toY
 */
function drawPeak(ctx, scene, group, { peak, lines, unit, high }, toY) {
  const { geometry: g, theme } = sceneOf(scene, group);
  const value = peak === null ? null : valueAt(lines[0], peak);
  if (peak === null || value === null) return;
  const [x, y] = [g.x(peak), toY(value)];
  ctx.fillStyle = theme.path;
  ctx.beginPath();
  ctx.arc(x, y + g.px(2), g.px(3), 0, 2 * Math.PI);
  ctx.fill();
  const words = `peak ${valueWords(value, unit)}`;
  const width = ctx.measureText(words).width;
  const end = g.right - ctx.measureText(valueWords(high, unit)).width - g.px(12); // Behind it stands the largest value.
  write(ctx, scene, words, x + g.px(8) + width > end ? Math.min(x - g.px(8), end) - width : x + g.px(8), y + g.px(8), theme.ink);
}

/**
 * Write on a lane, readable over its line.
 *
 * @param {CanvasRenderingContext2D} ctx
 * @param {Scene} scene
 * @param {string} words
 * @param {number} x
 * @param {number} y
 * @param {string} ink
 */
function write(ctx, { geometry: g, theme }, words, x, y, ink) {
  ctx.fillStyle = theme.ground;
  ctx.globalAlpha = 0.75;
  ctx.fillRect(x - g.px(2), y - g.px(6), ctx.measureText(words).width + g.px(4), g.px(12));
  ctx.globalAlpha = 1;
  writeText(ctx, ink, words, x, y);
}

/**
 * The value at a time; of memory what is lent of what was taken from the driver.
 *
 * @param {CounterLane} lane
 * @param {number} time
 */
function valuesAt({ lines, unit }, time) {
  const told = lines.map((line) => valueAt(line, time)).map((value) => (value === null ? "–" : valueWords(value, unit)));
  const [last] = told.slice(-1);
  const suffix = last.replace(/^[^ ]*/, "");
  return told.map((words, place) => (place < told.length - 1 && words.endsWith(suffix) ? words.slice(0, words.length - suffix.length) : words)).join(" / ");
}
