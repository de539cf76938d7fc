"""Dropout, the operator that B.2 of every graph engine is about: whether it can be captured depends on its attributes and its state."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import streamscope as ss
from streamscope.engines.plan import Replay
from streamscope.errors import ProgramError

X = np.arange(1, 1001, dtype=np.float32)
START = np.zeros(1, np.int32)

PHILOX = r"""
extern "C" __global__ void dropout(const float* x, float* y, const int* counter, int n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, a = i, b = counter[0], key = 7;
    for (int round = 0; round < 10; round++, key += 0x9E3779B9u) {
        unsigned long long product = 0xD256D193ull * a;
        a = (unsigned)(product >> 32) ^ key ^ b;
        b = (unsigned)product;
    }
    if (i < n) y[i] = a < 0x80000000u ? 2 * x[i] : 0;
}
extern "C" __global__ void advance(int* counter) { counter[0] += 1; }
"""
"""Philox-2x32-10 of an element's number and the number of the call; the state is advanced on the device."""


def philox(x, counter):
    """Return what the kernel makes of x."""
    a, b, key = np.arange(x.size, dtype=np.uint64), np.full(x.size, int(counter[0]), np.uint64), 7
    for _ in range(10):
        product = np.uint64(0xD256D193) * a
        a, b, key = (product >> np.uint64(32)) ^ np.uint64(key) ^ b, product & np.uint64(0xFFFFFFFF), (key + 0x9E3779B9) % 2**32
    return np.where(a < 0x80000000, 2 * x, 0).astype(np.float32)


@cache
def kernels():
    import cupy

    module = cupy.RawModule(code=PHILOX)
    return module.get_function("dropout"), module.get_function("advance")


def launch(x, y, counter):
    """Launch both kernels on the current stream."""
    dropout, advance = kernels()
    dropout((x.size // 256 + 1,), (256,), (x, y, counter, np.int32(x.size)))
    advance((1,), (1,), (counter,))


def counted_reference(x, counter, *, training):
    return (philox(x, counter), counter + 1) if training else (x, counter)


@ss.operator(reads=["x", "counter"], writes=["y", "counter"], reference=counted_reference)
def counted(x, y, counter, *, training=False):
    """Dropout with its random state in a variable: always the same for the same variables, so it is not stateful."""
    if training:
        launch(x, y, counter)
    else:
        y[...] = x


@ss.program
def with_a_counter(x, counter, *, training):
    y, after = counted(ss.ops.relu(x), counter, training=training)
    return y + 1, after


def with_a_generator(*, capturable=None):
    """Return dropout whose random state is a generator in Python, beside the variables."""
    generator = np.random.default_rng(1)

    def reference(x, *, training):
        return 2 * x * (generator.random(x.shape) < 0.5) if training else x

    @ss.operator(
        reads=["x"],
        writes=["y"],
        reference=reference,
        capturable=capturable,
        stateful=lambda attributes: attributes["training"],
        flops=10**10,  # so much that the simulated device would rather give again what it computed before
    )
    def dropout(x, y, *, training=False):
        raise AssertionError

    return dropout


def in_graphs(prepared):
    """Return the names of the operations that run in graphs, after the second run."""
    return [operation.name for segment in prepared.segments if segment.graph is not None for operation in segment.operations]


@pytest.mark.parametrize("engine", ["graph", "graph-dual"])
@pytest.mark.parametrize("device", ["simulated", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_with_its_state_in_device_memory_every_replay_has_a_mask_of_its_own(engine, device):
    prepared = ss.prepare(with_a_counter.trace(X, START, training=True), engine=engine, device=device)
    prepared.load([X, START])
    for call in range(6):
        prepared.run()
        y, counter = prepared.outputs()
        np.testing.assert_array_equal(y, philox(X, [call]) + 1)
        assert counter == call + 1
    assert in_graphs(prepared) == ["relu", "counted", "add"]
    assert prepared.notes == []


@pytest.mark.parametrize("device", ["simulated", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_a_flag_says_whether_it_drops(device):
    with ss.Engine("graph", device=device) as engine:
        counter = START
        for call in range(4):
            y, counter = engine.run(with_a_counter, X, counter, training=True)
            np.testing.assert_array_equal(y, philox(X, [call]) + 1)
            y, same = engine.run(with_a_counter, X, counter, training=False)
            np.testing.assert_array_equal(y, X + 1)
            assert same == counter
        assert engine.statistics.programs_prepared == 2


@pytest.mark.gpu
def test_state_that_no_variable_holds_is_captured_where_its_author_says_so():
    import cupy

    state = cupy.zeros(1, cupy.int32)

    @ss.operator(reads=["x"], writes=["y"], stateful=True, capturable=True)
    def dropout(x, y):
        launch(x, y, state)

    prepared = ss.prepare(ss.program(dropout).trace(X), engine="graph", device="cuda")
    prepared.load([X])
    for call in range(6):
        prepared.run()
        np.testing.assert_array_equal(prepared.outputs()[0], philox(X, [call]))
    assert in_graphs(prepared) == ["dropout"]


@pytest.mark.parametrize("training", [False, True])
def test_with_its_state_in_python_it_is_captured_only_where_it_passes_on_its_input(training):
    dropout = with_a_generator()

    @ss.program
    def step(x):
        return dropout(ss.ops.relu(x), training=training) + 1

    prepared = ss.prepare(step.trace(X), engine="graph", device="simulated")
    seen = set()
    for _ in range(4):
        prepared.load([X])
        prepared.run()
        seen.add(prepared.outputs()[0].tobytes())
    assert len(seen) == (4 if training else 1)
    assert in_graphs(prepared) == (["relu", "add"] if training else ["relu", "dropout", "add"])
    if training:
        (launch,) = prepared.program.operations[1].launches
        assert "stateful" in launch.why_not
        assert [isinstance(step, Replay) for step in prepared.plan.steps].count(True) == 2


def test_a_predicate_is_asked_with_the_attributes_of_each_application():
    dropout = with_a_generator(capturable=lambda attributes: attributes["training"])

    def both(x):
        return dropout(dropout(x, training=True), training=False)

    first, second = ss.program(both).trace(X).operations
    assert first.capturable
    assert not second.capturable
    assert second.launches[0].why_not == "its author declared capturable=False for training=False"


def test_results_that_depend_on_state_raise_no_alarm():
    dropout = with_a_generator()

    @ss.program
    def step(x):
        return dropout(x, training=True)

    runs = ss.compare(step, X, engines="async,graph", repeats=2, device="simulated", progress=False)
    assert all(run.correct and np.isnan(run.max_abs_error) for run in runs.values())
    assert ss.audit(step, X).ok


def test_attributes_that_an_operator_does_not_have():
    @ss.operator(reads=["x"], writes=["y"], capturable=lambda attributes: "yes")
    def kernel(x, y, *, rate):
        raise AssertionError

    with pytest.raises(ProgramError, match=r"kernel has no attribute 'rat' at test_dropout\.py:\d+ \(its attributes are rate\)"):
        ss.program(lambda x: kernel(x, rat=1)).trace(X)
    with pytest.raises(ProgramError, match="kernel needs rate="):
        ss.program(kernel).trace(X)
    with pytest.raises(ProgramError, match=r"kernel: capturable= gives 'yes' at test_dropout\.py:\d+ \(return True or False\)"):
        ss.program(lambda x: kernel(x, rate=1)).trace(X)


@pytest.mark.parametrize("device", ["simulated", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_attributes_of_what_is_pushed_reach_it(device):
    with ss.Engine("async", device=device) as engine:
        x, y, counter = engine.variable(X), engine.variable(X), engine.variable(START)
        for call in range(3):
            engine.push(counted, reads=(x, counter), writes=(y, counter), training=True)
            np.testing.assert_array_equal(engine.read(y), philox(X, [call]))
        engine.push(counted, reads=(x, counter), writes=(y, counter), training=False)
        np.testing.assert_array_equal(engine.read(y), X)
        assert engine.read(counter) == 3
