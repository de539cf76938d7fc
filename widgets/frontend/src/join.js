// What belongs together: an operation under every engine, a host call and what it put on the device.

import { onAxis } from "./align.js";
import { ofCorrelation, ofOperation, partsOf } from "./grouping.js";

/**
 * @import { Alignment } from "./align.js"
 * @import { Group, Kinds, Model } from "./model.js"
 */

/** @typedef {{ group: number, spans: number[], links: [number, number][] }} Member spans of one group; links are [launch, device span] */

/**
 * All that belongs to a span that is pointed at or selected.
 *
 * @typedef {object} Highlight
 * @property {number} operation its id, -1 for none
 * @property {string} name
 * @property {number} nameCode
 * @property {number} group
 * @property {number} span the one that was asked for; -1 where a long trace has not loaded it
 * @property {Member[]} members
 * @property {number} [row] of a long trace: the span's row in it
 */

// A replay may hold a hundred thousand kernels; that many outlines would show nothing and stop the pointer.
const MOST_MEMBERS = 2000;

// A graph's launch points at no more of its kernels than this at once.
const MOST_LINKS = 20;

/** @param {Uint32Array} spans */
const some = (spans) => [...spans.subarray(0, MOST_MEMBERS)];

/**
 * @param {number} kind
 * @param {Kinds} kinds
 */
const isLaunch = (kind, kinds) => kind === kinds.launch || kind === kinds.graph_launch;

/**
 * The host call that put a device span on its stream, or -1.
 *
 * @param {Group} group
 * @param {Kinds} kinds
 * @param {number} span
 */
export function launchOf(group, kinds, span) {
  const id = group.correlation[span];
  if (id < 0 || !kinds.isDevice(group.kind[span])) return -1;
  return ofCorrelation(group, id).find((i) => isLaunch(group.kind[i], kinds)) ?? -1;
}

/**
 * Whether the call that launched a span of a long trace may lie in what is not loaded; where `launchOf` finds none.
 *
 * @param {Group} group
 * @param {Kinds} kinds
 * @param {number} span
 */
export const callUnknown = ({ exact, kind, correlation }, kinds, span) => kinds.isDevice(kind[span]) && (exact ? correlation[span] >= 0 : exact === false);

/**
 * The call whose launch latency a device span tells, or -1. A graph's launch has one, to its first kernel or copy, as in
 * analysis/launches.py: what comes later in the replay waited for what came before it.
 *
 * @param {Group} group
 * @param {Kinds} kinds
 * @param {number} span
 */
export function latencyCallOf(group, kinds, span) {
  const launch = launchOf(group, kinds, span);
  if (launch < 0 || group.kind[span] === kinds.graph) return launch;
  // Of a long trace Python says which come first: what is loaded may begin in the middle of a replay.
  if (group.first) return group.first[span] ? launch : -1;
  /** @param {number} i */
  const isNode = (i) => kinds.isNode(group.kind[i]);
  return ofCorrelation(group, group.correlation[span]).find(isNode) === span ? launch : -1;
}

/**
 * What a launch call put on the device: the graph's own span before its kernels; -1 for none.
 *
 * @param {Group} group
 * @param {Kinds} kinds
 * @param {number} id
 */
export function firstOnDevice(group, kinds, id) {
  const spans = ofCorrelation(group, id);
  const graphs = group.kindCounts[kinds.graph] > 0;
  return (graphs ? spans.find((i) => group.kind[i] === kinds.graph) : undefined) ?? spans.find((i) => kinds.isDevice(group.kind[i])) ?? -1;
}

/**
 * Members of a highlight within one group: spans, and links [launch, device span]; `asked` is the span that was asked for, or -1.
 *
 * @param {Group} group
 * @param {Kinds} kinds
 * @param {number[]} chosen
 * @param {number} asked
 */
function membersOf(group, kinds, chosen, asked) {
  const spans = new Set(chosen);
  /** @type {[number, number][]} */
  const links = [];
  /** @type {Map<number, number>} */
  const launches = new Map();
  for (const span of chosen) {
    const id = group.correlation[span];
    if (kinds.isDevice(group.kind[span]) && !launches.has(id)) launches.set(id, launchOf(group, kinds, span));
    const launch = kinds.isDevice(group.kind[span]) ? launches.get(id) ?? -1 : -1;
    if (launch < 0) continue;
    spans.add(launch);
    // A graph's launch points at the graph, and at the one kernel that was asked for, not at a fan of hundreds.
    const fans = kinds.isNode(group.kind[span]) && group.kind[launch] === kinds.graph_launch && chosen.length >= MOST_LINKS;
    if (!fans || span === asked) links.push([launch, span]);
  }
  return { spans: [...spans], links };
}

/**
 * What belongs to a span that has no operation: all of its launch; of a graph's replay, where a kernel was asked for, that kernel alone.
 *
 * @param {Group} group
 * @param {Kinds} kinds
 * @param {number} span
 */
function ofLaunch(group, kinds, span) {
  const id = group.correlation[span];
  const launch = id >= 0 && kinds.isNode(group.kind[span]) ? launchOf(group, kinds, span) : -1;
  if (id < 0 || (launch >= 0 && group.kind[launch] === kinds.graph_launch)) return [span];
  return some(ofCorrelation(group, id));
}

/**
 * Everything to highlight for one span: its operation under every engine that runs the same program; for a span without an
 * operation (a graph's launch, any span of another program's trace), what one launch put on the device.
 *
 * @returns {Highlight}
 * @param {Model} model
 * @param {number} groupIndex
 * @param {number} span
 */
export function highlightOf(model, groupIndex, span) {
  const { kinds } = model;
  const home = model.groups[groupIndex];
  const operation = home.operation[span];
  /** @type {Member[]} */
  const members = [];
  model.groups.forEach((group, index) => {
    let chosen = operation >= 0 && group.program === home.program ? some(ofOperation(group, operation)) : [];
    if (index === groupIndex) {
      chosen = [...new Set([...chosen, ...partsOf(group, span)])];
      if (!chosen.length) chosen = ofLaunch(group, kinds, span);
    }
    if (chosen.length) members.push({ group: index, ...membersOf(group, kinds, chosen, index === groupIndex ? span : -1) });
  });
  const launched = home.launches.operationName[operation] ?? -1;
  const named = launched >= 0 ? launched : home.name[span];
  return { operation, name: model.names[named], nameCode: named, group: groupIndex, span, members };
}

/**
 * Stretch of the axis that a highlight's device spans take, or all its spans where it has none; of one group, or of all.
 *
 * @param {Model} model
 * @param {Highlight} highlight
 * @param {Alignment[]} alignments
 * @param {number | null} only
 * @returns {[number, number]}
 */
export function highlightExtent(model, highlight, alignments, only = null) {
  let [from, to] = [Infinity, -Infinity];
  for (const { group, spans } of highlight.members) {
    if (only !== null && group !== only) continue;
    const { kind, start, end } = model.groups[group];
    const onDevice = spans.filter((i) => model.kinds.isDevice(kind[i]));
    for (const i of onDevice.length ? onDevice : spans) {
      from = Math.min(from, onAxis(alignments[group], start[i]));
      to = Math.max(to, onAxis(alignments[group], end[i]));
    }
  }
  return [from, to];
}
