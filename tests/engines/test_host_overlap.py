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
    comparison = ss.compare(function, *inputs, engines="sync,async", repeats=10, device=device, progress=False)
    assert all(run.correct for run in comparison.values())
    host, device_ns, none = both_ns(comparison["sync"].trace)
    assert host > 0
    assert none <= 0.01 * device_ns  # Nothing but the resolution of the clocks.
    host, device_ns, overlapped = both_ns(comparison["async"].trace)
    # All but the first chunk's host work and the last chunk's device work can overlap.
    possible = 5 / 6 * min(host, device_ns)
    assert overlapped > possible / 2
    assert comparison["async"].metrics.makespan_us < comparison["sync"].metrics.makespan_us - overlapped / 2e3
