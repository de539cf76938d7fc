// The table below the timeline: one operation, or one stretch of time, under every engine.

import { make, makeButton, makeSwatch } from "./dom.js";
import { grouped, micros, percent } from "./format.js";
import { launchOf } from "./join.js";

/** Rows [engine, stream, start, kernel time, API time, launch latency] of a highlighted operation. */
export function operationRows(model, highlight) {
  const { kinds } = model;
  return highlight.members.flatMap(({ group: index, spans }) => {
    const group = model.groups[index];
    const onDevice = spans.filter((i) => kinds.isDevice(group.kind[i]));
    return (onDevice.length ? onDevice : spans).slice(0, 12).map((i) => {
      const launch = launchOf(group, kinds, i);
      const inGraph = launch >= 0 && group.kind[launch] === kinds.graph_launch;
      const latency = launch >= 0 ? micros(group.start[i] - group.start[launch]) : "–";
      const call = launch < 0 ? "–" : inGraph ? "in graph" : micros(group.duration[launch]);
      return [group.label, group.lanes[group.lane[i]].name, micros(group.start[i]), micros(group.duration[i]), call, latency];
    });
  });
}

/** Rows [engine, running, GPU busy, busy share, idle, kernels] of the stretch [from, to) of the common axis. */
export function measureRows(parts, from, to) {
  return parts.map(({ group, busy }) => {
    const [start, end] = [Math.max(from, 0), Math.min(to, group.extent_ns)];
    const running = Math.max(0, end - start);
    if (!running) return [group.label, "–", "–", "–", "–", "–"];
    const busyTime = busy.within(start, end);
    return [
      group.label, micros(running), micros(busyTime), percent(busyTime / running), micros(running - busyTime),
      grouped(busy.kernelsWithin(start, end)),
    ];
  });
}

const OPERATION_HEAD = ["engine", "lane", "start", "duration", "API time", "launch latency"];
const MEASURE_HEAD = ["engine", "running", "GPU busy", "busy share", "idle", "kernels started"];

export class Panel {
  /** @param {{onClose, onFit}} actions */
  constructor(root, actions) {
    this.actions = actions;
    this.box = make("div", "ss-panel");
    this.box.hidden = true;
    this.box.setAttribute("aria-live", "polite");
    root.append(this.box);
  }

  showOperation(model, highlight, fill) {
    const label = highlight.operation >= 0 ? `operation #${highlight.operation} under every engine` : "";
    const fit = makeButton("zoom to it", "Zoom until all of them are in view (F)", this.actions.onFit);
    this.fill(makeSwatch(fill), highlight.name, label, OPERATION_HEAD, operationRows(model, highlight), fit);
  }

  showMeasure(parts, { from, to }) {
    const [start, end] = [Math.min(from, to), Math.max(from, to)];
    this.fill(null, micros(end - start), `from ${micros(start)} to ${micros(end)}`, MEASURE_HEAD, measureRows(parts, start, end));
  }

  fill(swatch, title, detail, head, rows, action = null) {
    const line = (cells, tag) => make("tr", "", ...cells.map((cell) => make(tag, "", cell)));
    const table = make("table", "", make("thead", "", line(head, "th")), make("tbody", "", ...rows.map((row) => line(row, "td"))));
    const close = makeButton("×", "Close (Escape)", this.actions.onClose);
    this.box.replaceChildren(
      make("div", "ss-panel-head", swatch, make("strong", "", title), make("span", "", detail), make("div", "ss-actions", action, close)),
      table,
    );
    this.box.hidden = false;
  }

  hide() {
    this.box.hidden = true;
  }
}
