// What a timeline shows, as plain data: to restore it after new spans, in another view, from a link, from Python.

import { ofOperation } from "./grouping.js";

/**
 * @import { AlignMode } from "./align.js"
 * @import { Arrangement } from "./arrangement.js"
 * @import { Choosing } from "./choosing.js"
 * @import { Finding } from "./finding.js"
 * @import { Highlight } from "./join.js"
 * @import { Model } from "./model.js"
 * @import { OverlapSwitches } from "./switches.js"
 * @import { Tiles } from "./tiles.js"
 * @import { Toolbar } from "./toolbar.js"
 * @import { Viewer } from "./viewing.js"
 */

/** @typedef {{ engine?: string, operation?: number | null, name?: string | null, span?: number | null }} Selection */

/**
 * What a timeline shows. `range` is [start, end] in nanoseconds on the axis, null for everything; engines are told by their labels, collapsed
 * GPUs by `gpuName`; `shows`
 * is what is shown besides the spans: "overlap", "critical path".
 *
 * @typedef {object} State
 * @property {[number, number] | null} range
 * @property {Selection | null} selection
 * @property {string[]} engines
 * @property {string[]} pinned
 * @property {string[]} collapsed
 * @property {AlignMode} align
 * @property {string[]} shows
 * @property {{ name: string | null, text: string }} find
 */

/**
 * The timeline as what reads its state knows it.
 *
 * @typedef {object} Owner
 * @property {Model} model
 * @property {Pick<Viewer, "view" | "mode" | "isWhole" | "show">} viewer
 * @property {Arrangement} arrangement
 * @property {Pick<Finding, "filter">} finding
 * @property {Pick<OverlapSwitches, "words">} switches
 * @property {Highlight | null} selected
 * @property {Pick<Choosing, "select" | "clear">} choosing
 * @property {Pick<Toolbar, "find">} toolbar
 * @property {Pick<Tiles, "go"> | null} tiles
 * @property {(change: () => void) => void} arrange
 * @property {(mode: AlignMode) => void} align
 */

/**
 * @returns {State} `range` is [start, end] in nanoseconds on the axis, null for
 * everything; `selection` is {engine, operation, name, span}, null for none; engines are told by their labels; `shows` is
 * what is shown besides the spans: "overlap", "critical path"
 * @param {Owner} timeline
 */
export function readState(timeline) {
  const { model, viewer, arrangement, finding } = timeline;
  /** @param {Iterable<number>} indices */
  const labels = (indices) => [...indices].map((index) => model.groups[index].label);
  return {
    range: viewer.isWhole() ? null : [viewer.view.t0, viewer.view.t1],
    selection: describeSelection(timeline),
    engines: labels(arrangement.shown),
    pinned: labels(arrangement.pinned),
    collapsed: [...labels(arrangement.collapsed), ...arrangement.closed],
    align: viewer.mode,
    shows: timeline.switches.words,
    find: { name: finding.filter.code === null ? null : model.names[finding.filter.code], text: finding.filter.text },
  };
}

/**
 * @param {Pick<Owner, "model" | "selected">} timeline
 * @returns {Selection | null}
 */
function describeSelection({ model, selected }) {
  if (!selected) return null;
  const { operation: id, name, row, span, group } = selected;
  return { engine: model.groups[group].label, operation: id < 0 ? null : id, name, span: row ?? span };
}

/**
 * Show what a state says; what it does not mention stays as it is, and what the model does not have is left out.
 *
 * @param {Owner} timeline
 * @param {Partial<State>} state
 */
export function applyState(timeline, state) {
  const { model, arrangement, choosing, toolbar } = timeline;
  /** @param {string[]} labels */
  const indices = (labels) => [...labels].map((label) => model.groups.findIndex((group) => group.label === label)).filter((index) => index >= 0);
  timeline.arrange(() => {
    if (state.pinned) arrangement.pinned = new Set(indices(state.pinned));
    if (state.collapsed) {
      arrangement.collapsed = new Set(indices(state.collapsed));
      arrangement.closed = new Set(state.collapsed.filter((name) => model.groups.every(({ label }) => label !== name)));
    }
    if (state.engines && indices(state.engines).length) arrangement.show(indices(state.engines));
  });
  if (Array.isArray(state.shows)) timeline.switches.words = state.shows;
  if (state.find) toolbar.find(state.find.name === null ? null : model.names.indexOf(state.find.name), state.find.text);
  if (timeline.tiles && state.selection) {
    const { engine, operation = null, span = null } = state.selection;
    const group = Math.max(0, model.groups.findIndex(({ label }) => label === engine));
    const chosen = timeline.tiles.go(span === null ? { how: "operation", group, operation } : { how: "span", group, span }, false);
    if (state.align === "operation") chosen.then(() => applyState(timeline, { align: state.align, range: state.range }));
  } else if (state.selection !== undefined) {
    const [group, span] = findSelection(model, state.selection);
    if (span >= 0) choosing.select(group, span);
    else choosing.clear();
  }
  if (state.align && state.align !== timeline.viewer.mode && !(timeline.tiles && state.selection && state.align === "operation")) timeline.align(state.align);
  if (state.range !== undefined) timeline.viewer.show(state.range);
}

/**
 * [group, span] of a selection: by its span, if that is one of the operation; else the operation's first on the device. A span without an
 * operation is told by its name: the same row of another trace is another span.
 *
 * @param {Model} model
 * @param {Selection | null} selection
 * @returns {[number, number]}
 */
export function findSelection(model, selection) {
  if (!selection) return [-1, -1];
  const { engine, operation = null, name = null } = selection;
  const span = selection.span ?? -1;
  const at = engine === undefined ? 0 : model.groups.findIndex(({ label }) => label === engine);
  const group = model.groups[at];
  if (!group) return [-1, -1];
  const ids = group.operation;
  const known = span >= 0 && span < group.count;
  if (operation === null) return [at, known && (name === null || model.names[group.name[span]] === name) ? span : -1];
  if (known && ids[span] === operation) return [at, span];
  const spans = ofOperation(group, operation);
  return [at, spans.find((i) => model.kinds.isDevice(group.kind[i])) ?? spans[0] ?? -1];
}
