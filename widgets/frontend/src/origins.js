// Where operations come from: the user's label, line, shapes and dtypes, which tell five equal names apart.

const text = (model, codes, operation) => (operation >= 0 && operation < codes?.length && codes[operation] >= 0 ? model.texts[codes[operation]] : "");

/** {label, line, shapes} of an operation of a group; empty where unknown. */
export function originOf(model, { origins }, operation) {
  return {
    label: text(model, origins.label, operation),
    line: text(model, origins.line, operation),
    shapes: text(model, origins.arguments, operation),
  };
}

/** The name of a span with as much of its label and its shapes as fits, the name alone where neither does. */
export function fittingName(ctx, model, group, span, name, room) {
  const { label, shapes } = originOf(model, group, group.operation[span]);
  const named = label ? `${name} · ${label}` : name;
  const longer = [...(shapes ? [`${named} · ${shapes}`] : []), ...(label ? [named] : [])];
  return longer.find((words) => ctx.measureText(words).width <= room) ?? name;
}

/** For each operation whether its label contains a text, in lower case; null where none does. */
export function labelsWith({ texts }, { origins }, wanted) {
  if (!origins.label) return null;
  const matches = texts.map((label) => label.toLowerCase().includes(wanted));
  const found = Uint8Array.from(origins.label, (code) => code >= 0 && matches[code]);
  return found.includes(1) ? found : null;
}
