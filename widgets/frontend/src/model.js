// What a timeline shows, once it is decoded: types alone.

/**
 * @import { Activity } from "./activity.js"
 * @import { Path } from "./critical_path.js"
 * @import { Column } from "./decode_column.js"
 * @import { SpansById } from "./grouping.js"
 * @import { CollectivesHeader, ColumnName, GroupHeader, GroupWords, Header, JointName, KindName, LaneHeader, MarkName } from "./header.js"
 * @import { Nest } from "./ranges.js"
 * @import { Waits } from "./waits.js"
 */

/**
 * Codes of the kinds by name ("kernel" → 8), and what follows from them.
 *
 * @typedef {Record<KindName, number> & { names: KindName[], isDevice: (kind: number) => boolean, isNode: (kind: number) => boolean }} Kinds
 */

/** @typedef {LaneHeader & { index: number }} NamedLane */

/** @typedef {Omit<GroupHeader, "columns" | "activities" | "waits" | "path" | "origins" | "collectives">} Described what is the same in all parts of a group, and counts */

/** @typedef {{ count: number, label?: Column, line?: Column, arguments?: Column }} Origins codes of texts by the operation's id, -1 for none */

/**
 * What one pass over a group's spans tells; another group's operations may be those of another program. `operationName`: name codes of
 * what operations put on the device, so that host calls can wear its colour, for each operation id that of its first part, -1 for none;
 * `partName`: those of further parts, which may be other kernels.
 *
 * @typedef {{ operationName: Int32Array, partName: Map<number, number> }} Launches
 */

/**
 * What is worked out of a group when it is first needed, and kept there.
 *
 * @typedef {object} Kept
 * @property {Int32Array} [launched] of all spans, what `launchedName` says
 * @property {SpansById} [byOperation]
 * @property {SpansById} [byCorrelation]
 * @property {SpansById} [byInstance] parts of collectives
 * @property {boolean} [hasOperations]
 * @property {Map<string, Nest>} [nests] the ranges of each lane
 * @property {Int32Array} [place] of each lane among those that are drawn, -1 for others
 */

/** @typedef {Record<Exclude<keyof CollectivesHeader, "count" | "words">, Column> & Pick<CollectivesHeader, "words">} Collectives */

/**
 * The spans of one run or trace, a number a span in each column.
 *
 * @typedef {GroupWords & Record<ColumnName, Column> & Partial<Record<MarkName | JointName, Column>> & Kept & {
 *   described: Described, index: number, count: number, exact?: boolean, lanes: NamedLane[], end: Float64Array,
 *   kindCounts: ArrayLike<number>, activities: Activity[], collectives: Collectives | null, waits: Waits, path: Path | null, origins: Origins, launches: Launches,
 * }} Group
 */

/**
 * All that a timeline shows.
 *
 * @typedef {Pick<Header, "names" | "order" | "bases" | "texts" | "occupations" | "bounds" | "looks" | "fullness_steps" | "fullness_unknown"
 *   | "program" | "details"> & { kinds: Kinds, groups: Group[], nature: string, extent: number, count: number }} Model
 */

export {};
