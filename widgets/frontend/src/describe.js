// What a tooltip says about a span, as rows of [term, value]. Pure, so that it can be tested without a browser.

import { isCrowd } from "./decode.js";
import { exactTime, grouped, percent, prefixed } from "./format.js";
import { gpuName } from "./gpus.js";
import { latencyCallOf } from "./join.js";
import { timeWords } from "./nature.js";
import { isOperator, originOf, symbolOf } from "./origins.js";
import { shortened } from "./text.js";

/**
 * @import { KindName } from "./header.js"
 * @import { Group, Model } from "./model.js"
 */

/** @typedef {[string, string]} Term a term and its value */

/** @typedef {{ name: string, where: string, around?: string, symbol?: string, rows: Term[], notes?: string[] }} Told what a tooltip says */

/** @type {Partial<Record<KindName, string>>} other kinds are called what they are. */
const KIND_WORDS = {
  launch: "launch call",
  graph_launch: "graph launch call",
  event: "event call",
  sync: "host blocked on the device",
  host: "host function",
  compile: "compilation",
  api: "call of CUDA",
  set: "memory set",
  graph: "graph replay",
};

const API_TIME = "API time";
/** @type {Partial<Record<KindName, string>>} */
const DURATION_WORDS = { launch: API_TIME, graph_launch: API_TIME, event: API_TIME, api: API_TIME, kernel: "kernel time" };

const LONGEST_NAME = 240;

/**
 * Those that there are.
 *
 * @param {...(Term | false | "" | null | undefined)} all
 */
export const terms = (...all) => all.filter((term) => !!term);

/**
 * A mark of a long trace that stands for many spans.
 *
 * @param {Model} model
 * @param {Group} group
 * @param {number} span
 * @param {string} lane
 * @returns {Told}
 */
function describeCrowd(model, group, span, lane) {
  const length = group.duration[span];
  const [busy, merged] = [group.busy, group.merged].map((column) => column?.[span] ?? 0);
  return {
    name: `${grouped(merged)} spans`,
    where: `${group.label} · ${lane}${timeWords(group)}`,
    rows: [
      ["start", exactTime(group.start[span])], ["length", exactTime(length)], ["busy", `${exactTime(busy)}, ${percent(busy / (length || 1))}`],
      ...terms(group.hits && ["found", grouped(group.hits[span])]), ["one of them", shortened(model.names[group.name[span]], LONGEST_NAME)],
    ],
    notes: ["Click to zoom in."],
  };
}

/**
 * @param {Model} model
 * @param {Group} group
 * @param {number} span
 * @returns {Told}
 */
export function describeSpan(model, group, span) {
  const kind = model.kinds.names[group.kind[span]];
  const lane = group.lanes[group.lane[span]].name;
  if (isCrowd(group, span)) return describeCrowd(model, group, span, lane);
  const { label, line, shapes } = originOf(model, group, group.operation[span]);
  const symbol = symbolOf(model, group, span);
  const node = group.graph_node[span];
  const basis = group.basis[span];
  return {
    name: shortened(model.names[group.name[span]], LONGEST_NAME),
    where: `${group.thin ? "block of a kernel" : KIND_WORDS[kind] ?? kind} · ${group.label} · ${lane}${timeWords(group)}`,
    symbol: shortened(symbol, LONGEST_NAME),
    rows: [
      ...terms(label && [isOperator(shapes) ? "module" : "label", label], shapes && [isOperator(shapes) ? "operator" : "shapes", shapes]),
      ["start", exactTime(group.start[span])],
      [(!group.thin && DURATION_WORDS[kind]) || "duration", exactTime(group.duration[span])],
      ...launchRows(model, group, span),
      ...sizeRows(group, span),
      ...jointRows(group, span),
      ...terms(group.operation[span] >= 0 && [group.joined_by ?? "operation", operationText(group, span)], node >= 0 && ["graph node", `${node}`]),
    ],
    notes: [...(line ? [line] : []), ...(timeWords(group) ? [] : [`Times: ${(!basis && group.stamped?.[kind]) || model.bases[basis]}.`])],
  };
}

/**
 * @param {Group} group
 * @param {number} span
 */
function operationText(group, span) {
  return group.part[span] ? `#${group.operation[span]}, part ${group.part[span]}` : `#${group.operation[span]}`;
}

/**
 * Launch latency: start of the call to start of the first kernel. Queue time: end of the call to there, only where positive.
 *
 * @param {Model} model
 * @param {Group} group
 * @param {number} span
 * @returns {Term[]}
 */
export function launchRows(model, group, span) {
  const launch = latencyCallOf(group, model.kinds, span);
  if (launch < 0) return [];
  const queued = group.start[span] - group.end[launch];
  return terms(["launch latency", exactTime(group.start[span] - group.start[launch])], queued > 0 && ["queue time", exactTime(queued)]);
}

/**
 * @param {Group} group
 * @param {number} span
 */
function sizeRows(group, span) {
  const seconds = group.duration[span] / 1e9;
  const [blocks, threads, bytes, flops] = [group.blocks, group.threads, group.bytes, group.flops].map((column) => column[span]);
  return terms(
    blocks > 0 && ["launch size", `${grouped(blocks)} blocks × ${grouped(threads)} threads`],
    bytes > 0 && ["moves", prefixed(bytes, "B") + rate(bytes, seconds, "B/s")],
    flops > 0 && ["computes", prefixed(flops, "FLOP") + rate(flops, seconds, "FLOP/s")],
  );
}

/**
 * Of a part of a collective, or of a copy from one GPU to another, what it has to do with the other GPUs.
 *
 * @param {Group} group
 * @param {number} span
 * @returns {Term[]}
 */
function jointRows({ collective, collectives, far, gpus, lanes, duration }, span) {
  if (far?.[span]) return [["from, to", (lanes[far[span]].ends ?? []).map((gpu) => `GPU ${gpu}`).join(", ")]];
  const row = collective?.[span] ?? -1;
  if (!collectives || row < 0) return [];
  const [told, instance, waiting, last, bandwidth] = [collectives.told, collectives.instance, collectives.waiting, collectives.last, collectives.bandwidth].map((column) => column[row]);
  return [...collectives.words[told], ...terms(
    instance >= 0 && ["waiting", exactTime(waiting)], instance >= 0 && ["transfer", exactTime(duration[span] - waiting)],
    instance >= 0 && ["last to begin", gpus[last].name], bandwidth > 0 && ["bus bandwidth", `${grouped(bandwidth / 1e9, 1)} GB/s`],
  )];
}

/**
 * Achieved rates of memory are told in GB/s, as data sheets do.
 *
 * @param {number} amount
 * @param {number} seconds
 * @param {string} unit
 */
function rate(amount, seconds, unit) {
  if (!seconds) return "";
  if (unit === "B/s") return `, ${grouped(amount / seconds / 1e9, 1)} GB/s`;
  return `, ${prefixed(amount / seconds, unit)}`;
}

/**
 * @param {Group} group
 * @param {number} of
 * @returns {Told}
 */
export function describeGpu(group, of) {
  const { details, slowest } = group.gpus[of];
  return { name: gpuName(group, of), where: group.program, rows: details, notes: slowest ? [slowest] : [] };
}

/**
 * @param {Model} model
 * @param {Group} group
 * @returns {Told}
 */
export function describeGroup(model, group) {
  return {
    name: group.label,
    where: `${group.program} · ${group.device.name}`,
    rows: group.details,
    notes: group.notes,
  };
}
