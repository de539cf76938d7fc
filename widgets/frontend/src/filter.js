// Which spans a filter shows, as one byte a span.

import { launchedNames } from "./decode.js";
import { labelsWith, symbolsWith } from "./origins.js";

/**
 * @param {{code: number | null, text: string}} filter one name, or what a name, a label or a kernel's own name must contain, in lower case
 * @returns {Array<{shown: Uint8Array, onDevice: number, onHost: number}> | null} for each group: 1 or 0 for each span, and how many on the
 * device, and on the host, are shown; null where everything is
 */
export function filterSpans(model, { code, text }) {
  if (code === null && text === "") return null;
  // One place more, for spans that launch nothing.
  const matches = new Uint8Array(model.names.length + 1);
  model.names.forEach((name, index) => (matches[index] = code === null ? name.toLowerCase().includes(text) : index === code));
  return model.groups.map((group) => {
    const labelled = code === null ? labelsWith(model, group, text) : null;
    const symbols = code === null ? symbolsWith(model, group, text) : null;
    return filterGroup(group, launchedNames(group), matches, { labelled, symbols }, model.kinds.kernel);
  });
}

/** A call is shown for its own name, and for that of what it launches; all of an operation for its label. Spans that are not drawn are not shown. */
function filterGroup({ name, kind, lane, operation, place }, launched, matches, { labelled, symbols }, firstDeviceKind) {
  const shown = new Uint8Array(name.length);
  const none = matches.length - 1;
  let [onDevice, onHost] = [0, 0];
  for (let i = 0; i < name.length; i++) {
    let match = matches[name[i]] | matches[launched[i] < 0 ? none : launched[i]];
    if (labelled) match |= labelled[operation[i]] ?? 0;
    if (symbols) match |= symbols[i];
    if (place?.[lane[i]] < 0) match = 0;
    shown[i] = match;
    if (kind[i] >= firstDeviceKind) onDevice += match;
    else onHost += match;
  }
  return { shown, onDevice, onHost };
}
