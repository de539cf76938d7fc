"""Runs of captured code that prove an order, refute a wrong one, and give up one that hangs."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest

import streamscope as ss
from streamscope.devices.cuda import raw_graph
from streamscope.engines.prepared import prepare_traced
from streamscope.errors import HungError, RaceError
from streamscope.parallelising.proving import Disturbed, prove, run_watched

pytestmark = pytest.mark.gpu


def with_order(captured, order):
    """Return captured code with another order than the true one, which nothing checks."""
    operations = [
        replace(one, reads=after, work=(replace(one.launches[0], reads=after),))
        for one, after in zip(captured.program.operations, order, strict=True)
    ]
    changed = object.__new__(type(captured))  # It refuses to be copied, since it is a graph of this process.
    vars(changed).update(vars(captured))
    changed.program = replace(captured.program, operations=tuple(operations), certificate=None, raw=None)
    changed.certificate = captured.certificate
    return changed


def branches(torch):
    weights = [torch.randn(64, 64, device="cuda") for _ in range(3)]

    def net(x, rows):
        a, b = torch.relu(x @ weights[0]), torch.tanh(x @ weights[1])
        c = (x @ weights[2])[rows].cumsum(1)
        return a + b * c, c

    return ss.capture(net, torch.randn(32, 64, device="cuda"), torch.randperm(32, device="cuda"))


@pytest.mark.parametrize("engine", ["async", "dual", "graph-dual"])
def test_the_true_order_is_proved_and_inputs_are_as_before(torch, engine):
    captured = branches(torch)
    before = [value.clone() for value in captured._inputs]
    proof = prove(captured, ss.prepare(captured, engine=engine, device="cuda", progress=False), inputs=5)
    assert proof.bit_equal, proof
    assert (proof.inputs, proof.runs) == (5, 10)
    assert all(torch.equal(one, other) for one, other in zip(captured._inputs, before, strict=True))


def test_an_order_without_the_edges_to_the_last_node_is_refuted(torch):
    captured = branches(torch)
    order = [operation.reads for operation in captured.program.operations]
    wrong = with_order(captured, [*order[:-1], ()])
    with pytest.raises(RaceError):
        captured.certificate().check([*order[:-1], ()])
    sequential = ss.prepare(captured, engine="graph", device="cuda", progress=False)
    proof = prove(wrong, prepare_traced(wrong.program, "graph-dual", "cuda"), inputs=10, sequential=sequential)
    assert not proof.holds, proof


def test_a_training_step_with_dropout_and_adam_is_equal_in_each_bit(torch):
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Dropout(0.3), torch.nn.Linear(64, 8)).cuda()
    optimizer = torch.optim.Adam(model.parameters(), capturable=True)

    def step(x):
        optimizer.zero_grad(set_to_none=True)
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    captured = ss.capture(step, torch.randn(32, 64, device="cuda"))
    proof = prove(captured, ss.prepare(captured, engine="graph-dual", device="cuda", progress=False), inputs=4)
    assert proof.bit_equal, proof


def test_sums_by_atomics_are_held_to_what_the_capture_differs_from_itself(torch):
    index = torch.randint(0, 8, (100_000,), device="cuda")

    def sums(x):
        return torch.zeros(8, device="cuda").index_add_(0, index, x), x * 2

    captured = ss.capture(sums, torch.randn(100_000, device="cuda"))
    proof = prove(captured, ss.prepare(captured, engine="graph-dual", device="cuda", progress=False), inputs=3)
    assert proof.holds, proof
    assert proof.outputs[0].self_difference > 0
    assert proof.outputs[1].difference == 0


SEMAPHORE = """
extern "C" __global__ void semaphore(unsigned* inside, volatile unsigned* host)
{
    atomicAdd(inside, 1);
    for (int i = 0; i < 2000 && !host[0]; ++i) {}
    while (*(volatile unsigned*)inside > 1 && !host[0]) {}  // Waits until it is alone.
    if (!host[0]) atomicSub(inside, 1);
}
"""


@pytest.fixture
def semaphores(torch):
    """Two nodes that wait for each other if they meet, and what ends them then: nothing else can."""
    import cupy

    kernel = cupy.RawKernel(SEMAPHORE, "semaphore")
    memory = cupy.cuda.alloc_pinned_memory(64)
    host = np.frombuffer(memory, np.uint32, 16)
    host[:] = 0

    def two(inside):
        for _ in range(2):
            kernel((1,), (1,), (inside, np.uint64(memory.ptr)))
        return inside

    try:
        yield ss.capture(two, cupy.zeros(1, cupy.uint32))
    finally:
        host[0] = 1
        time.sleep(0.2)
    cupy.cuda.Device().synchronize()
    assert float(cupy.ones(3).sum()) == 3


def test_a_planted_hang_is_given_up_with_the_names_of_the_nodes(semaphores):
    wrong = with_order(semaphores, [() for _ in semaphores.nodes])
    disturbed = Disturbed(wrong.program, ss.open_device("cuda"), np.random.default_rng(0))
    disturbed.hold_back(None)
    named = semaphores.certificate().named
    with pytest.raises(HungError, match=r"under way: node \d, .* and node \d, "):
        run_watched(disturbed.prepared, 2.0, lambda: [named(number) for number in disturbed.under_way])
    assert len(disturbed.under_way) == 2


def test_an_order_of_the_captured_graph_that_hangs_when_it_is_tried_is_given_up_with_names(semaphores, monkeypatch):
    monkeypatch.setattr(raw_graph, "STUCK_S", 2.0)
    raw = semaphores.program.raw
    raw.check = lambda edges: None
    with pytest.raises(HungError, match=r"under way: node \d, .* and node \d, .* restart the kernel"):
        raw.times_us([raw.edges, ((),) * len(raw.edges)])
