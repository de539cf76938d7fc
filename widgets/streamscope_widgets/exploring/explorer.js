// Keeps keys that are pressed on the explorer's controls from the notebook, where X cuts the cell. Combined keys, such as Ctrl S, are the page's.

const FRAMES = 100;

function keep(event) {
  if (!event.ctrlKey && !event.metaKey && !event.altKey) event.stopPropagation();
}

export default {
  render({ el }) {
    let explorer = null;
    const look = (left) => {
      explorer = el.closest(".ss-explorer");
      if (explorer) explorer.addEventListener("keydown", keep);
      else if (left) requestAnimationFrame(() => look(left - 1));
    };
    look(FRAMES);
    return () => explorer?.removeEventListener("keydown", keep);
  },
};
