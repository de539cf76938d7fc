"""What the README says was measured is what the committed data say."""

from __future__ import annotations

import json
import math
import re

import numpy as np
import pytest

import streamscope as ss
from streamscope.analysis.definitions import format_us
from streamscope.analysis.verdict import difference, fastest


def at_least(values):
    """Return the least of some numbers, rounded so that it stays a bound."""
    return f"{math.floor(100 * min(values)) / 100:.2f}"


def at_most(values):
    return f"{math.ceil(100 * max(values)) / 100:.2f}"


@pytest.fixture(scope="module")
def readme(repository):
    return (repository / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def accuracy(repository):
    return json.loads((repository / "benchmarks" / "results" / "recorder_accuracy.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", list(ss.WORKLOADS))
def test_makespans(repository, readme, name):
    metrics = ss.load_comparison(repository / "notebooks" / "recorded" / name).metrics
    (row,) = re.findall(rf"^\| `{name}` \| (.*) \|$", readme, flags=re.MULTILINE)
    *makespans, against = (cell.strip("* ") for cell in row.split("|"))
    assert makespans == [format_us(m.makespan_us) for m in metrics.values()]
    best = min(metrics.values(), key=lambda m: m.makespan_us)
    assert against == difference(best, metrics["async"])


def test_agreement_with_cupti(readme, accuracy):
    errors = {}
    for name, program in accuracy["programs"].items():
        for engine, found in program["engines"].items():
            missed = f"`{name}` beside each other under `{engine}` ({found['median_error_us']:.2f} µs"
            assert found["within"] or missed in readme
            errors.setdefault(engine, []).append(np.abs(np.subtract(found["cupti_us"], found["events_us"])))
    stated = {engine: float(value) for value, engine in re.findall(r"([\d.]+) µs \(`([\w-]+)`\)", readme)}
    assert stated == {engine: round(float(np.median(np.concatenate(each))), 2) for engine, each in errors.items()}
    assert f"{sum(error.size for each in errors.values() for error in each):,} kernels" in readme


def test_cost_of_a_launch(repository, readme):
    measured = json.loads((repository / "benchmarks" / "results" / "launch_overhead.json").read_text(encoding="utf-8"))
    assert f"is {measured['async_over_c']:.2f}× that of a C loop" in readme
    assert f"{measured['async_over_torch']:.2f}× that of `torch.add(out=)`" in readme
    assert f"takes {measured['graph_over_torch_graph']:.2f}× as long as `torch.cuda.CUDAGraph`" in readme


def test_device_and_dates(repository, readme, accuracy):
    folders = [repository / "notebooks" / "recorded" / name for name in ss.WORKLOADS]
    recorded = {run.trace.info.created[:10] for folder in folders for run in ss.load_comparison(folder).values()}
    assert len(recorded) == 1
    assert f"{accuracy['device']}, CUDA {accuracy['details']['driver'] / 1000:.1f}, {recorded.pop()}" in readme


def test_pushes(repository, readme):
    measured = json.loads((repository / "benchmarks" / "results" / "push_overhead.json").read_text(encoding="utf-8"))["per_operation_us"]
    push, packed, torch, cupy = (measured[name]["median"] for name in ("push, async", "packed launch", "torch.add(out=)", "cupy.add(out=)"))
    assert f"costs the host {push:.1f} µs under `async`" in readme
    assert f"alone takes {packed:.1f}, `torch.add(out=)` {torch:.1f} and CuPy's ufunc {cupy:.1f}" in readme
    assert json.loads((repository / "benchmarks" / "results" / "soak.json").read_text(encoding="utf-8"))["flat"]


def test_the_simulated_device(repository, readme):
    """Against the recordings: the fastest engines, and how much faster than async an engine looks."""
    most = 0.0
    for name, workload in ss.WORKLOADS.items():
        function, inputs = workload.build()
        simulated = ss.compare(function, *inputs, device="simulated", repeats=1, progress=False).metrics
        real = ss.load_comparison(repository / "notebooks" / "recorded" / name).metrics
        gains = {engine: simulated["async"].makespan_us / metrics.makespan_us for engine, metrics in simulated.items()}
        of_real = {engine: real["async"].makespan_us / metrics.makespan_us for engine, metrics in real.items()}
        assert set(fastest(real)) <= set(fastest(simulated)), name
        most = max(most, *(gains[engine] / of_real[engine] for engine in gains))
        if name == "cnn":
            assert f"(`cnn`: {gains['graph']:.1f}× instead of {of_real['graph']:.1f}×)" in readme
    assert f"a graph gains up to {most:.1f} times too much" in readme


def test_bandwidth(repository, readme):
    measured = json.loads((repository / "benchmarks" / "results" / "bandwidth.json").read_text(encoding="utf-8"))
    rows = measured["rows"]
    least = at_least(row["share_of_copy"] for row in rows)
    assert float(least) >= 0.9
    assert f"at least {least} of the bandwidth of a copy in all {len(rows)} cases" in readme
    floats = [row for row in rows if row["dtype"] != "int8"]
    assert f"in the {len(floats)} of float32 and float16 {at_least(row['share_of_copy'] for row in floats)}" in readme
    against = np.exp(np.mean([np.log(row["against_best_peer"]) for row in floats]))
    assert f"take {measured['geometric_mean_against_best_peer']:.2f}× the time" in readme
    most = at_most(row["against_best_peer"] for row in rows)
    assert f"without int8 {against:.2f}×; {most}× at most" in readme


def test_shapes_of_reductions(repository, readme):
    measured = json.loads((repository / "benchmarks" / "results" / "reduction_shapes.json").read_text(encoding="utf-8"))
    rows = measured["rows"]
    mean, most = measured["geometric_mean_against_best_peer"], at_most(row["against_best_peer"] for row in rows)
    assert f"take {mean:.2f}× the time of the faster peer, {most}× at most" in readme
    shares = {kind: [row["share_of_copy"] for row in rows if row["kind"] == kind] for kind in ("short rows", "batch norm", "odd columns")}
    short, norms, odd = shares.values()
    assert f"reach {at_least(short)} to {at_most(short)} of a copy and sums of batch norms {at_least(norms)} to {at_most(norms)}" in readme
    assert min(row["share_of_copy"] for row in rows) == min(odd)
    assert f"loaded one by one ({at_least(odd)} at least)" in readme


def test_gradients_of_what_was_broadcast(repository, readme):
    measured = json.loads((repository / "benchmarks" / "results" / "broadcast_gradients.json").read_text(encoding="utf-8"))
    rows = measured["rows"]
    odd = [row["share_of_copy"] for row in rows if row["kind"] == "of odd columns"]
    others = [row["share_of_copy"] for row in rows if row["kind"] != "of odd columns"]
    most = at_most(row["against_best_peer"] for row in rows)
    assert f"reach {at_least(others)} of a copy ({at_least(odd)} where columns are odd)" in readme
    assert f"take {measured['geometric_mean_against_best_peer']:.2f}× the time of the faster peer, {most}× at most (for scales" in readme


def test_sanitizers(repository):
    tools = json.loads((repository / "benchmarks" / "results" / "sanitizers.json").read_text(encoding="utf-8"))["tools"]
    for name in ("memcheck", "racecheck"):
        assert (tools[name]["tests_failed"], tools[name]["findings"]) == (0, 0)


def test_compilation(repository, readme):
    results = repository / "benchmarks" / "results"
    sixteen, two = (json.loads((results / f"batched_compilation_{cores}_cores.json").read_text(encoding="utf-8")) for cores in (16, 2))
    assert (sixteen["cores"], two["cores"]) == (16, 2)
    (more, all_more), (less, all_less) = (
        (measured["sets"]["arithmetic"]["faster"], measured["sets"]["all"]["faster"]) for measured in (sixteen, two)
    )
    assert f"{all_more:.1f}× faster on 16 cores (kernels of every element-wise operator; {more:.1f}× with arithmetic alone)" in readme
    assert f"and {all_less:.1f}× on two ({less:.1f}×)" in readme
    for name in ("BERT-like", "ResNet-like"):
        one = sixteen["programs"][name]
        alone_s, together_s = one["one_by_one"]["median_s"], one["together"]["16 workers"]["median_s"]
        assert re.search(rf"{name} \w+'s {one['kernels']} (kernels take )?{alone_s:.2f} (s one by one )?and {together_s:.2f} s", readme)
    disk_ms = max(one["from_disk_ms_a_kernel"] for one in sixteen["sets"].values())
    assert f"a kernel from disk takes {disk_ms:.2f} ms" in readme


def test_convolution_backward(repository, readme):
    rows = json.loads((repository / "benchmarks" / "results" / "conv_backward_table.json").read_text(encoding="utf-8"))["rows"]
    graphs, singles = ([row[key] for row in rows] for key in ("graph_dual_over_graph", "dual_over_async"))
    assert f"{at_least(graphs)} to {at_most(graphs)}× faster" in readme
    assert f"one by one {at_least(singles)} to {at_most(singles)}×" in readme
    (worst,) = (row["kernels_by_cupti_us"] for row in rows if (row["layer"], row["batch"]) == ("512 to 512, 7 x 7", 256))
    assert f"{worst['graph']:.0f} µs one after the other became {worst['graph-dual']:.0f} µs together" in readme
