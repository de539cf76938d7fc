// Opening what the second bundle draws (second.js), when it is first needed: time by code, counters, markers, memory.

/**
 * @import { DetailsView, Owner } from "./details_view.js"
 * @import { Ask } from "./messages.js"
 * @import { Scene } from "./scene.js"
 * @import { TilesClass } from "./tiles.js"
 */

/** @typedef {{ Tiles: TilesClass, DetailsView: typeof DetailsView }} SecondBundle */

/**
 * The second bundle: how it is loaded, and who answers what it asks. What draws long traces is loaded before they are drawn.
 *
 * @typedef {{ ask: Ask, load: () => Promise<SecondBundle>, Tiles?: TilesClass }} Second
 */

export class Details {
  /**
   * @param {Owner} timeline
   * @param {Second | null} second
   */
  constructor(timeline, second) {
    this.timeline = timeline;
    this.second = second;
    /** @type {DetailsView | null} */
    this.shown = null;
    this.opened = false;
  }

  /**
   * Called with each frame. Whoever selects a span wants to know which code launched it.
   *
   * @param {Scene} scene
   */
  drawn(scene) {
    const { shows } = scene.switches;
    const wanted = scene.model.details.some((part) => part === "ranks" || shows[part] || (part === "code" && scene.dim));
    this.shown?.drawn(scene);
    if (wanted && !this.opened) this.open();
    this.opened = wanted || !!this.shown;
  }

  async open() {
    const { timeline, second } = this;
    try {
      if (!second) return;
      const { DetailsView } = await second.load();
      this.shown = new DetailsView(timeline, second.ask);
      timeline.redraw(false);
    } catch (error) {
      timeline.stage.nudge(`Not shown: ${/** @type {Error} */ (error).message}`);
    }
  }
}
