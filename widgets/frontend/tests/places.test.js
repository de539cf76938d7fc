import assert from "node:assert/strict";
import test from "node:test";

import { canOpen } from "../src/places.js";

test("files can be opened in JupyterLab alone, and lines of cells are in no file", () => {
  globalThis.document = { body: { dataset: {} } };
  assert.ok(!canOpen("model.py"));
  document.body.dataset.jpThemeLight = "true";
  assert.deepEqual(["model.py", "a/In[2].py", "In[2]", "<string>"].map(canOpen), [true, true, false, false]);
  delete globalThis.document;
});
