// From the header and the block of bytes that Python wrote (payload.py) to typed arrays.

import { Activity } from "./activity.js";
import { decodePath } from "./critical_path.js";
import { decodeColumn } from "./decode_column.js";
import { decodeWaits } from "./waits.js";

const COLUMNS = [
  "kind", "name", "lane", "start", "duration", "operation", "part", "correlation", "basis", "blocks", "threads",
  "bytes", "flops",
];

function decodeGroup(header, index, block, occupations) {
  const { columns, activity, waits, path, origins, ...described } = header;
  const group = { ...described, index, lanes: header.lanes.map((lane, code) => ({ ...lane, index: code })) };
  for (const column of COLUMNS) group[column] = decodeColumn(columns[column], block, header.count);
  const { start, duration } = group;
  group.end = new Float64Array(header.count);
  for (let i = 0; i < start.length; i++) group.end[i] = start[i] + duration[i];
  group.activity = activity ? new Activity(activity, block, occupations) : null;
  group.waits = waits ? decodeWaits(waits, block) : { count: 0 };
  group.path = path ? decodePath(path, block) : null;
  group.origins = decodeOrigins(origins ?? { count: 0 }, block);
  return group;
}

/** Codes of the texts that say where each operation comes from, by its id; -1 for none. */
function decodeOrigins({ count, ...columns }, block) {
  const decoded = Object.entries(columns).map(([name, spec]) => [name, decodeColumn(spec, block, count)]);
  return { count, ...Object.fromEntries(decoded) };
}

/** Codes of the kinds by name ("kernel" → 6) and what follows from them. */
function decodeKinds(names) {
  const kinds = Object.fromEntries(names.map((name, code) => [name, code]));
  return { ...kinds, names, isDevice: (kind) => kind >= kinds.kernel };
}

/**
 * @param {object} header what `payload.py` calls the header
 * @param {Uint8Array | DataView} block the bytes that the columns lie in
 */
export function decode(header, block) {
  const kinds = decodeKinds(header.kinds);
  const groups = header.groups.map((group, index) => decodeGroup(group, index, block, header.occupations));
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
    simulated: groups.some((group) => group.device.kind === "simulated"),
    extent: Math.max(0, ...groups.map((group) => group.extent_ns)),
    count: groups.reduce((sum, group) => sum + group.count, 0),
    ...survey(groups, kinds),
  };
}

const LARGEST_TABLE = 1 << 24;

const PARTS = 1 << 16;

/**
 * What one pass over all spans tells. `operationName`: name codes of what operations put on the device, so that host calls can wear its
 * colour, for each operation id that of its first part, -1 for none; `partName`: those of further parts, which may be other kernels.
 * Each group gets `kindCounts`.
 */
function survey(groups, kinds) {
  let largest = -1;
  for (const { operation } of groups) for (let i = 0; i < operation.length; i++) if (operation[i] > largest) largest = operation[i];
  const operationName = new Int32Array(Math.min(largest + 1, LARGEST_TABLE)).fill(-1);
  const partName = new Map();
  for (const group of groups) {
    const { operation, part, kind, name } = group;
    const kindCounts = new Uint32Array(kinds.names.length);
    for (let i = 0; i < kind.length; i++) {
      kindCounts[kind[i]]++;
      if (kind[i] < kinds.kernel) continue;
      const id = operation[i];
      if (id < 0 || id >= operationName.length) continue;
      if (part[i]) partName.set(id * PARTS + part[i], name[i]);
      else if (operationName[id] < 0) operationName[id] = name[i];
    }
    group.kindCounts = kindCounts;
  }
  return { operationName, partName };
}

/** Name code of what a host call put on the device, or of what a device span itself is; -1 for none. */
export function launchedName(model, group, span) {
  const [operation, part] = [group.operation[span], group.part[span]];
  return (part ? model.partName.get(operation * PARTS + part) : model.operationName[operation]) ?? -1;
}

/** The same of all spans of a group, worked out once. */
export function launchedNames(model, group) {
  if (group.launched) return group.launched;
  const { operation, part } = group;
  const { operationName } = model;
  group.launched = new Int32Array(group.count);
  for (let i = 0; i < group.count; i++) {
    const id = operation[i];
    if (part[i]) group.launched[i] = launchedName(model, group, i);
    else group.launched[i] = id >= 0 && id < operationName.length ? operationName[id] : -1;
  }
  return group.launched;
}
