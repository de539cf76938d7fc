"""Who made collectives late, and why: the planted cause is named, and none where there is none."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.ranks.jobs import REDUCE, pipeline, planted, rows_of, with_rows

from streamscope.ranks.job import Job
from streamscope.ranks.rank import Rank
from streamscope.trace import Collectives, DeviceInfo, SpanTable, Trace, TraceInfo

CASES = {
    "always": (lambda step, at: (1, 310) if at == 2 else None, "kernel", "k2", "persistent", 12),
    "every kernel": (lambda step, at: (1, 60), "slow GPU", "", "persistent", 36),
    "once": (lambda step, at: (1, 4_000) if (step, at) == (5, 1) else None, "kernel", "k1", "once", 1),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("count", [2, 4])
def test_the_planted_cause_is_named_first(case, count):
    slow, cause, where, pattern, times = CASES[case]
    found = Job.of(planted(count, slow=slow).ranks).late
    assert [(late.rank, late.cause, late.where, late.pattern, late.times) for late in found] == [(1, cause, where, pattern, times)]


def test_one_that_moves_is_named_on_each_rank():
    found = Job.of(planted(4, slow=lambda step, at: (step % 4, 400) if at == 1 else None).ranks).late
    assert sorted(late.rank for late in found) == [0, 1, 2, 3]
    assert {(late.cause, late.where, late.pattern, late.times) for late in found} == {("kernel", "k1", "moving", 3)}


@settings(max_examples=20, deadline=None)
@given(st.integers(2, 6), st.integers(0, 2**32), st.sampled_from([1.0, 5.0, 20.0]))
def test_no_cause_is_named_where_there_is_none(count, seed, jitter_us):
    assert Job.of(planted(count, seed=seed, jitter_us=jitter_us).ranks).late == ()


def test_a_little_lateness_that_repeats_is_told_by_its_median():
    """45 µs are fewer than six times the scatter, and 24 of them are not."""
    found = Job.of(planted(5, 24, seed=4, jitter_us=10, slow=lambda step, at: (3, 45) if at == 1 else None).ranks).late
    assert [(late.rank, late.cause, late.where, late.pattern) for late in found] == [(3, "kernel", "k1", "persistent")]
    assert 30 < found[0].median_us < 60


def test_one_clear_moment_is_told():
    """It costs 8 % of a step and 2 % of the time, and is 20 times what ranks scatter by."""
    (late,) = Job.of(planted(4, 4, jitter_us=1, slow=lambda step, at: (2, 80) if (step, at) == (2, 1) else None).ranks).late
    assert (late.rank, late.cause, late.where, late.pattern) == (2, "kernel", "k1", "once")


def test_of_three_ranks_a_late_one_does_not_make_the_others_look_early():
    found = Job.of(planted(3, 20, jitter_us=15, slow=lambda step, at: (1, 60)).ranks).late
    assert [(late.rank, late.cause, late.pattern) for late in found] == [(1, "slow GPU", "persistent")]


def test_a_rank_that_cannot_be_matched_does_not_hide_the_others():
    """Rank 3 reduces other sizes than the others: of another run, perhaps. It is named, and the others are compared without it."""
    ranks = planted(4, slow=lambda step, at: (1, 310) if at == 2 else None, numbered=False).ranks
    trace = ranks[3].trace
    other = replace(trace, collectives=replace(trace.collectives, nbytes=trace.collectives.nbytes + 1))
    job = Job.of([*ranks[:3], replace(ranks[3], trace=other)])
    assert [(late.rank, late.where, late.times) for late in job.late] == [(1, "k2", 12)]
    assert job.to_dict()["collectives"] == {"matched": 36, "unmatched": 36, "by": {"order": 36}}
    assert any("36 of rank 3" in warning for warning in job.warnings)


def with_calls(rank, *calls):
    """Return a rank with calls of the host before each ``k1``: name, and how long before it they begin and end."""
    rows = rows_of(rank)
    begins = [row[3] for row in rows if row[1] == "k1"]
    return with_rows(
        rank, rows + [("HOST", name, "host", begin - before, begin - after) for begin in begins for name, before, after in calls]
    )


def test_a_late_host_is_the_cause_with_its_call_where_one_explains_it():
    job = planted(3, idle=lambda step, at: (2, 300) if at == 1 else None)
    (late,) = Job.of(job.ranks).late
    assert (late.rank, late.cause, late.where) == (2, "host late", "k1")
    (late,) = Job.of([*job.ranks[:2], with_calls(job.ranks[2], ("load batch", 290_000, 10_000))]).late
    assert (late.rank, late.cause, late.where) == (2, "host call", "load batch")
    assert "the cause is load batch on the host" in late.words


def test_a_watchdog_and_a_wait_for_the_gpu_are_no_causes():
    job = planted(3, idle=lambda step, at: (2, 300) if at == 1 else None)
    rows = rows_of(job.ranks[2])
    calls = []
    for number, (kind, name, lane, begin, end) in enumerate(rows):
        rows[number] = (kind, name, lane, begin, end, number)
        calls.append(("LAUNCH", "cudaLaunchKernel", "host", begin - 400, begin - 300, number))
        if name == "k1":
            calls.append(("SYNC", "cudaDeviceSynchronize", "host", begin - 290_000, begin - 10_000))
            calls.append(("API", "cudaEventQuery", "host 2", begin - 290_000, begin - 10_000))
    (late,) = Job.of([*job.ranks[:2], with_rows(job.ranks[2], rows + calls)]).late
    assert (late.rank, late.cause, late.where) == (2, "host late", "k1")


def test_more_work_is_told_from_slower_work():
    job = planted(3, slow=lambda step, at: (0, 250) if at == 0 else None)
    rows = []
    for kind, name, lane, begin, end in rows_of(job.ranks[0]):
        middle = begin + 200_000 if name == "k0" else end
        rows += [(kind, name, lane, begin, middle), *([(kind, "augment", lane, middle, end)] if middle < end else [])]
    more = with_rows(job.ranks[0], rows)
    (late,) = Job.of([more, *job.ranks[1:]]).late
    assert (late.rank, late.cause, late.where) == (0, "more work", "augment")
    assert late.share_of_step == pytest.approx(250 / 1250, abs=0.03)


def test_a_rank_that_waited_for_another_one_is_not_named():
    """Ranks 0 and 1, and 2 and 3, reduce together; then all do. Rank 3 is slow, and rank 2 is late for all because of it."""
    pairs = planted(4, 10, groups=((0, 1), (2, 3)), offset_s=0, ppm=0, slow=lambda step, at: (3, 300) if at == 1 else None)
    found = Job.of([replace(rank, host="a") for rank in pairs.ranks])
    (late,) = found.late
    assert (late.rank, late.cause, late.where, late.times) == (3, "kernel", "k1", 10)


def test_the_cost_is_what_the_others_wait():
    job = Job.of(planted(3, slow=lambda step, at: (2, 300) if at == 1 else None).ranks)
    assert job.late[0].cost_us == pytest.approx(12 * 300, rel=0.05)
    assert job.late[0].share_of_step == pytest.approx(300 / 1330, abs=0.03)


@pytest.mark.parametrize("count", [4, 12])
def test_the_share_of_steps_counts_what_lies_in_steps_that_are_known(count):
    """Steps that are found by repetition leave out the first one."""
    made = planted(2, count, offset_s=0, ppm=0, slow=lambda step, at: (1, 300) if at == 1 else None)
    job = Job.of([replace(rank, host="one") for rank in made.ranks])
    assert (job.steps.by, len(job.steps)) == ("repetition", count - 1)
    assert job.late[0].share_of_step == pytest.approx(300 / 1330, abs=0.01)


def test_the_range_that_launched_the_kernel_is_named():
    job = planted(3, slow=lambda step, at: (2, 310) if at == 1 else None)
    rank = job.ranks[2]
    launched, calls = [], []
    for number, (kind, name, lane, begin, end) in enumerate(rows_of(rank)):
        launched.append((kind, name, lane, begin, end, number))
        calls.append(("LAUNCH", "cudaLaunchKernel", "host", begin - 400, begin - 300, number))
        if name == "k1":
            calls.append(("RANGE", "augment", "host ranges", begin - 450, begin - 250))
            calls.append(("RANGE", "step 3", "host ranges", begin - 460, begin + 30_000))
    (late,) = Job.of([*job.ranks[:2], with_rows(rank, launched + calls)]).late
    assert (late.cause, late.where, late.under) == ("kernel", "k1", "augment")
    assert "the kernel k1 under augment" in late.words


def beside(kernels, reduces):
    """Return a rank: kernels on one stream, all-reduces on another, each by start and end in µs, in steps of 1 ms."""
    rows, step = [], 1_000_000
    for number in range(10):
        rows.append(("range", f"step {number}", "host ranges", number * step, number * step + step - 1000))
        for lane, name, times in (("main", "k", kernels), ("nccl", REDUCE, reduces)):
            rows += [("kernel", name, lane, number * step + 1000 * begin, number * step + 1000 * end) for begin, end in times]
    return rows


def rank_of(number, rows, size=2):
    table = SpanTable.of(*sorted(rows, key=lambda row: row[3]), gpus={"main": 0, "nccl": 0})
    reduces = np.flatnonzero(table.name == table.names.index(REDUCE))
    found = Collectives.from_columns(reduces, "all_reduce", nbytes=64, ranks=size, communicator="w", sequence=range(len(reduces)))
    info = TraceInfo("kineto", "r", DeviceInfo("cuda", "NVIDIA H100"), "kineto", rank=number, world_size=size, zero_ns=0)
    return Rank(number, f"{number}.json", Trace(table, info, collectives=found))


def test_waiting_beside_computing_costs_what_it_pushes_out_from_under_it():
    """Rank 0 computes until 500 µs. Its first all-reduce waits from 100 to 450 µs, hidden; 250 µs of transfers are behind the computing."""
    others = rank_of(0, beside([(0, 500)], [(100, 550), (550, 650), (650, 750)]))
    late = rank_of(1, beside([(0, 300), (300, 400), (400, 700)], [(450, 550), (550, 650), (650, 750)]))
    (found,) = Job.of([others, late]).late
    assert (found.rank, found.pattern, found.times) == (1, "persistent", 10)
    # Exposed on rank 0 from the first all-reduce on: 500 to 750 µs; on rank 1: 700 to 750.
    assert found.cost_us == pytest.approx(10 * 200, abs=1)


def hidden(late_us, steps, jitter_us=0.0):
    """Return two ranks whose all-reduces run beside the kernels, so those behind a late one are late, too; rank 1's k0 takes longer."""
    rng, rows = np.random.default_rng(5), ([], [])
    for step in range(steps):
        took_us = rng.normal(200, jitter_us, (2, 4))
        took_us[1, 0] += late_us(step)
        ready_us = 1500.0 * step + took_us.cumsum(axis=1)
        sent_us = ready_us.max(axis=0) + 50
        for each in rows:
            each.append(("range", f"step {step}", "host ranges", 1.5e6 * step, 1.5e6 * step + 1.4e6))
        for number, layer in np.ndindex(2, 4):
            ready = 1e3 * ready_us[number, layer]
            rows[number].append(("kernel", f"k{layer}", "main", ready - 1e3 * took_us[number, layer], ready))
            free = 1e3 * sent_us[layer - 1] if layer else ready
            rows[number].append(("kernel", REDUCE, "nccl", max(ready, free), 1e3 * sent_us[layer]))
    return [rank_of(number, each) for number, each in enumerate(rows)]


@pytest.mark.parametrize(("late_us", "jitter_us"), [
    (lambda step: 100 * (step in (0, 6)), 0),  # The first of all has no stretch before it.
    (lambda step: 185 * (step % 3 == 0), 12),  # A third of the steps spreads what tells the usual scatter.
    (lambda step: 90, 12),  # The other rank is as early as this one is late, in all places.
])  # fmt: skip
def test_lateness_that_is_carried_on_is_explained_where_it_began(late_us, jitter_us):
    (late,) = Job.of(hidden(late_us, 12, jitter_us)).late
    assert (late.rank, late.cause, late.where) == (1, "kernel", "k0")


SIN, ADD = (
    f"void at::native::vectorized_elementwise_kernel<8, at::native::{functor}(at::TensorIteratorBase&)::{{lambda()#1}}>(int)"
    for functor in ("sin_kernel_cuda", "add_kernel")
)


def test_kernels_of_one_template_are_told_apart_by_their_function():
    """All kernels have one short name. Rank 1 has one more in each step."""
    symbols = {"k0": ADD, "k1": ADD, "augment": SIN}
    ranks = []
    for rank in planted(2, slow=lambda step, at: (1, 250) if at == 0 else None).ranks:
        spans, rows = rank.trace.spans, []
        for kind, name, lane, begin, end in rows_of(rank):
            parts = [(name, begin, end)]
            if name == "k0" and end - begin > 400_000:
                parts = [(name, begin, begin + 200_000), ("augment", begin + 200_000, end)]
            rows += [(kind, name, lane, *times) for name, *times in parts]
        several = with_rows(rank, rows)
        spans = several.trace.spans
        names = (*spans.names, "vectorized_elementwise_kernel", ADD, SIN)
        code = {name: names.index(text) for name, text in symbols.items()}
        symbol = np.array([code.get(spans.names[name], -1) for name in spans.name])
        name = np.where(symbol >= 0, len(spans.names), spans.name)
        ranks.append(replace(several, trace=replace(several.trace, spans=replace(spans, names=names, name=name, symbol=symbol))))
    (late,) = Job.of(ranks).late
    assert (late.rank, late.cause, late.where) == (1, "more work", "vectorized_elementwise_kernel sin_kernel_cuda")


def test_a_rank_that_is_late_in_few_steps_is_not_called_persistent():
    job = planted(2, 20, slow=lambda step, at: (1, 900) if step < 4 and at == 1 else None)
    (late,) = Job.of(job.ranks).late
    assert (late.pattern, late.times) == ("moving", 4)
    assert "late now and then, in 4 of 60" in late.words


def held_up(pace, *, sleeps_us=0.0, augment_us=0.0, once_us=0.0):
    """Return ranks whose hosts hold up their GPUs: each launches five kernels of 20 µs, an all-reduce behind them, and waits for that.

    ``pace``: of each host, µs between launches. The last rank's host sleeps in each step or once, and its GPU has a kernel more.
    """
    rows, now = [[] for _ in pace], 0.0
    for step in range(8):
        ready_us = []
        for number, gap_us in enumerate(pace):
            last = number == len(pace) - 1
            call_us = now + last * (sleeps_us + once_us * (step == 4))
            free_us, names = now, ["augment"] * (last and augment_us > 0) + [f"k{at}" for at in range(5)]
            for at, name in enumerate([*names, REDUCE]):
                call_us += gap_us
                begin_us, key = max(call_us, free_us), 10 * step + at
                free_us = begin_us + (augment_us if name == "augment" else 20)
                rows[number].append(("launch", "cudaLaunchKernel", "host", 1e3 * call_us - 3000, 1e3 * call_us - 1000, key))
                if name != REDUCE:
                    rows[number].append(("kernel", name, "main", 1e3 * begin_us, 1e3 * free_us, key))
            ready_us.append((begin_us, key))
        end_us = max(begin_us for begin_us, _ in ready_us) + 30
        for each, (begin_us, key) in zip(rows, ready_us, strict=True):
            each.append(("kernel", REDUCE, "nccl", 1e3 * begin_us, 1e3 * end_us, key))
            each.append(("range", f"step {step}", "host ranges", 1e3 * now, 1e3 * end_us))
            each.append(("sync", "cudaDeviceSynchronize", "host", 1e3 * begin_us, 1e3 * end_us))
        now = end_us + 10
    return Job.of([rank_of(number, each, len(pace)) for number, each in enumerate(rows)])


class TestJobsThatHostsHoldUp:
    @pytest.mark.parametrize("pace", [(50, 90), (50, 60, 100)])
    def test_the_pace_of_a_host_is_no_lateness_of_its_rank(self, pace):
        job = held_up(pace)
        assert job.late == ()
        assert f"No rank is late by what it does, but by the pace of its host. Rank {len(pace) - 1} is late in 8 of 8" in job.verdict

    def test_a_simulated_host_that_launches_for_all_is_not_told_to_be_recorded(self):
        ranks = held_up((50, 90)).ranks
        info = ranks[0].trace.info
        info = replace(info, device=replace(info.device, kind="simulated"))
        job = Job.of([replace(rank, trace=replace(rank.trace, info=replace(info, rank=rank.number))) for rank in ranks])
        assert job.late == ()
        assert job.verdict.startswith("No rank is late by what it does. Rank 1 is late in 8 of 8")
        assert job.verdict.endswith("One simulated host launches for all ranks, and for this one last.")
        info = replace(info, device=replace(info.device, details={"predicted_from": "cuda"}))
        predicted = Job.of([replace(rank, trace=replace(rank.trace, info=info)) for rank in job.ranks])
        assert "Its host launches everything more slowly." in predicted.verdict

    def test_a_host_that_sleeps_is_late_whatever_its_pace(self):
        (late,) = held_up((50, 60), sleeps_us=400).late
        assert (late.rank, late.cause, late.pattern) == (1, "host late", "persistent")

    def test_a_host_that_stumbles_once_is_no_slow_one(self):
        (late,) = held_up((50, 90), once_us=3000).late
        assert (late.rank, late.cause, late.pattern, late.times) == (1, "host late", "once", 1)

    def test_more_work_of_a_gpu_is_told_where_another_rank_s_host_hides_it(self):
        """The host of rank 0 needs 540 µs for a step, and the GPU of rank 1 has 100 µs more to do meanwhile."""
        job = held_up((90, 50), augment_us=100)
        (late,) = job.late
        assert (late.rank, late.cause, late.where, late.pattern) == (1, "more work", "augment", "hidden")
        assert (late.times, late.share_of_step, late.cost_us, late.median_us) == (0, 0.0, 0.0, pytest.approx(100, rel=0.02))
        assert job.verdict.startswith("Rank 1 has 100 µs more to do in each step than other ranks, but the others do not wait for that")


class TestPipelines:
    def test_stages_that_wait_for_each_other_are_not_late(self):
        assert Job.of(pipeline()).late == ()

    def test_a_slow_stage_is_named(self):
        (late,) = Job.of(pipeline(100)).late
        assert (late.rank, late.cause, late.where, late.pattern) == (1, "kernel", "backward", "persistent")

    def test_waiting_in_bubbles_is_no_cost_of_a_late_stage(self):
        job = Job.of(pipeline(100))
        assert len(job.steps) > 2
        assert job.late[0].share_of_step is None
        assert "costs" not in job.verdict
        assert "Without that" not in job.verdict

    @pytest.mark.parametrize("slow_us", [0, 100])
    def test_nobody_is_late_in_messages_that_do_not_say_which_way_they_went(self, slow_us):
        """Each stage waits for the first message of the other in each step: by that alone, both would be late."""
        found = Job.of(pipeline(slow_us, told=False))
        assert found.late == ()
        assert found.verdict == "Messages do not say which way they went, so nothing tells who waited for whom."
        assert found.warnings == ("80 messages without a direction: they join no clocks, and no rank is called late in them",)
        (alone,) = Job.of(pipeline(slow_us, told=False)[:1]).warnings  # Of one rank there is nothing to match.
        assert re.fullmatch("not matched: send_recv.*, since the file does not say who exchanges messages, as inside CUDA graphs", alone)
