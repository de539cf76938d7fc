// Which engines are shown, in which order, and which of them are pinned to the top or collapsed to their header; and which GPUs are collapsed.

export class Arrangement {
  /**
   * @param {number} count
   * @param {string[]} closed names of the GPUs that show their lane "at once" only (gpus.js)
   */
  constructor(count, closed) {
    this.closed = new Set(closed);
    this.order = Array.from({ length: count }, (_, index) => index);
    /** @type {Set<number>} */
    this.hidden = new Set();
    /** @type {Set<number>} */
    this.pinned = new Set();
    /** @type {Set<number>} */
    this.collapsed = new Set();
  }

  /** Indices of the shown groups from top to bottom. */
  get shown() {
    const visible = this.order.filter((index) => !this.hidden.has(index));
    return [...visible.filter((index) => this.pinned.has(index)), ...visible.filter((index) => !this.pinned.has(index))];
  }

  /**
   * Show these groups, in this order, and hide all others.
   *
   * @param {number[]} indices
   */
  show(indices) {
    const rest = this.order.filter((index) => !indices.includes(index));
    this.hidden = new Set(rest);
    this.order = [...indices, ...rest];
  }

  /** @param {string} name */
  fold(name) {
    if (!this.closed.delete(name)) this.closed.add(name);
  }

  /** @param {number} index */
  hide(index) {
    if (this.shown.length > 1) this.hidden.add(index);
  }

  /**
   * @param {"pinned" | "collapsed"} what
   * @param {number} index
   */
  toggle(what, index) {
    if (!this[what].delete(index)) this[what].add(index);
  }

  /**
   * Put a shown group `step` places further down; up if negative. A group does not leave the pinned ones, nor get among them.
   *
   * @param {number} index
   * @param {number} step
   */
  move(index, step) {
    const { shown } = this;
    const other = shown[shown.indexOf(index) + step];
    if (other === undefined || this.pinned.has(other) !== this.pinned.has(index)) return;
    this.order = this.order.filter((each) => each !== index);
    this.order.splice(this.order.indexOf(other) + (step > 0 ? 1 : 0), 0, index);
  }
}
