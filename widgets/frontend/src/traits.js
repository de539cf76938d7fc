// The widget's traits and what a timeline shows, kept alike.

/** @import { State } from "./state.js" */

/** @typedef {"selection" | "range" | "engines" | "shows"} Trait what Python can read and set, and what a timeline tells when it changes */

/**
 * What anywidget gives a view of its model.
 *
 * @typedef {object} WidgetModel
 * @property {<T extends Trait>(trait: T) => State[T]} get
 * @property {<T extends Trait>(trait: T, value: State[T]) => void} set
 * @property {() => void} save_changes
 * @property {(name: string, listen: () => void) => void} on
 * @property {(name: string, listen: () => void) => void} off
 */

/** @typedef {{ get state(): State, set state(wanted: Partial<State>), watch(changed: (what: Trait) => void): () => void }} TraitSource */

/** @type {Trait[]} */
export const TRAITS = ["selection", "range", "engines", "shows"];
// A glide, or a drag, is told when it pauses.
const PAUSE_MS = 120;

/**
 * @param {unknown} a
 * @param {unknown} b
 */
const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);

/**
 * Keep both alike. Returns a function that ends the link.
 *
 * @param {WidgetModel} model
 * @param {TraitSource} timeline
 */
export function linkTraits(model, timeline) {
  /** @type {Set<Trait>} */
  const told = new Set();
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  let applying = false;
  const tell = () => {
    timer = undefined;
    const state = timeline.state;
    const changed = [...told].filter((trait) => !same(state[trait], model.get(trait)));
    told.clear();
    changed.forEach((trait) => model.set(trait, state[trait]));
    if (changed.length) model.save_changes();
  };
  /** @param {Trait[]} traits */
  const apply = (traits) => {
    const { state } = timeline;
    /** @type {Partial<State>} */
    const wanted = Object.fromEntries(traits.filter((trait) => !same(state[trait], model.get(trait))).map((trait) => [trait, model.get(trait)]));
    if (!Object.keys(wanted).length) return;
    applying = true;
    try {
      timeline.state = wanted;
    } finally {
      applying = false;
    }
  };
  apply(TRAITS);
  const stopWatching = timeline.watch((what) => {
    if (applying || !TRAITS.includes(what)) return;
    told.add(what);
    timer ||= setTimeout(tell, PAUSE_MS);
  });
  /** @type {[string, () => void][]} */
  const listeners = TRAITS.map((trait) => [`change:${trait}`, () => apply([trait])]);
  listeners.forEach(([name, listen]) => model.on(name, listen));
  return () => {
    if (timer) {
      clearTimeout(timer);
      tell();
    }
    stopWatching();
    listeners.forEach(([name, listen]) => model.off(name, listen));
  };
}
