"""The frame of a report: its page and its style sheet."""

from __future__ import annotations

STYLE = """
:root {
  color-scheme: light dark;
  --ground: #ffffff; --ink: #1c2128; --soft: #59626d; --rule: #dfe3e8; --wash: #f5f7f9; --accent: #0b6bcb; --shade: #1c212840;
}
@media (prefers-color-scheme: dark) {
  :root { --ground: #14161a; --ink: #e4e7eb; --soft: #a0a8b2; --rule: #30353c; --wash: #1c1f24; --accent: #6cb6ff; --shade: #00000099; }
}
@media print { :root { --ground: #ffffff; --ink: #1c2128; --soft: #59626d; --rule: #dfe3e8; --wash: #f5f7f9; color-scheme: light; } }
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 28px 32px 40px; max-width: 1680px; background: var(--ground); color: var(--ink);
  font: 14px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", sans-serif; font-variant-numeric: tabular-nums;
}
h1 { font-size: 15px; font-weight: 600; margin: 0 0 14px; color: var(--soft); overflow-wrap: anywhere; }
h2 { font-size: 15px; font-weight: 600; margin: 24px 0 8px; }
/* What is wider than the page scrolls; a shadow at the side, covered where the content ends, says that there is more. */
section {
  margin: 0 0 18px; overflow-x: auto; background:
    linear-gradient(to right, var(--ground) 12px, transparent) left / 32px calc(100% + 2px) no-repeat local,
    linear-gradient(to left, var(--ground) 12px, transparent) right / 32px calc(100% + 2px) no-repeat local,
    linear-gradient(to right, var(--shade), transparent) left / 12px 100% no-repeat scroll,
    linear-gradient(to left, var(--shade), transparent) right / 12px 100% no-repeat scroll;
}
.verdict { font-size: 20px; line-height: 1.35; font-weight: 600; margin: 0 0 4px; max-width: 60em; text-wrap: pretty; }
section table { border-collapse: collapse; font: inherit; }
section :is(th, td) { text-align: right; padding: 4px 0 4px clamp(10px, 1.4vw, 28px); border-bottom: 1px solid var(--rule); }
section th { font-weight: 400; color: var(--soft); }
section td { white-space: nowrap; }
section :is(th, td):first-child { text-align: left; padding-left: 0; }
section img { max-width: 100%; }
.missing { margin: 0 0 12px; padding: 8px 12px; border-left: 3px solid var(--accent); background: var(--wash); }
#timeline { margin: 6px 0 24px; min-height: 120px; }
footer { color: var(--soft); font-size: 12px; border-top: 1px solid var(--rule); padding-top: 10px; overflow-wrap: anywhere; }
@media (max-width: 700px) { body { padding: 16px 14px 24px; } .verdict { font-size: 17px; } }
@media print { body { padding: 0; max-width: none; } section { background: none; } section, #timeline { break-inside: avoid; } }
@page { size: A4 landscape; margin: 12mm; }
"""

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="Streamscope">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'sha256-{script_hash}'; style-src 'unsafe-inline';\
 img-src data:; base-uri 'none'; form-action 'none'">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<h1>{title}</h1>
{sections}
{missing}
<div id="timeline"><noscript>The timeline is drawn by JavaScript, which is off.</noscript></div>
{below}
<footer>{provenance}</footer>
<script type="application/json" id="timeline-header">{header}</script>
<script type="text/plain" id="timeline-block" data-packing="{packing}">{block}</script>
<script type="module">{script}</script>
</body>
</html>
"""
