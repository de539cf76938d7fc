// Stepped lines: what of them lies in each pixel, and the value at a time.

import { decodeColumn } from "./decode_column.js";
import { grouped, significant } from "./format.js";
import { gallop, upperBound } from "./search.js";

/**
 * @import { Column } from "./decode_column.js"
 * @import { Geometry } from "./geometry.js"
 * @import { CounterLaneHeader, CountersHeader, NoteHeader } from "./header.js"
 * @import { Block } from "./messages.js"
 */

/** @typedef {{ name: string, time: Column, value: Column, extremes?: Extremes }} Line from each time on a value, until the next one */

/** @typedef {{ least: Float64Array, largest: Float64Array }} Extremes of each chunk of a line's values */

// A frame looks at the values of two chunks for each pixel at most, and else at extremes.
const CHUNK = 64;

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
 * @param {Pick<Geometry, "left" | "right" | "t0" | "pitch" | "x">} geometry
 * @returns {Step[]}
 */
export function stepsOf(line, { left, right, t0, pitch, x: toX }) {
  const { time, value } = line;
  /** @type {Step[]} */
  const steps = [];
  let to = 0;
  for (let from = Math.max(0, upperBound(time, t0) - 1); from < time.length; from = to) {
    const x = Math.max(left, Math.round(toX(time[from])));
    if (x > right) break;
    to = gallop(time, t0 + (x + 0.5 - left) * pitch, from + 1);
    const [least, largest] = extremesWithin(line, from, to);
    steps.push({ x, first: value[from], least, largest, last: value[to - 1] });
  }
  return steps;
}

/**
 * The least and the largest of a line's values [from, to).
 *
 * @param {Line} line
 * @param {number} from
 * @param {number} to
 */
function extremesWithin(line, from, to) {
  const { value } = line;
  let [least, largest] = [Infinity, -Infinity];
  for (let i = from; i < to; ) {
    if (i % CHUNK || i + CHUNK > to) {
      least = Math.min(least, value[i]);
      largest = Math.max(largest, value[i++]);
    } else {
      const chunks = (line.extremes ??= extremesOf(value));
      least = Math.min(least, chunks.least[i / CHUNK]);
      largest = Math.max(largest, chunks.largest[i / CHUNK]);
      i += CHUNK;
    }
  }
  return [least, largest];
}

/**
 * @param {Column} value
 * @returns {Extremes}
 */
function extremesOf(value) {
  const chunks = Math.ceil(value.length / CHUNK);
  const [least, largest] = [new Float64Array(chunks).fill(Infinity), new Float64Array(chunks).fill(-Infinity)];
  for (let i = 0; i < value.length; i++) {
    const chunk = Math.floor(i / CHUNK);
    least[chunk] = Math.min(least[chunk], value[i]);
    largest[chunk] = Math.max(largest[chunk], value[i]);
  }
  return { least, largest };
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
