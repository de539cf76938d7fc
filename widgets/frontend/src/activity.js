// What the device of a group does at each time, in stretches without gaps: Python works it out (analysis/activity.py), this only reads it.

import { decodeColumn } from "./decode_column.js";
import { gallop, upperBound } from "./search.js";

/**
 * @import { Geometry } from "./geometry.js"
 * @import { ActivityHeader, ColumnHeader, LookName, Occupation } from "./header.js"
 * @import { Block } from "./messages.js"
 */

const CHUNK = 16;
// Places of a sum: time with anything running, with two or more streams, with a kernel, with a kernel that computes; streams times time of kernels
// that compute, of copies, of communication beside such a kernel, and of communication without one; then the time of each occupation from
// HOST_FUNCTION on.
export const [RUNNING, OVERLAPPED, KERNEL, COMPUTE, KERNELS, COPIES, HIDDEN, EXPOSED, IDLE] = [0, 1, 2, 3, 4, 5, 6, 7, 7];

export class Activity {
  /**
   * @param {ActivityHeader} spec
   * @param {Block} block
   * @param {Occupation[]} occupations
   */
  constructor(spec, block, occupations) {
    const { count } = spec;
    this.count = count;
    this.start = decodeColumn(spec.start, block, count);
    this.end = new Float64Array(count);
    this.end.set(this.start.subarray(1));
    if (count) this.end[count - 1] = spec.end_ns;
    /** @param {ColumnHeader} column */
    const decoded = (column) => decodeColumn(column, block, count);
    this.kernels = decoded(spec.kernels);
    this.copies = decoded(spec.copies);
    this.collectives = decoded(spec.collectives);
    this.peers = decoded(spec.peers);
    this.occupation = decoded(spec.occupation);
    this.fullness = decoded(spec.fullness);
    /** Which stretches stand for many short ones; only of long traces. */
    this.crowd = spec.crowd && decodeColumn(spec.crowd, block, count);
    this.width = IDLE + occupations.length;
    this.before = this.chunkSums();
    this.sum = new Float64Array(this.width);
    /** Most streams at once. */
    this.most = 0;
    const { kernels, copies } = this;
    for (let i = 0; i < count; i++) if (kernels[i] + copies[i] > this.most) this.most = kernels[i] + copies[i];
  }

  /**
   * How many streams compute, communicate, and copy otherwise in a stretch.
   *
   * @param {number} i
   */
  streamsAt(i) {
    const [collectives, peers] = [this.collectives[i], this.peers[i]];
    return [this.kernels[i] - collectives, collectives + peers, this.copies[i] - peers];
  }

  chunkSums() {
    const { width, count } = this;
    const before = new Float64Array((Math.floor(count / CHUNK) + 1) * width);
    const sum = new Float64Array(width);
    for (let i = 0, place = 0; place < before.length; ) {
      for (let k = 0; k < width; k++) before[place++] = sum[k];
      for (const last = Math.min(i + CHUNK, count); i < last; i++) this.add(sum, i);
    }
    return before;
  }

  /**
   * @param {Float64Array} sum
   * @param {number} i
   */
  add(sum, i) {
    const length = this.end[i] - this.start[i];
    const kernels = this.kernels[i];
    const copies = this.copies[i];
    const streams = kernels + copies;
    if (!streams) {
      sum[IDLE + this.occupation[i]] += length;
      return;
    }
    sum[RUNNING] += length;
    if (streams > 1) sum[OVERLAPPED] += length;
    if (kernels) sum[KERNEL] += length;
    // As `streamsAt`, which is too slow for millions.
    const collectives = this.collectives[i];
    const peers = this.peers[i];
    if (kernels > collectives) sum[COMPUTE] += length;
    sum[KERNELS] += length * (kernels - collectives);
    sum[COPIES] += length * (copies - peers);
    if (collectives + peers) sum[kernels > collectives ? HIDDEN : EXPOSED] += length * (collectives + peers);
  }

  /**
   * Sums over the stretches [from, to); the array is used again by the next call.
   *
   * @param {number} from
   * @param {number} to
   */
  sumOf(from, to) {
    const { sum, before, width } = this;
    sum.fill(0);
    const [first, last] = [Math.ceil(from / CHUNK), Math.floor(to / CHUNK)];
    if (first >= last) {
      for (let i = from; i < to; i++) this.add(sum, i);
      return sum;
    }
    for (let place = 0; place < width; place++) sum[place] = before[last * width + place] - before[first * width + place];
    for (let i = from; i < first * CHUNK; i++) this.add(sum, i);
    for (let i = last * CHUNK; i < to; i++) this.add(sum, i);
    return sum;
  }

  /**
   * Nanoseconds of [from, to) with a kernel: "GPU busy".
   *
   * @param {number} from
   * @param {number} to
   */
  kernelTimeWithin(from, to) {
    /** @param {number} t */
    const before = (t) => this.timeUntil(t, KERNEL, (i) => this.kernels[i]);
    return before(to) - before(from);
  }

  /**
   * Nanoseconds of [from, to) with a kernel or a copy.
   *
   * @param {number} from
   * @param {number} to
   */
  busyWithin(from, to) {
    return this.busyUntil(to) - this.busyUntil(from);
  }

  /**
   * Nanoseconds before time `t` with a kernel or a copy.
   *
   * @param {number} t
   */
  busyUntil(t) {
    return this.timeUntil(t, RUNNING, (i) => this.kernels[i] || this.copies[i]);
  }

  /**
   * @param {number} t
   * @param {number} place
   * @param {(i: number) => number} runs
   */
  timeUntil(t, place, runs) {
    const i = upperBound(this.start, t) - 1;
    return i < 0 ? 0 : this.sumOf(0, i)[place] + (runs(i) ? Math.min(t, this.end[i]) - this.start[i] : 0);
  }

  /**
   * Names of the looks that occur.
   *
   * @param {Occupation[]} occupations
   */
  looks(occupations) {
    const sum = this.sumOf(0, this.count);
    /** @type {Set<Occupation | LookName>} */
    const found = new Set(occupations.filter((_, code) => code && sum[IDLE + code]));
    if (sum[COPIES]) found.add("copy");
    if (sum[HIDDEN]) found.add("hidden");
    if (sum[EXPOSED]) found.add("exposed");
    if (sum[KERNELS] > sum[COMPUTE]) found.add("kernels");
    if (sum[COMPUTE]) found.add("kernel");
    return found;
  }

  /**
   * Whether the fullness of any kernel's stretch is known.
   *
   * @param {number} unknown
   */
  tellsFullness(unknown) {
    const { fullness, kernels, count } = this;
    for (let i = 0; i < count; i++) if (fullness[i] !== unknown && kernels[i]) return true;
    return false;
  }

  /**
   * The stretch at time `t`; -1 for none.
   *
   * @param {number} t
   */
  at(t) {
    const i = upperBound(this.start, t) - 1;
    return i >= 0 && t < this.end[i] ? i : -1;
  }

  /**
   * Call `one(i)` for each stretch in view that is at least a pixel long, and `crowd(from, to)` for the others, a pixel at a time.
   *
   * Pixels are counted from time zero, not from the edge of the view, so that panning does not change what shares one.
   *
   * @param {Pick<Geometry, "t0" | "t1" | "pitch">} geometry
   * @param {(i: number) => void} one
   * @param {(from: number, to: number) => void} crowd
   */
  visit({ t0, t1, pitch }, one, crowd) {
    const { start, end, count } = this;
    let i = Math.max(0, upperBound(start, t0) - 1);
    while (i < count && start[i] < t1) {
      if (end[i] - start[i] >= pitch) one(i++);
      else {
        let to = gallop(start, (Math.floor(start[i] / pitch) + 1) * pitch, i + 1);
        // Only the last of them can be long, and it is drawn by itself.
        if (to > i + 1 && end[to - 1] - start[to - 1] >= pitch) to--;
        crowd(i, to);
        i = to;
      }
    }
  }
}
