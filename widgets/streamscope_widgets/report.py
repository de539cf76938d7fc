"""One HTML file that holds a result: verdict, metrics, the live timeline, charts. It works offline and asks nobody for anything."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from streamscope.errors import printable
from streamscope.files import written_whole
from streamscope.trace import Level, TimelineGroup
from streamscope.words import time_text
from streamscope_widgets.columns import ColumnBlock
from streamscope_widgets.details import changing_memories, details_of, encode_counters, encode_tree, tells_code
from streamscope_widgets.payload import REPORT_BUNDLE, SECOND_BUNDLE, Payload, Traces, as_groups, bundle_source, encode
from streamscope_widgets.show.html import Html, fill
from streamscope_widgets.still_timeline import timeline_svg

MOST_POINTS = 100_000
"""Values of all lines of memory in a file, whose size has a budget."""
BUDGET_BYTES = 5_000_000
"""Size limit of a report in bytes; reports of peers that grew to 80 MB are a known complaint."""

WORTH_PACKING = 0.9
"""The block is compressed only if that leaves less than this share of it."""


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
section :is(th, td):first-child { text-align: left; padding-left: 0 !important; }
.ss-sortable th button { all: unset; cursor: pointer; }
.ss-sortable th button:is(:hover, :focus-visible) { text-decoration: underline; }
@media screen { .ss-sortable [aria-sort=none] button::after { content: " ↕" / ""; opacity: 0.5; } }
.ss-sortable [aria-sort=descending] button::after { content: " ▾"; } .ss-sortable [aria-sort=ascending] button::after { content: " ▴"; }
section img, noscript svg { max-width: 100%; height: auto; }
.missing { margin: 0 0 12px; padding: 8px 12px; border-left: 3px solid var(--accent); background: var(--wash); }
#timeline { margin: 6px 0 24px; min-height: 120px; }
footer { color: var(--soft); font-size: 12px; border-top: 1px solid var(--rule); padding-top: 10px; overflow-wrap: anywhere; }
@media (max-width: 700px) { body { padding: 16px 14px 24px; } .verdict { font-size: 17px; } }
@media print {
  body { padding: 0; max-width: none; font-size: 11px; line-height: 1.35; }
  section { background: none; overflow: visible; margin-bottom: 10px; }
  tr { break-inside: avoid; } tfoot { display: table-row-group; } h2 { break-after: avoid; }
  section div { overflow: visible !important; } /* A box that scrolls loses a row at the end of a page. */
  .verdict { font-size: 17px; } #timeline { margin-bottom: 10px; min-height: 0; }
  section :is(th, td) { padding: 1px 0 1px 10px; } .facts td + td { white-space: normal; }
}
@page { size: A4 landscape; margin: 10mm 12mm; }
"""

STILL_WORDS = "This is a picture, since scripts are off. In JupyterLab, Trust HTML above the page makes it a timeline to zoom and search."
"""JupyterLab runs no scripts of an HTML file before somebody presses that button."""

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
<main>
<h1>{title}</h1>
{sections}
{missing}
<div id="timeline"><noscript><p class="missing">{picture}</p>{still}</noscript></div>
{below}
</main>
<footer>{provenance}</footer>
<script type="application/json" id="timeline-header">{header}</script>
<script type="text/plain" id="timeline-block" data-packing="{packing}">{block}</script>
{details}<script type="module">{script}</script>
</body>
</html>
"""


DETAILS = """<script type="application/json" id="details-header">{header}</script>
<script type="text/plain" id="details-block" data-packing="{packing}">{block}</script>
"""


STILL_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<title>{title}</title>
<style>{style} details, div {{ max-width: none !important; }}</style>
</head>
<body>{body}</body>
</html>
"""


def report(
    traces: Traces,
    path: str | Path,
    *,
    title: str,
    sections: Sequence[str] = (),
    below: Sequence[str] = (),
    budget_bytes: int = BUDGET_BYTES,
) -> Path:
    """Write traces with their timeline to one self-contained HTML file and return its path.

    ``path``: the file; written under a temporary name and renamed, so it is there whole or not at all.
    ``title``: plain text.
    ``sections``, ``below``: blocks of HTML above the timeline (the verdict, the metrics) and below it (charts). They are not escaped here.
    ``budget_bytes``: largest size of the file. If the spans do not fit, the end of the traces is left out, and the page says so.
    """
    groups = as_groups(traces)
    details = answers(groups)
    script, still, above, under = _script(second=details is not None), timeline_svg(groups), _sections(sections), _sections(below)
    told = _details(details)
    payload, packed = fit(groups, budget_bytes - sum(len(part.encode()) for part in (STYLE, script, still, above, under, told)))
    page = fill(
        PAGE,
        title=title,
        style=Html(STYLE),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii"),
        sections=Html(above),
        picture=STILL_WORDS,
        still=Html(still),
        below=Html(under),
        missing=_missing(payload),
        header=Html(script_json(payload.header)),
        packing="gzip" if packed is not payload.block else "none",
        block=Html(base64.b64encode(packed).decode("ascii")),
        details=told,
        script=Html(script),
        provenance=provenance(groups),
    )
    return _written(page, Path(path))


def still_page(path: Path, *, title: str, body: Html) -> Path:
    """Write HTML to one self-contained file that has no scripts, and return its path."""
    return _written(fill(STILL_PAGE, title=title, style=Html(STYLE), body=Html(printable(body))), path)


def fit(groups: Sequence[TimelineGroup], budget_bytes: int) -> tuple[Payload, bytes]:
    """Encode as many spans as fit into the budget, and return the payload with its block as it goes into the page.

    It keeps the beginning of every trace, the same share of the spans of each, and never less than one span in a thousand.
    """
    counts = [len(group.trace.spans) for group in groups]
    share = 1.0
    while True:
        keep = [max(min(count, 1), int(count * share)) for count in counts]
        payload = encode(groups, keep, paths=True)
        packed = pack(payload.block)
        size = len(packed) * 4 // 3 + len(script_json(payload.header).encode())
        if size <= budget_bytes or share <= 1e-3:
            return payload, packed
        share = max(1e-3, share * min(0.9, 0.95 * max(budget_bytes, 0) / size))


def pack(block: bytes) -> bytes:
    """Compress a block if it pays; the timestamp is left out, so that equal traces give equal files."""
    packed = gzip.compress(block, compresslevel=6, mtime=0)
    return packed if len(packed) < WORTH_PACKING * len(block) else block


def script_json(value: Any) -> str:
    """Return JSON that is safe inside a script element: no name in it can end the element or open a comment."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _written(page: Html, path: Path) -> Path:
    with written_whole(path) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return path


def answers(groups: Sequence[TimelineGroup]) -> Payload | None:
    """Encode the answers to all that the second bundle asks, by the words of the question; None where it has nothing to show."""
    block = ColumnBlock()
    header: dict[str, Any] = {}
    for number, group in enumerate(groups):
        for by, known in tells_code(group.trace).items():
            if known:
                header[f"tree/{number}/{by}"] = encode_tree(group.trace, by, block, len(group.trace.spans))
    if "counters" in details_of(groups):
        lines = len(Level) * sum(len(changing_memories(group.trace)) for group in groups)
        header["counters"] = encode_counters(groups, block, MOST_POINTS // max(1, lines))
    return Payload(header, block.to_bytes()) if header else None


def _details(details: Payload | None) -> Html:
    """Return what the second bundle asks for; nothing where there is nothing to ask."""
    if details is None:
        return Html()
    packed = pack(details.block)
    packing = "gzip" if packed is not details.block else "none"
    header, block = Html(script_json(details.header)), Html(base64.b64encode(packed).decode("ascii"))
    return fill(DETAILS, header=header, packing=packing, block=block)


def _script(*, second: bool) -> str:
    """Return the one script that the page's policy lets run: any other script in the page does nothing.

    ``second``: with the second bundle, where it has something to show.
    """
    bundles = [bundle_source(REPORT_BUNDLE), *([bundle_source(SECOND_BUNDLE).partition("\nexport ")[0]] if second else [])]
    source = "\n".join(bundles).replace("</script", "<\\/script").replace("<!--", "<\\!--")
    return f"\n{source}\nstreamscopeTimeline.mountPage(document{', streamscopeSecond' * second});\n"


def _sections(blocks: Sequence[str]) -> str:
    return "\n".join(f"<section>{printable(block)}</section>" for block in blocks if block)


def _missing(payload: Payload) -> Html:
    short = [group for group in payload.header["groups"] if group["shown_until_ns"] is not None]
    if not short:
        return Html()
    parts = "; ".join(
        f"{group['label']} is shown up to {time_text(group['shown_until_ns'])} of {time_text(group['extent_ns'])}" for group in short
    )
    words = f"To keep this file small, not all spans are in it: {parts}. The metrics rest on all of them."
    return fill('<p class="missing">{}</p>', words)


def provenance(groups: Sequence[TimelineGroup]) -> str:
    """Say where the times come from: device, recorder, versions."""
    infos = [group.trace.info for group in groups]
    devices = sorted({f"{info.device.name}{' (simulated time)' if info.device.simulated else ''}" for info in infos})
    versions = sorted({f"{name} {version}" for info in infos for name, version in info.versions.items()})
    recorders = sorted({info.recorder for info in infos})
    parts = (", ".join(devices), f"times by {', '.join(recorders)}", max(info.created for info in infos), ", ".join(versions))
    return " · ".join(filter(None, parts))  # Traces of others may tell neither when nor by which versions.
