import assert from "node:assert/strict";
import test from "node:test";

import { css } from "../src/colours.js";
import { readLink, writeLink } from "../src/link.js";
import { SvgContext } from "../src/svg_context.js";

test("shapes, clips and text become SVG, and no name can end it", () => {
  const ctx = new SvgContext(100, 50, { measureText: (text) => ({ width: text.length }) });
  ctx.fillStyle = css([1, 2, 3], 0.5);
  ctx.fillRect(0, 0, 10.123, 5);
  ctx.fillRect(0, 0, 0, 5);
  ctx.save();
  ctx.beginPath();
  ctx.rect(0, 0, 50, 50);
  ctx.clip();
  ctx.globalAlpha = 0.5;
  ctx.font = '600 11px "Liberation Sans", sans-serif';
  ctx.fillText('</text><script>alert("1")</script>\u0001', 3, 4);
  ctx.restore();
  ctx.strokeStyle = "url(#hatch)";
  ctx.strokeRect(1, 2, 3, 4);
  const text = ctx.toString("<pattern/>");
  assert.match(text, /<rect x="0" y="0" width="10\.12" height="5" fill="#010203" fill-opacity="0\.5"\/><clipPath/);
  assert.ok(text.includes("&lt;/text&gt;&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt;\uFFFD</text>"));
  assert.ok(text.includes("600 11px &quot;Liberation Sans&quot;, sans-serif"));
  assert.ok(!text.includes("<script"));
  assert.match(text, /<\/text><\/g><rect [^>]* fill="none" stroke="url\(#hatch\)" stroke-width="1"\/><\/svg>$/);
  assert.equal(text.split("<g ").length, text.split("</g>").length);
});

test("a link says the state, and what is no link says none", () => {
  const state = { range: [1.5, 2e9], selection: null, engines: ["sync & #async", "ä"], find: { name: null, text: "<b>" } };
  assert.deepEqual(readLink(writeLink(state)), state);
  for (const other of ["", "#", "#section", "#view=", "#view=%", "#view=7", "#view=[1]", "#view=null"]) assert.equal(readLink(other), null);
});
