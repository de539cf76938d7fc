// Spans by the id that they carry: all spans of an operation, or of a correlation id, without a search through all spans.

/**
 * @import { Column } from "./decode_column.js"
 * @import { Group } from "./model.js"
 */

// Tables have a place for each id; ids far larger than the number of spans are ranked first.
const SPARSE = 4;

export class SpansById {
  /**
   * @param {Column} ids of the spans, -1 for none
   *
   * @param {Column} ids
   */
  constructor(ids) {
    let largest = -1;
    for (let i = 0; i < ids.length; i++) if (ids[i] > largest) largest = ids[i];
    /** @type {Map<number, number> | null} */
    this.ranks = largest > SPARSE * ids.length + 1024 ? rankIds(ids) : null;
    const places = this.ranks ? this.ranks.size : largest + 1;
    this.first = new Uint32Array(places + 1);
    const { ranks, first } = this;
    /** @param {number} id */
    const placeOf = (id) => (ranks ? /** @type {number} */ (ranks.get(id)) : id);
    for (let i = 0; i < ids.length; i++) if (ids[i] >= 0) first[placeOf(ids[i]) + 1]++;
    for (let place = 0; place < places; place++) first[place + 1] += first[place];
    this.spans = new Uint32Array(first[places]);
    const next = first.slice();
    for (let i = 0; i < ids.length; i++) if (ids[i] >= 0) this.spans[next[placeOf(ids[i])]++] = i;
  }

  /**
   * Positions of the spans with this id, ascending; a view, not a copy.
   *
   * @param {number} id
   */
  of(id) {
    const place = this.ranks ? this.ranks.get(id) ?? -1 : id;
    return place < 0 || place >= this.first.length - 1 ? NONE : this.spans.subarray(this.first[place], this.first[place + 1]);
  }
}

const NONE = new Uint32Array(0);

/**
 * @param {Column} ids
 * @returns {Map<number, number>}
 */
function rankIds(ids) {
  const ranks = new Map();
  for (const id of ids) if (id >= 0 && !ranks.has(id)) ranks.set(id, ranks.size);
  return ranks;
}

/**
 * @param {Pick<Group, "operation" | "byOperation">} group
 * @param {number} id
 */
export const ofOperation = (group, id) => (group.byOperation ??= new SpansById(group.operation)).of(id);

/**
 * Parts of a collective.
 *
 * @param {Pick<Group, "collective" | "collectives" | "byInstance">} group
 * @param {number} span one of them
 */
export function partsOf(group, span) {
  const { collective, collectives } = group;
  const row = collective?.[span] ?? -1;
  if (!collective || !collectives || row < 0) return NONE;
  const { instance } = collectives;
  group.byInstance ??= new SpansById(Int32Array.from(collective, (each) => (each < 0 ? -1 : instance[each])));
  return group.byInstance.of(instance[row]);
}

/**
 * @param {Pick<Group, "correlation" | "byCorrelation">} group
 * @param {number} id
 */
export const ofCorrelation = (group, id) => (group.byCorrelation ??= new SpansById(group.correlation)).of(id);
