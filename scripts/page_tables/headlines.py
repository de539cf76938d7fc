"""Tables of the headline figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from page_tables.parts import batches, data, faster, measured_on, table
from streamscope.words import format_us


def headlines() -> str:
    """Return the five systems' figures beside ours."""
    found = data("headlines")
    graphs, streams, host, compiled = (found[part] for part in ("graphs", "streams", "host", "compiled"))
    at = {batch: f"{faster(one['async'], one['graph']):.0%}" for batch, one in batches(graphs)}
    dual = {batch: f"{faster(one['async'], one['dual']):.0%}" for batch, one in batches(streams)}
    more = [faster_memory(one["graph"], one["graph-dual"]) for _, one in batches(streams)]
    loop = faster(host["both"]["sync"], host["both"]["async"])
    used, ahead = compiled["used"]["all three"], compiled["ahead"]
    gains = {cores: _batched_gains(cores) for cores in _CORES}
    batched = [f"{min(each):.1f} to {max(each):.1f}× less on {cores} cores" for cores, each in gains.items()]
    rows = [
        [
            "[CUDA graphs](#cuda-graphs)",
            "ResNet-50 v2, fp16, V100: 17 % faster at batch 1, 0.3 % at 128",
            f"{at['1']} at 1, {at['128']} at 128",
        ],
        [
            "[a second stream](#a-second-stream)",
            "ResNet-50 training, 8 V100s: 2 to 3 % faster at batch 32, 1 % at 128, nothing at 256; memory +1.4 to 2.6 %",
            f"{dual['32']} at 32, {dual['128']} at 128, {dual['256']} at 256; memory {more[-1]} to {more[0]}",
        ],
        ["[work on the host](#work-on-the-host)", "the host goes on while the GPU works; no figure", f"a loop is {loop:.0%} faster"],
        [
            "[kernels made at run time](#kernels-made-at-run-time)",
            "69,169 → 51,511 kernels, 292 MB less code, 96 MB less GPU memory",
            (
                f"three networks use {used['kernels']} kernels, {used['code_bytes'] / 1e6:.1f} MB; "
                f"built ahead {ahead['kernels']}, {ahead['code_bytes'] / 1e6:.1f} MB"
            ),
        ],
        [
            "[batched compilation](#batched-compilation)",
            "BERT in 177 s, not 222 s; compile time 3.8 to 8× less",
            "; ".join(batched),
        ],
    ]
    return table(["system", "its figure", "ours"], rows)


def headline_graphs() -> str:
    """Return what a CUDA graph gains in the forward pass of ResNet-50 v2."""
    found = data("headlines")["graphs"]
    ways = ("async", "graph", "async, fused", "graph, fused")
    rows = []
    for batch, one in batches(found):
        gains = (f"{faster(one[f'async{fused}'], one[f'graph{fused}']):.0%}" for fused in ("", ", fused"))
        rows.append([batch, *(format_us(one[way]["median_us"]) for way in ways), *gains])
    head = ["batch", *(f"`{way}`, µs" for way in ways), "a graph is faster by", "fused, by"]
    return table(head, rows) + measured_on(found["made"])


def headline_streams() -> str:
    """Return what a second stream gains in training steps of ResNet-50 v2, and the memory it takes."""
    found = data("headlines")["streams"]
    rows = []
    for batch, one in batches(found):
        memory = faster_memory(one["graph"], one["graph-dual"])
        gains = (f"{faster(one[slow], one[fast]):.1%}" for slow, fast in (("async", "dual"), ("graph", "graph-dual")))
        rows.append([batch, *(f"{one[way]['median_us'] / 1e3:.2f}" for way in ("async", "dual", "graph", "graph-dual")), *gains, memory])
    head = ["batch", "`async`, ms", "`dual`, ms", "`graph`, ms", "`graph-dual`, ms", "alone, faster by", "in a graph, by", "more memory"]
    return table(head, rows) + measured_on(found["made"])


def faster_memory(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Return how much more memory the second takes, in words."""
    return f"+{other['memory']['device_bytes'] / one['memory']['device_bytes'] - 1:.1%}"


def headline_host() -> str:
    """Return how long a loop with work on the host takes."""
    found = data("headlines")["host"]
    times = [
        ["the host's work alone", found["host alone"]],
        ["the GPU's work alone, `async`", found["GPU alone"]["async"]],
        *([f"both, `{way}`", found["both"][way]] for way in ("sync", "async", "dual")),
    ]
    return table(["a loop of six batches", "ms"], ([name, f"{one['median_us'] / 1e3:.1f}"] for name, one in times)) + measured_on(
        found["made"]
    )


def headline_kernels() -> str:
    """Return kernels and code of what networks use, and of all kernels built ahead."""
    found = data("headlines")["compiled"]
    every = {**{f"training step of `{name}`": one for name, one in found["used"].items()}, "all, built ahead": found["ahead"]}
    every["the three networks together"] = every.pop("training step of `all three`")
    rows = [
        [name, str(one["kernels"]), f"{one['code_bytes'] / 1e6:.2f}", f"{one['memory_bytes'] / 2**20:.0f}", f"{one['compile_s']:.2f}"]
        for name, one in sorted(every.items(), key=lambda item: item[1]["kernels"])
    ]
    return table(["kernels of", "count", "code, MB", "GPU memory, MiB", f"to compile, s ({found['cores']} cores)"], rows) + measured_on(
        found["made"]
    )


def headline_batched() -> str:
    """Return how long kernels take to compile, one by one and together."""
    rows, made = [], []
    for cores in _CORES:
        found = data(f"batched_compilation_{cores}_cores")
        for (name, one), ratio in zip(_compiled(cores).items(), _batched_gains(cores), strict=True):
            alone = one["one_by_one"]["median_s"]
            rows.append([f"{name}, {cores} cores", str(one["kernels"]), f"{alone:.2f}", f"{alone / ratio:.2f}", f"{ratio:.1f}×"])
        made.append(f"{cores} cores, {found['processor']}, NVRTC {found['nvrtc']}, {found['date'][:10]}.")
    return table(["set", "kernels", "one by one, s", "together, s", "faster"], rows) + f"\n{' '.join(made)}\n"


_CORES = (2, 16)


def _compiled(cores: int) -> dict[str, Any]:
    """Return how the sets of kernels compiled on so many cores, by name."""
    found = data(f"batched_compilation_{cores}_cores")
    return {**found["sets"], **found["programs"]}


def _batched_gains(cores: int) -> list[float]:
    """Return how many times as fast each set compiles together, with all workers."""
    return [one["one_by_one"]["median_s"] / [*one["together"].values()][-1]["median_s"] for one in _compiled(cores).values()]


TABLES = {
    "headlines": headlines,
    "headline-graphs": headline_graphs,
    "headline-streams": headline_streams,
    "headline-host": headline_host,
    "headline-kernels": headline_kernels,
    "headline-batched": headline_batched,
}
