// A call tree as a flame chart draws it: from the whole GPU down to kernels, or from kernels to what launched them.

import { decodeColumn } from "./decode_column.js";

/**
 * @import { Column } from "./decode_column.js"
 * @import { Found } from "./filter.js"
 * @import { TreeHeader } from "./header.js"
 * @import { Block } from "./messages.js"
 * @import { Model } from "./model.js"
 */

/** @typedef {"gpu" | "exposed" | "idle"} Cost */

/** @typedef {"module" | "function" | "line" | "range" | "kernel" | "unknown"} FrameKind */

/** @type {FrameKind[]} codes of kinds are their places; a test holds them equal to Python's */
export const FRAME_KINDS = ["module", "function", "line", "range", "kernel", "unknown"];

/**
 * A frame: its words, its costs in ns with all frames in it, and which frames of Python's tree it is made of.
 *
 * @typedef {object} Frame
 * @property {string} name
 * @property {string} file
 * @property {number} line
 * @property {FrameKind} kind
 * @property {number} kernels
 * @property {Record<Cost, number>} cost
 * @property {Frame | null} parent
 * @property {Frame[]} children
 * @property {number[]} numbers
 */

/** @typedef {{ frames: Frame[], of: Column | null, header: TreeHeader }} Tree `of` is the frame of each span, -1 for none; the first frame is the whole */

/**
 * @param {TreeHeader} header
 * @param {Block} block
 * @returns {Tree}
 */
export function decodeTree(header, block) {
  const { count, columns, texts } = header;
  /** @param {keyof typeof columns} name */
  const column = (name) => decodeColumn(columns[name], block, count);
  const [parent, name, file, line, kind] = /** @type {const} */ (["parent", "name", "file", "line", "kind"]).map(column);
  const [kernels, gpu, exposed, idle] = /** @type {const} */ (["kernels", "gpu", "exposed", "idle"]).map(column);
  /** @type {Frame[]} */
  const frames = [];
  for (let at = 0; at < count; at++) {
    const around = frames[parent[at]] ?? null;
    const cost = { gpu: gpu[at], exposed: exposed[at], idle: idle[at] };
    frames.push({
      name: texts[name[at]], file: texts[file[at]], line: line[at], kind: FRAME_KINDS[kind[at]], kernels: kernels[at], cost, parent: around, children: [],
      numbers: [at],
    });
    around?.children.push(frames[at]);
  }
  return { frames, header, of: header.frame && decodeColumn(header.frame, block, header.rows) };
}

/**
 * A frame and those around it, the innermost first, without the whole.
 *
 * @param {Frame} frame
 */
export function around(frame) {
  const found = [];
  for (let at = frame; at.parent; at = at.parent) found.push(at);
  return found;
}

/** @type {Cost[]} */
const COSTS = ["gpu", "exposed", "idle"];

/**
 * The same time from the other end: each frame with what is in no frame in it, and in it those around it, up to those that only wrap all
 * others. Returns the whole.
 *
 * @param {Tree} tree
 * @returns {Frame}
 */
export function bottomUp({ frames: [whole, ...frames] }) {
  /** @type {Frame} */
  const root = { ...whole, cost: { ...whole.cost }, children: [], numbers: [] };
  /** @type {Map<Frame, Map<string, Frame>>} */
  const inside = new Map();
  /**
   * @param {Frame} parent
   * @param {Frame} like
   */
  const child = (parent, like) => {
    /** @type {Map<string, Frame>} */
    const known = inside.get(parent) ?? new Map();
    inside.set(parent, known);
    const key = JSON.stringify([like.name, like.file, like.line, like.kind]);
    const found = known.get(key) ?? { ...like, kernels: 0, cost: { gpu: 0, exposed: 0, idle: 0 }, parent, children: [], numbers: [] };
    if (!known.has(key)) parent.children.push(found);
    known.set(key, found);
    return found;
  };
  for (const frame of frames) {
    /** @param {(frame: Frame) => number} value */
    const own = (value) => value(frame) - frame.children.reduce((sum, each) => sum + value(each), 0);
    const costs = COSTS.map((cost) => own((each) => each.cost[cost]));
    const kernels = own((each) => each.kernels);
    if (!kernels && !costs.some(Boolean)) continue;
    let at = root;
    for (const each of around(frame)) {
      if (wraps(each)) break;
      at = child(at, each);
      COSTS.forEach((cost, place) => (at.cost[cost] += costs[place]));
      at.kernels += kernels;
      at.numbers.push(...(frame.children.length ? [] : frame.numbers));
    }
  }
  return root;
}

/** Share of a frame's costs in one frame in it from which on the outer one only wraps it. */
const WRAPPED = 0.995;

/**
 * Whether all time of the GPU passes through a frame that only calls another one, as a script's `main` does. It takes a row and tells nothing.
 *
 * @param {Frame} frame
 * @returns {boolean}
 */
export function wraps({ kind, cost, parent, children }) {
  if ((kind !== "function" && kind !== "line") || !parent || cost.gpu < WRAPPED * parent.cost.gpu) return false;
  return children.some((child) => child.kind !== "kernel" && COSTS.every((each) => child.cost[each] >= WRAPPED * cost[each]))
    && (!parent.parent || wraps(parent));
}

/**
 * The frames in another one, as they are drawn: in place of one that only wraps others stand those in it.
 *
 * @param {Frame} frame
 * @returns {Frame[]}
 */
export const drawnIn = ({ children }) => children.flatMap((child) => (wraps(child) ? drawnIn(child) : child));

/** @typedef {{ frame: Frame, depth: number, left: number, width: number }} Box places are shares of the chart's width */

/**
 * Where frames are drawn: those around `top` over the whole width, and in it what is wide enough, the widest first.
 *
 * @param {Frame} top
 * @param {Cost} cost
 * @param {number} least share of the width
 * @param {number} most
 * @returns {Box[]}
 */
export function boxesOf(top, cost, least, most) {
  /** @type {Frame[]} */
  const outer = [];
  for (let at = top.parent; at; at = at.parent) if (!wraps(at)) outer.unshift(at);
  /** @type {Box[]} */
  const boxes = [...outer, top].map((frame, depth) => ({ frame, depth, left: 0, width: 1 }));
  const total = top.cost[cost];
  for (let at = outer.length; total > 0 && at < boxes.length && boxes.length < most; at++) {
    let { left } = boxes[at];
    const { frame, depth } = boxes[at];
    for (const child of drawnIn(frame).sort((a, b) => b.cost[cost] - a.cost[cost])) {
      const width = child.cost[cost] / total;
      if (width < least) break;
      boxes.push({ frame: child, depth: depth + 1, left, width });
      left += width;
    }
  }
  return boxes;
}

/**
 * What a search would find that looks for some spans of a group: they and their calls, and the same operations under other engines.
 *
 * @param {Pick<Model, "groups" | "kinds">} model
 * @param {number} home
 * @param {Uint8Array} spans 1 for each of them
 * @returns {Found[]}
 */
export function foundIn({ groups, kinds }, home, spans) {
  const [operations, calls] = [new Set(), new Set()];
  const { operation, correlation } = groups[home];
  spans.forEach((found, i) => {
    if (!found) return;
    operations.add(operation[i]);
    calls.add(correlation[i]);
  });
  operations.delete(-1);
  calls.delete(-1);
  return groups.map((group, index) => {
    const shown = index === home ? spans.slice() : new Uint8Array(group.count);
    let onDevice = 0;
    for (let i = 0; i < shown.length; i++) {
      const isWork = kinds.isDevice(group.kind[i]);
      if (index !== home) shown[i] = +operations.has(group.operation[i]);
      else if (!isWork) shown[i] = +calls.has(group.correlation[i]);
      onDevice += isWork ? shown[i] : 0;
    }
    return { shown, onDevice, onHost: shown.reduce((sum, each) => sum + each, 0) - onDevice };
  });
}

/**
 * Which spans lie in some frames, or in frames in them: 1 for each.
 *
 * @param {Tree} tree
 * @param {number[]} numbers
 */
export function spansIn({ frames, of }, numbers) {
  const inside = new Uint8Array(frames.length + 1); // the last is of no frame
  for (const number of numbers) inside[number] = 1;
  frames.forEach(({ parent }, number) => {
    if (parent && inside[parent.numbers[0]]) inside[number] = 1;
  });
  return Uint8Array.from(of ?? [], (number) => inside[number < 0 ? frames.length : number]);
}
