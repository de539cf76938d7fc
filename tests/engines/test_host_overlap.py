"""What asynchronous issue is for: host functions and the device work at the same time, and the trace shows it."""

from __future__ import annotations

import numpy as np
import pytest

import streamscope as ss
from streamscope.analysis.intervals import intersection_ns, union
from streamscope.trace.spans import SpanKind
from streamscope.workloads import WORKLOADS


def both_ns(trace) -> tuple[int, int, int]:
    """Return for how long host functions run, the device works, and both at once, in ns."""
    spans = trace.spans

    def covered(*kinds):
        chosen = np.isin(spans.kind, kinds)
        return union(spans.start_ns[chosen], spans.end_ns[chosen])

    host, device = covered(SpanKind.HOST), covered(SpanKind.KERNEL, SpanKind.COPY)
    return host.length_ns, device.length_ns, intersection_ns(host, device)


@pytest.mark.parametrize("device", ["simulated", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_async_overlaps_host_and_device_and_sync_cannot(device):
    # Chunks so large that a copy takes about as long as the host's work on the next chunk.
    function, inputs = WORKLOADS["pipeline"].build(chunks=6, size=1 << 20)
    comparison = ss.compare(function, *inputs, engines="sync,async", repeats=3, device=device, progress=False)
    assert all(run.correct for run in comparison.values())
    host, device_ns, none = both_ns(comparison["sync"].trace)
    assert host > 0
    assert none <= 0.01 * device_ns  # Nothing but the resolution of the clocks.
    host, device_ns, overlapped = both_ns(comparison["async"].trace)
    # All but the first chunk's host work and the last chunk's device work can overlap. On a GPU how much of it does varies by half.
    possible = 5 / 6 * min(host, device_ns)
    assert overlapped > possible / (2 if device == "simulated" else 10)
    if device == "simulated":
        assert comparison["async"].metrics.makespan_us < comparison["sync"].metrics.makespan_us - overlapped / 2e3


class Opened:
    """A program whose host function opens a gate that holds the device back from what was issued before it."""

    def __init__(self, engine, device):
        @ss.host_function
        def let_go(values):
            if self.gate is not None:
                self.gate.open()
            return values + 1

        @ss.program
        def step(x, values):
            return ss.ops.relu(x), let_go(values)

        self.gate, self.inputs = None, (np.arange(-3, 3, dtype=np.float32), np.arange(3.0))
        self.prepared = ss.prepare(step.trace(*self.inputs), engine=engine, device=device)
        self.prepared.load(self.inputs)
        for _ in range(2):  # Graphs are captured.
            self.prepared.run()
            self.prepared.wait()

    def run(self):
        """Run once with the device held back, and return the results."""
        self.gate = self.prepared.device.gate()
        self.gate.hold(self.prepared.streams[0])
        self.prepared.run()
        return self.prepared.outputs()


@pytest.mark.parametrize("engine", ["async", "dual", "graph", "graph-dual"])
@pytest.mark.parametrize("device", ["simulated", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_the_host_works_while_the_device_is_held_back(engine, device):
    """By order, not by time: the device cannot end what is issued first before the host function has run."""
    opened = Opened(engine, device)
    relu, values = opened.run()
    np.testing.assert_array_equal(relu, np.maximum(opened.inputs[0], 0))
    np.testing.assert_array_equal(values, opened.inputs[1] + 1)


@pytest.mark.parametrize("device", ["simulated", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_under_sync_the_host_waits_for_the_device_first(device):
    opened = Opened("sync", device)
    with pytest.raises(ss.StreamscopeError, match="gate"):
        opened.run()
