// When the device of a group is busy: the union of its kernels and copies over all streams.

import { lowerBound, upperBound } from "./search.js";

export class BusyTimes {
  constructor(group, kinds) {
    const { kind, start, end, kindCounts } = group;
    const starts = new Float64Array(kindCounts[kinds.kernel] + kindCounts[kinds.copy]);
    const ends = new Float64Array(starts.length);
    const kernelStarts = new Float64Array(kindCounts[kinds.kernel]);
    const { kernel, copy } = kinds;
    let [count, kernels] = [0, 0];
    for (let i = 0; i < kind.length; i++) {
      if (kind[i] !== kernel && kind[i] !== copy) continue;
      if (kind[i] === kernel) kernelStarts[kernels++] = start[i];
      if (count && start[i] <= ends[count - 1]) {
        if (end[i] > ends[count - 1]) ends[count - 1] = end[i];
      } else {
        starts[count] = start[i];
        ends[count++] = end[i];
      }
    }
    this.kernelStarts = kernelStarts;
    this.starts = starts.subarray(0, count);
    this.ends = ends.subarray(0, count);
    this.before = new Float64Array(count + 1);
    for (let k = 0; k < count; k++) this.before[k + 1] = this.before[k] + ends[k] - starts[k];
  }

  /** Busy nanoseconds before time `t`. */
  until(t) {
    const k = upperBound(this.starts, t);
    return k === 0 ? 0 : this.before[k - 1] + Math.min(t, this.ends[k - 1]) - this.starts[k - 1];
  }

  within(from, to) {
    return this.until(to) - this.until(from);
  }

  /** Kernels that start in [from, to). */
  kernelsWithin(from, to) {
    return lowerBound(this.kernelStarts, to) - lowerBound(this.kernelStarts, from);
  }
}
