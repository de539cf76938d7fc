// Which spans a filter shows, as one byte a span.

import { launchedNames } from "./decode.js";
import { labelsWith } from "./origins.js";

/**
 * @param {{code: number | null, text: string}} filter one name, or what a name or a label must contain, in lower case
 * @returns {Array<Uint8Array> | null} for each group and span 1 or 0; null where everything is shown
 */
export function shownSpans(model, { code, text }) {
  if (code === null && text === "") return null;
  // One place more, for spans that launch nothing.
  const matches = new Uint8Array(model.names.length + 1);
  model.names.forEach((name, index) => (matches[index] = code === null ? name.toLowerCase().includes(text) : index === code));
  return model.groups.map((group) => {
    const shown = shownOf(group.name, launchedNames(model, group), matches);
    const labelled = code === null ? labelsWith(model, group, text) : null;
    if (labelled) for (let i = 0; i < shown.length; i++) shown[i] |= labelled[group.operation[i]] ?? 0;
    return shown;
  });
}

/** A call is shown for its own name, and for that of what it launches. */
function shownOf(name, launched, matches) {
  const shown = new Uint8Array(name.length);
  const none = matches.length - 1;
  for (let i = 0; i < name.length; i++) shown[i] = matches[name[i]] | matches[launched[i] < 0 ? none : launched[i]];
  return shown;
}
