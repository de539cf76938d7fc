"""Files of two jobs in one folder: a warning comes first, and jobs that are one get none."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest
from tests.ranks.jobs import planted, with_info

import streamscope as ss
from streamscope.cli.main import main
from streamscope.ranks.job import Job

DAY_NS = 1_763_000_000_000_000_000
TWO = "these may be files of two jobs, or of different steps: ranks 0, 1 and ranks 2, 3 have no collective in common, "
APART = "nothing joins the clocks of ranks 0, 1 and ranks 2, 3: their times are not compared"
HINT = " (hosts= names shared hosts)"


def with_collectives(rank, **columns):
    """Return a rank whose collectives have other columns."""
    return replace(rank, trace=replace(rank.trace, collectives=replace(rank.trace.collectives, **columns)))


@pytest.mark.parametrize(
    ("first", "why"),
    [
        ("notebooks/recorded/ranks/more-work", "though communicator '0 [0, 1, 2, 3]' is of all 4 ranks of the job"),
        ("tests/data/ranks/4xH100/dp-graph", "and were recorded 18.7 s apart"),
    ],
)
def test_files_of_two_jobs_are_told_first_and_without_a_hint_at_hosts(repository, tmp_path, capsys, first, why):
    for rank in range(4):
        folder = first if rank < 2 else "notebooks/recorded/ranks/host-sleeps"
        shutil.copy(repository / folder / f"rank{rank}.json.gz", tmp_path)
    warnings = ss.read_ranks(tmp_path, progress=False).warnings
    assert warnings[0].startswith(TWO + why)
    assert warnings[1] == APART
    assert main(["ranks", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "[1] These may be files of two jobs" in said
    assert "--host" not in said
    assert ss.read_ranks(tmp_path, hosts=dict.fromkeys(range(4), "a"), progress=False).warnings[0].startswith(TWO)


def test_a_recorded_job_is_one(repository):
    folders = [*repository.glob("notebooks/recorded/ranks/*/"), *repository.glob("tests/data/ranks/*/*/")]
    assert len(folders) > 4
    for folder in folders:
        assert not any("two jobs" in warning for warning in ss.read_ranks(folder, progress=False).warnings)


@pytest.mark.parametrize("missing", [[], [1], [0, 2]])
def test_numbers_that_no_other_file_has_are_of_another_job_or_step(missing):
    ranks = [
        with_collectives(rank, sequence=rank.trace.collectives.sequence + 1000 * (rank.number // 2))
        for rank in planted(4, 4).ranks
        if rank.number not in missing
    ]
    assert "two jobs" in Job.of(ranks, ["another"]).warnings[0]


def test_ranks_of_other_communicators_and_of_an_unknown_order_are_no_other_job():
    for groups in (((0, 1), (2, 3)), ((0,), (1, 2, 3))):
        warning = Job.of(planted(4, 4, groups=groups, offset_s=0, ppm=0).ranks).warnings[0]
        assert warning.startswith("nothing joins")
        assert warning.endswith(HINT)
    ranks = [
        with_collectives(rank, nbytes=rank.trace.collectives.nbytes + rank.number // 2) for rank in planted(4, 4, numbered=False).ranks
    ]
    assert Job.of(ranks).warnings[0] == APART + HINT


@pytest.mark.parametrize(("later_s", "hint"), [(5, HINT), (60, "")])
def test_times_of_day_that_are_far_apart_are_of_two_jobs(later_s, hint):
    ranks = planted(4, 4, groups=((0, 1), (2, 3)), offset_s=0, ppm=0).ranks
    timed = [with_info(rank, zero_ns=DAY_NS + later_s * 10**9 * (rank.number // 2)) for rank in ranks]
    told = [warning for warning in Job.of(timed).warnings if not warning.startswith("the clock of")]
    assert told == [*([] if hint else [TWO + "and were recorded 60.0 s apart"]), APART + hint]
