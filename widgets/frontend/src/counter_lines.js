// Stepped lines: what of them lies in each pixel, and the value at a time.

import { decodeColumn } from "./decode_column.js";
import { grouped, significant } from "./format.js";
import { upperBound } from "./search.js";

/**
 * @import { Column } from "./decode_column.js"
 * @import { CounterLaneHeader, CountersHeader, NoteHeader } from "./header.js"
 * @import { Block } from "./messages.js"
 */

/** @typedef {{ name: string, time: Column, value: Column }} Line from each time on a value, until the next one */

/** @typedef {Omit<CounterLaneHeader, "lines"> & { lines: Line[] }} CounterLane */

/** @typedef {{ lanes: CounterLane[], left_out: number, markers: { time: Column, name: Column, texts: string[] }, notes: NoteHeader[] }} Counters */

/**
 * @param {CountersHeader} header
 * @param {Block} block
 * @returns {Counters}
 */
export function decodeCounters({ lanes, left_out, markers, notes }, block) {
  const { count, texts } = markers;
  return {
    left_out,
    notes,
    lanes: lanes.map((lane) => ({
      ...lane, lines: lane.lines.map(({ name, count: values, time, value }) => (
        { name, time: decodeColumn(time, block, values), value: decodeColumn(value, block, values) }
      )),
    })),
    markers: { time: decodeColumn(markers.time, block, count), name: decodeColumn(markers.name, block, count), texts },
  };
}

/**
 * Lanes of several engines: those of one counter below each other and with one range, so that they can be compared.
 *
 * @template {{ lane: CounterLane }} Row
 * @param {Row[]} rows
 * @returns {Row[]}
 */
export function comparable(rows) {
  /** @type {Map<string, Row[]>} */
  const counters = new Map();
  for (const row of rows) counters.set(row.lane.label, [...(counters.get(row.lane.label) ?? []), row]);
  return [...counters.values()].flatMap((same) => {
    const [low, high] = [Math.min(...same.map(({ lane }) => lane.low)), Math.max(...same.map(({ lane }) => lane.high))];
    return same.map((row) => ({ ...row, lane: { ...row.lane, low, high } }));
  });
}

/**
 * The value at a time; null before the first one.
 *
 * @param {Line} line
 * @param {number} time_ns
 */
export function valueAt({ time, value }, time_ns) {
  const at = upperBound(time, time_ns) - 1;
  return at < 0 ? null : value[at];
}

/** @typedef {{ x: number, first: number, least: number, largest: number, last: number }} Step what a line does in a pixel */

/**
 * The pixels in which a line has values, from the one in force at the left edge on. In each pixel, all values between its least and its
 * largest one share it.
 *
 * @param {Line} line
 * @param {(time: number) => number} toX
 * @param {number} left
 * @param {number} right
 * @param {number} from the time at the left edge
 * @returns {Step[]}
 */
export function stepsOf({ time, value }, toX, left, right, from) {
  /** @type {Step[]} */
  const steps = [];
  for (let i = Math.max(0, upperBound(time, from) - 1); i < time.length; i++) {
    const x = Math.max(left, Math.round(toX(time[i])));
    if (x > right) break;
    const here = steps.at(-1);
    const v = value[i];
    if (here?.x !== x) steps.push({ x, first: v, least: v, largest: v, last: v });
    else {
      here.least = Math.min(here.least, v);
      here.largest = Math.max(here.largest, v);
      here.last = v;
    }
  }
  return steps;
}

/**
 * A value in words: bytes as binary_size in Python writes them.
 *
 * @param {number} value
 * @param {string} unit
 */
export function valueWords(value, unit) {
  if (unit !== "B") return Math.abs(value) >= 1e7 || (value && Math.abs(value) < 1e-4) ? value.toExponential(3).replaceAll("-", "−") : signed(value);
  if (value === 0) return "0";
  if (value >= 2 ** 30) return `${grouped(value / 2 ** 30, 2)} GiB`;
  if (value > 0 && value < 2 ** 10) return `${value} B`;
  return value >= 2 ** 20 ? `${grouped(value / 2 ** 20, 1)} MiB` : `${grouped(value / 2 ** 10, 1)} KiB`;
}

/** @param {number} value */
const signed = (value) => (Number.isInteger(value) ? grouped(value) : `${value < 0 ? "−" : ""}${significant(Math.abs(value))}`);
