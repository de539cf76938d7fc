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
  "accent", "accentWash", "acrossEngines", "alignAt", "alignment", "alignments", "animation", "applyTheme", "areasOf", "askForPaths",
  "askTotals", "atOnceOf", "axisTop", "boxesOf", "boxOfLane", "busyShare", "busyUntil", "busyWithin", "buttons", "byCorrelation",
  "byOperation", "bySpan", "card", "ceiling", "centreOverview", "chunkSums", "clips", "countOf", "decimals", "depths", "dirty", "dpr",
  "dragging", "dragMode", "drawDirty", "drawNow", "engineAt", "factor", "faded", "faint", "finding", "fitAll", "followDependent",
  "followed", "followLaunch", "followWait", "fullnessWords", "geometry", "glide", "ground", "hasOperations", "hatch", "hatchGround",
  "heads", "hitsOf", "holdsView", "hovered", "isNode", "kernelTimeWithin", "kindCounts", "labelled", "labelWidths", "launched", "layOut",
  "legend", "longest", "measureArea", "measureBetween", "modes", "nameCode", "nests", "nudge", "operationName", "operators",
  "overlayContext", "ownAxes", "panel", "panPixels", "panShare", "partName", "placeOf", "plotWidth", "pointing", "ranking", "ranks",
  "rebuild", "rectangle", "redraw", "refresh", "resizes", "revealStretch", "rubber", "setDragging", "shades", "showMeasure",
  "showOperation", "showTip", "sight", "sought", "startsOf", "stopListening", "stopPreparing", "stretchRubber", "sumOf", "tellsFullness",
  "timeline", "timeUntil", "track", "watchers", "wholeParts", "zoomAt", "zoomBy", "zoomToRubber",
].join("|")})$`);

// Functions of Math that are called everywhere, under names that can be shortened.
const MATH = ["ceil", "floor", "max", "min", "round"];
const folder = fileURLToPath(new URL(".", import.meta.url));

const math = {
  name: "math",
  setup(build) {
    build.onResolve({ filter: /^math:$/ }, ({ path }) => ({ path, namespace: "math" }));
    build.onLoad({ filter: /./, namespace: "math" }, () => ({ contents: `export const { ${MATH.map((name) => `${name}: math_${name}`)} } = Math;` }));
  },
};

/** A bundle that puts some names of an entry into the variable `streamscopeTimeline`; esbuild's own way to do so takes 600 bytes more. */
const bundle = (entry, names, outfile, footer) => build({
  stdin: { contents: `import { ${names} } from "${entry}"; streamscopeTimeline = { ${names} };`, resolveDir: folder },
  outfile,
  bundle: true,
  minify: true,
  mangleProps: OURS,
  define: Object.fromEntries(MATH.map((name) => [`Math.${name}`, `math_${name}`])),
  format: "iife",
  target: ["es2022"],
  charset: "utf8",
  plugins: [{ name: "small-css", setup: (build) => build.onLoad({ filter: /\.css$/ }, small) }, math],
  inject: ["math:"],
  legalComments: "none",
  banner: { js: `// streamscope timeline, sources ${sourceHash}\nvar streamscopeTimeline;` },
  footer: { js: footer },
  logLevel: "warning",
});

await bundle(
  "./src/index.js", "widget, mount, decode", output,
  "export default streamscopeTimeline.widget;\nexport const { mount, decode } = streamscopeTimeline;",
);
await bundle("./src/report.js", "mountPage", reportOutput, "");
