// Bundles src/index.js into the one file that notebooks load, and src/report.js into the one that reports hold.
//
// Each is a module whose code sits in one variable: anywidget imports its default export, and a report, which
// inlines the file, calls the variable. Usage: node build.js OUTPUT SOURCE_HASH [REPORT_OUTPUT]

import { build, transform } from "esbuild";
import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";

const [output = "dist/timeline.js", sourceHash = "unknown", reportOutput = "dist/report.js"] = process.argv.slice(2);

/** A style sheet as a text without what only people read. */
async function small({ path }) {
  const { code } = await transform(await readFile(path, "utf8"), { loader: "css", minify: true, charset: "utf8" });
  return { contents: code, loader: "text" };
}

// Names of properties that are written often, and that neither pages nor Python know. A page's element has its `timeline` under a name in quotes,
// which stays.
const OURS = new RegExp(`^(${[
  "accent", "accentWash", "acrossEngines", "alignAt", "alignments", "animation", "applyTheme", "areasOf", "askForPaths", "askTotals",
  "axisTop", "boxOfLane", "boxesOf", "busyShare", "busyUntil", "busyWithin", "buttons", "byCorrelation", "byOperation", "bySpan", "centreOverview",
  "chunkSums", "countOf", "dirty", "dragging", "drawDirty", "drawNow", "faint", "finding", "fitAll", "followDependent", "followLaunch",
  "followWait", "followed", "fullnessWords", "geometry", "glide", "ground", "hasOperations", "hatch", "hatchGround", "heads", "hitsOf",
  "holdsView", "hovered", "isNode", "kernelTimeWithin", "kindCounts", "labelWidths", "launched", "legend", "measureArea", "measureBetween",
  "nameCode", "nests", "nudge", "operationName", "overlayContext", "panPixels", "panShare", "panel", "partName", "placeOf", "plotWidth",
  "rebuild", "rectangle", "redraw", "refresh", "resizes", "revealStretch", "rubber", "setDragging", "showMeasure", "showOperation",
  "sought", "startsOf", "stopListening", "stopPreparing", "stretchRubber", "tellsFullness", "timeUntil", "timeline", "watchers", "wholeParts",
  "zoomBy", "zoomToRubber",
].join("|")})$`);

const bundle = (entry, outfile, footer) => build({
  entryPoints: [fileURLToPath(new URL(entry, import.meta.url))],
  outfile,
  bundle: true,
  minify: true,
  mangleProps: OURS,
  format: "iife",
  globalName: "streamscopeTimeline",
  target: ["es2022"],
  charset: "utf8",
  plugins: [{ name: "small-css", setup: (build) => build.onLoad({ filter: /\.css$/ }, small) }],
  legalComments: "none",
  banner: { js: `// streamscope timeline, sources ${sourceHash}` },
  footer: { js: footer },
  logLevel: "warning",
});

await bundle("src/index.js", output, "export default streamscopeTimeline.widget;\nexport const { mount, decode } = streamscopeTimeline;");
await bundle("src/report.js", reportOutput, "");
