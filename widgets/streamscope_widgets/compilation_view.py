"""A log of compilations as static HTML: how many kernels came from where, time by stage, who worked when, what each kernel takes.

Like `summary`, it rests on nothing but attributes that an untrusted notebook lets through.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from streamscope.kernels.compile.compilation_log import CompilationLog, CompileStage, KernelRecord
from streamscope.kernels.compile.cubin import KernelResources
from streamscope.kernels.compile.kernel_cache import Origin
from streamscope_widgets.static_timeline import data_uri
from streamscope_widgets.summary import LINE, NUMBER, SANS
from streamscope_widgets.worker_picture import COLOURS, workers_svg

MOST_SHOWN, MOST_FOLDED = 12, 120
"""Kernels that are listed at once, and those that unfold below; the costliest come first, and the rest is counted."""
LONGEST_NAME, LONGEST_TITLE = 80, 200
LEFT = "text-align:left;padding:3px 10px;white-space:nowrap"
CODE = "font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace"

STAGES = {
    CompileStage.GENERATE: "Source is generated from the operators.",
    CompileStage.LOOK_UP: "Kernels are looked up in the cache, in memory and on disk.",
    CompileStage.COMPILE: "NVRTC compiles translation units to machine code; nothing is left to link.",
    CompileStage.STORE: "Machine code is written to the cache on disk.",
    CompileStage.WAIT: "Another thread or process compiles what is needed here.",
    CompileStage.LOAD: "The driver loads machine code onto the device.",
}
SHARES = (
    "compile ms: kernels that are compiled together are timed together; each is given an equal share. What came from the cache took that"
    " long when it was compiled."
)
COLUMNS = {
    "kernel": "Name of the function: the operator, the dtypes, and the first digits of its source's SHA-256.",
    "from": "Where it came from: compiled now, or taken from the cache in memory or on disk; how often, if more than once.",
    "compile ms": "Its equal share of the time that its translation unit took NVRTC, whenever and by whomever that was compiled.",
    "code bytes": "Machine code of the kernel.",
    "registers": "Of each thread.",
    "shared bytes": "Static shared memory of each block.",
    "stack bytes": "Local memory of each thread, spilled registers among it.",
}


def compilation_html(log: CompilationLog) -> str:
    """Return a log as HTML of less than 200 kB that needs no script, style sheet or network.

    Parameters
    ----------
    log : CompilationLog
    """
    kernels = asked_kernels(list(log.kernels))
    if not kernels:
        return f'<div style="{SANS};font-size:13px">No kernel has been asked for yet.</div>'
    parts = [
        f'<div style="{SANS};font-size:13px;line-height:1.45;max-width:1000px">',
        f'<p style="margin:0 0 2px 0;color:#808080">{escape(_architectures(kernels))}</p>',
        f'<p style="margin:0 0 10px 0;font-size:15px">{escape(headline(log))}</p>',
        _stages_html(log),
        _picture_html(log),
        _launch_html(log),
        _kernels_html(kernels),
        f'<p style="margin:0;font-size:12px;color:#808080">{escape(SHARES)}</p>',
        "</div>",
    ]
    return "".join(parts)


@dataclass(frozen=True)
class AskedKernel:
    """One kernel for one architecture, however often it was asked for.

    Attributes
    ----------
    name, architecture : str
    origins : mapping of Origin to int
        How often it came from where.
    compile_ns : float
        As `KernelRecord.compile_ns`.
    resources : KernelResources, optional
        None where they are not known.
    """

    name: str
    architecture: str
    origins: Counter[Origin]
    compile_ns: float
    resources: KernelResources | None


def asked_kernels(records: Iterable[KernelRecord]) -> list[AskedKernel]:
    """Return each kernel that was asked for once: those that failed first, then by time to compile; in one unit by machine code."""
    by_kernel: dict[tuple[str, str], list[KernelRecord]] = {}
    for record in records:
        by_kernel.setdefault((record.name, record.architecture), []).append(record)
    kernels = [
        AskedKernel(name, architecture, Counter(record.origin for record in each), each[-1].compile_ns, each[-1].resources)
        for (name, architecture), each in by_kernel.items()
    ]
    return sorted(kernels, key=lambda kernel: (Origin.FAILED not in kernel.origins, -kernel.compile_ns, -_code_bytes(kernel), kernel.name))


def _code_bytes(kernel: AskedKernel) -> int:
    return kernel.resources.code_bytes if kernel.resources is not None else 0


def headline(log: CompilationLog) -> str:
    """Return the whole in one sentence: ``9 kernels: 4 compiled, 5 from disk; in 81.4 ms; 34,816 bytes of device code``."""
    words = {Origin.COMPILED: "compiled", Origin.DISK: "from disk", Origin.MEMORY: "from memory", Origin.FAILED: "failed"}
    counts = log.counts
    listed = ", ".join(f"{counts[origin]:,} {word}" for origin, word in words.items() if origin in counts)
    total, kernels = sum(counts.values()), len({(record.name, record.architecture) for record in list(log.kernels)})
    asked = f", asked for {total:,} times" if total > kernels else ""
    what = f"{kernels:,} kernel{'s' * (kernels != 1)}{asked}"
    return f"{what}: {listed}; in {_milliseconds(log.wall_ns)} ms; {log.code_bytes:,} bytes of device code"


def _architectures(kernels: Sequence[AskedKernel]) -> str:
    return "compiled for " + ", ".join(sorted({kernel.architecture for kernel in kernels}))


def _stages_html(log: CompilationLog) -> str:
    totals = log.stage_ns
    most = max(totals.values(), default=0) or 1
    rows = "".join(_stage_html(stage, spent, spent / most) for stage, spent in totals.items())
    foot = f'<tr><td style="{LEFT};border-top:1px solid #888888">wall clock</td>'
    foot += f'<td style="{NUMBER};border-top:1px solid #888888">{_milliseconds(log.wall_ns)}</td><td></td></tr>'
    head = _heads({"stage": "What is done to get from a program to kernels.", "ms": "Added up over all threads.", "": ""})
    return f'<table style="border-collapse:collapse;margin:0 0 10px 0;font-size:12px">{head}<tbody>{rows}{foot}</tbody></table>'


def _stage_html(stage: CompileStage, spent_ns: int, share: float) -> str:
    width = max(1, round(240 * share))
    bar = f'<div style="width:{width}px;height:9px;border-radius:2px;background:{COLOURS[stage]}"></div>'
    return (
        f'<tr><td style="{LEFT}" title="{escape(STAGES[stage])}">{escape(stage.value)}</td>'
        f'<td style="{NUMBER}">{_milliseconds(spent_ns)}</td><td style="padding:3px 10px">{bar}</td></tr>'
    )


def _picture_html(log: CompilationLog) -> str:
    svg = workers_svg(list(log.stages))
    if not svg:
        return ""
    return f'<img style="max-width:100%;height:auto;margin:0 0 10px 0" alt="Which thread did what, and when." src="{data_uri(svg)}">'


def _launch_html(log: CompilationLog) -> str:
    cost = log.launch_cost
    if cost is None:
        return ""
    words = (
        f"To launch one takes the host {cost.prepared_ns / 1e3:.2f} µs from a prepared program and {cost.pushed_ns / 1e3:.2f} µs by"
        f" Engine.push, a plain launch of the same kernel {cost.plain_ns / 1e3:.2f} µs (medians on {cost.device})."
    )
    return f'<p style="margin:0 0 10px 0">{escape(words)}</p>'


def _kernels_html(kernels: Sequence[AskedKernel]) -> str:
    shown, folded = kernels[:MOST_SHOWN], kernels[MOST_SHOWN : MOST_SHOWN + MOST_FOLDED]
    if not folded:
        return _kernel_table(shown)
    left_out = len(kernels) - len(shown) - len(folded)
    more = f"{len(folded):,} more kernels" + (f"; another {left_out:,} are not listed" if left_out else "")
    unfolding = f'<details style="margin:0 0 6px 0;font-size:12px"><summary>{more}</summary>{_kernel_table(folded)}</details>'
    return _kernel_table(shown) + unfolding


def _kernel_table(kernels: Sequence[AskedKernel]) -> str:
    several = len({kernel.architecture for kernel in kernels}) > 1
    rows = "".join(_kernel_html(kernel, several=several) for kernel in kernels)
    return (
        '<div style="overflow-x:auto"><table style="border-collapse:collapse;margin:0 0 6px 0;font-size:12px">'
        f"{_heads(COLUMNS)}<tbody>{rows}</tbody></table></div>"
    )


def _kernel_html(kernel: AskedKernel, *, several: bool) -> str:
    name = kernel.name if len(kernel.name) <= LONGEST_NAME else kernel.name[: LONGEST_NAME - 10] + "…" + kernel.name[-9:]
    title = f' title="{escape(kernel.name[:LONGEST_TITLE])}"' if name != kernel.name else ""
    where = f" for {kernel.architecture}" if several else ""
    origins = ", ".join(f"{origin.value}{f' ×{count}' if count > 1 else ''}" for origin, count in kernel.origins.items())
    weight = ";font-weight:700" if Origin.FAILED in kernel.origins else ""
    found = kernel.resources
    numbers = [found.code_bytes, found.registers, found.shared_bytes, found.stack_bytes] if found is not None else []
    cells = [_milliseconds(kernel.compile_ns) if kernel.compile_ns else "–", *(f"{number:,}" for number in numbers)]
    cells += ["–"] * (len(COLUMNS) - 2 - len(cells))
    return (
        f'<tr><td style="{LEFT};{CODE}{weight}"{title}>{escape(name)}{escape(where)}</td>'
        f'<td style="{LEFT}{weight}">{escape(origins)}</td>' + "".join(f'<td style="{NUMBER}">{cell}</td>' for cell in cells) + "</tr>"
    )


def _heads(columns: dict[str, str]) -> str:
    cells = "".join(
        f'<th style="{LEFT if label in ("kernel", "from", "stage", "") else NUMBER};{LINE};font-weight:600" title="{escape(meaning)}">'
        f"{escape(label)}</th>"
        for label, meaning in columns.items()
    )
    return f"<thead><tr>{cells}</tr></thead>"


def _milliseconds(time_ns: float) -> str:
    return f"{time_ns / 1e6:,.2f}" if time_ns < 1e7 else f"{time_ns / 1e6:,.1f}"
