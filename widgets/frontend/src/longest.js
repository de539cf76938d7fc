// The longest span among any run of neighbours, in logarithmic time: it gives a crowded pixel its colour.

const FANOUT = 16;
// Spans that a filter hides count for next to nothing, so that a match is never covered by them.
const HIDDEN_WEIGHT = 1e-9;

export class LongestTree {
  constructor(track) {
    this.track = track;
    this.shown = null;
    this.whole = this.build();
    this.levels = this.whole;
  }

  /** Weigh every span anew. `shown` tells with a 1 which of the group's spans a filter shows; null shows all. */
  rebuild(shown) {
    this.shown = shown;
    this.levels = shown ? this.build() : this.whole;
  }

  build() {
    const levels = [];
    for (let length = this.track.length; length > FANOUT; ) {
      length = Math.ceil(length / FANOUT);
      levels.push(new Uint32Array(length));
      this.fill(levels.at(-1), levels.at(-2) ?? null);
    }
    return levels;
  }

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

  weight(k) {
    const { start, end, spans } = this.track;
    const duration = end[k] - start[k] + 1e-3;
    return this.shown === null || this.shown[spans[k]] ? duration : duration * HIDDEN_WEIGHT;
  }

  /** Position in the track of the longest span in [from, to). */
  find(from, to) {
    const { levels } = this;
    let best = from;
    let most = -1;
    let level = null;
    const weigh = (node) => {
      const k = level ? level[node] : node;
      const weight = this.weight(k);
      if (weight > most) [best, most] = [k, weight];
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
