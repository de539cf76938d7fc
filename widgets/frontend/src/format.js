// Numbers as text. Times come in nanoseconds.

/** @typedef {{ name: string, ns: number }} Unit */

/** @type {[number, Unit][]} */
const UNITS = [[1e6, { name: "µs", ns: 1e3 }], [1e9, { name: "ms", ns: 1e6 }], [Infinity, { name: "s", ns: 1e9 }]];

/**
 * The unit of a time, and of an axis up to it: that of `time_unit` in Python.
 *
 * @param {number} ns
 */
export const unitOf = (ns) => (UNITS.find(([end]) => Math.abs(ns) < end) ?? UNITS[2])[1];

/**
 * Digits grouped in threes by a comma: 12345.6 → "12,345.6".
 *
 * @param {number} value
 * @param {number} decimals
 */
export function grouped(value, decimals = 0) {
  const [whole, fraction] = Math.abs(value).toFixed(decimals).split(".");
  const digits = whole.replace(/\B(?=(\d{3})+$)/g, ",");
  const sign = value < 0 && Number(value.toFixed(decimals)) !== 0 ? "−" : "";
  return sign + digits + (fraction ? `.${fraction}` : "");
}

/**
 * In a unit {name, ns}; without `decimals` exact to the nanosecond.
 *
 * @param {number} ns
 * @param {Unit} unit
 * @param {number} decimals
 */
export const inUnit = (ns, unit, decimals = Math.log10(unit.ns)) => `${grouped(ns / unit.ns, decimals)} ${unit.name}`;

/**
 * Exact to the nanosecond: "234.567 µs", "1.234567 ms". As `exact_time_text` in Python.
 *
 * @param {number} ns
 */
export function exactTime(ns) {
  const whole = Math.round(ns);
  return inUnit(whole, unitOf(whole));
}

/**
 * At least three significant digits, without an exponent.
 *
 * @param {number} value
 */
export function significant(value) {
  if (value === 0) return "0";
  const decimals = Math.max(0, 2 - Math.floor(Math.log10(Math.abs(value) * 1.0005)));
  return grouped(value, Math.min(decimals, 6));
}

/**
 * With three significant digits, and the unit that suits it: "268 µs", "2.11 ms". As `time_text` in Python.
 *
 * @param {number} ns
 */
export function timeText(ns) {
  const rounded = Math.abs(ns) / 0.9995; // 999.5 µs is 1.00 ms.
  const unit = unitOf(rounded);
  const decimals = rounded && 2 - Math.floor(Math.log10(rounded / unit.ns));
  return inUnit(ns, unit, Math.max(0, Math.min(3, decimals)));
}

/** @type {[number, string][]} */
const PREFIXES = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]];

/**
 * With a decimal prefix: (1.5e6, "B") → "1.50 MB".
 *
 * @param {number} value
 * @param {string} unit
 */
export function prefixed(value, unit) {
  const [scale, prefix] = PREFIXES.find(([size]) => value >= size) ?? [1, ""];
  return `${scale === 1 && Number.isInteger(value) ? value : significant(value / scale)} ${prefix}${unit}`;
}

/**
 * For sentences: "69 %", "0.4 %" below one, "<0.1 %". As `percent` in Python.
 *
 * @param {number} share
 */
export const shareText = (share) => (
  share > 0 && share < 0.0005 ? "<0.1 %" : `${(share * 100).toFixed(share > 0 && share < 0.01 ? 1 : 0)} %`
);

/** @param {number} share */
export const percent = (share) => `${(share * 100).toFixed(1)} %`;
