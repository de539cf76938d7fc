"""Results of tuning as static HTML: each kernel with the time of its default variant and of the chosen one, and all others folded."""

from __future__ import annotations

from collections.abc import Sequence

from streamscope.compiling.tuning import LEAST_GAIN, TunedKernel, Tuning, described
from streamscope.kernels.form import DEFAULT
from streamscope.results.views import View
from streamscope.words import format_us
from streamscope_widgets.show import palette
from streamscope_widgets.show.html import Column, Html, Row, above, bar, block, folded, lead, small, table

MOST_SHOWN = 40
"""Kernels that are listed, those first that gain most; the rest is counted."""
BAR_PX = 200
COLUMNS = (
    Column("kernel", "Name of the default variant's kernel.", "code"),
    Column("result", "Shape of the result.", "text"),
    Column("default µs", "Median time of one launch of the default variant, among others of the same kernel in a CUDA graph."),
    Column("chosen µs", "The same of the variant that is used from now on."),
    Column("gain", "Time of the default variant over the chosen one's."),
    Column(
        "choice",
        f"How the chosen variant goes about its arrays. One that is less than {LEAST_GAIN - 1:.0%} faster is not chosen.",
        "text",
    ),
)


def tuning_html(tuning: Tuning) -> Html:
    """Return it as HTML of less than 200 kB that needs no script, style sheet or network."""
    if not tuning.kernels:
        return block("The program has no element-wise kernel to tune.")
    kernels = sorted(tuning.kernels, key=lambda kernel: -kernel.gain)
    shown, left_out = kernels[:MOST_SHOWN], len(kernels) - MOST_SHOWN
    return block(
        above(tuning.device),
        lead(headline(kernels)),
        table(COLUMNS, map(_kernel, shown)),
        small(f"{left_out:,} more are not listed." if left_out > 0 else ""),
        folded("times of all variants", *map(_variants, shown)),
    )


def headline(kernels: Sequence[TunedKernel]) -> str:
    """Return the whole in one sentence."""
    count, gains = len(kernels), [kernel.gain for kernel in kernels if kernel.choice != DEFAULT]
    if not gains:
        return "The default variant stays for " + ("the only kernel" if count == 1 else f"all {count:,} kernels")
    most = f"{'up to ' * (len(gains) > 1)}{max(gains):.2f}×"
    whose = "The only kernel" if count == 1 else f"{len(gains):,} of {count:,} kernels"
    return f"{whose} {'is' if len(gains) == 1 else 'are'} faster in another variant than the default, {most}"


def _kernel(kernel: TunedKernel) -> Row:
    changed = kernel.choice != DEFAULT
    times = [format_us(kernel.medians_ns[variant] / 1e3) for variant in (DEFAULT, kernel.choice)]
    numbers = [*times, f"{kernel.gain:.2f}×" if changed else "–"]
    cells = (kernel.name, _shape(kernel), *numbers, described(kernel.choice) if changed else "the default")
    return Row(cells, bold=(2, 3, 4) if changed else False)


def _variants(kernel: TunedKernel) -> Html:
    """Return the times of all variants, the fastest first."""
    slowest = max(kernel.medians_ns.values())
    rows = []
    for variant, median_ns in sorted(kernel.medians_ns.items(), key=lambda pair: pair[1]):
        chosen = variant == kernel.choice
        words = described(variant) + " (the default)" * (variant == DEFAULT)
        colour = palette.KERNELS[2] if chosen else palette.KERNELS[0]
        rows.append(Row((words, format_us(median_ns / 1e3), bar(BAR_PX * median_ns / slowest, colour)), bold=(0, 1) if chosen else False))
    return table((Column(f"{kernel.name} {_shape(kernel)}", kind="text"), Column("µs"), Column(kind="bar")), rows)


def _shape(kernel: TunedKernel) -> str:
    return " × ".join(f"{extent:,}" for extent in kernel.shapes[-1]) or "one number"


TUNING = View(of="tuning", html=tuning_html)
