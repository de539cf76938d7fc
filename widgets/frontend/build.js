// Bundles src/index.js into the one file that notebooks load, src/report.js into the one that reports hold, and src/second.js into the one that
// either gets when it is needed.
//
// Each is a module whose code sits in one variable: anywidget imports its default export, and a report, which
// inlines the file, calls the variable. Usage: node build.js OUTPUT SOURCE_HASH REPORT_OUTPUT SECOND_OUTPUT

import { build, transform } from "esbuild";
import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";

const [output = "dist/timeline.js", sourceHash = "unknown", reportOutput = "dist/report.js", secondOutput = "dist/details.js"] = process.argv.slice(2);

/** A style sheet as a text without what only people read. */
async function small({ path }) {
  const { code } = await transform(await readFile(path, "utf8"), { loader: "css", minify: true, charset: "utf8" });
  return { contents: code, loader: "text" };
}

// Names of properties that are written often, and that neither pages nor Python know. A page's element has its `timeline` under a name in quotes,
// which stays.
const OURS = new RegExp(`^(${[
  "accent", "accentWash", "acrossEngines", "alignAt", "alignment", "alignments", "animation", "applyTheme", "areasOf", "arrangement",
  "asked", "askForPaths", "askTotals", "atOnce", "atOnceOf", "axisTop", "baseContext", "boxesOf", "boxOfLane", "busyShare", "busyShares",
  "busyUntil", "busyWithin", "buttons", "byCorrelation", "byInstance", "byOperation", "bySpan", "card", "ceiling", "centreOverview",
  "choosing", "chunkSums", "clips", "closed", "countOf", "decimals", "depths", "describe", "dpr", "dragging", "dragMode",
  "drawDirty", "drawOn", "engineAt", "factor", "faded", "faint", "finding", "fitAll", "fold", "foldAll", "followDependent", "followed",
  "followLaunch", "followWait", "fullnessWords", "geometry", "glide", "gpuHeader", "gpuRow", "ground", "hair", "hasOperations", "hatch",
  "hatchGround", "heads", "held", "hitsOf", "holdsView", "hovered", "index", "isClosed", "isDevice", "isNode", "isWhole",
  "kernelTimeWithin", "kindCounts", "labelled", "labelWidths", "launched", "layOut", "legend", "longest", "measureArea", "measureBetween",
  "measured", "members", "modes", "nameCode", "nests", "nudge", "operationName", "operators", "overlay", "overlayContext", "ownAxes",
  "pairs", "panel", "panPixels", "panShare", "partName", "pitch", "pixels", "placeOf", "plotWidth", "pointing", "ranking", "ranks", "reach", "rebuild",
  "rectangle", "redraw", "refresh", "resizes", "revealStretch", "rubber", "sections", "selectAndReveal", "selected", "setDragging",
  "shades", "showMeasure", "showOperation", "showTip", "sight", "sought", "stage", "startsOf", "stopListening", "stopPreparing",
  "streamsAt", "stretchRubber", "sumOf", "switches", "tellsFullness", "theme", "timeline", "timeUntil", "toolbar", "tooltip", "track",
  "viewer", "watchers", "whole", "wholeParts", "zoomAt", "zoomBy", "zoomToRubber",
].join("|")})$`);

// What pages offer and is used everywhere, under names that can be shortened.
const OFFERED = {
  Math: ["abs", "ceil", "floor", "max", "min", "round"], Object: ["entries", "fromEntries"], JSON: ["stringify"], Array: ["from"],
  globalThis: ["Float64Array", "Int32Array", "Uint8Array", "Uint32Array", "clearTimeout", "setTimeout"],
};
const named = Object.entries(OFFERED).flatMap(([owner, names]) => names.map((name) => [owner, name]));
const folder = fileURLToPath(new URL(".", import.meta.url));

const offered = {
  name: "offered",
  setup(build) {
    const given = ([owner, names]) => `export const { ${names.map((name) => `${name}: ${owner}_${name}`)} } = ${owner};`;
    const contents = Object.entries(OFFERED).map(given).join("");
    build.onResolve({ filter: /^offered:$/ }, ({ path }) => ({ path, namespace: "offered" }));
    build.onLoad({ filter: /./, namespace: "offered" }, () => ({ contents }));
  },
};

// JupyterLab's extension that belongs to these sources: its address says which it is.
const { jupyterlab } = JSON.parse(await readFile(new URL("../labextension/package.json", import.meta.url), "utf8"));
const extension = jupyterlab._build.load.split("?v=")[1];

// Short names that were given: the second bundle uses what the others have.
let mangleCache = {};

/** A bundle that puts some names of an entry into a variable; esbuild's own way to do so takes 600 bytes more. */
const bundle = async (entry, names, outfile, footer, variable = "streamscopeTimeline") => ({ mangleCache } = await build({
  stdin: { contents: `import { ${names} } from "${entry}"; ${variable} = { ${names} };`, resolveDir: folder },
  outfile,
  bundle: true,
  minify: true,
  mangleProps: OURS,
  mangleCache,
  define: {
    ...Object.fromEntries(named.map(([owner, name]) => [owner === "globalThis" ? name : `${owner}.${name}`, `${owner}_${name}`])),
    EXTENSION: JSON.stringify(extension),
  },
  format: "iife",
  target: ["es2022"],
  charset: "utf8",
  plugins: [{ name: "small-css", setup: (build) => build.onLoad({ filter: /\.css$/ }, small) }, offered],
  inject: ["offered:"],
  legalComments: "none",
  banner: { js: `// streamscope timeline, beside the extension ${extension}, sources ${sourceHash}\nvar ${variable};` },
  footer: { js: footer },
  logLevel: "warning",
}));

await bundle(
  "./src/index.js", "widget, open, mount, decode, notice", output,
  "export default streamscopeTimeline.widget;\nexport const { open, mount, decode, notice } = streamscopeTimeline;",
);
await bundle("./src/report.js", "mountPage", reportOutput, "");
await bundle("./src/second.js", "Tiles, DetailsView, sortTables", secondOutput, "export const { Tiles, DetailsView, sortTables } = streamscopeSecond;", "streamscopeSecond");
