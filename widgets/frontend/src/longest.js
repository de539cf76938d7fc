// The longest span among any run of neighbours, in logarithmic time: it gives a crowded pixel its colour.

const FANOUT = 16;
// Spans that a filter hides count for next to nothing, so that a match is never covered by them.
const HIDDEN_WEIGHT = 1e-9;

export class LongestTree {
  constructor(track) {
    this.track = track;
    this.weights = new Float64Array(track.length);
    this.levels = [];
    for (let length = track.length; length > FANOUT; ) {
      length = Math.ceil(length / FANOUT);
      this.levels.push(new Uint32Array(length));
    }
    this.rebuild(null);
  }

  /** Weigh every span anew. `shows(span)` tells whether a filter shows the group's span; null shows all. */
  rebuild(shows) {
    const { track, weights, levels } = this;
    for (let k = 0; k < track.length; k++) {
      const duration = track.end[k] - track.start[k] + 1e-3;
      weights[k] = !shows || shows(track.spans[k]) ? duration : duration * HIDDEN_WEIGHT;
    }
    let below = null;
    for (const level of levels) {
      const length = below ? below.length : track.length;
      for (let node = 0; node < level.length; node++) {
        let best = below ? below[node * FANOUT] : node * FANOUT;
        const stop = Math.min((node + 1) * FANOUT, length);
        for (let child = node * FANOUT + 1; child < stop; child++) {
          const k = below ? below[child] : child;
          if (weights[k] > weights[best]) best = k;
        }
        level[node] = best;
      }
      below = level;
    }
  }

  /** Position in the track of the longest span in [from, to). */
  find(from, to) {
    const { weights, levels } = this;
    let best = from;
    for (let depth = 0; from < to; depth++) {
      const level = depth ? levels[depth - 1] : null;
      const climbs = depth < levels.length;
      while (from < to && (!climbs || from % FANOUT)) {
        const k = level ? level[from] : from;
        if (weights[k] > weights[best]) best = k;
        from++;
      }
      while (from < to && to % FANOUT) {
        to--;
        const k = level ? level[to] : to;
        if (weights[k] > weights[best]) best = k;
      }
      from /= FANOUT;
      to /= FANOUT;
    }
    return best;
  }
}
