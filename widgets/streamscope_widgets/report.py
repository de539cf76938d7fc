"""One HTML file that holds a result: verdict, metrics, the live timeline, charts. It works offline and asks nobody for anything."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from streamscope.errors import printable
from streamscope.files import written_whole
from streamscope_widgets.bundle import bundle_source
from streamscope_widgets.payload import Payload, TimelineGroup, Traces, as_groups, encode
from streamscope_widgets.report_page import PAGE, STYLE

BUDGET_BYTES = 5_000_000
"""What a report may weigh; reports of peers that grew to 80 MB are a known complaint."""

WORTH_PACKING = 0.9
"""The block is compressed only if that leaves less than this share of it."""


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

    Parameters
    ----------
    traces : sequence of Trace or TimelineGroup, or mapping from label to either
    path : str or Path
        The file; written under a temporary name and renamed, so it is there whole or not at all.
    title : str
        Plain text.
    sections, below : sequence of str
        Blocks of HTML above the timeline (the verdict, the metrics) and below it (charts). They are not escaped here.
    budget_bytes : int
        Largest size of the file. If the spans do not fit, the end of the traces is left out, and the page says so.

    Raises
    ------
    OutputError
        The file cannot be written, or the front end was not built.
    TraceError
        There is no trace.
    """
    groups = as_groups(traces)
    script, above, under = _script(), _sections(sections), _sections(below)
    payload, packed = fit(groups, budget_bytes - len(STYLE) - len(script) - len(above.encode()) - len(under.encode()))
    page = PAGE.format(
        title=printable(escape(title)),
        style=STYLE,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii"),
        sections=above,
        below=under,
        missing=printable(_missing(payload)),
        header=script_json(payload.header),
        packing="gzip" if packed is not payload.block else "none",
        block=base64.b64encode(packed).decode("ascii"),
        script=script,
        provenance=printable(escape(_provenance(groups))),
    )
    with written_whole(Path(path)) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return Path(path)


def fit(groups: Sequence[TimelineGroup], budget_bytes: int) -> tuple[Payload, bytes]:
    """Encode as many spans as fit into the budget, and return the payload with its block as it goes into the page.

    What is kept is the beginning of every trace, the same share of the spans of each, and never less than one span in a thousand.
    """
    counts = [len(group.trace.spans) for group in groups]
    share = 1.0
    while True:
        keep = [max(min(count, 1), int(count * share)) for count in counts]
        payload = encode(groups, keep)
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


def _script() -> str:
    """Return the one script that the page's policy lets run: what else gets into the page does nothing."""
    bundle = bundle_source().replace("</script", "<\\/script").replace("<!--", "<\\!--")
    return f"\n{bundle}\nstreamscopeTimeline.mountPage(document);\n"


def _sections(blocks: Sequence[str]) -> str:
    return "\n".join(f"<section>{printable(block)}</section>" for block in blocks)


def _missing(payload: Payload) -> str:
    short = [group for group in payload.header["groups"] if group["shown_until_ns"] is not None]
    if not short:
        return ""
    parts = "; ".join(
        f"{group['label']} is shown up to {group['shown_until_ns'] / 1e3:,.1f} of {group['extent_ns'] / 1e3:,.1f} µs" for group in short
    )
    return f'<p class="missing">To keep this file small, not all spans are in it: {escape(parts)}. The metrics rest on all of them.</p>'


def _provenance(groups: Sequence[TimelineGroup]) -> str:
    """Say where the times come from: device, recorder, versions."""
    infos = [group.trace.info for group in groups]
    devices = sorted({f"{info.device.name}{' (simulated time)' if info.device.kind == 'simulated' else ''}" for info in infos})
    versions = sorted({f"{name} {version}" for info in infos for name, version in info.versions.items()})
    recorders = sorted({info.recorder for info in infos})
    return f"{', '.join(devices)} · times by {', '.join(recorders)} · {max(info.created for info in infos)} · {', '.join(versions)}"
