// Finding spans by name: which are shown, how many there are, and stepping from one to the next.

import { filterSpans } from "./filter.js";

/**
 * @import { Arrangement } from "./arrangement.js"
 * @import { Choosing } from "./choosing.js"
 * @import { Found } from "./filter.js"
 * @import { Highlight } from "./join.js"
 * @import { Filter, HitCounts } from "./messages.js"
 * @import { Model } from "./model.js"
 * @import { Tile, Tiles } from "./tiles.js"
 * @import { Part } from "./tracks.js"
 */

/**
 * The timeline as the search knows it.
 *
 * @typedef {object} Owner
 * @property {Model} model
 * @property {Part[]} parts
 * @property {Tiles | null} tiles
 * @property {Tile | undefined} tile
 * @property {Pick<Arrangement, "shown">} arrangement
 * @property {Highlight | null} selected
 * @property {Pick<Choosing, "selectAndReveal">} choosing
 * @property {{ search: { tell(): void } }} toolbar
 * @property {() => void} redraw
 */

/**
 * Hits of one group: which spans, listed when first asked for; of a long trace what Python counts.
 *
 * @typedef {(Found | HitCounts) & { shown?: Uint8Array, starts?: number[], hits?: Uint32Array }} Hits
 */

const REST_MS = 250;

export class Finding {
  /** @param {Owner} timeline */
  constructor(timeline) {
    this.timeline = timeline;
    /** @type {Filter} */
    this.filter = { code: null, text: "" };
    /** @type {Hits[] | null} */
    this.groups = null;
    /** @type {Uint8Array[] | null} */
    this.found = null;
    /** Of a long trace: at which hit the last step ended. */
    this.at = 0;
  }

  /**
   * Show what a filter lets through.
   *
   * @param {Filter} filter
   */
  find(filter) {
    const { model, tiles } = this.timeline;
    this.filter = filter;
    this.timeline.redraw();
    if (tiles) return this.ask(tiles);
    this.show(filterSpans(model, filter));
  }

  /**
   * Show what is found in each group; null for everything.
   *
   * @param {Found[] | null} found
   */
  show(found) {
    const { parts } = this.timeline;
    this.groups = found;
    this.found = found && found.map(({ shown }) => shown);
    for (const { group, lanes } of parts) {
      for (const { rows } of lanes) for (const track of rows) track.longest.rebuild(this.found?.[group.index] ?? null);
    }
    this.timeline.toolbar.search.tell();
    this.timeline.redraw();
  }

  /** What is drawn of the spans that are found: for each group a 1 for each of them; null where everything is. */
  get shown() {
    const { tiles, tile } = this.timeline;
    return tiles && tile ? tile.shown : this.found;
  }

  /** What is searched, null for nothing. */
  get sought() {
    const { code, text, frame } = this.filter;
    return code === null && text === "" && !frame ? null : this.filter;
  }

  /**
   * Have Python count the hits of a long trace.
   *
   * @param {Tiles} tiles
   */
  async ask(tiles) {
    const find = this.sought;
    this.groups = null;
    this.at = 0;
    tiles.turn++;
    if (find) await new Promise((rested) => setTimeout(rested, REST_MS));
    const counted = find && find === this.sought && await tiles.tell({ type: "find", find });
    if (find !== this.sought || !counted) return;
    this.groups = counted.groups;
    this.timeline.toolbar.search.tell();
    this.timeline.redraw();
  }

  /** How many hits the shown engines have: spans on the device, or, where there are none, the host's. */
  get count() {
    if (!this.groups) return 0;
    return this.timeline.arrangement.shown.reduce((sum, index) => sum + this.countOf(index), 0);
  }

  /**
   * What is found in a group, where something is sought.
   *
   * @param {number} index
   */
  of(index) {
    return /** @type {Hits[]} */ (this.groups)[index];
  }

  /**
   * How many hits a group has.
   *
   * @param {number} index
   */
  countOf(index) {
    const { onDevice, onHost } = this.of(index);
    return onDevice || onHost;
  }

  /**
   * Where a group's hits start.
   *
   * @param {number} index
   */
  startsOf(index) {
    const { model, tiles } = this.timeline;
    return tiles ? this.of(index).starts ?? [] : Array.from(this.hitsOf(index), (span) => model.groups[index].start[span]);
  }

  /**
   * Positions of a group's hits; listed when first asked for.
   *
   * @param {number} index
   */
  hitsOf(index) {
    const { model } = this.timeline;
    const found = this.of(index);
    if (found.hits) return found.hits;
    const { shown = new Uint8Array(0), onDevice, onHost } = found;
    const hits = (found.hits = new Uint32Array(onDevice || onHost));
    const { kind } = model.groups[index];
    for (let i = 0, count = 0; i < shown.length; i++) {
      if (shown[i] && kind[i] >= model.kinds.kernel === onDevice > 0) hits[count++] = i;
    }
    return hits;
  }

  /** Where the selection stands among the hits of the shown engines, from 1 on; 0 if it is none of them. */
  get position() {
    const { selected, arrangement, tiles } = this.timeline;
    if (tiles) return this.at;
    if (!selected || !this.shown) return 0;
    let before = 0;
    for (const index of arrangement.shown) {
      const hits = this.hitsOf(index);
      if (index === selected.group) {
        const at = hits.indexOf(selected.span);
        return at < 0 ? 0 : before + at + 1;
      }
      before += hits.length;
    }
    return 0;
  }

  /**
   * Select the next hit (or, with -1, the previous one) in the shown engines from top to bottom; after the last comes the first.
   *
   * @param {number} direction
   */
  step(direction) {
    const { selected, arrangement, choosing, tiles } = this.timeline;
    if (tiles) return tiles.go({ how: "hit", step: direction });
    const all = this.shown ? arrangement.shown.filter((index) => this.hitsOf(index).length) : [];
    if (!all.length) return;
    let place = Math.max(0, all.indexOf(selected?.group ?? -1));
    const hits = this.hitsOf(all[place]);
    const here = selected?.group === all[place] ? selected.span : direction > 0 ? -1 : Infinity;
    let at = direction > 0 ? hits.findIndex((span) => span > here) : hits.findLastIndex((span) => span < here);
    if (at < 0) {
      place = (place + direction + all.length) % all.length;
      at = direction > 0 ? 0 : this.hitsOf(all[place]).length - 1;
    }
    choosing.selectAndReveal(all[place], this.hitsOf(all[place])[at]);
  }
}
