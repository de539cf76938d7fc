// One column of numbers, from its description and the block of bytes that Python wrote (columns.py).

/**
 * @import { ColumnHeader } from "./header.js"
 * @import { Block } from "./messages.js"
 */

/** @typedef {Uint8Array | Uint16Array | Uint32Array | Int32Array | Float64Array} Column */

const ARRAYS = { u8: Uint8Array, u16: Uint16Array, u32: Uint32Array, f64: Float64Array };

/**
 * One column as a typed array of `count` numbers.
 *
 * @param {ColumnHeader} spec
 * @param {Block} block
 * @param {number} count
 * @returns {Column}
 */
export function decodeColumn(spec, block, count) {
  const Array = ARRAYS[spec.dtype];
  /** @type {Column} */
  let values;
  if ("constant" in spec) {
    values = new Array(count);
    if (spec.constant) values.fill(spec.constant);
  } else {
    const from = block.byteOffset + spec.offset;
    // A view handed over by a browser's message channel may start at any byte; typed arrays may not.
    const aligned = from % Array.BYTES_PER_ELEMENT === 0;
    const bytes = count * Array.BYTES_PER_ELEMENT;
    values = aligned
      ? new Array(block.buffer, from, count)
      : new Array(block.buffer.slice(from, from + bytes));
  }
  if (spec.delta) return accumulated(values, spec.first ?? 0);
  return spec.shift ? shifted(values, spec.shift, spec.wide ? Float64Array : Int32Array) : values;
}

/**
 * @param {Column} deltas
 * @param {number} first
 */
function accumulated(deltas, first) {
  const values = new Float64Array(deltas.length);
  let value = first;
  for (let i = 0; i < deltas.length; i++) {
    value += deltas[i];
    values[i] = value;
  }
  return values;
}

/**
 * @param {Column} values
 * @param {number} shift
 * @param {Int32ArrayConstructor | Float64ArrayConstructor} Array
 */
function shifted(values, shift, Array) {
  const result = new Array(values.length);
  for (let i = 0; i < values.length; i++) result[i] = values[i] + shift;
  return result;
}
