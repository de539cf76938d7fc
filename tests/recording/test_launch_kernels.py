"""The kernels of one launch: where they lie in it, and what of its cost each gets."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamscope.devices.simulated import SimulatedDevice
from streamscope.engines.binding import BoundStep
from streamscope.engines.plan import Issue
from streamscope.engines.prepared import prepare_traced
from streamscope.errors import DeviceError
from streamscope.program.launch import Cost, Launch, LaunchKind
from streamscope.recording.launch_kernels import LaunchKernel, add_pieces, in_graph, in_order, pieces_of, stretched
from streamscope.recording.timed_run import steps_of
from streamscope.trace.spans import Basis, SpanBuilder, SpanKind
from streamscope.workloads import WORKLOADS

LENGTHS = st.lists(st.floats(0, 1e6), min_size=1, max_size=6)
TIMES = st.floats(0, 1e7)


def launch(cost: Cost, **others: object) -> Launch:
    return Launch(3, 1, "matmul", LaunchKind.KERNEL, (), (), cost, None, **others)


def pieces(count: int) -> list[LaunchKernel]:
    return [LaunchKernel(SpanKind.KERNEL, symbol=f"kernel {number}") for number in range(count)]


def prepared(name: str = "elementwise-chain", **settings: int):
    function, inputs = WORKLOADS[name].build(**settings)
    made = prepare_traced(function.trace(*inputs), "async", SimulatedDevice())
    made.load(inputs)
    for _ in range(2):
        made.run()
        made.wait()
    return made


def test_kernels_keep_their_lengths_and_gaps_share_the_rest():
    found = in_order(pieces(3), [10, 20, 30], 70)
    assert [(one.start_ns, one.end_ns) for one in found] == [(0, 10), (15, 35), (40, 70)]
    assert [one.symbol for one in found] == ["kernel 0", "kernel 1", "kernel 2"]


def test_kernels_that_take_longer_alone_are_scaled_to_the_launch():
    found = in_order(pieces(2), [30, 90], 60)
    assert [(one.start_ns, one.end_ns) for one in found] == [(0, 15), (15, 60)]


@given(LENGTHS, TIMES)
def test_kernels_follow_each_other_within_the_launch_and_are_never_longer_than_alone(alone, whole):
    found = in_order(pieces(len(alone)), alone, whole)
    times = np.array([(one.start_ns, one.end_ns) for one in found])
    assert (np.diff(times.ravel()) >= -1e-6 * whole).all()
    assert times[0, 0] == 0
    assert times[-1, 1] <= whole * (1 + 1e-9)
    assert ((times[:, 1] - times[:, 0]) <= np.array(alone) * (1 + 1e-9) + 1e-6).all()
    if len(alone) > 1:
        assert times[-1, 1] == pytest.approx(whole)


@given(LENGTHS, TIMES, st.floats(0, 1e9), TIMES)
def test_stretched_pieces_fill_the_span_of_their_launch(alone, whole, start, length):
    found = stretched(in_order(pieces(len(alone)), alone, whole), start, start + length)
    assert found[0].start_ns == pytest.approx(start)
    assert found[-1].end_ns == pytest.approx(start + length)
    assert all(one.end_ns <= other.start_ns + 1 for one, other in pairwise(found))


@given(LENGTHS, st.integers(0, 10**12), st.integers(0, 10**12))
def test_bytes_and_flops_of_a_launch_are_shared_out_whole(alone, nbytes, flops):
    builder = SpanBuilder(["host", "main"])
    add_pieces(builder, launch(Cost(nbytes, flops)), "main", 7, in_order(pieces(len(alone)), alone, sum(alone)), Basis.PLACED)
    spans = builder.build()
    assert (int(spans.bytes.sum()), int(spans.flops.sum())) == (nbytes, flops)
    assert set(zip(spans.operation.tolist(), spans.part.tolist(), spans.correlation.tolist(), strict=True)) == {(3, 1, 7)}
    assert sorted(spans.names[code] for code in spans.symbol) == [f"kernel {number}" for number in range(len(alone))]


def test_a_graph_s_nodes_are_given_to_the_launches_that_made_them():
    found = in_graph({0: tuple(pieces(2)), 3: tuple(pieces(1)), 4: tuple(pieces(2))}, [0, 0, 2, 3, 4], graph=5)
    assert [[one.graph_node for one in found[index]] for index in (0, 3, 4)] == [[5 << 32, (5 << 32) + 1], [(5 << 32) + 3], [-1, -1]]


def test_a_launch_of_one_kernel_is_one_piece_with_its_grid():
    made = prepared(length=2, size=256)
    steps = steps_of(made)
    found = pieces_of(made, steps, dict.fromkeys(range(len(steps)), 5.0), pytest.fail)
    for index, bound in enumerate(steps):
        assert isinstance(bound.step, Issue)
        (piece,) = found[index]
        cost = bound.step.launch.cost
        assert (piece.kind, piece.start_ns, piece.end_ns, piece.blocks, piece.threads) == (SpanKind.KERNEL, 0, 5, cost.blocks, cost.threads)


@pytest.mark.parametrize("refused", ["marked", "raised"])
def test_a_launch_that_cannot_be_captured_is_one_span_with_a_note(refused):
    made = prepared(length=1, size=256)
    (bound, *_) = steps_of(made)

    def broken() -> None:
        raise DeviceError("it waits for the device")

    if refused == "marked":
        step, call = Issue(launch(Cost(8), capturable=False, why_not="it waits for the device"), 0), bound.call
    else:
        step, call = Issue(launch(Cost(8)), 0), broken
    for _ in range(2):
        found = pieces_of(made, [BoundStep(step, call, bound.stream)], {0: 5.0}, pytest.fail)
    assert [(one.kind, one.end_ns, one.symbol) for one in found[0]] == [(SpanKind.KERNEL, 5, "")]
    (note,) = made.notes
    assert note.startswith("1 launch shown as one span each (matmul): ")
    assert note.endswith("it waits for the device")
    made.run()  # no stream is left capturing
    made.wait()
