// Where operations come from: the user's label, line, shapes and dtypes, which tell five equal names apart.

/**
 * @import { Column } from "./decode_column.js"
 * @import { Group, Model } from "./model.js"
 * @import { Measure } from "./text.js"
 */

/**
 * @param {Model} model
 * @param {Column | undefined} codes
 * @param {number} operation
 */
const text = (model, codes, operation) => (codes && operation >= 0 && operation < codes.length && codes[operation] >= 0 ? model.texts[codes[operation]] : "");

/**
 * {label, line, shapes} of an operation of a group; empty where unknown.
 *
 * @param {Model} model
 * @param {Pick<Group, "origins">} group
 * @param {number} operation
 */
export function originOf(model, { origins }, operation) {
  return {
    label: text(model, origins.label, operation),
    line: text(model, origins.line, operation),
    shapes: text(model, origins.arguments, operation),
  };
}

/**
 * The kernel's own name, where a span has one that says more than the span's name.
 *
 * @param {Model} model
 * @param {Group} group
 * @param {number} span
 */
export const symbolOf = (model, group, span) => text(model, group.symbol, span);

/**
 * Whether what is known of arguments is the operator of captured code, and not shapes.
 *
 * @param {string} arguments_
 */
export const isOperator = (arguments_) => arguments_ !== "" && !arguments_.includes("→");

/**
 * The name of a span with as much of its label and its shapes as fits, the name alone where neither does. What was captured is called by its
 * operator and module: a library's kernels have names that say little.
 *
 * @param {Measure} ctx
 * @param {Model} model
 * @param {Group} group
 * @param {number} span
 * @param {string} name
 * @param {number} room
 */
export function fittingName(ctx, model, group, span, name, room) {
  const { label, shapes } = originOf(model, group, group.operation[span]);
  if (isOperator(shapes)) {
    const does = /** @type {string} */ (shapes.split(".").slice(0, 2).at(-1)); // PyTorch's are called "aten.relu.default".
    const called = label ? `${does} · ${label}` : does;
    return [`${called} · ${name}`, called].find((words) => ctx.measureText(words).width <= room) ?? does;
  }
  const named = label ? `${name} · ${label}` : name;
  const longer = [...(shapes ? [`${named} · ${shapes}`] : []), ...(label ? [named] : [])];
  return longer.find((words) => ctx.measureText(words).width <= room) ?? name;
}

/**
 * For each code of a text whether it contains what is wanted, in lower case; -1 is none. Null where none does.
 *
 * @param {string[]} texts
 * @param {Column | undefined} codes
 * @param {string} wanted
 */
function codesWith(texts, codes, wanted) {
  if (!codes) return null;
  const matches = texts.map((text) => text.toLowerCase().includes(wanted));
  if (!matches.includes(true)) return null;
  const found = Uint8Array.from(codes, (code) => +(code >= 0 && matches[code]));
  return found.includes(1) ? found : null;
}

/**
 * For each operation whether its label contains a text; null where none does.
 *
 * @param {Pick<Model, "texts">} model
 * @param {Pick<Group, "origins">} group
 * @param {string} wanted
 */
export const labelsWith = ({ texts }, { origins }, wanted) => codesWith(texts, origins.label, wanted);

/**
 * For each span whether its kernel's own name contains a text; null where none does.
 *
 * @param {Pick<Model, "texts">} model
 * @param {Pick<Group, "symbol">} group
 * @param {string} wanted
 */
export const symbolsWith = ({ texts }, { symbol }, wanted) => codesWith(texts, symbol, wanted);
