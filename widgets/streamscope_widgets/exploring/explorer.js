// What ipywidgets leaves out: keys that are pressed on the explorer's controls stay away from the notebook, where X cuts the cell, but for
// combined keys, such as Ctrl S, which are the page's; and screen readers are told what a slider is called and set to, and which engines are on.

const FRAMES = 100;

function keep(event) {
  if (!event.ctrlKey && !event.metaKey && !event.altKey) event.stopPropagation();
}

function say(element, words) {
  for (const [name, value] of Object.entries(words)) if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

/** ipywidgets gives a slider no name, and has it say the number of the choice instead of the choice. */
function name(explorer) {
  const text = (slider, part) => slider.querySelector(part)?.textContent.trim() ?? "";
  for (const slider of explorer.querySelectorAll(".widget-hslider")) {
    const handle = slider.querySelector("[role=slider]");
    if (handle) say(handle, { "aria-label": text(slider, ".widget-label"), "aria-valuetext": text(slider, ".widget-readout") });
  }
  for (const toggle of explorer.querySelectorAll(".widget-toggle-button")) say(toggle, { "aria-pressed": `${toggle.classList.contains("mod-active")}` });
  const engines = explorer.querySelector(".ss-x-chips");
  if (engines) say(engines, { role: "group", "aria-label": "engines" });
}

function attend(explorer) {
  explorer.addEventListener("keydown", keep);
  const watch = new MutationObserver(() => name(explorer));
  // The controls alone: the timeline beside them changes with every movement of the pointer, and names itself.
  for (const controls of explorer.querySelectorAll(".ss-x-controls")) {
    watch.observe(controls, { subtree: true, childList: true, characterData: true, attributeFilter: ["class", "aria-valuetext"] });
  }
  name(explorer);
  return () => {
    watch.disconnect();
    explorer.removeEventListener("keydown", keep);
  };
}

export default {
  render({ el }) {
    let leave = () => {};
    const look = (left) => {
      const explorer = el.closest(".ss-explorer");
      if (explorer?.querySelector(".ss-x-controls")) leave = attend(explorer);
      else if (left) requestAnimationFrame(() => look(left - 1));
    };
    look(FRAMES);
    return () => leave();
  },
};
