"""Collectives of several ranks that could wait for each other for ever are named, and right steps raise no alarm.

The wrong ones are deadlocks that users have published: NCCL #195 and #574 (two communicators, in another order on each rank),
RCCL #2179 and #2191 (no room for the channels of all), and a rank that leaves out a collective.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.capturing.test_saved import captured_of

import streamscope as ss
from streamscope.auditing.findings import Kind, Severity
from streamscope.capturing.communication import uses_links
from streamscope.capturing.memory import NodeMemory
from streamscope.devices.graph_node import Communication, GraphNode, NodeKind
from streamscope.errors import ProgramError
from streamscope.program.launch import Cost

RECORDED = Path(__file__).parents[1] / "data" / "rank_captures"
ALL, LEFT, RIGHT = "0", "left", "right"
MULTIPROCESSORS = 132


def capture(steps, ranks=(0, 1), blocks=16, symbol=""):
    """Return captured code of steps such as ``"k"`` for a kernel or ``("all_reduce", group, bytes, stream)`` on some streams."""
    nodes, last, places = [], {}, []
    for number, step in enumerate(steps):
        kind, group, nbytes, stream = (*step, 0)[:4] if isinstance(step, tuple) else ("", "", 0, 0)
        after = tuple({last[one] for one in (stream, 0) if one in last} if not kind or stream not in last else {last[stream]})
        communication = Communication(kind, group, tuple(ranks), nbytes, len(places)) if kind else None
        places += [number] if kind else []
        shape = (blocks, 1, 1), (512, 1, 1)
        nodes.append(GraphNode(NodeKind.KERNEL, "kernel", after, *shape, where="step.py:7", communication=communication))
        last[stream] = number
    nodes[-1] = replace(nodes[-1], symbol=symbol)
    memories = [NodeMemory((uses_links(),) if node.communication else ()) for node in nodes]
    return captured_of(nodes, memories, [Cost(0, blocks=blocks, threads=512, alone_ns=1000.0)] * len(nodes))


def deadlocks(*steps, **options):
    """Return the deadlocks that an audit of ranks names."""
    return ss.audit([capture(each, **options) for each in steps], progress=False).of(Kind.DEADLOCK)


DATA_PARALLEL = ["k", "k", *[("all_reduce", ALL, 1024 * layer) for layer in range(1, 4)], "k"]
TENSOR_PARALLEL = ["k", ("all_reduce", ALL, 256), "k", ("all_reduce", ALL, 256), "k"]
TWO_GROUPS = ["k", ("all_reduce", LEFT, 256), "k", ("all_gather", RIGHT, 64), "k"]
TWO_STREAMS = ["k", ("all_reduce", LEFT, 256, 1), ("all_gather", RIGHT, 64, 2), "k"]


@pytest.mark.parametrize("steps", [DATA_PARALLEL, TENSOR_PARALLEL, TWO_GROUPS, TWO_STREAMS], ids=["data", "tensor", "2", "2 streams"])
@pytest.mark.parametrize("count", [2, 4])
def test_right_steps_raise_no_alarm(steps, count):
    assert deadlocks(*[steps] * count, ranks=range(count)) == ()


@pytest.mark.parametrize("case", ["dp-2048x8", "tp-256", "fsdp2"])
def test_steps_that_were_captured_on_two_gpus_raise_no_alarm(case):
    """By `benchmarks/collective_orders.py`. All nodes are understood. Of another step on the other rank, both collectives are named."""
    ranks = [ss.load_captured(RECORDED / f"{case}.rank{rank}.captured.json") for rank in range(2)]
    assert ss.audit(ranks, progress=False).of(Kind.DEADLOCK) == ()
    assert not any(one.certificate().unknown for one in ranks)
    other = ss.load_captured(RECORDED / f"{'tp-256' if case != 'tp-256' else 'dp-2048x8'}.rank1.captured.json")
    (found,) = ss.audit([ranks[0], other], progress=False).of(Kind.DEADLOCK)
    assert found.message.startswith("Number 1 of group '0' is all_")
    assert found.advice.startswith("let each rank run the same step")
    assert "different steps" in found.advice


def test_groups_in_different_orders_wait_for_each_other():
    """NCCL #195 and #574."""
    (found,) = deadlocks(TWO_GROUPS, ["k", ("all_gather", RIGHT, 64), "k", ("all_reduce", LEFT, 256), "k"])
    assert found.severity is Severity.ERROR
    assert found.message == (
        "Ranks run collectives of several groups in different orders: all_reduce of 256 bytes over group 'left' of 2 ranks (step.py:7) on "
        "rank 0 and all_gather of 64 bytes over group 'right' of 2 ranks (step.py:7) on rank 0 wait for each other."
    )


def test_a_circle_over_three_ranks_is_seen():
    def pair(one, two):
        return [("all_reduce", one, 8), ("all_reduce", two, 8)]

    pairs = ((("a", "b"), (0, 1)), (("b", "c"), (1, 2)), (("c", "a"), (0, 2)))
    first, second, third = (capture(pair(*names), ranks) for names, ranks in pairs)
    found = ss.audit([first, second, third], progress=False).of(Kind.DEADLOCK)
    assert found


@pytest.mark.parametrize("blocks", [66, 67])
def test_groups_side_by_side_need_room_for_all_their_channels(blocks):
    """RCCL #2179 and #2191: two groups on two streams, whose channels fit together, or do not."""
    found = deadlocks(TWO_STREAMS, TWO_STREAMS, blocks=blocks)
    assert bool(found) is (2 * blocks > MULTIPROCESSORS)
    assert all(f"They hold {2 * blocks} multiprocessors, and there are {MULTIPROCESSORS}" in one.message for one in found)


@pytest.mark.parametrize("symbol", ["", "one_shot_all_reduce_kernel<float>"])
def test_an_order_of_ours_keeps_them_in_a_row_where_there_is_no_room(symbol):
    """Two groups, or one and a kernel that spins on the memory of peers."""
    steps = TWO_STREAMS if not symbol else ["k", ("all_reduce", LEFT, 256, 1), "k"]
    captured = [capture(steps, blocks=blocks, symbol=symbol) for blocks in (66, 67)]
    last = len(steps) - 1 if symbol else 2
    assert [1 in one.certificate().order[last] for one in captured] == [False, True]
    assert all(one.nodes[last].after == (0,) for one in captured)


def test_one_stream_needs_no_room_for_two():
    assert deadlocks(TWO_GROUPS, TWO_GROUPS, blocks=100) == ()


def test_a_rank_that_leaves_out_a_collective_is_named():
    (found,) = deadlocks(DATA_PARALLEL, [*DATA_PARALLEL[:4], "k"])
    assert "as number 3 of its group, and rank 1 has none there: rank 0 waits for ever." in found.message


@pytest.mark.parametrize("other", [("all_gather", ALL, 256), ("all_reduce", ALL, 512)])
def test_another_collective_on_another_rank_is_named(other):
    (found,) = deadlocks(TENSOR_PARALLEL, ["k", other, "k", ("all_reduce", ALL, 256), "k"])
    assert found.message.startswith("Number 1 of group '0' is all_reduce of 256 bytes over group '0' of 2 ranks (step.py:7) on rank 0, and")


def test_collectives_of_a_group_without_an_order_are_named():
    steps = ["k", ("all_reduce", ALL, 256, 1), ("all_reduce", ALL, 256, 2)]
    (found,) = deadlocks(steps, steps)
    assert found.message.startswith("Rank 0 has no order between all_reduce of 256 bytes over group '0' of 2 ranks (step.py:7)")


def test_a_list_holds_captured_code_only():
    with pytest.raises(ProgramError, match="a list that is audited holds captured code, of one rank each"):
        ss.audit([lambda x: x])


def test_ranks_that_are_not_given_are_told():
    (found,) = ss.audit([capture(DATA_PARALLEL, ranks=range(8))] * 2, progress=False).of(Kind.DEADLOCK)
    assert found.severity is Severity.WARNING
    assert "The captures are of 2 ranks, by rank. Nothing is known of 6 ranks of group '0' from rank 2 on." in found.message
    assert "The place in the list is taken as the rank" in found.message


def test_a_capture_that_is_given_twice_is_told():
    twice = [ss.load_captured(RECORDED / "tp-256.rank0.captured.json") for _ in range(2)]
    (found,) = ss.audit(twice, progress=False).of(Kind.DEADLOCK)
    assert found.severity is Severity.WARNING
    assert found.message == "The captures of ranks 0 and 1 touch memory at the same addresses. Was one given twice?"


@pytest.mark.parametrize("places", [(0, 1, 1), (1, 0, 0)])
def test_a_capture_of_no_rank_of_its_group_is_told(places):
    """Three captures, and a group of two ranks."""
    ranks = [ss.load_captured(RECORDED / f"dp-2048x8.rank{place}.captured.json") for place in places]
    stranger, twice = ss.audit(ranks, progress=False).of(Kind.DEADLOCK)
    assert {stranger.severity, twice.severity} == {Severity.WARNING}
    assert stranger.message.startswith("Capture 3 of the list is taken as rank 2's, which is not in its group '0' of 2 ranks.")
    assert "Was one given twice?" in twice.message


def test_ranks_that_agree_are_told():
    """The audit of rank 0 alone says nothing of the kind."""
    ranks = [ss.load_captured(RECORDED / f"dp-2048x8.rank{rank}.captured.json") for rank in range(2)]
    said = "2 ranks: 8 collectives of group '0', the same in the same order on each rank of a group. None waits for ever."
    assert ss.audit(ranks, progress=False).compared == said
    assert said in str(ss.audit(ranks, progress=False))
    assert ss.audit(ranks[0], progress=False).compared == ss.audit([ranks[0], ranks[0]], progress=False).compared == ""


def test_many_groups_that_agree_are_counted():
    steps = ["k", *[("all_reduce", f"g{number}", 8) for number in range(6)]]
    compared = ss.audit([capture(steps)] * 2, progress=False).compared
    assert compared.startswith("2 ranks: 1 collective of group 'g0', ")
    assert "1 collective of group 'g3' and 2 other groups, the same" in compared
    assert ss.audit([capture(["k"])] * 2, progress=False).compared == "2 ranks, without collectives."
