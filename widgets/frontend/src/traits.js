// The widget's traits and what a timeline shows, kept alike.

const TRAITS = ["selection", "range", "engines", "shows"];
// A glide, or a drag, is told when it pauses.
const PAUSE_MS = 120;

const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);

/** @param model anywidget's. Returns a function that ends the link. */
export function linkTraits(model, timeline) {
  const told = new Set();
  let timer = 0;
  let applying = false;
  const tell = () => {
    timer = 0;
    const state = timeline.state;
    const changed = [...told].filter((trait) => !same(state[trait], model.get(trait)));
    told.clear();
    changed.forEach((trait) => model.set(trait, state[trait]));
    if (changed.length) model.save_changes();
  };
  const apply = (traits) => {
    const { state } = timeline;
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
