// Bundles src/index.js into the one file that notebooks and reports load.
//
// The bundle is a module whose code sits in one variable: anywidget imports its default export, and a report, which
// inlines the file, calls the variable. Usage: node build.js OUTPUT SOURCE_HASH

import { build } from "esbuild";
import { fileURLToPath } from "node:url";

const [output = "dist/timeline.js", sourceHash = "unknown"] = process.argv.slice(2);

await build({
  entryPoints: [fileURLToPath(new URL("src/index.js", import.meta.url))],
  outfile: output,
  bundle: true,
  minify: true,
  format: "iife",
  globalName: "streamscopeTimeline",
  target: ["es2022"],
  charset: "utf8",
  loader: { ".css": "text" },
  legalComments: "none",
  banner: { js: `// streamscope timeline, sources ${sourceHash}` },
  footer: { js: "export default streamscopeTimeline.widget;\nexport const { mount, decode } = streamscopeTimeline;" },
  logLevel: "warning",
});
