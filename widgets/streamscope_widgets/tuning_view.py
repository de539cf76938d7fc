"""What tuning has found as static HTML: each kernel with the time of its default variant and of the chosen one, and all others folded.

Like `summary`, it rests on nothing but attributes that an untrusted notebook lets through.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from streamscope.compiling.tuning import LEAST_GAIN, TunedKernel, Tuning, described
from streamscope.kernels.form import DEFAULT
from streamscope_widgets import palette
from streamscope_widgets.summary import LINE, NUMBER, SANS

LEFT = "text-align:left;padding:3px 10px;white-space:nowrap"
CODE = "font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace"
TABLE = "border-collapse:collapse;margin:0 0 6px 0;font-size:12px"
MOST_SHOWN = 40
"""Kernels that are listed, those first that gain most; the rest is counted."""
BAR_PX = 200
COLUMNS = {
    "kernel": "Name of the default variant's kernel.",
    "result": "Shape of the result.",
    "default µs": "Median time of one launch of the default variant, among others of the same kernel in a CUDA graph.",
    "chosen µs": "The same of the variant that is used from now on.",
    "gain": "Time of the default variant over the chosen one's.",
    "choice": f"How the chosen variant goes about its arrays. One that is less than {LEAST_GAIN - 1:.0%} faster is not chosen.",
}
TEXTS = ("kernel", "result", "choice")


def tuning_html(tuning: Tuning) -> str:
    """Return it as HTML of less than 200 kB that needs no script, style sheet or network.

    Parameters
    ----------
    tuning : Tuning
    """
    if not tuning.kernels:
        return f'<div style="{SANS};font-size:13px">The program has no element-wise kernel to tune.</div>'
    kernels = sorted(tuning.kernels, key=lambda kernel: -kernel.gain)
    shown, left_out = kernels[:MOST_SHOWN], len(kernels) - MOST_SHOWN
    rest = f'<p style="margin:0 0 6px 0;font-size:12px">{left_out:,} more are not listed.</p>' if left_out > 0 else ""
    return (
        f'<div style="{SANS};font-size:13px;line-height:1.45;max-width:1000px">'
        f'<p style="margin:0 0 2px 0;color:#808080">{escape(tuning.device)}</p>'
        f'<p style="margin:0 0 10px 0;font-size:15px">{escape(headline(kernels))}</p>'
        f"{_kernels_html(shown)}{rest}{_variants_html(shown)}</div>"
    )


def headline(kernels: Sequence[TunedKernel]) -> str:
    """Return the whole in one sentence."""
    count, gains = len(kernels), [kernel.gain for kernel in kernels if kernel.choice != DEFAULT]
    if not gains:
        return "The default variant stays for " + ("the only kernel" if count == 1 else f"all {count:,} kernels")
    most = f"{'up to ' * (len(gains) > 1)}{max(gains):.2f}×"
    whose = "The only kernel" if count == 1 else f"{len(gains):,} of {count:,} kernels"
    return f"{whose} {'is' if len(gains) == 1 else 'are'} faster in another variant than the default, {most}"


def _kernels_html(kernels: Sequence[TunedKernel]) -> str:
    heads = "".join(
        f'<th style="{LEFT if label in TEXTS else NUMBER};{LINE};font-weight:600" title="{escape(meaning)}">{escape(label)}</th>'
        for label, meaning in COLUMNS.items()
    )
    rows = "".join(_kernel_html(kernel) for kernel in kernels)
    return f'<div style="overflow-x:auto"><table style="{TABLE}"><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>'


def _kernel_html(kernel: TunedKernel) -> str:
    changed = kernel.choice != DEFAULT
    numbers = [kernel.medians_ns[DEFAULT] / 1e3, kernel.medians_ns[kernel.choice] / 1e3]
    cells = [f"{number:,.2f}" for number in numbers] + [f"{kernel.gain:.2f}×" if changed else "–"]
    weight = ";font-weight:700" if changed else ""
    return (
        f'<tr><td style="{LEFT};{CODE}">{escape(kernel.name)}</td><td style="{LEFT}">{_shape(kernel)}</td>'
        + "".join(f'<td style="{NUMBER}{weight}">{cell}</td>' for cell in cells)
        + f'<td style="{LEFT}">{escape(described(kernel.choice) if changed else "the default")}</td></tr>'
    )


def _variants_html(kernels: Sequence[TunedKernel]) -> str:
    """Return the times of all variants, folded, the fastest first."""
    tables = "".join(_kernel_variants_html(kernel) for kernel in kernels)
    return f'<details style="font-size:12px"><summary>times of all variants</summary><div style="overflow-x:auto">{tables}</div></details>'


def _kernel_variants_html(kernel: TunedKernel) -> str:
    slowest = max(kernel.medians_ns.values())
    rows = []
    for variant, median in sorted(kernel.medians_ns.items(), key=lambda pair: pair[1]):
        chosen = variant == kernel.choice
        words = described(variant) + " (the default)" * (variant == DEFAULT)
        width, colour = max(1, round(BAR_PX * median / slowest)), palette.KERNELS[2] if chosen else palette.KERNELS[0]
        bar = f'<div style="width:{width}px;height:9px;border-radius:2px;background:{colour}"></div>'
        weight = ";font-weight:700" if chosen else ""
        rows.append(
            f'<tr><td style="{LEFT}{weight}">{escape(words)}</td><td style="{NUMBER}{weight}">{median / 1e3:,.2f}</td>'
            f'<td style="padding:3px 10px">{bar}</td></tr>'
        )
    name = f"{escape(kernel.name)} {_shape(kernel)}"
    head = (
        f'<tr><th style="{LEFT};{LINE};{CODE};font-weight:600">{name}</th><th style="{NUMBER};{LINE};font-weight:600">µs</th><th></th></tr>'
    )
    return f'<table style="{TABLE};margin-top:6px"><thead>{head}</thead><tbody>{"".join(rows)}</tbody></table>'


def _shape(kernel: TunedKernel) -> str:
    return " × ".join(f"{extent:,}" for extent in kernel.shapes[-1]) or "one number"
