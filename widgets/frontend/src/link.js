// A link to a report that opens it with the same view.

import { makeButton } from "./dom.js";

const MARK = "#view=";

export const writeLink = (state) => MARK + encodeURIComponent(JSON.stringify(state));

/** The state that a link's last part says; null if it says none. */
export function readLink(hash) {
  if (!hash.startsWith(MARK)) return null;
  try {
    const state = JSON.parse(decodeURIComponent(hash.slice(MARK.length)));
    return typeof state === "object" && !Array.isArray(state) ? state : null;
  } catch {
    return null;
  }
}

/** Show what the page's address says, now and when it changes, and offer a link to what is shown. */
export function linkPage(timeline, page = window) {
  const follow = () => {
    const state = readLink(page.location.hash);
    if (state) timeline.state = state;
  };
  follow();
  page.addEventListener("hashchange", follow);
  const button = makeButton("link", "Copy a link to this view", async () => {
    page.history.replaceState(null, "", writeLink(timeline.state));
    try {
      await page.navigator.clipboard.writeText(page.location.href);
      button.textContent = "copied";
    } catch {
      button.textContent = "in the address";
    }
    setTimeout(() => (button.textContent = "link"), 1500);
  });
  timeline.toolbar.tools.append(button);
}
