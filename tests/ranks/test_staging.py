"""Ranks read by workers: the same job to the byte; what dies is left out by name; what fails is told, and nothing stays behind."""

from __future__ import annotations

import json
import signal
import sys
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from tests.ranks.test_reading import rank_file, written

import streamscope as ss
from streamscope import workers
from streamscope.cli.main import main
from streamscope.errors import OutputError, TraceError
from streamscope.ranks import staging
from streamscope.ranks.rank import needed


class Gone(Executor):
    """Reads so many files, and fails."""

    def __init__(self, files):
        self.files = files

    def submit(self, function, /, *arguments):
        future = Future()
        self.files -= 1
        if self.files < 0:
            future.set_exception(RuntimeError("the cluster is gone"))
        else:
            future.set_result(function(*arguments))
        return future


class LastFirst(Executor):
    """Does nothing before it has all tasks, and begins with the last one."""

    def __init__(self, count):
        self.count, self.given = count, []

    def submit(self, function, /, *arguments):
        self.given.append((Future(), function, arguments))
        if len(self.given) == self.count:
            for future, do, those in reversed(self.given):
                future.set_result(do(*those))
        return self.given[-1][0]


@pytest.fixture
def folder(tmp_path):
    return written(tmp_path / "run", **{f"{name}__json": rank_file(at, world=4, late_ns=9_000 * at) for at, name in enumerate("dbca")})


def kept(job, path):
    return job.to_dict(), {file.name: file.read_bytes() for file in job.save(path).iterdir()}


def test_the_job_does_not_depend_on_the_executor(folder, tmp_path):
    """In this process, by threads, the last file first, and by two processes."""
    here = kept(ss.read_ranks(folder, progress=False), tmp_path / "here")
    work = tmp_path / "work"
    with ThreadPoolExecutor(3) as threads:
        assert kept(ss.read_ranks(folder, executor=threads, work=work, progress=False), tmp_path / "threads") == here
    assert kept(ss.read_ranks(folder, executor=LastFirst(4), work=work, progress=False), tmp_path / "last") == here
    steps = []
    apart = ss.read_ranks(folder, executor="processes", progress=lambda *step: steps.append(step))
    assert kept(apart, tmp_path / "processes") == here
    assert steps[-2][1:] == (4, 4)
    assert not list(work.iterdir())


def test_a_file_that_kills_each_process_is_left_out_by_name(folder, monkeypatch):
    """Without processes: the pool and the one after it break."""

    class Pool(Executor):
        def submit(self, function, task):
            future = Future()
            if task.path.name == "b.json":
                future.set_exception(workers.BrokenProcessPool("gone"))
            else:
                future.set_result(function(task))
            return future

    @workers.contextmanager
    def pool(processes, task):
        yield Pool()

    monkeypatch.setattr(workers, "_pool", pool)
    job = ss.read_ranks(folder, executor="processes", progress=False)
    assert [rank.number for rank in job.ranks] == [0, 2, 3]
    assert job.warnings[:1] == ("left out, since each process that read it died: b.json",)
    assert job.warnings[1].startswith("missing: rank 1;")
    with pytest.raises(TraceError, match=r"no rank is left: processes that read b\.json died"):
        ss.read_ranks(folder / "b.json", executor="processes", progress=False)


def test_workers_of_dask_give_the_same_job(folder, tmp_path):
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        there = kept(ss.read_ranks(folder, executor=client.get_executor(), work=tmp_path / "work", progress=False), tmp_path / "there")
    assert there == kept(ss.read_ranks(folder, progress=False), tmp_path / "here")


def test_the_command_reads_by_the_workers_of_a_scheduler(folder, tmp_path, monkeypatch, capsys):
    """Without Dask: a client of threads stands for it."""
    asked = []

    class Client:
        def __init__(self, address, **_):
            asked.append(address)
            if address.endswith(":1"):
                raise OSError("nobody there")

        def __enter__(self):
            return self

        def __exit__(self, *_):
            asked.append("closed")

        def get_executor(self):
            return LastFirst(4)

    monkeypatch.setitem(sys.modules, "distributed", SimpleNamespace(Client=Client))
    work = tmp_path / "work"
    assert main(["ranks", str(folder), "--executor", "tcp://there:8786", "--work", str(work), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == ss.read_ranks(folder, progress=False).to_dict()
    assert asked == ["tcp://there:8786", "closed"]
    assert not list(work.iterdir())
    monkeypatch.setitem(sys.modules, "distributed", None)
    for name, said in (("threads", "neither processes nor an address"), ("there:8786", "needs Dask")):
        assert main(["ranks", str(folder), "--executor", name]) == 2
        assert said in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "distributed", SimpleNamespace(Client=Client))
    assert main(["ranks", str(folder), "--executor", "there:1"]) == 2
    assert "no Dask scheduler answers at there:1: OSError: nobody there" in capsys.readouterr().err


@pytest.mark.parametrize("executor", [None, LastFirst])
def test_of_several_damaged_files_the_first_is_told(folder, tmp_path, executor):
    for name in "bd":
        (folder / f"{name}.json").write_text((folder / f"{name}.json").read_text()[:-200], encoding="utf-8")
    work = tmp_path / "work"
    with pytest.raises(TraceError, match=r"b\.json"):
        ss.read_ranks(folder, executor=executor and executor(4), work=work, progress=False)
    assert not work.exists() or not list(work.iterdir())


def test_an_executor_that_fails_is_told_with_the_files_that_are_left(folder, monkeypatch):
    monkeypatch.setattr(workers, "_IN_FLIGHT", 1)
    with pytest.raises(TraceError, match=r"the cluster is gone.*before it had read 2 files: c\.json, d\.json"):
        ss.read_ranks(folder, executor=Gone(2), progress=False)


@pytest.mark.parametrize("wrong", [3, "threads"])
def test_what_is_no_executor_is_told(folder, wrong):
    with pytest.raises(TraceError, match=r"executor=.* is not one"):
        ss.read_ranks(folder, executor=wrong, progress=False)


def test_a_full_disk_and_a_folder_that_workers_do_not_see_are_told(folder, tmp_path, monkeypatch):
    with pytest.raises(OutputError, match="cannot write to folder"):
        ss.read_ranks(folder, executor=LastFirst(4), work=folder / "a.json", progress=False)
    elsewhere = staging.Task(folder / "a.json", None, "refuse", tmp_path / "not here", 0)
    assert isinstance(staging.stage(elsewhere), OutputError)


def test_ctrl_c_leaves_nothing_behind(folder, tmp_path):
    """That it ends the processes of the pool, tests of sweeps show."""

    def stop(what, step, steps):
        if step:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        ss.read_ranks(folder, executor=LastFirst(4), work=tmp_path / "work", progress=stop)
    assert not list((tmp_path / "work").iterdir())


def test_processes_come_unasked_only_for_large_jobs_and_where_no_script_runs_again(folder, monkeypatch):
    files = sorted(folder.iterdir())
    notebook, command = SimpleNamespace(__spec__=None), SimpleNamespace(__spec__=None, __file__="streamscope", main=ss.read_ranks)
    script, package = SimpleNamespace(__spec__=None, __file__="a.py"), SimpleNamespace(__spec__=SimpleNamespace(name="jobs"), __file__="")
    assert not staging._worth_processes(files)
    monkeypatch.setattr(staging, "_LEAST_BYTES", sum(file.stat().st_size for file in files))
    for running, wanted in ((notebook, True), (command, True), (script, False), (package, False)):
        monkeypatch.setitem(staging.sys.modules, "__main__", running)
        assert staging._worth_processes(files) is wanted
        assert not staging._worth_processes(files[:1])


def test_short_ranges_are_left_out_as_the_file_is_read(repository):
    """The reader leaves them out, to be quicker; what an analysis of ranks keeps is the same."""
    path = repository / "tests" / "data" / "kineto" / "transformer_train.json.gz"
    (quick,), whole = staging.read_file(path, None, "refuse"), needed(ss.read(path))
    assert len(quick.trace.spans) == len(whole.spans)
    for column in ("kind", "start_ns", "end_ns", "correlation"):
        assert (getattr(quick.trace.spans, column) == getattr(whole.spans, column)).all()
    assert [quick.trace.spans.names[name] for name in quick.trace.spans.name] == [whole.spans.names[name] for name in whole.spans.name]
