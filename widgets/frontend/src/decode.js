// From the header and the block of bytes that Python wrote (payload.py) to typed arrays.

import { Activity } from "./activity.js";
import { decodePath } from "./critical_path.js";
import { decodeColumn } from "./decode_column.js";
import { natureOfAxis } from "./nature.js";
import { decodeWaits } from "./waits.js";

const COLUMNS = ["kind", "name", "lane", "start", "duration", "basis", "row"];
// What the first picture can do without is decoded when it is first asked for.
const LATER = ["operation", "part", "correlation", "blocks", "threads", "bytes", "flops", "symbol", "graph_node"];
// Of a long trace: how many spans each stands for, how long these run, and the row in the trace of the one that it is drawn as;
// which of them a search finds, and whether it is the first that its call put on the device.
const OF_MARKS = ["merged", "busy", "span", "hits", "first"];

/** Give an object a property that is worked out when it is first read. */
function later(object, name, make) {
  const define = (more) => Object.defineProperty(object, name, { configurable: true, enumerable: true, ...more });
  define({ get: () => {
    const value = make();
    define({ value, writable: true });
    return value;
  } });
}

function decodeGroup(header, index, block, kinds, occupations) {
  const { columns, activity, waits, path, origins, ...described } = header;
  const group = { ...described, described, index, lanes: header.lanes.map((lane, code) => ({ ...lane, index: code })) };
  for (const column of COLUMNS) group[column] = decodeColumn(columns[column], block, header.count);
  for (const column of LATER) later(group, column, () => decodeColumn(columns[column], block, header.count));
  for (const column of OF_MARKS) if (columns[column]) group[column] = decodeColumn(columns[column], block, header.count);
  group.end = endsOf(group);
  group.kindCounts = header.kind_counts ?? countKinds(group, kinds);
  group.activity = activity ? new Activity(activity, block, occupations) : null;
  group.waits = waits ? decodeWaits(waits, block) : { count: 0 };
  group.path = path ? decodePath(path, block) : null;
  group.origins = decodeOrigins(origins ?? { count: 0 }, block);
  later(group, "launches", () => survey(group, kinds));
  return group;
}

function endsOf({ start, duration, count }) {
  const end = new Float64Array(count);
  for (let i = 0; i < count; i++) end[i] = start[i] + duration[i];
  return end;
}

function countKinds({ kind, count }, kinds) {
  const counts = new Uint32Array(kinds.names.length);
  for (let i = 0; i < count; i++) counts[kind[i]]++;
  return counts;
}

/** Codes of the texts that say where each operation comes from, by its id; -1 for none. */
function decodeOrigins({ count, ...columns }, block) {
  const decoded = Object.entries(columns).map(([name, spec]) => [name, decodeColumn(spec, block, count)]);
  return { count, ...Object.fromEntries(decoded) };
}

/** Codes of the kinds by name ("kernel" → 8) and what follows from them. */
function decodeKinds(names) {
  const kinds = Object.fromEntries(names.map((name, code) => [name, code]));
  return { ...kinds, names, isDevice: (kind) => kind >= kinds.kernel, isNode: (kind) => kind >= kinds.kernel && kind !== kinds.graph };
}

/**
 * @param {object} header what `payload.py` calls the header
 * @param {Uint8Array | DataView} block the bytes that the columns lie in
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
    fullness_unknown: header.fullness_unknown,
    program: header.program,
    nature: natureOfAxis(groups),
    extent: Math.max(0, ...groups.map((group) => group.extent_ns)),
    count: groups.reduce((sum, group) => sum + group.count, 0),
  };
}

/** Another part of a long trace's group, in place of the one that a model has. */
export function decodePart(model, index, header, block) {
  const known = model.groups[index];
  const decoded = decodeGroup({ ...known.described, ...header, kind_counts: known.kindCounts }, index, block, model.kinds, model.occupations);
  return Object.assign(decoded, { origins: known.origins });
}

const LARGEST_TABLE = 1 << 24;

const PARTS = 1 << 16;

/**
 * What one pass over a group's spans tells; another group's operations may be those of another program. `operationName`: name codes of
 * what operations put on the device, so that host calls can wear its colour, for each operation id that of its first part, -1 for none;
 * `partName`: those of further parts, which may be other kernels.
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

/** Name code of what a host call put on the device, or of what a device span itself is; -1 for none. */
export function launchedName(group, span) {
  const [operation, part] = [group.operation[span], group.part[span]];
  if (operation < 0) return -1;
  const { operationName, partName } = group.launches;
  return (part ? partName.get(operation * PARTS + part) : operationName[operation]) ?? -1;
}

/** The same of all spans of a group, worked out once. */
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
