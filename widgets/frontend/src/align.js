// How each engine's own time lies on the axis: axis = (time − origin) × factor.

import { ofOperation } from "./grouping.js";

/** @import { Group, Model } from "./model.js" */

/** @typedef {{ origin: number, factor: number }} Alignment */

/** @typedef {keyof typeof ALIGNMENTS} AlignMode */

export const ALIGNMENTS = {
  time: "one time axis",
  start: "first kernel at 0",
  operation: "selected operation at 0",
  scale: "each at its own scale",
};

/**
 * @param {Alignment} alignment
 * @param {number} time
 */
export const onAxis = ({ origin, factor }, time) => (time - origin) * factor;

/**
 * @param {Alignment} alignment
 * @param {number} position
 */
export const offAxis = ({ origin, factor }, position) => position / factor + origin;

/**
 * Origin and factor of each group. `shown` are the groups whose lengths count; `operation` is an id or, of a long trace, when the operation
 * begins in each group, null where it does not.
 *
 * @param {Model} model
 * @param {AlignMode} mode
 * @param {number | (number | null)[] | null} operation
 * @param {number[]} shown
 * @returns {Alignment[]}
 */
export function alignmentsOf(model, mode, operation, shown) {
  const longest = Math.max(1, ...shown.map((index) => model.groups[index].extent_ns));
  return model.groups.map((group) => {
    if (Array.isArray(operation)) return { origin: operation[group.index] ?? 0, factor: 1 };
    const first = mode === "start" ? firstOf(model, group, null) : mode === "operation" ? firstOf(model, group, operation) : -1;
    return {
      origin: first < 0 ? 0 : group.start[first],
      factor: mode === "scale" && group.extent_ns > 0 ? longest / group.extent_ns : 1,
    };
  });
}

/**
 * The first span on the device: of an operation, or of all; -1 for none.
 *
 * @param {Model} model
 * @param {Group} group
 * @param {number | null} operation
 */
function firstOf(model, group, operation) {
  /** @param {number} i */
  const onDevice = (i) => model.kinds.isNode(group.kind[i]);
  if (operation !== null) return ofOperation(group, operation).find(onDevice) ?? -1;
  for (let i = 0; i < group.count; i++) if (onDevice(i)) return i;
  return -1;
}

/**
 * From where to where the runs of the shown groups reach on the axis; with what the host did before their first call where `early`.
 *
 * @param {Model} model
 * @param {Alignment[]} alignments
 * @param {number[]} shown
 * @param {boolean} early
 * @returns {[number, number]}
 */
export function reachOf(model, alignments, shown, early = false) {
  const starts = shown.map((index) => onAxis(alignments[index], Math.min(0, (early && model.groups[index].start[0]) || 0)));
  const ends = shown.map((index) => onAxis(alignments[index], model.groups[index].extent_ns));
  return [Math.min(...starts), Math.max(...ends)];
}
