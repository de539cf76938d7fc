// Every message between a timeline in a notebook and Python, and what is in it. messages.py is the other half; a test holds both equal.

/** @import { CountersHeader, Header, PartHeader, PathHeader, RanksHeader, TreeHeader } from "./header.js" */

/** @typedef {{ group: number, by: "code" | "range", numbers: number[] }} FramesOf frames of a group's call tree */

/**
 * A search: one name by its code, or what a name, a label or a kernel's own name must contain, in lower case.
 *
 * @typedef {{ code: number | null, text: string, frame?: FramesOf }} Filter
 */

/**
 * Part of a group's time: level of detail, reach and index. It goes from `index * 2**reach` ns to `(index + 2) * 2**reach`.
 *
 * @typedef {[number, number, number]} TileWindow
 */

/** @typedef {{ group: number, start: number, end: number, rows: [number, number][] }} AreaOfGroup rows are [lane, row] */

/** @typedef {"hit" | "operation" | "span" | "launch" | "wait" | "dependent" | "next" | "previous"} Step */

/**
 * A step from a row of the trace to another.
 *
 * @typedef {{ how: Step, group: number, span: number, shown: number[], find: Filter | null, operation?: number | null, step?: number }} Go
 */

/** @typedef {{ group: number, span: number, start: number, end: number, position: number, hidden?: string }} Place */

/** @typedef {{ onDevice: number, onHost: number, starts: number[] }} HitCounts `starts` are left out where there are many */

/**
 * `names` are [key, count, ns]; `gpus` of each GPU: kernels that start, ns with a kernel, ns with a kernel or a copy.
 *
 * @typedef {{ names: [number, number, number][], gpus: [number, number, number][] }} Sums
 */

/**
 * What the browser asks, and what it is answered.
 *
 * @typedef {object} Questions
 * @property {{}} paths the critical path of each group
 * @property {{ windows: (TileWindow | null)[], find: Filter | null, paths: boolean }} tile a part of a long trace
 * @property {{ find: Filter }} find how often a search finds something
 * @property {Go} go where a step leads
 * @property {{ operation: number }} starts when an operation begins
 * @property {{ areas: AreaOfGroup[] }} totals sums of areas
 * @property {{}} details the second bundle, as the block
 * @property {{ group: number, by: "code" | "range" }} tree where a GPU's time goes by code
 * @property {{ group: number, by: "code" | "range", span: number }} frame the frame of a span
 * @property {{}} counters counters, markers and memory
 * @property {{}} job its map
 * @property {{ rank: number, step: number }} cell which collective makes a cell of it
 * @property {{ numbers: number[] }} show other ranks of the job; the spans come for themselves, before the answer
 */

/**
 * @typedef {object} Answers
 * @property {{ paths: (PathHeader | null)[] }} paths
 * @property {{ groups: (PartHeader | null)[] }} tile
 * @property {{ groups: HitCounts[] }} find
 * @property {Place | Partial<Record<keyof Place, undefined>>} go nothing where the step leads nowhere
 * @property {{ starts: (number | null)[] }} starts
 * @property {{ groups: Sums[] }} totals
 * @property {{}} details
 * @property {TreeHeader} tree
 * @property {{ frame: number }} frame -1 for none
 * @property {{ groups: CountersHeader[] }} counters
 * @property {RanksHeader} job
 * @property {{ numbers: number[], span: number, start: number, end: number }} cell the span is -1 where the ranks have to be shown first
 * @property {{}} show
 */

/** @typedef {Uint8Array<ArrayBuffer> | DataView<ArrayBuffer>} Block the bytes that columns lie in */

/** @typedef {<Q extends keyof Questions>(question: { type: Q } & Questions[Q]) => Promise<{ header: Answers[Q], block: Block }>} Ask */

/**
 * Messages to Python, by their types. A question has the number of its answer, too; each view takes only what is for it.
 *
 * @typedef {{ ready: { view: string } } & { [Q in keyof Questions]: Questions[Q] & { view: string, id: string } }} ToPython
 */

/**
 * Messages to the browser, each with a block.
 *
 * @typedef {object} ToBrowser
 * @property {{ view: string | null, header: Header }} spans for one view, or for all where it is null
 * @property {{ view: string, id: string, header: Answers[keyof Questions] | { refused: string } }} answer
 */

/**
 * The fields of a message: true for those that are always there.
 *
 * @template T
 * @typedef {{ [K in keyof T]-?: {} extends Pick<T, K> ? false : true }} Fields
 */

/** @type {{ [T in keyof ToPython]: Fields<ToPython[T]> }} */
export const TO_PYTHON = {
  ready: { view: true },
  paths: { view: true, id: true },
  tile: { view: true, id: true, windows: true, find: true, paths: true },
  find: { view: true, id: true, find: true },
  go: { view: true, id: true, how: true, group: true, span: true, shown: true, find: true, operation: false, step: false },
  starts: { view: true, id: true, operation: true },
  totals: { view: true, id: true, areas: true },
  details: { view: true, id: true },
  tree: { view: true, id: true, group: true, by: true },
  frame: { view: true, id: true, group: true, by: true, span: true },
  counters: { view: true, id: true },
  job: { view: true, id: true },
  cell: { view: true, id: true, rank: true, step: true },
  show: { view: true, id: true, numbers: true },
};

/** @type {{ [T in keyof ToBrowser]: Fields<ToBrowser[T]> }} */
export const TO_BROWSER = {
  spans: { view: true, header: true },
  answer: { view: true, id: true, header: true },
};

/** @type {{ [Q in keyof Answers]: Fields<Answers[Q]> }} */
export const ANSWERS = {
  paths: { paths: true },
  tile: { groups: true },
  find: { groups: true },
  go: { group: true, span: true, start: true, end: true, position: true, hidden: false },
  starts: { starts: true },
  totals: { groups: true },
  details: {},
  tree: { by: true, other: true, gpu: true, defined: true, texts: true, count: true, columns: true, rows: true, frame: true },
  frame: { frame: true },
  counters: { groups: true },
  job: { numbers: true, shown: true, steps: true, several: true, most: true, late: true, groups: true, waiting: true, awaited: true },
  cell: { numbers: true, span: true, start: true, end: true },
  show: {},
};
