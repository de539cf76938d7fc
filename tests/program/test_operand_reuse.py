"""Whether a cache can still have an operand: how much a program uses between two uses of it."""

import numpy as np
import pytest

import streamscope as ss
from streamscope.devices.cost_model import CostModel
from streamscope.program.launch import Cost

MB = 1 << 20


@ss.program
def chained(x, y):
    a = x + 1.0
    b = a + 1.0
    return b + y


def reuse(columns):
    traced = chained.trace(*[np.zeros((MB // 4, columns), np.float32)] * 2).with_reuse
    return [[(nbytes // MB, since // MB, read) for nbytes, since, read in launch.cost.reuse] for launch in traced.launches()]


def test_of_each_operand_it_is_told_what_was_used_since():
    # x, a; a, b; b, y, and the result: in each run, the four other variables come between two uses of x.
    first, then, last = map(sorted, reuse(8))
    assert first == [(8, 24, False), (8, 32, True)]
    assert then == [(8, 0, True), (8, 32, False)]
    assert last == [(8, 0, True), (8, 24, False), (8, 32, True)]


def test_of_small_programs_nobody_asks():
    assert reuse(1) == [[], [], []]


def test_bytes_that_the_cache_has_no_more_come_at_the_rate_of_memory():
    model = CostModel.load()
    kernel = {"bytes": 24 * MB, "blocks": 4096, "threads": 1024}
    warm_ns, cold_ns = (model.kernel_ns(Cost(**kernel, reuse=((16 * MB, since, False),))) for since in (30 * MB, 60 * MB))
    assert warm_ns == model.kernel_ns(Cost(**kernel))
    assert cold_ns - warm_ns == pytest.approx(16 * MB * (1 / model.memory_gb_s - 1 / model.cache_gb_s), rel=0.1)
    read_ns = model.kernel_ns(Cost(**kernel, reuse=((16 * MB, 60 * MB, True),)))
    assert 600 < read_ns - cold_ns < 700  # The latency of memory; threads' own rate shows, too.
