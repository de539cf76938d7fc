// Binary searches in ascending typed arrays.

/**
 * First position whose value is at least `limit`, looking at [from, to).
 *
 * @param {ArrayLike<number>} values
 * @param {number} limit
 * @param {number} from
 * @param {number} to
 */
export function lowerBound(values, limit, from = 0, to = values.length) {
  while (from < to) {
    const middle = (from + to) >>> 1;
    if (values[middle] < limit) from = middle + 1;
    else to = middle;
  }
  return from;
}

/**
 * First position whose value is above `limit`.
 *
 * @param {ArrayLike<number>} values
 * @param {number} limit
 * @param {number} from
 * @param {number} to
 */
export function upperBound(values, limit, from = 0, to = values.length) {
  while (from < to) {
    const middle = (from + to) >>> 1;
    if (values[middle] <= limit) from = middle + 1;
    else to = middle;
  }
  return from;
}

/**
 * `lowerBound` that is quick when the answer lies close behind `from`.
 *
 * @param {ArrayLike<number>} values
 * @param {number} limit
 * @param {number} from
 */
export function gallop(values, limit, from) {
  let step = 1;
  let to = from;
  while (to < values.length && values[to] < limit) {
    from = to + 1;
    to += step;
    step *= 2;
  }
  return lowerBound(values, limit, from, Math.min(to, values.length));
}
