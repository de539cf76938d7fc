// Which engines are shown, in which order, and which of them are pinned to the top or collapsed to their header.

export class Arrangement {
  constructor(count) {
    this.order = Array.from({ length: count }, (_, index) => index);
    this.hidden = new Set();
    this.pinned = new Set();
    this.collapsed = new Set();
  }

  /** Indices of the shown groups from top to bottom. */
  get shown() {
    const visible = this.order.filter((index) => !this.hidden.has(index));
    return [...visible.filter((index) => this.pinned.has(index)), ...visible.filter((index) => !this.pinned.has(index))];
  }

  /** Show these groups, in this order, and hide all others. */
  show(indices) {
    const rest = this.order.filter((index) => !indices.includes(index));
    this.hidden = new Set(rest);
    this.order = [...indices, ...rest];
  }

  hide(index) {
    if (this.shown.length > 1) this.hidden.add(index);
  }

  toggle(what, index) {
    if (!this[what].delete(index)) this[what].add(index);
  }

  /** Put a shown group `step` places further down; up if negative. A group does not leave the pinned ones, nor get among them. */
  move(index, step) {
    const { shown } = this;
    const other = shown[shown.indexOf(index) + step];
    if (other === undefined || this.pinned.has(other) !== this.pinned.has(index)) return;
    this.order = this.order.filter((each) => each !== index);
    this.order.splice(this.order.indexOf(other) + (step > 0 ? 1 : 0), 0, index);
  }
}
