// Which ranges hold a call: what the user's code, or a framework, was about when it put a kernel on its stream.

import { launchOf } from "./join.js";
import { upperBound } from "./search.js";
import { shortened } from "./text.js";

const LONGEST_NAME = 60;

/**
 * Names of the ranges around a call, or around the call that launched a span, the outermost first: "forward › layer1 › aten::conv2d".
 * @param lanes of the group, as `buildLanes` gives them
 */
export function rangesAround(model, lanes, group, span) {
  const call = model.kinds.isDevice(group.kind[span]) ? launchOf(group, model.kinds, span) : span;
  if (call < 0) return "";
  const wanted = `${group.lanes[group.lane[call]].name} ranges`;
  const at = group.start[call];
  const names = (lanes.find(({ name }) => name === wanted)?.rows ?? []).flatMap(({ start, end, spans }) => {
    const k = upperBound(start, at) - 1;
    return k >= 0 && end[k] > at ? [shortened(model.names[group.name[spans[k]]], LONGEST_NAME)] : [];
  });
  return names.join(" › ");
}
