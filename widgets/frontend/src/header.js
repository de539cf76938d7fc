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
 * A kind of idle time, or of work, of the lane "at once". Communication is hidden beside a kernel, else exposed.
 *
 * @typedef {"kernel" | "kernels" | "hidden" | "exposed" | "copy" | "host_function" | "host_wait" | "launch" | "kernel_wait" | "other"} LookName
 */

/** @typedef {"running" | Exclude<LookName, "kernel" | "kernels" | "hidden" | "exposed" | "copy">} Occupation */

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
 * Columns of several GPUs alone: the row among the group's collectives, -1 for none; and of a copy between GPUs its lane on the
 * other one, else 0.
 *
 * @typedef {"collective" | "far"} JointName
 */

/**
 * What one GPU does, in stretches without gaps. `collectives` of the lanes with kernels, and `peers` of those with copies, communicate with other GPUs.
 *
 * @typedef {object} ActivityHeader
 * @property {number} count
 * @property {number} end_ns
 * @property {ColumnHeader} start
 * @property {ColumnHeader} kernels
 * @property {ColumnHeader} copies
 * @property {ColumnHeader} collectives
 * @property {ColumnHeader} peers
 * @property {ColumnHeader} occupation
 * @property {ColumnHeader} fullness
 * @property {ColumnHeader} [crowd] which stretches stand for many short ones; of long traces
 */

/**
 * One of the GPUs: `words` stand in its header, in columns; `slowest` says there why it is the slowest one, if it is; `folded` whether it shows its
 * lane "at once" only, at first.
 *
 * @typedef {{ gpu: number, name: string, words: string[], slowest: string, folded: boolean, details: [string, string][] }} GpuHeader
 */

/**
 * Parts of collectives. Those of one `instance` are one operation, -1 where that is not known; `waiting` is the time until the last of them began,
 * on GPU `last`; `bandwidth` is the bus bandwidth in bytes a second, 0 where it is not known; `told` are places among `words`, which are a
 * tooltip's terms.
 *
 * @typedef {object} CollectivesHeader
 * @property {number} count
 * @property {[string, string][][]} words
 * @property {ColumnHeader} instance
 * @property {ColumnHeader} waiting
 * @property {ColumnHeader} last
 * @property {ColumnHeader} bandwidth
 * @property {ColumnHeader} told
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
 * @property {Record<ColumnName, ColumnHeader> & Partial<Record<MarkName | JointName, ColumnHeader>>} columns
 * @property {ActivityHeader[]} activities of each GPU; none where there are no kernels and copies
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
 * @property {GpuHeader[]} gpus one at least
 * @property {boolean} [tiled] long: what is missing is asked for
 * @property {number} [level]
 */

/**
 * A lane and its GPU, -1 for lanes of the host. One with `ends` has copies from the first to the second GPU which are on a lane of the other one,
 * too.
 *
 * @typedef {{ name: string, host: boolean, gpu: number, ends?: number[] }} LaneHeader
 */

/**
 * @typedef {GroupWords & PartHeader & { lanes: LaneHeader[], origins: OriginsHeader, collectives?: CollectivesHeader, kind_counts?: ArrayLike<number> }} GroupHeader
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
 * @property {Record<LookName, [string, string, string, string]>} looks words, the colour on light and on dark pages, and what a tooltip adds
 * @property {number} fullness_steps
 * @property {number} fullness_unknown
 * @property {("code" | "counters" | "ranks")[]} details what the second bundle has to show
 */

/** @typedef {"parent" | "name" | "file" | "line" | "kind" | "kernels" | "gpu" | "exposed" | "idle"} TreeColumn */

/**
 * Where the time of a group's GPU goes by code (`call_tree`): frames, each after the one around it. `name` and `file` are places among `texts`,
 * `kind` among FRAME_KINDS. `frame` is that of each span, -1 for none, where all of the group's `rows` spans are in the browser; `other` whether
 * there is a tree of the other kind, too.
 *
 * @typedef {object} TreeHeader
 * @property {"code" | "range"} by
 * @property {boolean} other
 * @property {number | null} gpu
 * @property {boolean} defined whether lines are where functions are defined
 * @property {string[]} texts
 * @property {number} count
 * @property {Record<TreeColumn, ColumnHeader>} columns
 * @property {number} rows
 * @property {ColumnHeader | null} frame
 */

/** @typedef {{ name: string, count: number, time: ColumnHeader, value: ColumnHeader }} LineHeader a value from each time on, until the next one */

/**
 * A lane of a counter, or of a GPU's memory: then its unit is B, its lines are filled, and `peak` is when it was highest.
 *
 * @typedef {{ label: string, unit: string, low: number, high: number, peak: number | null, lines: LineHeader[] }} CounterLaneHeader
 */

/**
 * A note of the reader on a moment or a stretch, in ns.
 *
 * @typedef {{ number: number, start: number, end: number, text: string, lane: string }} NoteHeader
 */

/**
 * What a group counts, by the names of messages.py.
 *
 * @typedef {object} CountersHeader
 * @property {CounterLaneHeader[]} lanes
 * @property {number} left_out
 * @property {{ count: number, time: ColumnHeader, name: ColumnHeader, texts: string[] }} markers
 * @property {NoteHeader[]} notes
 */

/**
 * The map of a job, by the names of messages.py.
 *
 * @typedef {object} RanksHeader
 * @property {number[]} numbers
 * @property {number[]} shown
 * @property {number} steps
 * @property {number} several
 * @property {number} most
 * @property {[number, string][]} late
 * @property {[string, number[]][]} groups
 * @property {ColumnHeader} waiting
 * @property {ColumnHeader} awaited
 */

/** @type {Fields<Header>} */
export const HEADER = {
  version: true, program: true, kinds: true, bases: true, names: true, order: true, texts: true, groups: true, occupations: true, bounds: true,
  looks: true, fullness_steps: true, fullness_unknown: true, details: true,
};

/** @type {Fields<GroupHeader>} */
export const GROUP = {
  label: true, engine: true, program: true, device: true, recorder: true, stamped: true, extent_ns: true, makespan_text: true, thin: true,
  joined_by: true, remarks: true, details: true, notes: true, lanes: true, shown_until_ns: true, drawn: true, lanes_left_out: true, origins: true,
  count: true, columns: true, activities: true, waits: true, gpus: true, collectives: false, exact: false, path: false, tiled: false, level: false,
  kind_counts: false,
};

/** @type {Fields<PartHeader["columns"]>} */
export const COLUMNS = {
  kind: true, name: true, lane: true, start: true, duration: true, basis: true, row: true, operation: true, part: true, correlation: true,
  blocks: true, threads: true, bytes: true, flops: true, symbol: true, graph_node: true,
  merged: false, busy: false, span: false, hits: false, first: false, collective: false, far: false,
};
