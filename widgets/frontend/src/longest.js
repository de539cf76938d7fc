// The longest span among any run of neighbours, in logarithmic time: it gives a crowded pixel its colour.

/** @import { Track } from "./tracks.js" */

const FANOUT = 16;
// Spans that a filter hides count for next to nothing, so that a match is never covered by them.
const HIDDEN_WEIGHT = 1e-9;

export class LongestTree {
  /** @param {Pick<Track, "start" | "end" | "spans" | "length">} track */
  constructor(track) {
    this.track = track;
    /** @type {Uint8Array | null} */
    this.shown = null;
    this.whole = this.build();
    this.levels = this.whole;
  }

  /**
   * Weigh every span anew. `shown` tells with a 1 which of the group's spans a filter shows; null shows all.
   *
   * @param {Uint8Array | null} shown
   */
  rebuild(shown) {
    this.shown = shown;
    this.levels = shown ? this.build() : this.whole;
  }

  build() {
    /** @type {Uint32Array[]} */
    const levels = [];
    for (let length = this.track.length; length > FANOUT; ) {
      length = Math.ceil(length / FANOUT);
      const level = new Uint32Array(length);
      this.fill(level, levels.at(-1) ?? null);
      levels.push(level);
    }
    return levels;
  }

  /**
   * @param {Uint32Array} level
   * @param {Uint32Array | null} below
   */
  fill(level, below) {
    const { length } = this.track;
    const last = below ? below.length : length;
    for (let node = 0; node < level.length; node++) {
      const stop = Math.min((node + 1) * FANOUT, last);
      let best = -1;
      let most = -1;
      for (let child = node * FANOUT; child < stop; child++) {
        const k = below === null ? child : below[child];
        const weight = this.weight(k);
        if (weight > most) {
          best = k;
          most = weight;
        }
      }
      level[node] = best;
    }
  }

  /** @param {number} k */
  weight(k) {
    const { start, end, spans } = this.track;
    const duration = end[k] - start[k] + 1e-3;
    return this.shown === null || this.shown[spans[k]] ? duration : duration * HIDDEN_WEIGHT;
  }

  /**
   * Position in the track of the longest span in [from, to).
   *
   * @param {number} from
   * @param {number} to
   */
  find(from, to) {
    const { levels } = this;
    let best = from;
    let most = -1;
    /** @type {Uint32Array | null} */
    let level = null;
    /** @param {number} node */
    const weigh = (node) => {
      const k = level ? level[node] : node;
      const weight = this.weight(k);
      if (weight <= most) return;
      best = k;
      most = weight;
    };
    for (let depth = 0; from < to; depth++) {
      if (depth) level = levels[depth - 1];
      const climbs = depth < levels.length;
      while (from < to && (!climbs || from % FANOUT)) weigh(from++);
      while (from < to && to % FANOUT) weigh(--to);
      from /= FANOUT;
      to /= FANOUT;
    }
    return best;
  }
}
