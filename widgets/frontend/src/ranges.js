// Which ranges hold a call: what the user's code, or a framework, was about when it put a kernel on its stream.

import { launchOf } from "./join.js";
import { upperBound } from "./search.js";
import { shortened } from "./text.js";

/**
 * @import { Column } from "./decode_column.js"
 * @import { Group, Kinds, Model } from "./model.js"
 */

/** @typedef {{ spans: number[], start: Float64Array, parent: Int32Array }} Nest ranges of one lane, each with the place of the one around it, -1 for none */

const LONGEST_NAME = 60;
// Deeper nests leave out the middle.
const MOST_NAMES = 12;

/**
 * Names of the ranges around a call, or around the call that launched a span, the outermost first: "forward › layer1 › aten::conv2d".
 *
 * @param {Model} model
 * @param {Group} group
 * @param {number} span
 */
export function rangesAround(model, group, span) {
  if (group.exact === false) return ""; // Some may be in a crowd.
  const call = model.kinds.isDevice(group.kind[span]) ? launchOf(group, model.kinds, span) : span;
  if (call < 0) return "";
  const wanted = `${group.lanes[group.lane[call]].name} ranges`;
  group.nests ??= nestsOf(group, model.kinds);
  const nest = group.nests.get(wanted);
  if (!nest) return "";
  const at = group.start[call];
  const names = [];
  for (let k = upperBound(nest.start, at) - 1; k >= 0; k = nest.parent[k]) {
    if (group.end[nest.spans[k]] > at) names.push(shortened(model.names[group.name[nest.spans[k]]], LONGEST_NAME));
  }
  if (names.length > MOST_NAMES) names.splice(MOST_NAMES / 2, names.length - MOST_NAMES, "…");
  return names.reverse().join(" › ");
}

/**
 * The ranges of each lane, by its name: {spans, start, parent}, ascending, each with the position of the one that was open around it, or -1.
 *
 * @param {Group} group
 * @param {Kinds} kinds
 * @returns {Map<string, Nest>}
 */
function nestsOf(group, kinds) {
  const { kind, lane, start, end, count } = group;
  /** @type {number[][]} */
  const spans = group.lanes.map(() => []);
  for (let i = 0; i < count; i++) if (kind[i] === kinds.range) spans[lane[i]].push(i);
  return new Map(group.lanes.flatMap(({ name }, index) => (spans[index].length ? [[name, nestOf(spans[index], start, end)]] : [])));
}

/**
 * @param {number[]} spans
 * @param {Column} start
 * @param {Float64Array} end
 * @returns {Nest}
 */
function nestOf(spans, start, end) {
  // Of those that begin at one time the longest is around the others.
  spans.sort((a, b) => start[a] - start[b] || end[b] - end[a] || a - b);
  const parent = new Int32Array(spans.length);
  for (let k = 0, around = -1; k < spans.length; around = k++) {
    while (around >= 0 && end[spans[around]] <= start[spans[k]]) around = parent[around];
    parent[k] = around;
  }
  return { spans, start: Float64Array.from(spans, (i) => start[i]), parent };
}
