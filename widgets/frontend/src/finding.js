// Finding spans by name: which are shown, how many there are, and stepping from one to the next.

import { shownSpans } from "./filter.js";

export class Finding {
  constructor(timeline) {
    this.timeline = timeline;
    this.shown = null;
    this.filter = { code: null, text: "" };
    this.hits = [];
    this.count = 0;
  }

  /** Show what a filter lets through. Returns how many spans it finds; Infinity where it shows everything. */
  find(filter) {
    const { model, parts } = this.timeline;
    this.filter = filter;
    this.shown = shownSpans(model, filter);
    for (const { group, lanes } of parts) {
      for (const { rows } of lanes) for (const track of rows) track.longest.rebuild(this.shown?.[group.index] ?? null);
    }
    this.hits = this.shown ? model.groups.map((group, index) => hitsOf(model, group, this.shown[index])) : [];
    this.count = this.hits.reduce((sum, { length }) => sum + length, 0);
    this.timeline.redraw();
    return this.shown ? this.count : Infinity;
  }

  /** Where the selection stands among the hits of the shown engines, from 1 on; 0 if it is none of them. */
  get position() {
    const { selected, arrangement } = this.timeline;
    if (!selected || !this.shown) return 0;
    let before = 0;
    for (const index of arrangement.shown) {
      if (index === selected.group) {
        const at = this.hits[index].indexOf(selected.span);
        return at < 0 ? 0 : before + at + 1;
      }
      before += this.hits[index].length;
    }
    return 0;
  }

  /** Select the next hit (or, with -1, the previous one) in the shown engines from top to bottom; after the last comes the first. */
  step(direction) {
    const { selected, arrangement, choosing } = this.timeline;
    const all = this.shown ? arrangement.shown.filter((index) => this.hits[index].length) : [];
    if (!all.length) return;
    let place = Math.max(0, all.indexOf(selected?.group));
    const hits = this.hits[all[place]];
    const here = selected?.group === all[place] ? selected.span : direction > 0 ? -1 : Infinity;
    let at = direction > 0 ? hits.findIndex((span) => span > here) : hits.findLastIndex((span) => span < here);
    if (at < 0) {
      place = (place + direction + all.length) % all.length;
      at = direction > 0 ? 0 : this.hits[all[place]].length - 1;
    }
    choosing.selectAndReveal(all[place], this.hits[all[place]][at]);
  }
}

/** The spans that a filter shows: those on the device, or, where there are none, the host's. */
function hitsOf(model, group, shown) {
  const hits = new Uint32Array(shown.length);
  let count = 0;
  for (const onDevice of [true, false]) {
    for (let i = 0; i < shown.length; i++) if (shown[i] && (group.kind[i] >= model.kinds.kernel) === onDevice) hits[count++] = i;
    if (count) break;
  }
  return hits.slice(0, count);
}
