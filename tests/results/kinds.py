"""One result of each kind, small, by the name of its view."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from tests.parallelising.gains import gain
from tests.ranks.jobs import planted

import streamscope as ss
from streamscope.compiling.compare_compilation import CompilationComparison
from streamscope.compiling.tuning import TunedKernel, Tuning
from streamscope.devices.graph_node import GraphNode, NodeKind
from streamscope.engines.graphs import GraphView
from streamscope.kernels.compile.compilation_log import CompilationLog, CompileStage, KernelRecord, StageTime
from streamscope.kernels.compile.kernel_cache import Origin
from streamscope.kernels.form import DEFAULT, Variant
from streamscope.parallelising.calls import Calls
from streamscope.parallelising.parallelised import Parallelised
from streamscope.ranks.job import Job
from streamscope.trace import Allocation, Allocations

CAPTURED = Path(__file__).parents[2] / "notebooks/recorded/captured/mixture_of_experts.captured.json"
X = np.ones((64, 64), np.float32)


@cache
def comparison():
    """Return a comparison whose kernels may overlap."""
    function, inputs = ss.workload("branches").build(branches=2, length=3)
    return ss.compare(function, *inputs, engines=["sync", "graph-dual"], device="simulated", progress=False)


@cache
def captured():
    """Return captured code."""
    return ss.load_captured(CAPTURED)


def log():
    """Return a log of two kernels."""
    found = CompilationLog()
    for name, origin in (("add", Origin.COMPILED), ("mul", Origin.DISK)):
        found.add_kernel(KernelRecord(name, "sm_90", origin))
        found.add_stage(StageTime(CompileStage.COMPILE, name, "host", 0, 2_000_000))
    return found


def relu(x):
    """Return the positive part."""
    return np.maximum(x, 0)


def parallelised():
    """Return parallelised code without a GPU: its gain and its comparison are those of other runs."""
    graph = GraphView("net", 0, (GraphNode(NodeKind.KERNEL, "relu"), GraphNode(NodeKind.KERNEL, "add", (0,))))
    found = Parallelised(relu, Calls(relu), "net", lambda arguments: None, recaptures=False)
    found._captures = (SimpleNamespace(gain=gain(1616, 909, 1.78), comparison=comparison(), prepared=SimpleNamespace(graphs=[graph])),)
    return found


def tuning():
    """Return a tuned kernel."""
    narrow = Variant(8, 2)
    return Tuning("NVIDIA H200", (TunedKernel("erf", ((64,), (64,)), {DEFAULT: 20_000.0, narrow: 10_000.0}, narrow),), log())


def host_totals():
    """Return the running totals of a prepared program."""
    prepared = ss.prepare(relu, X, engine="async", device="simulated", progress=False)
    prepared.host_totals.start()
    prepared.run()
    return prepared.host_totals


KINDS = {
    "advice": lambda: ss.advise(device="simulated"),
    "audit": lambda: ss.audit(lambda x: np.tanh(x) + np.exp(x), X, engine="async"),
    "captured": captured,
    "certificate": lambda: captured().certificate(),
    "choice": lambda: ss.best(np.tanh, X, device="simulated", engines="sync,async", progress=False),
    "code": lambda: ss.analysis.by_code(comparison()["sync"].trace),
    "comparison": comparison,
    "compilation": log,
    "compilation-comparison": lambda: CompilationComparison("layer", log(), log(), (2.0,) * 6),
    "diff": lambda: ss.diff(*(run.trace for run in comparison().values())),
    "graph": lambda: GraphView("net", 0, (GraphNode(NodeKind.KERNEL, "relu"), GraphNode(NodeKind.KERNEL, "add", (0,)))),
    "host-totals": host_totals,
    "job-prediction": lambda: Job.of(planted(3, 6).ranks).what_if().kernel("k1").scale(0.5),
    "memory": lambda: ss.analysis.memory(
        replace(comparison()["sync"].trace, memory=Allocations.of([Allocation(512, 10, 900, name="tanh")]))
    ),
    "metrics": lambda: comparison().metrics,
    "parallelised": parallelised,
    "prediction": lambda: ss.what_if(comparison()["sync"].trace, engine="graph"),
    "ranks": lambda: Job.of(planted(3, 6, slow=lambda step, at: (2, 310) if at == 1 else None).ranks),
    "summary": lambda: ss.analysis.summary(comparison()["sync"].trace),
    "sweep": lambda: ss.sweep("branches", {"branches": [2, 0]}, size=64, engines="async,graph", device="simulated", progress=False),
    "trace": lambda: comparison()["sync"].trace,
    "tuning": tuning,
    "verification": lambda: ss.verify(np.tanh, X, device="simulated", progress=False),
}
