"""Work by name: how long it takes where no communication runs beside it."""

from __future__ import annotations

import pytest

from streamscope.ranks.named_work import alone
from streamscope.ranks.rank import Rank
from streamscope.trace import DeviceInfo, SpanTable, Trace, TraceInfo


def rank_of(number, *kernels):
    spans = SpanTable.of(*(("kernel", name, lane, begin, end) for name, lane, begin, end in kernels))
    return Rank(number, f"{number}.json", Trace(spans, TraceInfo("kineto", "r", DeviceInfo("cuda", "NVIDIA H100"), "kineto")))


def test_kernels_that_communication_slows_take_as_long_as_alone():
    """On rank 1, the second `gemm` runs beside a collective that waits. `norm` runs alone on rank 0 only, and `add` nowhere."""
    beside = ("nccl_all_reduce", "nccl", 100, 300)
    first = rank_of(0, ("gemm", "main", 0, 40), ("norm", "main", 50, 60), ("add", "main", 100, 110), beside, ("gemm", "main", 300, 342))
    second = rank_of(1, ("gemm", "main", 0, 50), ("gemm", "main", 100, 190), ("norm", "main", 190, 230), ("add", "main", 230, 260), beside)
    found = alone([first, second], [(0, 400), (0, 400)])
    assert [each.ns for each in found] == [{"gemm": 84, "norm": 10, "add": 20}, {"gemm": 100, "norm": 10, "add": 20}]
    assert found[0].noise_ns == pytest.approx(2 * 1.253 / 1.349 * (42 - 40) / 2**0.5)  # Of a median of two, twice.
    assert found[1].excess(found[:1]) == {"gemm": 16, "norm": 0, "add": 0}
    assert alone([first], [(45, 105)])[0].counts == {"norm": 1, "add": 1}
