// A short glide from one view to another; none at all for readers who asked their system for less motion.

import { between } from "./geometry.js";
import { blendViews } from "./scale.js";

/** @import { View } from "./scale.js" */

const DURATION_MS = 130;

export class Animation {
  /** @param {(view: View) => void} apply */
  constructor(apply) {
    this.apply = apply;
    /** @type {View | null} */
    this.target = null;
    this.frame = 0;
  }

  /**
   * @param {View} from
   * @param {View} to
   */
  run(from, to) {
    this.stop();
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) {
      this.apply(to);
      return;
    }
    this.target = to;
    const begin = performance.now();
    /** @param {number} now */
    const step = (now) => {
      const share = between(0, (now - begin) / DURATION_MS, 1);
      this.apply(blendViews(from, to, 1 - (1 - share) ** 3));
      if (share < 1) this.frame = requestAnimationFrame(step);
      else this.target = null;
    };
    this.frame = requestAnimationFrame(step);
  }

  stop() {
    cancelAnimationFrame(this.frame);
    this.target = null;
  }
}
