// What Python writes about the spans (payload.py), as JSON; columns lie in a block of bytes beside it. A test holds the tables equal to Python's.

/** @import { Fields } from "./messages.js" */

/**
 * A column of numbers: where it lies in the block, or the one number that all of it is.
 *
 * @typedef {{
 *   dtype: "u8" | "u16" | "u32" | "f64", delta?: boolean, first?: number, shift?: number, wide?: boolean,
 * } & ({ offset: number } | { constant: number })} ColumnHeader
 */

/**
 * @typedef {"launch" | "graph_launch" | "event" | "sync" | "host" | "compile" | "api" | "range" | "kernel" | "copy" | "set" | "graph"} KindName
 */

/**
 * A kind of idle time, or of work, of the lane "at once".
 *
 * @typedef {"kernel" | "kernels" | "copy" | "host_function" | "host_wait" | "launch" | "kernel_wait" | "other"} LookName
 */

/** @typedef {"running" | Exclude<LookName, "kernel" | "kernels" | "copy">} Occupation */

/**
 * @typedef {"kind" | "name" | "lane" | "start" | "duration" | "basis" | "row" | "operation" | "part" | "correlation" | "blocks" | "threads"
 *   | "bytes" | "flops" | "symbol" | "graph_node"} ColumnName
 */

/**
 * Columns of a long trace alone: how many spans each stands for, how long these run, the row in the trace of the one that it is drawn as, which
 * of them a search finds, and whether it is the first that its call put on the device.
 *
 * @typedef {"merged" | "busy" | "span" | "hits" | "first"} MarkName
 */

/**
 * What the device does, in stretches without gaps.
 *
 * @typedef {object} ActivityHeader
 * @property {number} count
 * @property {number} end_ns
 * @property {ColumnHeader} start
 * @property {ColumnHeader} kernels
 * @property {ColumnHeader} copies
 * @property {ColumnHeader} occupation
 * @property {ColumnHeader} fullness
 * @property {ColumnHeader} [crowd] which stretches stand for many short ones; of long traces
 */

/** @typedef {{ count: number, earlier: ColumnHeader, later: ColumnHeader }} WaitsHeader */

/**
 * The critical path in stretches.
 *
 * @typedef {object} PathHeader
 * @property {number} count
 * @property {string} words what bounds the run
 * @property {ColumnHeader} start
 * @property {ColumnHeader} duration
 * @property {ColumnHeader} bound
 * @property {ColumnHeader} lane
 */

/**
 * Texts by the operation's id.
 *
 * @typedef {{ count: number, label?: ColumnHeader, line?: ColumnHeader, arguments?: ColumnHeader }} OriginsHeader
 */

/**
 * The spans of a group, or those of one tile.
 *
 * @typedef {object} PartHeader
 * @property {number} count
 * @property {Record<ColumnName, ColumnHeader> & Partial<Record<MarkName, ColumnHeader>>} columns
 * @property {ActivityHeader | null} activity
 * @property {WaitsHeader} waits
 * @property {boolean} [exact] whether each span of a long trace is there by itself
 * @property {PathHeader | null} [path]
 */

/**
 * What is said of a group besides its spans.
 *
 * @typedef {object} GroupWords
 * @property {string} label
 * @property {string} engine
 * @property {string} program
 * @property {{ kind: string, name: string }} device
 * @property {string} recorder
 * @property {Partial<Record<KindName, string>>} stamped how times of a kind are known, where that differs from the basis
 * @property {number} extent_ns
 * @property {string} makespan_text
 * @property {boolean} thin its spans are blocks, parts of kernels
 * @property {"operation" | "pair"} joined_by
 * @property {string[]} remarks
 * @property {[string, string][]} details
 * @property {string[]} notes
 * @property {number | null} shown_until_ns where a report had to leave later spans out
 * @property {[number, number, boolean | number, number][]} drawn of each drawn lane its code, rows, whether it has a band, ranges without a row
 * @property {number} lanes_left_out
 * @property {boolean} [tiled] long: what is missing is asked for
 * @property {number} [level]
 */

/** @typedef {{ name: string, host: boolean }} LaneHeader */

/**
 * @typedef {GroupWords & PartHeader & { lanes: LaneHeader[], origins: OriginsHeader, kind_counts?: ArrayLike<number> }} GroupHeader
 */

/**
 * @typedef {object} Header
 * @property {number} version
 * @property {string} program
 * @property {KindName[]} kinds their codes are their places
 * @property {string[]} bases
 * @property {string[]} names
 * @property {number[]} order codes of names in the order in which they take colours
 * @property {string[]} texts
 * @property {GroupHeader[]} groups
 * @property {Occupation[]} occupations
 * @property {string[]} bounds
 * @property {Record<LookName, [string, string, string]>} looks words, and the colour on light and on dark pages
 * @property {number} fullness_steps
 * @property {number} fullness_unknown
 */

/** @type {Fields<Header>} */
export const HEADER = {
  version: true, program: true, kinds: true, bases: true, names: true, order: true, texts: true, groups: true, occupations: true, bounds: true,
  looks: true, fullness_steps: true, fullness_unknown: true,
};

/** @type {Fields<GroupHeader>} */
export const GROUP = {
  label: true, engine: true, program: true, device: true, recorder: true, stamped: true, extent_ns: true, makespan_text: true, thin: true,
  joined_by: true, remarks: true, details: true, notes: true, lanes: true, shown_until_ns: true, drawn: true, lanes_left_out: true, origins: true,
  count: true, columns: true, activity: true, waits: true, exact: false, path: false, tiled: false, level: false, kind_counts: false,
};

/** @type {Fields<PartHeader["columns"]>} */
export const COLUMNS = {
  kind: true, name: true, lane: true, start: true, duration: true, basis: true, row: true, operation: true, part: true, correlation: true,
  blocks: true, threads: true, bytes: true, flops: true, symbol: true, graph_node: true,
  merged: false, busy: false, span: false, hits: false, first: false,
};
