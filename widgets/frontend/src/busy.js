// When the device of a group is busy: the union of its kernels and copies over all streams.

import { lowerBound, upperBound } from "./search.js";

export class BusyTimes {
  constructor(group, kinds) {
    const starts = [];
    const ends = [];
    const kernelStarts = [];
    for (let i = 0; i < group.count; i++) {
      const kind = group.kind[i];
      if (kind !== kinds.kernel && kind !== kinds.copy) continue;
      if (kind === kinds.kernel) kernelStarts.push(group.start[i]);
      const last = ends.length - 1;
      if (last >= 0 && group.start[i] <= ends[last]) ends[last] = Math.max(ends[last], group.end[i]);
      else {
        starts.push(group.start[i]);
        ends.push(group.end[i]);
      }
    }
    this.starts = Float64Array.from(starts);
    this.ends = Float64Array.from(ends);
    this.kernelStarts = Float64Array.from(kernelStarts);
    this.before = new Float64Array(starts.length + 1);
    for (let k = 0; k < starts.length; k++) this.before[k + 1] = this.before[k] + ends[k] - starts[k];
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
