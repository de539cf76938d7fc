"""Event waits that files do not tell: found where all steps and ranks agree, and nowhere else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.ranks.simulated_jobs import Step
from tests.ranks.test_what_if import rank_of

from streamscope.ranks.event_waits import inferred_waits
from streamscope.ranks.job import Job
from streamscope.trace import Collectives, DeviceInfo, SpanTable, Trace, TraceInfo

LAYERS, COMPUTE, TRANSFER, STEPS = 4, 100, 60, 5


def untold(rank):
    return replace(
        rank, trace=replace(rank.trace, origins=replace(rank.trace.origins, row_waits=np.zeros((0, 2), np.int32), complete=False))
    )


def named(trace, pairs):
    """Return waits by the names of spans."""
    words = [[trace.spans.names[code] for code in trace.spans.name[rows].tolist()] for rows in pairs]
    return list(zip(*words, strict=True))


def graph_replays(late_us, *, more=0):
    """Return two ranks that replay a graph: each layer's gradient is reduced beside the next layer; rank 1 launches ``late_us`` later.

    Rank 1's graph has ``more`` kernels at its begin. The all-reduces of a layer begin with its gradient, or with the one before.
    """
    ranks = []
    for number in range(2):
        rows, begin = [], 0
        for step in range(STEPS):
            launched = [begin + (late_us if rank else 0) for rank in range(2)]
            starts = [at + 10 + (more * 5 if rank else 0) for rank, at in enumerate(launched)]
            own = launched[number]
            rows.append(("graph_launch", "graph", "host", own, own + 5, step))
            rows += [("kernel", "sin", "main", own + 10 + 5 * at, own + 15 + 5 * at, step) for at in range(more if number else 0)]
            ended = [0, 0]
            for layer in range(LAYERS):
                ready = [at + (layer + 1) * COMPUTE for at in starts]
                rows.append(("kernel", f"k{layer}", "main", ready[number] - COMPUTE, ready[number], step))
                parts = [max(one, other) + 1 for one, other in zip(ready, ended, strict=True)]
                ended = [max(parts) + TRANSFER] * 2
                rows.append(("kernel", f"ar{layer}", "comm", parts[number], ended[number], step))
            rows.append(("kernel", "adam", "main", ended[number] + 2, ended[number] + 40, step))
            rows.append(("sync", "wait", "host", own + 6, ended[number] + 41))
            begin = ended[0] + 100
        ranks.append(untold(rank_of(number, rows, [1_000_000] * (LAYERS * STEPS))))
    return Job.of(ranks)


class TestGraphs:
    @pytest.mark.parametrize("more", [0, 3])
    def test_what_one_rank_shows_holds_for_the_one_that_waits(self, more):
        job = graph_replays(900, more=more)  # On rank 0, all other kernels have ended when the second all-reduce begins.
        wanted = {(f"k{layer}", f"ar{layer}") for layer in range(LAYERS)} | {(f"ar{LAYERS - 1}", "adam")}
        traces = [rank.trace for rank in job.ranks]
        for trace, pairs in zip(traces, inferred_waits(traces), strict=True):
            found = named(trace, pairs)
            assert set(found) == wanted
            assert len(found) == STEPS * len(wanted)

    def test_a_rank_that_is_not_late_any_more_holds_nobody_up(self):
        late, on_time = graph_replays(900), graph_replays(0)
        repaired = late.what_if(rank=1).like(rank=0).job
        assert repaired.length_ns == pytest.approx(on_time.length_ns, rel=0.02)
        assert late.length_ns > 2 * on_time.length_ns

    def test_one_at_a_time_all_ranks_reduce_behind_the_same_kernel(self):
        serial = graph_replays(900).what_if().serial().job
        for rank in serial.ranks:
            spans = rank.trace.spans
            names = [spans.names[code] for code in spans.name[rank.work].tolist()]
            assert names == [*(f"{kind}{layer}" for layer in range(LAYERS) for kind in ("k", "ar")), "adam"] * STEPS


def trace_of(rows):
    """Return a trace whose kernels are launched one by one, in the order of ``rows``: name, stream, start and end in µs."""
    calls = [("launch", name, "host", at, at + 1, at) for at, (name, *_) in enumerate(rows)]
    kernels = [("kernel", name, stream, begin, end, at) for at, (name, stream, begin, end) in enumerate(rows)]
    spans = SpanTable.of(*((kind, name, lane, one * 1000, two * 1000, at) for kind, name, lane, one, two, at in [*calls, *kernels]))
    rows = [row for row in np.flatnonzero(spans.kind == 8) if spans.names[spans.name[row]].startswith("ar")]
    return Trace(
        spans, TraceInfo("kineto", "step", DeviceInfo("cuda", "NVIDIA H100")), collectives=Collectives.from_columns(rows, "all_reduce")
    )


def steps_of(gaps_us, *, reduces=True):
    """Return a trace of steps: a copy on a second stream, and a kernel that begins so many µs after its end."""
    rows, now = [], 1000
    for gap in gaps_us:
        rows.append(("a", "main", now, now + 10))
        rows.append(("copy", "side", now + 20, now + 100))
        rows.append(("b", "main", now + 100 + gap, now + 150 + max(0, gap)))
        rows += [("ar", "comm", now + 400, now + 420)] if reduces else []
        now += 500
    return trace_of(rows)


class TestLaunches:
    def test_what_most_steps_show_holds_in_all(self):
        # In the third step, the host was late: it hides the wait.
        (pairs,) = inferred_waits([steps_of([2, 2, 90, 2, 2])])
        assert named(steps_of([2] * 5), pairs).count(("copy", "b")) == 5

    def test_another_rank_shows_that_it_was_chance(self):
        chance, otherwise = steps_of([2] * 6), steps_of([-30] * 6)
        assert ("copy", "b") in named(chance, inferred_waits([chance])[0])
        assert ("copy", "b") not in named(chance, inferred_waits([chance, otherwise])[0])[2:]

    def test_collectives_wait_for_what_was_launched_before_them(self):
        trace = steps_of([2] * 4)
        assert {("b", "ar"), ("copy", "ar")} <= set(named(trace, inferred_waits([trace])[0]))

    def test_without_work_there_are_none(self):
        assert inferred_waits([]) == []
        (pairs,) = inferred_waits([trace_of([])])
        assert [len(each) for each in pairs] == [0, 0]


@pytest.mark.parametrize("engine", ["dual", "graph-dual"])
def test_jobs_without_their_waits_are_predicted_as_well_as_with_them(engine):
    step = Step(gpus=3, extra=4, late_layers=(0, 1), engine=engine, activations=3)
    job = step.run()
    hidden = Job.of([untold(rank) for rank in job.ranks])
    told, found = (each.what_if(rank=1).like(rank=0).job.length_ns for each in (job, hidden))
    run = step.repaired.run().length_ns
    assert found == pytest.approx(run, rel=0.015)
    assert abs(found - run) <= abs(told - run)
