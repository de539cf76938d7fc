"""What tuning has found as static HTML: each kernel with the time of its default variant, the chosen one, and all others folded."""

from __future__ import annotations

from html import escape

from streamscope.rtc.form import DEFAULT
from streamscope.tuning import TunedKernel, Tuning, described
from streamscope_widgets.summary import LINE, NUMBER, SANS

LEFT = "text-align:left;padding:3px 10px;white-space:nowrap"
CODE = "font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace"
COLUMNS = {
    "kernel": "Name of the default variant's kernel.",
    "result": "Shape of the result.",
    "default µs": "Median time of one launch of the default variant among others of its own in a CUDA graph.",
    "chosen µs": "The same of the variant that is used from now on.",
    "gain": "Time of the default variant over the chosen one's.",
    "choice": "How the chosen variant goes about its arrays.",
}
TEXTS = ("kernel", "result", "choice")


def tuning_html(tuning: Tuning) -> str:
    """Return it as HTML that needs no script, style sheet or network.

    Parameters
    ----------
    tuning : Tuning
    """
    if not tuning.kernels:
        return f'<div style="{SANS};font-size:13px">The program has no element-wise kernel to tune.</div>'
    better = sum(kernel.choice != DEFAULT for kernel in tuning.kernels)
    kernels = len(tuning.kernels)
    verdict = (
        f"{better} of {kernels} kernel{'s' * (kernels != 1)} {'is' if better == 1 else 'are'} faster in another variant than the default"
    )
    heads = "".join(
        f'<th style="{LEFT if label in TEXTS else NUMBER};{LINE};font-weight:600" title="{escape(meaning)}">{escape(label)}</th>'
        for label, meaning in COLUMNS.items()
    )
    rows = "".join(_row(kernel) for kernel in tuning.kernels)
    return (
        f'<div style="{SANS};font-size:13px;line-height:1.45;max-width:1000px">'
        f'<p style="margin:0 0 2px 0;color:#808080">{escape(tuning.device)}</p>'
        f'<p style="margin:0 0 10px 0;font-size:15px">{escape(verdict)}</p>'
        '<div style="overflow-x:auto"><table style="border-collapse:collapse;margin:0 0 6px 0;font-size:12px">'
        f"<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>{_variants(tuning)}</div>"
    )


def _row(kernel: TunedKernel) -> str:
    changed = kernel.choice != DEFAULT
    numbers = [kernel.medians_ns[DEFAULT] / 1e3, kernel.medians_ns[kernel.choice] / 1e3]
    cells = [f"{number:,.2f}" for number in numbers] + [f"{kernel.gain:.2f}×" if changed else "–"]
    shape = " × ".join(map(str, kernel.shapes[-1])) or "one number"
    weight = "font-weight:700" if changed else ""
    return (
        f'<tr><td style="{LEFT};{CODE}">{escape(kernel.name)}</td><td style="{LEFT}">{escape(shape)}</td>'
        + "".join(f'<td style="{NUMBER};{weight}">{cell}</td>' for cell in cells)
        + f'<td style="{LEFT}">{escape(described(kernel.choice) if changed else "the default")}</td></tr>'
    )


def _variants(tuning: Tuning) -> str:
    """Return the times of all variants, folded."""
    parts = []
    for kernel in tuning.kernels:
        rows = "".join(
            f'<tr><td style="{LEFT}">{escape(described(variant))}</td><td style="{NUMBER}">{median / 1e3:,.2f}</td></tr>'
            for variant, median in sorted(kernel.medians_ns.items(), key=lambda pair: pair[1])
        )
        head = f'<tr><th style="{LEFT};{LINE};{CODE}">{escape(kernel.name)}</th><th style="{NUMBER};{LINE}">µs</th></tr>'
        parts.append(f'<table style="border-collapse:collapse;margin:6px 0;font-size:12px">{head}{rows}</table>')
    return f'<details style="font-size:12px"><summary>times of all variants</summary>{"".join(parts)}</details>'
