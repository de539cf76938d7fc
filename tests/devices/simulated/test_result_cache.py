"""The result cache: the same results without computing them again, and never for other inputs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import streamscope as ss
from streamscope.devices.simulated import SimulatedDevice
from streamscope.devices.simulated.result_cache import EXPENSIVE_FLOPS, ResultCache
from streamscope.engines.prepared import prepare_traced
from streamscope.program.launch import Cost, Launch, LaunchKind

COSTLY = Launch(0, 0, "costly", LaunchKind.KERNEL, (0,), (1,), Cost(8, int(EXPENSIVE_FLOPS)), None)
FLOATS = hnp.arrays(np.float64, st.integers(0, 3), elements=st.sampled_from([0.0, -0.0, 1.0, np.nan, np.inf]))


class Reference:
    """Counts its calls, and tells zeros and NaN apart by their bits."""

    def __init__(self):
        self.calls = 0

    def __call__(self, arrays):
        self.calls += 1
        return [np.concatenate([array.view(np.uint64) + 1 for array in arrays])]


def bits(arrays):
    return [array.tobytes() for array in arrays]


@given(st.lists(st.tuples(st.sampled_from([0, 1]), FLOATS), max_size=12), st.sampled_from([0, 64, 1 << 20]))
def test_results_are_those_of_the_reference(calls, most_bytes):
    cache, launches = ResultCache(most_bytes), [COSTLY, replace(COSTLY, part=1)]
    for which, array in calls:
        expected = Reference()([array])
        assert bits(cache.results(launches[which], Reference(), [array])) == bits(expected)
        assert cache.nbytes <= most_bytes


def test_the_same_inputs_are_not_computed_again():
    cache, reference, x = ResultCache(), Reference(), np.arange(4.0)
    first = cache.results(COSTLY, reference, [x])
    again = cache.results(COSTLY, reference, [x.copy()])
    assert (reference.calls, bits(first)) == (1, bits(again))
    # What is kept is a copy: memory is written over between runs.
    x += 1
    cache.results(COSTLY, reference, [x])
    assert reference.calls == 2
    cache.results(COSTLY, reference, [np.array([0.0, 1.0, 2.0, -3.0])])
    assert reference.calls == 3


def test_what_is_cheap_is_computed_each_time():
    for cost in (replace(COSTLY.cost, flops=int(EXPENSIVE_FLOPS) - 1), replace(COSTLY.cost, bytes=int(EXPENSIVE_FLOPS))):
        cache, reference = ResultCache(), Reference()
        for _ in range(3):
            cache.results(replace(COSTLY, cost=cost), reference, [np.arange(4.0)])
        assert (reference.calls, cache.nbytes) == (3, 0)


def test_the_launch_that_was_not_asked_for_longest_is_forgotten_first():
    cache, x = ResultCache(most_bytes=2 * (32 + 32)), np.arange(4.0)
    launches = [replace(COSTLY, operation=number) for number in range(3)]
    references = [Reference() for _ in launches]
    for which in (0, 1, 0, 2, 0, 1):
        cache.results(launches[which], references[which], [x])
    assert [reference.calls for reference in references] == [1, 2, 1]


@pytest.mark.parametrize("engine", ["async", "graph-dual"])
def test_numbers_flow_all_the_same(engine):
    """A missing wait still gives wrong numbers, and a right run after it right ones."""

    @ss.program
    def step(a, b):
        return ss.ops.matmul(ss.ops.matmul(a, b), b)

    random = np.random.default_rng(0)
    inputs = [random.standard_normal((128, 128)).astype(np.float32) for _ in range(2)]
    device = SimulatedDevice()
    prepared = prepare_traced(step.trace(*inputs), engine, device)
    for scale in (1, 2, 1):
        prepared.load([scale * inputs[0], inputs[1]])
        for _ in range(3):
            prepared.run()
            np.testing.assert_allclose(prepared.outputs()[0], scale * (inputs[0] @ inputs[1]) @ inputs[1], rtol=1e-4)
    broken = inputs[0].copy()
    broken[3, 5] = np.nan
    prepared.load([broken, inputs[1]])
    prepared.run()
    assert np.isnan(prepared.outputs()[0][3]).all()
