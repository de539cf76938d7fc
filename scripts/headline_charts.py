"""The charts of docs/headlines.md, made from the committed data.

    python scripts/headline_charts.py     draws them anew

`tests/project/test_numbers.py` says which charts are old.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from page_tables.parts import ROOT, batches, data, faster

from streamscope_widgets.show import palette
from streamscope_widgets.show.chart import Axis, Bars, RowChart
from streamscope_widgets.show.still_chart import row_document


def bars(title: str, axis: str, lengths: Mapping[str, float], label: Callable[[float], str]) -> str:
    """Return a chart of one bar a row as an SVG document."""
    values = [*lengths.values()]
    series = Bars("", palette.BUSY, palette.ON_LIGHT, values, [label(value) for value in values], axis, outside=True)
    return row_document(RowChart(title, Axis(axis, 0, max(values) * 1.02), tuple(lengths), (series,)))


def graph_chart() -> str:
    """Draw what a graph gains by batch."""
    found = {f"batch {batch}": 100 * faster(one["async"], one["graph"]) for batch, one in batches(data("headlines")["graphs"])}
    return bars("What a CUDA graph gains in ResNet-50 v2's forward pass, float16", "faster by, %", found, "{:.0f} %".format)


def stream_chart() -> str:
    """Draw what a second stream gains by batch."""
    found = {}
    for batch, one in batches(data("headlines")["streams"]):
        found[f"batch {batch}"] = 100 * faster(one["async"], one["dual"])
        found[f"batch {batch}, in a graph"] = 100 * faster(one["graph"], one["graph-dual"])
    return bars("What a second stream gains in ResNet-50 v2's training step", "faster by, %", found, "{:.1f} %".format)


def host_chart() -> str:
    """Draw the loop with work on the host."""
    found = data("headlines")["host"]
    times = {
        "host alone": found["host alone"],
        "GPU alone": found["GPU alone"]["async"],
        **{way: found["both"][way] for way in ("async", "sync")},
    }
    milliseconds = {name: one["median_us"] / 1e3 for name, one in times.items()}
    return bars("A loop with work on the host", "ms", milliseconds, "{:.1f}".format)


def kernel_chart() -> str:
    """Draw how many kernels networks use, and how many there are."""
    found = data("headlines")["compiled"]
    counts = {"lstm": found["used"]["lstm"], "three networks": found["used"]["all three"], "all, built ahead": found["ahead"]}
    return bars(
        "Kernels that are made when they are used, and all of them",
        "kernels",
        {name: one["kernels"] for name, one in counts.items()},
        "{:.0f}".format,
    )


def batched_chart() -> str:
    """Draw how long kernels take to compile, one by one and together."""
    one = data("batched_compilation_16_cores")["sets"]["all"]
    seconds = {
        "one by one": one["one_by_one"]["median_s"],
        **{f"together, {name}": each["median_s"] for name, each in one["together"].items()},
    }
    return bars("128 kernels of all operators, compiled on 16 cores", "s", seconds, "{:.2f}".format)


def decoder_chart() -> str:
    """Draw a decoder's time for a token by way."""
    times = {name: one["ms_a_token"] for name, one in data("decoder")["ways"].items()}
    return bars("A decoder of 12 layers, token by token", "ms a token", times, "{:.2f}".format)


CHARTS: dict[str, Callable[[], str]] = {
    "graphs": graph_chart,
    "streams": stream_chart,
    "host": host_chart,
    "kernels": kernel_chart,
    "batched": batched_chart,
    "decoder": decoder_chart,
}
"""Pictures of docs/headlines.md, in docs/headlines/, by name."""


def main() -> None:
    """Draw all charts anew."""
    for name, chart in CHARTS.items():
        (ROOT / "docs" / "headlines" / f"{name}.svg").write_text(chart() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
