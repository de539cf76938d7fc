"""Parts of collectives become operations by number or by order, and nothing is guessed."""

from __future__ import annotations

import importlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.ranks.jobs import planted

from streamscope.ranks.job import Job
from streamscope.ranks.matching import matched
from streamscope.ranks.rank import Rank
from streamscope.trace import Collectives, DeviceInfo, SpanTable, Trace, TraceInfo


def numbers(job, found):
    """Return the true number of each part that was matched, operation by operation."""
    parts = found.parts
    true = np.concatenate([rank.trace.collectives.sequence for rank in job.ranks])
    return [set(true[found.operation == operation].tolist()) for operation in range(len(found))], parts


@settings(max_examples=20, deadline=None)
@given(st.integers(2, 4), st.integers(0, 2**32), st.integers(0, 5), st.integers(0, 5))
def test_order_finds_what_numbers_tell_where_files_begin_at_different_moments(count, seed, lacks, lacks_too):
    job = planted(count, 6, seed=seed, missing={0: lacks, count - 1: lacks_too}, jitter_us=30)
    anonymous = [
        replace(
            rank, trace=replace(rank.trace, collectives=replace(rank.trace.collectives, sequence=np.full(len(rank.trace.collectives), -1)))
        )
        for rank in job.ranks
    ]
    by_number, by_order = matched(job.ranks, 0), matched(anonymous, 0)
    assert by_order.by == ("order",) * len(by_number)
    assert by_number.by == ("sequence",) * len(by_number)
    found, _ = numbers(job, by_order)
    assert all(len(each) == 1 for each in found)
    first = max(lacks, lacks_too)
    assert by_number.whole.sum() == by_order.whole.sum() == 18 - first
    assert by_number.unmatched == by_order.unmatched == (first if count > 2 else abs(lacks - lacks_too))


def test_ends_that_the_last_one_pulls_apart_do_not_prefer_the_wrong_shift(repository, monkeypatch):
    """Steps of this job are so even that its ends scatter less one step apart than those of one collective, of which either is the last."""
    monkeypatch.syspath_prepend(str(repository / "benchmarks"))
    case = importlib.import_module("rank_truth").Case.of(40546)
    clocks = Job.of(case.ranks).clocks
    assert abs(clocks.offset_ns - case.off_by_ns(clocks.middle_ns))[1] < 10_000


def test_what_fits_in_two_ways_is_left_out_by_name():
    """All alike, in step to the nanosecond, and one file lacks two: nothing tells which."""
    job = planted(2, 10, kernels_us=(100,), jitter_us=0, numbered=False, missing={1: 2}, ppm=0)
    even = [rank_of(each, every_ns=150_000, count=10 - 2 * at) for at, each in enumerate(job.ranks)]
    found = Job.of(even)
    assert len(found.matched) == 0
    assert found.matched.unmatched == 10
    assert "not matched: all_reduce of communicator 'w': 10 of rank 0, 8 of rank 1" in found.warnings


def rank_of(rank, *, every_ns, count, kinds=("all_reduce",), communicator="w", nbytes=(1024,), sequence=-1, length_ns=30_000, names=()):
    rows = [
        ("kernel", names[at % len(names)] if names else "ncclKernel", "nccl", at * every_ns, at * every_ns + length_ns)
        for at in range(count)
    ]
    spans = SpanTable.of(*rows)
    found = Collectives.from_columns(
        np.arange(count), [kinds[at % len(kinds)] for at in range(count)], communicator=communicator,
        nbytes=[nbytes[at % len(nbytes)] for at in range(count)], sequence=sequence, ranks=2,
    )  # fmt: skip
    return replace(rank, trace=replace(rank.trace, spans=spans, collectives=found))


def plain_rank(number):
    return Rank(number, f"rank{number}", Trace(SpanTable.of(), TraceInfo("kineto", f"r{number}", DeviceInfo("cuda", "GPU"), "kineto")))


def test_sub_groups_are_matched_each_by_itself():
    job = planted(4, 5, groups=((0, 1), (2, 3)))
    found = matched(job.ranks, 0)
    assert found.whole.sum() == 30
    assert found.unmatched == 0
    ranks = [set(found.parts.rank[found.operation == operation].tolist()) for operation in range(len(found))]
    assert ranks.count({0, 1}) == ranks.count({2, 3}) == 15


def test_sub_groups_without_numbers_are_matched_in_each_communicator():
    job = planted(4, 5, groups=((0, 1), (2, 3)), numbered=False)
    found = matched(job.ranks, 0)
    assert found.by == ("order",) * 30
    assert found.whole.all()


def test_few_operations_are_not_shifted_by_chance():
    """Steps are so even that other shifts fit within some µs, and of four ends, two lie near each other by chance."""
    for seed in range(40):
        found = matched(planted(2, 4, seed=seed, kernels_us=(300,), jitter_us=2, numbered=False, ppm=0).ranks, 0)
        assert found.operation[:4].tolist() == found.operation[4:].tolist()


def test_a_send_is_matched_with_its_receive():
    sends, receives = (
        rank_of(plain_rank(at), every_ns=50_000, count=4, kinds=(kind,), sequence=range(4)) for at, kind in enumerate(("send", "recv"))
    )
    found = matched([sends, receives], 0)
    assert found.by == ("sequence",) * 4
    assert found.whole.all()
    unnumbered = [
        replace(rank, trace=replace(rank.trace, collectives=replace(rank.trace.collectives, sequence=np.full(4, -1))))
        for rank in (sends, receives)
    ]
    assert matched(unnumbered, 0).by == ("order",) * 4


@pytest.mark.parametrize("wrong", [{"kinds": ("all_gather",)}, {"nbytes": (2048,)}])
def test_one_number_with_two_kinds_or_sizes_is_no_match(wrong):
    ranks = [
        rank_of(plain_rank(0), every_ns=50_000, count=3, sequence=range(3)),
        rank_of(plain_rank(1), every_ns=50_000, count=3, sequence=range(3), **wrong),
    ]
    found = matched(ranks, 0)
    assert len(found) == 0
    assert found.left_out


def test_a_collective_of_several_kernels_has_as_many_on_each_rank():
    ranks = [rank_of(plain_rank(at), every_ns=50_000, count=6, sequence=[0, 0, 1, 1, 2, 2]) for at in range(2)]
    assert len(matched(ranks, 0)) == 6
    fewer = rank_of(plain_rank(1), every_ns=50_000, count=5, sequence=[0, 0, 1, 1, 2])
    assert len(matched([ranks[0], fewer], 0)) == 4


def test_ranks_without_any_collective_are_a_job():
    found = Job.of([plain_rank(0), plain_rank(1)])
    assert found.to_dict()["collectives"] == {"matched": 0, "unmatched": 0, "by": {}}
    assert "No collective is in the traces of several ranks" in found.verdict


def test_messages_between_neighbours_of_one_process_group_are_matched_by_their_ends():
    """Each rank sends to the next one and gets from the one before; the group's numbers count on each rank alone."""
    ranks = []
    for at in range(3):
        kinds = [("recv", at - 1)] * (at > 0) + [("send", at + 1)] * (at < 2)
        spans = SpanTable.of(*(("kernel", "ncclDevKernel_SendRecv", "main", 10_000 * n, 10_000 * n + 9_000) for n in range(4 * len(kinds))))
        found = Collectives.from_columns(
            range(4 * len(kinds)), [kind for kind, _ in kinds] * 4, peer=[peer for _, peer in kinds] * 4,
            nbytes=64, ranks=3, communicator="0 [0, 1, 2]", sequence=range(4 * len(kinds)),
        )  # fmt: skip
        info = TraceInfo("kineto", "r", DeviceInfo("cuda", "NVIDIA H100"), "kineto", rank=at, world_size=3, zero_ns=0)
        ranks.append(Rank(at, f"{at}.json", Trace(spans, info, collectives=found)))
    found = matched(ranks, 0)
    assert found.by == ("order",) * 8
    assert found.whole.all()
    assert {text for text in found.parts.texts if "from" in text} == {"0 [0, 1, 2], from 0 to 1", "0 [0, 1, 2], from 1 to 2"}
    of_middle = found.operation[found.parts.rank == 1]
    assert found.operation[found.parts.rank == 0].tolist() == of_middle[::2].tolist()
    assert found.operation[found.parts.rank == 2].tolist() == of_middle[1::2].tolist()


def test_ends_of_messages_that_we_recorded_are_numbers_in_their_communicator():
    """Of four ranks, the odd ones and the even ones have a communicator each; the first of both sends to the second."""
    ranks = []
    for at in range(4):
        spans = SpanTable.of(*(("kernel", "ncclDevKernel_SendRecv", "main", 10_000 * n, 10_000 * n + 9_000) for n in range(3)))
        found = Collectives.from_columns(range(3), "recv" if at > 1 else "send", peer=1 - at // 2, communicator="abc"[at % 2])
        info = TraceInfo("recorded", "r", DeviceInfo("cuda", "NVIDIA H100"), "cupti", rank=at, world_size=4, zero_ns=0)
        ranks.append(Rank(at, f"{at}.parquet", Trace(spans, info, collectives=found)))
    found = matched(ranks, 0)
    assert {text for text in found.parts.texts if "from" in text} == {"a, from 0 to 2", "b, from 1 to 3"}
    assert found.whole.tolist() == [True] * 6
    assert not any("from" in text for text in matched(ranks[:3], 0).parts.texts)  # A rank is missing: who has which number is not known.
