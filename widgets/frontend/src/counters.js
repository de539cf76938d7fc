// Lanes of counters, markers and memory under the streams, on their axis.

import { aria, make } from "./dom.js";

/**
 * @import { Ask } from "./messages.js"
 * @import { Model } from "./model.js"
 * @import { Scene } from "./scene.js"
 * @import { Stage } from "./stage.js"
 */

/** @typedef {{ whole: Model, stage: Pick<Stage, "box" | "nudge"> }} Owner */

export class CounterLanes {
  /**
   * @param {Owner} timeline
   * @param {Ask} ask
   */
  constructor(timeline, ask) {
    this.timeline = timeline;
    this.ask = ask;
    this.box = make("div", "ss-lanes");
    this.box.hidden = true;
    aria(this.box, { role: "img", label: "Counters" });
  }

  /**
   * @param {Scene} scene
   * @param {boolean} shown
   */
  draw(scene, shown) {
    this.box.hidden = !shown;
  }
}
