// From the header and the block of bytes that Python wrote (payload.py) to typed arrays.

import { Activity } from "./activity.js";
import { decodePath } from "./critical_path.js";
import { decodeColumn } from "./decode_column.js";
import { natureOfAxis } from "./nature.js";
import { decodeWaits } from "./waits.js";

/**
 * @import { Column } from "./decode_column.js"
 * @import { CollectivesHeader, ColumnName, Header, KindName, Occupation, OriginsHeader, PartHeader } from "./header.js"
 * @import { Block } from "./messages.js"
 * @import { Described, Group, Kinds, Launches, Model, Origins } from "./model.js"
 */

const COLUMNS = /** @type {const} */ (["kind", "name", "lane", "start", "duration", "basis", "row"]);
// What the first picture can do without is decoded when it is first asked for.
const LATER = /** @type {const} */ (["operation", "part", "correlation", "blocks", "threads", "bytes", "flops", "symbol", "graph_node"]);
const OF_SOME = /** @type {const} */ (["merged", "busy", "span", "hits", "first", "collective", "far"]);
const OF_COLLECTIVES = /** @type {const} */ (["instance", "waiting", "last", "bandwidth", "told"]);

/**
 * Give an object properties that are worked out when they are first read.
 *
 * @template {object} T
 * @template {Record<string, () => unknown>} M
 * @param {T} object
 * @param {M} makers
 * @returns {T & { [K in keyof M]: ReturnType<M[K]> }}
 */
function later(object, makers) {
  for (const [name, make] of Object.entries(makers)) {
    /** @param {PropertyDescriptor} more */
    const define = (more) => Object.defineProperty(object, name, { configurable: true, enumerable: true, ...more });
    define({ get: () => {
      const value = make();
      define({ value, writable: true });
      return value;
    } });
  }
  return /** @type {T & { [K in keyof M]: ReturnType<M[K]> }} */ (object);
}

/**
 * @template {string} N
 * @template T
 * @param {readonly N[]} names
 * @param {(name: N) => T} make
 */
const each = (names, make) => /** @type {Record<N, T>} */ (Object.fromEntries(names.map((name) => [name, make(name)])));

/**
 * @param {Described & PartHeader & { origins?: OriginsHeader, collectives?: CollectivesHeader }} header
 * @param {number} index
 * @param {Block} block
 * @param {Kinds} kinds
 * @param {Occupation[]} occupations
 * @returns {Group}
 */
function decodeGroup(header, index, block, kinds, occupations) {
  const { columns, activities, waits, path, origins, collectives, ...described } = header;
  const { count } = header;
  /** @param {ColumnName} name */
  const column = (name) => decodeColumn(columns[name], block, count);
  const now = each(COLUMNS, column);
  const end = endsOf(now, count);
  /** @type {Group} */
  const group = later({
    ...described, ...now, ...each(OF_SOME, (name) => columns[name] && decodeColumn(columns[name], block, count)),
    described, index, end, lanes: header.lanes.map((lane, code) => ({ ...lane, index: code })),
    kindCounts: header.kind_counts ?? countKinds(now.kind, kinds),
    activities: activities.map((activity) => new Activity(activity, block, occupations)),
    collectives: collectives ? {
      words: collectives.words, ...each(OF_COLLECTIVES, (name) => decodeColumn(collectives[name], block, collectives.count)),
    } : null,
    waits: decodeWaits(waits, block),
    path: path ? decodePath(path, block) : null,
    origins: decodeOrigins(origins ?? { count: 0 }, block),
  }, { ...each(LATER, (name) => () => column(name)), launches: () => survey(group, kinds) });
  return group;
}

/**
 * @param {{ start: Column, duration: Column }} spans
 * @param {number} count
 */
function endsOf({ start, duration }, count) {
  const end = new Float64Array(count);
  for (let i = 0; i < count; i++) end[i] = start[i] + duration[i];
  return end;
}

/**
 * @param {Column} kind
 * @param {Kinds} kinds
 */
function countKinds(kind, kinds) {
  const counts = new Uint32Array(kinds.names.length);
  for (let i = 0; i < kind.length; i++) counts[kind[i]]++;
  return counts;
}

/**
 * Codes of the texts that say where each operation comes from, by its id; -1 for none.
 *
 * @param {OriginsHeader} header
 * @param {Block} block
 * @returns {Origins}
 */
function decodeOrigins({ count, ...columns }, block) {
  const decoded = Object.entries(columns).map(([name, spec]) => [name, decodeColumn(spec, block, count)]);
  return { count, ...Object.fromEntries(decoded) };
}

/**
 * Codes of the kinds by name ("kernel" → 8) and what follows from them.
 *
 * @param {KindName[]} names
 * @returns {Kinds}
 */
function decodeKinds(names) {
  const kinds = /** @type {Record<KindName, number>} */ (Object.fromEntries(names.map((name, code) => [name, code])));
  return { ...kinds, names, isDevice: (kind) => kind >= kinds.kernel, isNode: (kind) => kind >= kinds.kernel && kind !== kinds.graph };
}

/**
 * @param {Header} header what `payload.py` calls the header
 * @param {Block} block the bytes that the columns lie in
 * @returns {Model}
 */
export function decode(header, block) {
  const kinds = decodeKinds(header.kinds);
  const groups = header.groups.map((group, index) => decodeGroup(group, index, block, kinds, header.occupations));
  return {
    kinds,
    groups,
    names: header.names,
    order: header.order,
    bases: header.bases,
    texts: header.texts ?? [],
    occupations: header.occupations,
    bounds: header.bounds,
    looks: header.looks,
    fullness_steps: header.fullness_steps,
    fullness_unknown: header.fullness_unknown, details: header.details ?? [],
    program: header.program,
    nature: natureOfAxis(groups),
    extent: Math.max(0, ...groups.map((group) => group.extent_ns)),
    count: groups.reduce((sum, group) => sum + group.count, 0),
  };
}

/**
 * Another part of a long trace's group, in place of the one that a model has.
 *
 * @param {Model} model
 * @param {number} index
 * @param {PartHeader} header
 * @param {Block} block
 */
export function decodePart(model, index, header, block) {
  const known = model.groups[index];
  const decoded = decodeGroup({ ...known.described, ...header, kind_counts: known.kindCounts }, index, block, model.kinds, model.occupations);
  return Object.assign(decoded, { origins: known.origins, collectives: known.collectives });
}

const LARGEST_TABLE = 1 << 24;

const PARTS = 1 << 16;

/**
 * What one pass over a group's spans tells; another group's operations may be those of another program. `operationName`: name codes of
 * what operations put on the device, so that host calls can wear its colour, for each operation id that of its first part, -1 for none;
 * `partName`: those of further parts, which may be other kernels.
 *
 * @param {Pick<Group, "operation" | "part" | "kind" | "name">} group
 * @param {Kinds} kinds
 * @returns {Launches}
 */
function survey({ operation, part, kind, name }, kinds) {
  let largest = -1;
  for (let i = 0; i < operation.length; i++) if (operation[i] > largest) largest = operation[i];
  const operationName = new Int32Array(Math.min(largest + 1, LARGEST_TABLE)).fill(-1);
  const partName = new Map();
  for (let i = 0; i < kind.length; i++) {
    if (kind[i] < kinds.kernel) continue;
    const id = operation[i];
    if (id < 0 || id >= operationName.length) continue;
    if (part[i]) partName.set(id * PARTS + part[i], name[i]);
    else if (operationName[id] < 0) operationName[id] = name[i];
  }
  return { operationName, partName };
}

/**
 * Whether a span of a long trace stands for many.
 *
 * @param {Group} group
 * @param {number} span
 */
export const isCrowd = ({ merged }, span) => merged !== undefined && merged[span] > 1;

/**
 * Name code of what a host call put on the device, or of what a device span itself is; -1 for none.
 *
 * @param {Group} group
 * @param {number} span
 */
export function launchedName(group, span) {
  const [operation, part] = [group.operation[span], group.part[span]];
  if (operation < 0) return -1;
  const { operationName, partName } = group.launches;
  return (part ? partName.get(operation * PARTS + part) : operationName[operation]) ?? -1;
}

/**
 * The same of all spans of a group, worked out once.
 *
 * @param {Group} group
 */
export function launchedNames(group) {
  if (group.launched) return group.launched;
  const { operation, part } = group;
  const { operationName } = group.launches;
  group.launched = new Int32Array(group.count);
  for (let i = 0; i < group.count; i++) {
    const id = operation[i];
    if (part[i]) group.launched[i] = launchedName(group, i);
    else group.launched[i] = id >= 0 && id < operationName.length ? operationName[id] : -1;
  }
  return group.launched;
}
