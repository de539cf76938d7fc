// The map of a job: ranks by steps, who waits and for whom. A cell leads to its collective; a choice says which ranks are rows.

import { onAxis } from "./align.js";
import { drawHead, rowOf } from "./arrows.js";
import { decodeColumn } from "./decode_column.js";
import { aria, contextOf, make, makeButton, makeChoice, makeSwatch } from "./dom.js";
import { fillRectangle } from "./filling.js";
import { grouped, significant, unitOf } from "./format.js";
import { between } from "./geometry.js";
import { partsOf } from "./grouping.js";
import { sceneOf } from "./scene.js";
import { font, writeText } from "./text.js";
import { Tiles } from "./tiles.js";

/**
 * @import { Column } from "./decode_column.js"
 * @import { Second } from "./details.js"
 * @import { RanksHeader } from "./header.js"
 * @import { Highlight } from "./join.js"
 * @import { Ask } from "./messages.js"
 * @import { Model } from "./model.js"
 * @import { Scene } from "./scene.js"
 * @import { Stage } from "./stage.js"
 * @import { TilesClass, Tiles as LongTrace } from "./tiles.js"
 * @import { Viewer } from "./viewing.js"
 */

/**
 * The timeline as the map knows it.
 *
 * @typedef {object} Owner
 * @property {Model} model
 * @property {Pick<Stage, "box" | "nudge" | "overlayContext">} stage
 * @property {Pick<Viewer, "alignments" | "fit">} viewer
 * @property {Second | null} second
 * @property {LongTrace | null} tiles
 * @property {Highlight | null} selected
 * @property {(group: number, span: number) => void} select
 * @property {(base?: boolean) => void} redraw
 */

/** @typedef {{ rows: number[], from: number, to: number }} Part ranks, as their places, and steps: what the map shows */

/** @typedef {{ row: number, column: number }} Cell of what is drawn */

// Of a page; they are told apart in all forms of colour blindness.
const [WAITS, AWAITED] = ["#c2443c", "#2f7fd0"];
// In CSS pixels.
const [LEFT, FOOT, ROW, HIGHEST, LEAST_ROW, LEAST_COLUMN] = [72, 18, 16, 336, 4, 4];
const SLOWEST = 16;
const MOST_SHOWN = 16;
const LEVELS = 255;
const ZOOM = 8;

export class RankMap {
  /**
   * @param {Owner} timeline
   * @param {Ask} ask
   */
  constructor(timeline, ask) {
    this.timeline = timeline;
    this.ask = ask;
    this.canvas = make("canvas", "");
    this.canvas.tabIndex = 0;
    this.told = make("div", "ss-map-told");
    aria(this.told, { live: "polite" });
    this.head = make("div", "ss-map-head");
    this.box = make("div", "ss-map", this.head, this.canvas, this.told);
    this.box.hidden = true;
    this.canvas.addEventListener("pointermove", ({ offsetX, offsetY }) => this.point(this.cellAt(offsetX, offsetY)));
    this.canvas.addEventListener("pointerleave", () => this.point(null));
    this.canvas.addEventListener("click", ({ offsetX, offsetY }) => this.enter(this.cellAt(offsetX, offsetY)));
    this.canvas.addEventListener("keydown", (event) => this.press(event));
    /** @type {RanksHeader | null} */
    this.header = null;
    /** @type {Column | null} of each rank and step, in parts of the longest time */
    this.waiting = null;
    /** @type {Column | null} */
    this.awaited = null;
    /** @type {Part[]} what was shown before */
    this.before = [];
    /** @type {Part} */
    this.part = { rows: [], from: 0, to: 0 };
    /** @type {Cell | null} */
    this.cell = null;
    this.look = "";
    this.drawnWidth = 800;
    timeline.stage.box.before(this.box);
    if (timeline.second) timeline.second.Tiles ??= /** @type {TilesClass} */ (Tiles); // Other ranks may have more spans than those at first.
    this.load();
  }

  async load() {
    const { timeline } = this;
    try {
      const { header, block } = await this.ask({ type: "job" });
      const count = header.numbers.length * header.steps;
      [this.waiting, this.awaited] = [decodeColumn(header.waiting, block, count), decodeColumn(header.awaited, block, count)];
      this.header = header;
      this.fill(header);
      this.choose("all");
    } catch (error) {
      timeline.stage.nudge(`No map of the ranks: ${/** @type {Error} */ (error).message}`);
    }
  }

  /** @param {RanksHeader} header */
  fill(header) {
    const { numbers, groups } = header;
    const every = Math.ceil(numbers.length / (HIGHEST / ROW));
    /** @type {Record<string, string>} */
    const choices = { all: `all ${grouped(numbers.length)} ranks`, slowest: "those that others wait for longest" };
    if (every > 1) choices.every = `every ${every}th rank`;
    groups.forEach(([name], place) => (choices[place] = name));
    this.every = every;
    this.back = makeButton("↩ back", "Show what the map showed before (Escape)", () => this.leave());
    const shows = makeButton("show on timeline", "Show these ranks on the timeline, at most 16", () => this.show(this.part.rows.slice(0, MOST_SHOWN).map((row) => numbers[row])));
    this.shows = shows;
    const key = (/** @type {string} */ fill, /** @type {string} */ words) => make("span", "ss-key", makeSwatch(fill), words);
    this.head.replaceChildren(
      makeChoice("Ranks of the map", choices, (choice) => this.choose(choice)), this.back, shows,
      key(WAITS, "waits in collectives"), key(AWAITED, `others wait for it; strongest ${timeOf(header.most)}`),
    );
  }

  /**
   * Choose the ranks that are rows.
   *
   * @param {string} choice
   */
  choose(choice) {
    const { header, awaited, every = 1 } = this;
    if (!header || !awaited) return;
    const { numbers, steps, groups } = header;
    let rows = [...numbers.keys()];
    if (choice === "slowest") {
      const cost = rows.map((row) => sumOf(awaited.subarray(row * steps, (row + 1) * steps)));
      const late = new Map(header.late.map(([number], place) => [number, place]));
      const place = (/** @type {number} */ row) => late.get(numbers[row]) ?? Infinity;
      rows = rows.sort((a, b) => (place(a) === place(b) ? cost[b] - cost[a] : place(a) - place(b))).slice(0, SLOWEST);
    } else if (choice === "every") rows = rows.filter((row) => row % every === 0);
    else if (choice !== "all") rows = groups[Number(choice)][1];
    this.before = [];
    this.go({ rows, from: 0, to: steps });
  }

  /** @param {Part} part */
  go(part) {
    this.part = part;
    this.cell = null;
    this.look = "";
    this.timeline.redraw(false);
  }

  leave() {
    const before = this.before.pop();
    if (before) this.go(before);
  }

  /** How many rows and columns are drawn, and how many ranks and steps share one. */
  get grid() {
    const { rows, from, to } = this.part;
    const high = Math.ceil(rows.length / Math.max(1, Math.min(rows.length, Math.floor(HIGHEST / LEAST_ROW))));
    const wide = Math.ceil((to - from) / Math.max(1, Math.min(to - from, Math.floor((this.width - LEFT) / LEAST_COLUMN))));
    return { high, wide, rows: Math.ceil(rows.length / high), columns: Math.ceil((to - from) / wide) };
  }

  /** While JupyterLab changes its theme the page has no width; the one it had will come back. */
  get width() {
    return this.canvas.clientWidth || this.drawnWidth;
  }

  /** @param {number} rows */
  heightOf(rows) {
    return between(LEAST_ROW, Math.floor(HIGHEST / rows), ROW);
  }

  /**
   * @param {number} x
   * @param {number} y
   * @returns {Cell | null}
   */
  cellAt(x, y) {
    const { rows, columns } = this.grid;
    const [row, column] = [Math.floor(y / this.heightOf(rows)), Math.floor(((x - LEFT) / (this.width - LEFT)) * columns)];
    return row >= 0 && row < rows && column >= 0 && column < columns ? { row, column } : null;
  }

  /**
   * The ranks and steps of a cell, and of each map the largest value in it, with its rank and step.
   *
   * @param {Cell} cell
   */
  contents({ row, column }) {
    const { header, part, grid, waiting, awaited } = this;
    const rows = part.rows.slice(row * grid.high, (row + 1) * grid.high);
    const from = part.from + column * grid.wide;
    const to = Math.min(part.to, from + grid.wide);
    /** @param {Column | null} values */
    const most = (values) => {
      let [value, rank, step] = [-1, rows[0], from];
      for (const each of rows) {
        for (let at = from; at < to; at++) {
          const found = values?.[each * (header?.steps ?? 0) + at] ?? 0;
          if (found > value) [value, rank, step] = [found, each, at];
        }
      }
      return { value, rank, step };
    };
    return { rows, from, to, waits: most(waiting), awaits: most(awaited) };
  }

  /** @param {Cell | null} cell */
  point(cell) {
    if (cell?.row === this.cell?.row && cell?.column === this.cell?.column) return;
    this.cell = cell;
    this.look = "";
    this.timeline.redraw(false);
  }

  /** @param {KeyboardEvent} event */
  press(event) {
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!step && event.key !== "Enter" && event.key !== "Escape") return;
    event.preventDefault();
    event.stopPropagation();
    const { cell, grid } = this;
    if (event.key === "Enter") this.enter(cell);
    else if (event.key === "Escape") this.leave();
    else if (step) {
      const [down, right] = cell ? step : [0, 0];
      this.point({ row: between(0, (cell?.row ?? 0) + down, grid.rows - 1), column: between(0, (cell?.column ?? 0) + right, grid.columns - 1) });
    }
  }

  /**
   * Look closer where ranks or steps share a cell; else show the collective that makes it.
   *
   * @param {Cell | null} cell
   */
  enter(cell) {
    const { header, part, grid } = this;
    if (!cell || !header) return;
    const { rows, from, awaits, waits } = this.contents(cell);
    if (grid.high === 1 && grid.wide === 1) {
      this.open(header.numbers[rows[0]], from * header.several);
      return;
    }
    const centre = isHeld(waits, awaits) ? awaits : waits;
    /** Of neighbours, an eighth around the middle, or as many as have a row or column of their own.
     *
     * @param {number} middle
     * @param {number} count
     * @param {number} share
     * @param {number} least
     */
    const around = (middle, count, share, least) => {
      const length = share > 1 ? Math.min(count, Math.max(least, Math.ceil(count / ZOOM))) : count;
      const first = between(0, Math.round(middle - length / 2), count - length);
      return [first, first + length];
    };
    const [top, bottom] = around(part.rows.indexOf(centre.rank), part.rows.length, grid.high, Math.floor(HIGHEST / ROW));
    const [left, right] = around(centre.step - part.from, part.to - part.from, grid.wide, Math.floor((this.width - LEFT) / ROW));
    this.before.push(part);
    this.go({ rows: part.rows.slice(top, bottom), from: part.from + left, to: part.from + right });
  }

  /**
   * Show ranks on the timeline.
   *
   * @param {number[]} numbers
   */
  async show(numbers) {
    try {
      await this.ask({ type: "show", numbers });
      if (this.header) this.header.shown = numbers;
      this.look = "";
      this.timeline.redraw();
      return true;
    } catch (error) {
      this.timeline.stage.nudge(`Not shown: ${/** @type {Error} */ (error).message}`);
      return false;
    }
  }

  /**
   * Show the collective of a cell on the timeline: select the part of its rank.
   *
   * @param {number} rank
   * @param {number} step
   */
  async open(rank, step) {
    const { timeline } = this;
    try {
      let { header: found } = await this.ask({ type: "cell", rank, step });
      if (found.span < 0) {
        if (!await this.show(found.numbers)) return;
        found = (await this.ask({ type: "cell", rank, step })).header;
      }
      const { span, start, end } = found;
      const [from, to] = [start, end].map((time) => onAxis(timeline.viewer.alignments[0], time));
      timeline.viewer.fit(from, to, 0.3);
      if (timeline.tiles) timeline.tiles.hold({ group: 0, row: span });
      else timeline.select(0, span);
    } catch (error) {
      timeline.stage.nudge(`Not shown: ${/** @type {Error} */ (error).message}`);
    }
  }

  /**
   * Called with each frame of the timeline; what has not changed is not drawn again.
   *
   * @param {Scene} scene
   */
  draw(scene) {
    const { header, timeline } = this;
    if (!header) return;
    this.box.hidden = false;
    if (timeline.selected) drawAwaited(timeline.stage.overlayContext, scene, timeline.selected);
    const { dpr } = scene.geometry;
    const look = `${this.width} ${dpr} ${scene.theme.ground} ${scene.theme.ink}`;
    if (look === this.look) return;
    this.look = look;
    this.drawnWidth = this.width;
    const { canvas, grid, part } = this;
    const [high, wide] = [this.heightOf(grid.rows), (this.width - LEFT) / grid.columns];
    canvas.style.height = `${grid.rows * high + FOOT}px`;
    [canvas.width, canvas.height] = [Math.round(this.width * dpr), Math.round((grid.rows * high + FOOT) * dpr)];
    const ctx = contextOf(canvas);
    fillRectangle(ctx, scene.theme.ground, 0, 0, canvas.width, canvas.height);
    ctx.textBaseline = "middle";
    ctx.textAlign = "right";
    for (let row = 0; row < grid.rows; row++) {
      for (let column = 0; column < grid.columns; column++) {
        const { waits, awaits } = this.contents({ row, column });
        const held = isHeld(waits, awaits);
        const level = (held ? awaits : waits).value / LEVELS;
        if (!level) continue;
        ctx.globalAlpha = Math.max(0.06, level);
        ctx.fillStyle = held ? AWAITED : WAITS;
        const x = Math.round((LEFT + column * wide) * dpr);
        ctx.fillRect(x, Math.round(row * high * dpr), Math.round((LEFT + (column + 1) * wide) * dpr) - x, Math.max(1, Math.round((high - (high > 6 ? 1 : 0)) * dpr)));
      }
    }
    ctx.globalAlpha = 1;
    this.drawNames(ctx, scene, high);
    const { cell } = this;
    if (cell) {
      ctx.strokeStyle = scene.theme.ink;
      ctx.lineWidth = 2 * dpr;
      ctx.strokeRect((LEFT + cell.column * wide) * dpr, cell.row * high * dpr, Math.max(3, wide) * dpr, high * dpr);
    }
    ctx.font = font(scene, 11);
    ctx.fillStyle = scene.theme.soft;
    const foot = (grid.rows * high + FOOT / 2) * dpr;
    const [first, last] = [part.from, part.to].map((step) => step * header.several);
    ctx.fillText(`step ${grouped(last - 1)}`, canvas.width - 4 * dpr, foot);
    ctx.textAlign = "left";
    ctx.fillText(`step ${grouped(first)}`, LEFT * dpr, foot);
    this.tell(header);
  }

  /**
   * Write the names of ranks that are late, and of others where there is room between them.
   *
   * @param {CanvasRenderingContext2D} ctx
   * @param {Scene} scene
   * @param {number} high
   */
  drawNames(ctx, scene, high) {
    const { header, part, grid } = this;
    if (!header) return;
    const { dpr } = scene.geometry;
    const late = new Set(header.late.map(([number]) => number));
    const shown = new Set(header.shown);
    const names = Array.from({ length: grid.rows }, (_, row) => {
      const numbers = part.rows.slice(row * grid.high, (row + 1) * grid.high).map((place) => header.numbers[place]);
      const named = numbers.find((number) => late.has(number));
      return { number: named ?? numbers[0], held: named !== undefined, y: Math.max(6, (row + 0.5) * high) };
    });
    /** @type {number[]} */
    const taken = [];
    for (const { number, held, y } of names.sort((a, b) => Number(b.held) - Number(a.held))) {
      if (taken.some((other) => Math.abs(other - y) < 13)) continue;
      taken.push(y);
      ctx.font = font(scene, 11, held ? "bold" : "");
      writeText(ctx, held ? AWAITED : scene.theme.soft, `${shown.has(number) ? "▸ " : ""}rank ${number}`, (LEFT - 6) * dpr, y * dpr);
    }
  }

  /** @param {RanksHeader} header */
  tell(header) {
    const { cell, part, grid, before, back } = this;
    if (back) back.hidden = !before.length;
    aria(this.canvas, {
      role: "img", label: `Map of waiting: ${grouped(part.rows.length)} ranks by ${grouped(part.to - part.from)} steps. Arrow keys move, Enter opens, Escape goes back.`,
    });
    if (!cell) {
      const number = header.late.length ? header.late[0][1] : "No rank makes the others wait.";
      this.told.textContent = `${number} A click on a cell ${grid.high * grid.wide > 1 ? "looks closer" : "shows its collective"}.`;
      return;
    }
    const { rows, from, to, waits, awaits } = this.contents(cell);
    /** @param {{ value: number }} most */
    const time = ({ value }) => timeOf((value / LEVELS) * header.most);
    const name = (/** @type {number} */ place) => `rank ${header.numbers[place]}`;
    const who = rows.length > 1 ? `${name(rows[0])} to ${header.numbers[rows[rows.length - 1]]}` : name(rows[0]);
    const [first, last] = [from * header.several, to * header.several - 1];
    const steps = last > first ? `steps ${grouped(first)} to ${grouped(last)}` : `step ${grouped(first)}`;
    const words = [
      waits.value > 0 && `waits ${rows.length > 1 ? `(${name(waits.rank)}) ` : ""}about ${time(waits)}`,
      awaits.value > 0 && `others wait about ${time(awaits)}${rows.length > 1 ? ` for ${name(awaits.rank)}` : " for it"}`,
    ].filter(Boolean);
    this.told.textContent = `${who}, ${steps}: ${words.join("; ") || "nobody waits"}`;
  }
}

/** @param {number} ns */
function timeOf(ns) {
  const unit = unitOf(ns);
  return `${significant(ns / unit.ns)} ${unit.name}`;
}

/**
 * Whether a cell is of a rank that others wait for. Among neighbours, one such rank is worth more than those that wait for it.
 *
 * @param {{ value: number }} waits
 * @param {{ value: number }} awaits
 */
const isHeld = (waits, awaits) => awaits.value > 0 && 2 * awaits.value >= waits.value;

/** @param {Column} values */
function sumOf(values) {
  let sum = 0;
  for (const value of values) sum += value;
  return sum;
}

/**
 * Arrows from the part of a selected collective that began last to those that waited for it.
 *
 * @param {CanvasRenderingContext2D} ctx
 * @param {Scene} frame
 * @param {Highlight} selected
 */
function drawAwaited(ctx, frame, { group: index, span }) {
  const group = frame.model.groups[index];
  const scene = sceneOf(frame, index);
  const { geometry: g, theme } = scene;
  const parts = span < 0 ? [] : [...partsOf(group, span)];
  if (parts.length < 2) return;
  const last = parts.reduce((one, other) => (group.start[other] > group.start[one] ? other : one));
  const x = g.x(group.start[last]);
  const from = rowOf(scene, index, last);
  if (!from || x < g.left || x > g.right) return;
  ctx.save();
  ctx.strokeStyle = ctx.fillStyle = theme.ink;
  ctx.lineWidth = 1.5 * g.dpr;
  for (const part of parts) {
    const to = rowOf(scene, index, part);
    if (!to || part === last || to.row.y === from.row.y || group.start[part] >= group.start[last]) continue;
    const down = to.row.y > from.row.y;
    const [y0, y1] = down ? [from.row.y + from.row.height, to.row.y] : [from.row.y, to.row.y + to.row.height];
    const head = (down ? 4 : -4) * g.dpr;
    ctx.beginPath();
    ctx.moveTo(x, g.px(y0));
    ctx.lineTo(x, g.px(y1) - head);
    ctx.stroke();
    drawHead(ctx, x, g.px(y1), head);
  }
  ctx.restore();
}
