// Which spans a filter shows, as one byte a span.

import { launchedNames } from "./decode.js";
import { labelsWith, symbolsWith } from "./origins.js";

/**
 * @import { Filter } from "./messages.js"
 * @import { Group, Model } from "./model.js"
 */

/** @typedef {{ shown: Uint8Array, onDevice: number, onHost: number }} Found 1 for each span that a filter shows, and how many they are */

/**
 * @param {Model} model
 * @param {Filter} filter
 * @returns {Found[] | null} of each group; null where everything is shown
 */
export function filterSpans(model, { code, text }) {
  if (code === null && text === "") return null;
  // One place more, for spans that launch nothing.
  const matches = new Uint8Array(model.names.length + 1);
  model.names.forEach((name, index) => (matches[index] = +(code === null ? name.toLowerCase().includes(text) : index === code)));
  return model.groups.map((group) => {
    const labelled = code === null ? labelsWith(model, group, text) : null;
    const symbols = code === null ? symbolsWith(model, group, text) : null;
    return filterGroup(group, launchedNames(group), matches, { labelled, symbols }, model.kinds.kernel);
  });
}

/**
 * A call is shown for its own name, and for that of what it launches; all of an operation for its label. Spans that are not drawn are not shown.
 *
 * @param {Group} group
 * @param {Int32Array} launched
 * @param {Uint8Array} matches
 * @param {{ labelled: Uint8Array | null, symbols: Uint8Array | null }} found
 * @param {number} firstDeviceKind
 * @returns {Found}
 */
function filterGroup({ name, kind, lane, operation, place }, launched, matches, { labelled, symbols }, firstDeviceKind) {
  const shown = new Uint8Array(name.length);
  const none = matches.length - 1;
  let [onDevice, onHost] = [0, 0];
  for (let i = 0; i < name.length; i++) {
    let match = matches[name[i]] | matches[launched[i] < 0 ? none : launched[i]];
    if (labelled) match |= labelled[operation[i]] ?? 0;
    if (symbols) match |= symbols[i];
    if (place && place[lane[i]] < 0) match = 0;
    shown[i] = match;
    if (kind[i] >= firstDeviceKind) onDevice += match;
    else onHost += match;
  }
  return { shown, onDevice, onHost };
}
