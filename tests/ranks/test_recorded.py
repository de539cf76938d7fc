"""Jobs recorded on 2 and 4 H100: clocks of one host, steps, and who was late on purpose. `tests/data/ranks` says how they were made."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

import streamscope as ss

RECORDED = Path(__file__).parents[1] / "data" / "ranks"
SIN = "vectorized_elementwise_kernel sin_kernel_cuda"
JOBS = {
    "2xH100/dp-serial": (70, 2_444, None),
    "2xH100/tp-augment": (70, 2_238, (1, "more work", SIN, "augment", 0.33)),
    "2xH100/dp-graph-augment": (70, 2_757, (1, "more work", SIN, "", 0.22)),  # Graphs keep no ranges.
    "2xH100/dp-graph-sleep": (70, 4_108, (1, "host call", "load batch", "", 0.48)),
    "4xH100/dp-graph": (70, 2_302, None),
    "4xH100/tp-graph-shapes": (70, 1_400, (1, "more work", "nvjet_sm90_hsh_256x128_64x4_1x2_h_bz_coopA_NNT", "", 0.23)),
    "4xH100/pp-augment": (144, 3_526, (1, "more work", SIN, "augment", None)),
}


@pytest.mark.parametrize("name", JOBS)
def test_a_recorded_job_has_one_clock_and_names_who_was_late_on_purpose(name):
    count, step_us, planted = JOBS[name]
    job = ss.read_ranks(RECORDED / name, progress=False)
    found = job.to_dict()
    assert found["collectives"] == {"matched": count, "unmatched": 0, "by": {"order": count}}
    assert found["step_us"]["median"] == pytest.approx(step_us, abs=1)
    for rank in found["ranks"][1:]:
        assert abs(rank["offset_us"]) < min(10, rank["offset_error_us"])
    persistent = [late for late in job.late if late.pattern == "persistent"]
    named = [(late.rank, late.cause, late.where, late.under, late.share_of_step and round(late.share_of_step, 2)) for late in persistent]
    assert named == ([] if planted is None else [planted])


@pytest.mark.parametrize("name", [name for name, (_, _, planted) in JOBS.items() if planted])
def test_the_verdict_promises_no_more_than_the_replay_without_the_cause(name):
    job = ss.read_ranks(RECORDED / name, progress=False)
    late = job.late[0]
    without = job.what_if(late.rank).without(late.under or late.where)
    assert (late.share_of_step or 0) < 1 - 1 / without.speedup + 0.03
    assert ("Without that, a step takes" in job.verdict) == bool(late.share_of_step)


@pytest.mark.parametrize("cut", [0, 1])
def test_nobody_waits_for_and_does_not_wait_for_the_same_kernel(tmp_path, cut):
    """Of a file that is cut short, half of the steps are matched: rank 1 is late in few of all steps."""
    for number, file in enumerate(sorted((RECORDED / "2xH100/tp-augment").glob("*.json.gz"))):
        text = gzip.decompress(file.read_bytes())
        (tmp_path / file.stem).write_bytes(text[: len(text) // 2] if number == cut else text)
    job = ss.read_ranks(tmp_path, damaged="skip", progress=False)
    assert [(late.rank, late.where, late.pattern) for late in job.late] == [(1, SIN, "moving")]


def test_a_step_of_median_length_is_one_and_the_same_everywhere():
    """Of six steps, the two in the middle are 620 µs apart."""
    job = ss.read_ranks(RECORDED / "4xH100/pp-augment", progress=False)
    prediction = job.what_if()
    assert sum(row["us"] for row in job.path_of_step()) == pytest.approx(3_526, abs=1)
    assert job.step_us["median"] == prediction.to_dict()["step_us"]["recorded"]["median"] == pytest.approx(3_526, abs=1)
    assert "A step takes 3.53 ms as recorded" in prediction.verdict
    faster = prediction.without("augment")
    steps_us = faster.to_dict()["step_us"]
    assert faster.speedup == pytest.approx(steps_us["replay"]["median"] / steps_us["predicted"]["median"])


def test_where_each_rank_is_last_at_times_the_clock_is_nearly_right():
    job = ss.read_ranks(RECORDED / "2xH100/dp-serial", progress=False)
    assert abs(job.to_dict()["ranks"][1]["offset_us"]) < 1.5  # The median of all ends is 8.6 µs off.


def test_what_waiting_costs_is_what_the_step_takes_longer():
    """Nobody is late in ``dp-graph`` on two GPUs, whose step took 2,112 µs in the same session; with `augment` it took 645 µs more."""
    (late,) = ss.read_ranks(RECORDED / "2xH100/dp-graph-augment", progress=False).late
    assert late.cost_us / 14 == pytest.approx(645, rel=0.1)
