"""Ranks: who this process is, by its launcher's variables, and the file that its trace goes to."""

from __future__ import annotations

import platform

import pytest
from tests.recording.fake_cupti import launch, rows

import streamscope as ss
from streamscope.errors import OutputError, RecordingError, RecordingWarning
from streamscope.recording.ranks import ALONE, Rank, rank_here
from streamscope.trace.spans import SpanKind

VARIABLES = (
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK",
    "PMI_LOCAL_RANK", "MPI_LOCALRANKID", "PMI_SIZE", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS", "SLURM_STEP_NUM_TASKS",
)  # fmt: skip
TORCHRUN = {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4"}


@pytest.fixture(autouse=True)
def no_ranks(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def be(monkeypatch):
    def set_variables(**variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return set_variables


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, (None, None, None)),
        (TORCHRUN, (3, 1, 4)),
        ({"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_LOCAL_RANK": "0", "OMPI_COMM_WORLD_SIZE": "4"}, (3, 0, 4)),
        ({"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1"}, (1, 1, 2)),
        ({"SLURM_PROCID": "5", "SLURM_LOCALID": "1", "SLURM_NTASKS": "8"}, (5, 1, 8)),
        ({"SLURM_PROCID": "1", "SLURM_NTASKS": "8", "SLURM_STEP_NUM_TASKS": "2"}, (1, None, 2)),
        # torchrun on a node of Slurm; mpirun in a job of Slurm, all of whose processes are Slurm's first
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "2", **TORCHRUN}, (3, 1, 4)),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "2", "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, (1, None, 2)),
        ({"RANK": "1"}, (1, None, None)),
        ({"WORLD_SIZE": "1"}, (None, None, None)),
    ],
)
def test_the_launcher_says_the_rank(variables, expected):
    found = rank_here(variables)
    assert (found.rank, found.local_rank, found.world_size) == expected
    assert found.host == ("" if found.rank is None else platform.node())


@pytest.mark.parametrize(
    ("variables", "match"),
    [
        ({"WORLD_SIZE": "2"}, r"WORLD_SIZE=2, and RANK is not set: .*torchrun, srun and mpirun set it"),
        ({"WORLD_SIZE": "2", "LOCAL_RANK": "0"}, "WORLD_SIZE=2"),
        ({"RANK": "first"}, "RANK='first' must be a whole number"),
        ({"RANK": "-1", "WORLD_SIZE": "2"}, "RANK='-1'"),
        ({"RANK": "2", "WORLD_SIZE": "2"}, "RANK=2 is no rank among 2"),
        ({"PMI_SIZE": "4"}, "PMI_SIZE=4, and PMI_RANK is not set"),
    ],
)
def test_a_rank_that_cannot_be_told_is_refused_before_the_block_runs(library, be, variables, match):
    be(**variables)
    with pytest.raises(RecordingError, match=match), ss.record(path="{rank}.parquet"):
        pytest.fail("the block ran")
    assert library.enabled == []
    with ss.record() as recording:  # Without a file, nothing depends on it.
        launch(library, correlation=5)
    assert recording.trace.info.rank is None


def test_each_rank_writes_its_file_and_the_trace_says_which(library, be, tmp_path, monkeypatch):
    be(**TORCHRUN)
    for _ in range(2):  # The second one replaces the first.
        with ss.record("step", path="traces/{rank}.parquet") as recording:
            monkeypatch.chdir("traces")  # The path is that of the beginning.
            launch(library, correlation=5)
            launch(library, correlation=6, gpu=1)
        monkeypatch.chdir(tmp_path)
    (file,) = tmp_path.joinpath("traces").iterdir()
    assert recording.path == file
    read = ss.read(file)
    info = read.info
    assert (info.rank, info.local_rank, info.world_size, info.host) == (3, 1, 4, platform.node())
    assert info == recording.trace.info
    assert read.to_pandas().equals(recording.trace.to_pandas())
    assert {name: read.to_dict()[name] for name in info.job} == info.job == {
        "rank": 3, "local_rank": 1, "world_size": 4, "host": platform.node()
    }  # fmt: skip
    again = ss.read(read.to_kineto("again.json"))
    assert again.info.job == info.job


def test_a_process_without_ranks_is_number_0_and_its_trace_has_none(library):
    with ss.record(path="{rank}.parquet") as recording:
        launch(library, correlation=5)
    assert ss.read("0.parquet").info.job == {}
    assert recording.trace.to_dict().keys().isdisjoint({"rank", "host"})


@pytest.mark.parametrize("variables", [TORCHRUN, {"RANK": "1"}, {"SLURM_PROCID": "0", "SLURM_NTASKS": "2"}])
def test_one_file_for_all_ranks_is_refused_before_the_block_runs(library, be, variables):
    be(**variables)
    match = r"one file for all ranks \(put \{rank\} into it: path='step-\{rank\}\.parquet'\)"
    with pytest.raises(RecordingError, match=match), ss.record(path="step.parquet"):
        pytest.fail("the block ran")
    assert library.enabled == []
    be(RANK="0", WORLD_SIZE="1")
    with ss.record(path="step.parquet"):
        launch(library, correlation=5)


def test_a_file_of_others_stays(library, be, tmp_path):
    def refused(match):
        with pytest.raises(OutputError, match=match), ss.record(path="{rank}.parquet"):
            pytest.fail("the block ran")

    file = tmp_path / "3.parquet"
    file.write_text("mine")
    be(**TORCHRUN)
    refused(r"3\.parquet exists and is no trace of Streamscope: it stays")
    assert file.read_text() == "mine"
    file.unlink()
    with ss.record(path="{rank}.parquet"):
        launch(library, correlation=5)
    (tmp_path / "2.parquet").write_bytes(file.read_bytes())
    be(RANK="2")
    refused("is the trace of rank 3")
    be(RANK="1")
    (tmp_path / "1.parquet").mkdir()
    refused("it is a folder")
    assert library.enabled == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1.parquet", "2.parquet", "3.parquet"]


def test_what_ran_until_an_error_is_written_and_nothing_that_ran_not(library, tmp_path):
    def fail():
        with ss.record(path="step.parquet"):
            launch(library, correlation=5)
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        fail()
    assert len(rows(ss.read("step.parquet"), SpanKind.KERNEL)) == 1
    with pytest.warns(RecordingWarning, match=r"empty\.parquet is not written: nothing ran on a GPU"), ss.record(path="empty.parquet"):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["step.parquet"]


def test_a_file_that_cannot_be_written_leaves_the_trace(library, monkeypatch):
    recording = ss.record(path="step.parquet")

    def full(*_):
        raise OutputError("cannot write step.parquet: no space left")

    monkeypatch.setattr(ss.Trace, "to_parquet", full)
    with pytest.raises(OutputError, match="no space left"), recording:
        launch(library, correlation=5)
    assert len(rows(recording.trace, SpanKind.KERNEL)) == 1
    assert Rank() == ALONE
