// Which spans a filter shows, as one byte a span.

import { launchedNames } from "./decode.js";

/**
 * @param {{code: number | null, text: string}} filter one name, or what a name must contain, in lower case
 * @returns {Array<{shown: Uint8Array, onDevice: number, onHost: number}> | null} for each group: 1 or 0 for each span, and how many on the
 * device, and on the host, are shown; null where everything is
 */
export function filterSpans(model, { code, text }) {
  if (code === null && text === "") return null;
  // One place more, for spans that launch nothing.
  const matches = new Uint8Array(model.names.length + 1);
  model.names.forEach((name, index) => (matches[index] = code === null ? name.toLowerCase().includes(text) : index === code));
  return model.groups.map((group) => filterGroup(group, launchedNames(model, group), matches, model.kinds.kernel));
}

/** A call is shown for its own name, and for that of what it launches. */
function filterGroup({ name, kind }, launched, matches, firstDeviceKind) {
  const shown = new Uint8Array(name.length);
  const none = matches.length - 1;
  let [onDevice, onHost] = [0, 0];
  for (let i = 0; i < name.length; i++) {
    const match = matches[name[i]] | matches[launched[i] < 0 ? none : launched[i]];
    shown[i] = match;
    if (kind[i] >= firstDeviceKind) onDevice += match;
    else onHost += match;
  }
  return { shown, onDevice, onHost };
}
