import assert from "node:assert/strict";
import test from "node:test";

import { prefersDark } from "../src/theme.js";

const page = (dataset, theme, prefers) => ({
  document: { body: { dataset }, documentElement: { getAttribute: (name) => (name === "theme" ? theme : null) } },
  matchMedia: () => ({ matches: prefers }),
});

test("a page that names its theme counts more than the system, and a name that does not say does not", () => {
  for (const system of [true, false]) {
    const dark = (dataset, theme = null) => prefersDark(page(dataset, theme, system));
    assert.deepEqual(["true", "false"].map((light) => dark({ jpThemeLight: light })), [false, true]);
    const ofVsCode = ["vscode-light", "vscode-high-contrast-light", "vscode-dark", "vscode-high-contrast"];
    assert.deepEqual(ofVsCode.map((kind) => dark({ vscodeThemeKind: kind })), [false, false, true, true]);
    assert.deepEqual(["light", "dark", "default", "", null].map((theme) => dark({}, theme)), [false, true, system, system, system]);
  }
});
