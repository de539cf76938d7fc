"""Sweeps: each point is what `compare` says there, on whichever executor; what is done is kept, and done again only if it changed."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import signal
import time
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from fcntl import LOCK_EX, LOCK_NB, flock
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamscope as ss
from streamscope import workers
from streamscope.comparing import sweep as module
from streamscope.comparing import swept
from streamscope.comparing.comparison import Comparison
from streamscope.devices.simulated import SimulatedDevice
from streamscope.errors import EngineError, KeywordError, OutputError, ProgramError, RecordingError, WorkloadError
from streamscope.trace.info import DeviceInfo

GRID = {"n": [4, 8, 16], "streams": [1, 2]}


def step(x, w):
    return np.tanh(x @ w) + np.exp(x)


def arrays(n):
    return np.ones((n, n), np.float32), np.ones((n, n), np.float32)


def deadly(n):
    """Kill the process that makes these inputs, unless it is the first one."""
    if n == 8 and multiprocessing.parent_process() is not None:
        os._exit(1)
    return arrays(n)


def swept_over(grid=GRID, make=arrays, **options):
    return ss.sweep(step, grid, make, **{"engines": "async,graph", "device": "simulated", "progress": False, **options})


@pytest.fixture
def counted(monkeypatch):
    """Numbers that points were made with, in the order in which they were compared."""
    done = []

    def compared(*arguments, **options):
        done.append(options["settings"] | {name: options[name] for name in ("streams",) if options[name]})
        return ss.compare(*arguments, **options)

    monkeypatch.setattr(module, "compare", compared)
    return done


_VALUES = st.lists(st.integers(-3, 3) | st.sampled_from(["a", None, 0.5, True]), min_size=1, max_size=4)


@given(st.dictionaries(st.sampled_from("abc"), _VALUES, min_size=1))
def test_a_grid_is_all_values_that_meet_each_once_and_in_order(grid):
    found = [tuple(point.values()) for point in module.grid_points(grid)]
    every = [tuple(map(repr, values)) for values in product(*grid.values())]
    assert [tuple(map(repr, values)) for values in found] == list(dict.fromkeys(every))
    assert module.grid_points([dict(zip(grid, values, strict=True)) for values in found]) == module.grid_points(grid)


@pytest.mark.parametrize(
    ("grid", "said"),
    [
        (3, "neither values by setting nor a list of points"),
        ({}, "has no points"),
        ([{}], "has no points"),
        ({"n": []}, "has no points"),
        ({"n": 4}, "n=4 is not a list of values"),
        ({"engines": "async,graph"}, "engines='async,graph' is not a list of values"),
        ({3: [4]}, "whose name is no text"),
        ({"n": [np.ones(3)]}, "has an ndarray"),
        ({"n": [float("nan")]}, "use finite numbers"),
        ({name: range(100) for name in "abc"}, "more than 100,000 points"),
    ],
)
def test_what_is_no_grid_is_refused(grid, said):
    with pytest.raises(ProgramError, match=said):
        swept_over(grid)


def test_each_point_is_what_compare_says_there():
    found = swept_over({"n": np.arange(4, 9, 4), "streams": [2]}, engines="sync,graph-dual")
    for point, n in zip(found.points, (4, 8), strict=True):
        runs = ss.compare(step, *arrays(n), engines="sync,graph-dual", streams=2, device="simulated", progress=False, settings={"n": n})
        assert point.settings == {"n": n, "streams": 2}
        assert point.comparison == runs.to_dict()
        assert point.fastest == runs.assessment.best
    assert found.engines == ("sync", "graph-dual")


def test_settings_of_a_workload_and_its_own_number_of_gpus():
    found = ss.sweep(
        "data-parallel", {"gpus": [2, 3], "layers": [1]}, width=64, rows=64, engines="async", device="simulated", progress=False
    )
    assert [point.comparison["settings"]["gpus"] for point in found.points] == [2, 3]
    assert {point.comparison["settings"]["width"] for point in found.points} == {64}
    assert found.headline.startswith("async takes ")


def test_keywords_of_a_function_and_fixed_inputs():
    def scaled(x, *, times, more=1):
        for _ in range(times * more):
            x = x * 2.0
        return x

    found = ss.sweep(scaled, {"times": [1, 3]}, np.ones(4), more=2, engines="async", device="simulated", progress=False)
    assert [point.engines["async"]["kernel_count"] for point in found.points] == [2, 6]


def test_the_function_that_makes_inputs_gets_what_it_takes():
    def made(n, *, rows):
        return np.ones((rows, n), np.float32), np.ones((n, n), np.float32)

    found = swept_over({"n": [4], "rows": [2, 3]}, made)
    (fixed,) = swept_over({"n": [4]}, made, rows=3).points
    assert found.points[0].version != found.points[1].version == fixed.version


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda: swept_over({"n": [4], "depth": [2]}), KeywordError, "no keyword 'depth'"),
        (lambda: ss.sweep(lambda x, *, streams: x + x, {"streams": [2]}, np.ones(4)), KeywordError, "has a parameter of that name"),
        (lambda: swept_over(engines="warp"), EngineError, "unknown engine 'warp'"),
        (lambda: swept_over(repeats=0), EngineError, "out of range"),
        (lambda: swept_over(recorder="film"), RecordingError, "unknown"),
        (lambda: swept_over(executor=3), EngineError, "executor=3 is not one"),
        (lambda: swept_over(executor="threads"), EngineError, "executor='threads' is not one"),
        (lambda: swept_over(path="points.csv"), OutputError, "use .jsonl"),
        (lambda: ss.sweep("no-such", {"n": [4]}), WorkloadError, "unknown workload"),
        (lambda: ss.sweep("branches", {"depth": [4]}), WorkloadError, "no setting 'depth'"),
        (lambda: ss.sweep("branches", {"size": [4]}, 3), ProgramError, "takes no inputs"),
        (lambda: ss.sweep(7, {"size": [4]}), ProgramError, "wants a function or a program"),
        (
            lambda: ss.sweep(lambda x: x + x, {"shape": [4]}, np.ones, executor="processes", device="simulated"),
            EngineError,
            "cannot be sent",
        ),
    ],
)
def test_what_would_be_wrong_at_each_point_is_said_at_once(call, error, said, counted):
    with pytest.raises(error, match=said):
        call()
    assert not counted


def test_executors_give_the_same_bytes_and_a_point_that_kills_its_process_is_a_row(tmp_path, monkeypatch):
    """In this process, nothing dies."""
    monkeypatch.setattr(workers, "_MOST_PROCESSES", 1)
    paths = [tmp_path / name for name in ("here.jsonl", "threads.jsonl", "processes.jsonl")]
    here = swept_over(path=paths[0])
    with ThreadPoolExecutor(3) as threads:
        assert swept_over(path=paths[1], executor=threads).to_dict() == here.to_dict()
    assert paths[0].read_bytes() == paths[1].read_bytes()

    grid = {"n": [4, 8], "streams": [1]}
    apart = swept_over(grid, deadly, path=paths[2], executor="processes")
    alive, dead = apart.points
    assert alive == here.points[0]
    assert dead.failure.kind == "DeadWorker"
    assert paths[2].read_text().splitlines()[0] == paths[0].read_text().splitlines()[0]
    assert "1 point failed" in apart.headline
    swept_over(path=paths[2])
    assert paths[2].read_bytes() == paths[0].read_bytes()


def test_interruption_keeps_what_is_done_and_ends_all_processes(tmp_path):
    path = tmp_path / "points.jsonl"

    def stop(what, step, steps):
        if step:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt) as held:
        swept_over(path=path, executor="processes", progress=stop)
    for child in multiprocessing.active_children():
        child.join(30)
        for _ in range(1000):  # The pool's own thread may have waited for it, and is about to note how it ended.
            if child.exitcode is not None:
                break
            time.sleep(0.01)
        assert child.exitcode == -signal.SIGKILL
    assert held.tb is not None  # As in a notebook, the error is still there, and with it the frames of the sweep.
    (tmp_path / "whole").mkdir()
    swept_over(path=tmp_path / "whole" / "points.jsonl")
    assert not set(path.read_text().splitlines()) - set((tmp_path / "whole" / "points.jsonl").read_text().splitlines())


class _Dying(Executor):
    """Does so many points, and fails."""

    def __init__(self, points):
        self.points = points

    def submit(self, function, /, *arguments):
        future = Future()
        self.points -= 1
        if self.points < 0:
            future.set_exception(RuntimeError("the cluster is gone"))
        else:
            future.set_result(function(*arguments))
        return future


def test_an_executor_that_fails_is_told_with_the_points_that_are_left(tmp_path, counted, monkeypatch):
    monkeypatch.setattr(workers, "_IN_FLIGHT", 1)
    with pytest.raises(EngineError, match=r"the cluster is gone.*4 points undone: n=8, streams=1; n=8, streams=2; n=16") as failed:
        swept_over(path=tmp_path / "points.jsonl", executor=_Dying(2))
    assert "path=" in failed.value.hint
    assert len(swept_over(path=tmp_path / "points.jsonl").points) == 6
    assert len(counted) == 6


def test_points_are_not_done_again_and_a_larger_grid_does_the_rest(tmp_path, counted):
    path = tmp_path / "points.jsonl"
    first = swept_over({"n": [4, 8]}, path=path)
    assert swept_over({"n": [4, 8]}, path=path).to_dict() == first.to_dict()
    assert counted == [{"n": 4}, {"n": 8}]
    assert [point.settings["n"] for point in swept_over({"n": [16, 8]}, path=path).points] == [16, 8]
    assert counted == [{"n": 4}, {"n": 8}, {"n": 16}]
    assert [json.loads(line)["settings"]["n"] for line in path.read_text().splitlines()] == [16, 8, 4]
    swept_over({"n": [4]}, path=path, name="another")
    assert len(counted) == 4


@pytest.mark.parametrize(
    "changed", [{"engines": "async"}, {"streams": 3}, {"repeats": 7}, {"recorder": "events"}], ids=lambda changed: next(iter(changed))
)
def test_points_of_other_options_are_done_again(tmp_path, counted, changed):
    swept_over({"n": [4]}, path=tmp_path / "points.jsonl")
    swept_over({"n": [4]}, path=tmp_path / "points.jsonl", **changed)
    assert len(counted) == 2


def version(function, *inputs, device=None, **options):
    traced = ss.program(function).trace(*(inputs or (np.ones(4, np.float32),)))
    return module.version_of(traced, device or ss.open_device("simulated"), options)


def of_line(line):
    operator = ss.elementwise(line)
    return version(operator)


def of_host_function(factor):
    called = ss.host_function(lambda x: x * factor) if factor is not None else ss.host_function(lambda x: x + 1)
    return version(lambda x: called(ss.ops.to_host(x)))


def of_operator(function):
    operator = ss.operator(reads=["x"], writes=["y"])(function)
    return version(operator)


def test_a_version_is_that_of_operations_shapes_kernels_and_the_users_code():
    def copied(x, y):
        y[...] = x

    def doubled(x, y):
        y[...] = x + x

    versions = {
        "tanh": version(np.tanh),
        "exp": version(np.exp),
        "shape": version(np.tanh, np.ones(5, np.float32)),
        "dtype": version(np.tanh, np.ones(4, np.float64)),
        "options": version(np.tanh, streams=3),
        "number": version(lambda x: x + 1),
        "other number": version(lambda x: x + 2),
        "axis": version(lambda x: np.sum(x, axis=0), np.ones((4, 4))),
        "other axis": version(lambda x: np.sum(x, axis=1), np.ones((4, 4))),
        "line": of_line("y = x * 2"),
        "other line": of_line("y = x * 3"),
        "host function": of_host_function(None),
        "other host function": of_host_function(2),
        "operator": of_operator(copied),
        "other operator": of_operator(doubled),
        "device": version(np.tanh, device=ss.open_device("simulated", gpus=2)),
    }
    assert len(set(versions.values())) == len(versions)
    assert version(ss.program(np.tanh)) == versions["tanh"]
    assert of_line("y = x * 2") == versions["line"]
    assert of_host_function(None) == versions["host function"]


def test_a_point_that_fails_is_a_row_with_the_users_line(tmp_path, counted):
    def picky(x, *, n):
        if n == 2:
            raise ValueError("two is\x07 too many")
        return x @ np.ones((n, 1)) if n == 3 else x * n

    path = tmp_path / "points.jsonl"
    grid = {"n": [1, 2, 3]}
    found = ss.sweep(picky, grid, np.ones(4), engines="sync", device="simulated", progress=False, path=path)
    well, own, ours = found.points
    assert well.failure is None
    assert (own.failure.kind, own.failure.message) == ("ValueError", "two is� too many")
    assert own.failure.where.startswith("test_sweep.py:")
    assert own.failure.source == 'raise ValueError("two is\\x07 too many")'
    assert ours.failure.kind == "ProgramError"
    assert "test_sweep.py:" in str(ours.failure)
    assert found.headline.endswith(" µs. 2 points failed.")
    assert [row[-1] for row in found.rows()] == ["sync", "failed [1]", "failed [2]"]
    assert found.to_pandas()["failure"].notna().tolist() == [False, True, True]
    counted.clear()
    ss.sweep(picky, grid, np.ones(4), engines="sync", device="simulated", progress=False, path=path)
    assert not counted  # Those that failed were tried again, and failed before they were compared.


def test_wrong_results_are_said_and_are_never_the_fastest(monkeypatch):
    def compared(*arguments, **options):
        runs = ss.compare(*arguments, **options)
        return Comparison(runs.program, runs.device, [replace(run, max_abs_error=9.0, tolerance=1.0) for run in runs.values()])

    monkeypatch.setattr(module, "compare", compared)
    found = swept_over({"n": [4]})
    (point,) = found.points
    assert point.wrong == ("async", "graph")
    assert point.fastest == ()
    assert "Results are wrong under async at 1 point and under graph at 1 point." in found.headline
    assert found.rows() == [("4", "wrong results", "wrong results", "–")]


def test_ties_and_too_few_repeats():
    times = {"makespan_us": {"median": 2.0, "low": 2.0, "high": 2.0}}
    comparison = {"engines": {"a": times, "b": times}, "device": {"kind": "cuda", "name": "NVIDIA H200"}}
    unknown = swept.Point({"n": 1}, comparison=comparison)
    tied = swept.Point({"n": 2}, comparison=comparison, fastest=("a", "b"))
    assert swept.Sweep("s", (unknown,)).headline == "Too few repeats to tell which engine is the fastest."
    assert swept.Sweep("s", (unknown, tied)).headline == "a is among the fastest at 1 of 1 point, b at 1."
    assert [row[-1] for row in swept.Sweep("s", (unknown, tied)).rows()] == ["too few repeats to tell", "a and b"]


def test_processes_do_nothing_that_is_measured(monkeypatch, counted):
    monkeypatch.setattr(module, "open_device", lambda _: SimpleNamespace(info=DeviceInfo("cuda", "NVIDIA H200")))
    with pytest.raises(EngineError, match="points on NVIDIA H200 are not done in processes side by side"):
        swept_over(executor="processes", device="auto")
    assert not counted


def test_a_measured_point_has_its_host_to_itself(tmp_path, monkeypatch):
    monkeypatch.setattr(module.tempfile, "gettempdir", lambda: str(tmp_path))
    with module._host_to_itself(wanted=False):
        assert not list(tmp_path.iterdir())
    with module._host_to_itself(wanted=True):
        (path,) = tmp_path.iterdir()
        with path.open() as file, pytest.raises(BlockingIOError):
            flock(file, LOCK_EX | LOCK_NB)
    with path.open() as file:
        flock(file, LOCK_EX | LOCK_NB)


def test_a_measured_point_has_its_host_to_itself_while_it_is_compared(tmp_path, monkeypatch, counted):
    """Each is measured: the simulated device says that it is a GPU."""
    held = []

    class Measured(SimulatedDevice):
        info = DeviceInfo("cuda", "NVIDIA H200")

    monkeypatch.setattr(module, "_host_to_itself", lambda *, wanted: held.append(wanted) or nullcontext())
    for alone in (True, False):
        (point,) = swept_over({"n": [4]}, device=Measured(), alone=alone, repeats=1).points
        assert point.engines["graph"]["repeats"] == 1
    swept_over({"n": [4]})
    assert held == [True, False, False]


def test_a_full_disk_is_our_error_and_what_was_kept_stays_whole(tmp_path, monkeypatch):
    path = tmp_path / "points.jsonl"
    swept_over({"n": [4]}, path=path)
    before = path.read_bytes()

    class Full:
        def write_text(self, *_, **__):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    whole = swept.written_whole

    @module.contextmanager
    def full(target):
        with whole(target):
            yield Full()

    monkeypatch.setattr(swept, "written_whole", full)
    with pytest.raises(OutputError, match="No space left on device"):
        swept_over({"n": [4, 8]}, path=path)
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["points.jsonl"]


POINT = {"settings": {"n": 4}, "version": "", "fastest": [], "wrong": [], "failure": None, "comparison": None}
FAILED = {"kind": "E", "message": "m", "hint": "", "where": "", "source": ""}


@pytest.mark.parametrize(
    "line",
    [
        "somebody's notes",
        "[]",
        "3",
        json.dumps({"sweep": "step"}),
        json.dumps({"sweep": "step", **POINT}),
        json.dumps({"sweep": "step", **POINT, "failure": {"kind": 3}}),
        json.dumps({"sweep": "step", **POINT, "failure": {**FAILED, "more": ""}}),
        json.dumps({"sweep": "step", **POINT, "comparison": {"engines": {"a": {}}}}),
        json.dumps({"sweep": "step", **POINT, "comparison": {"engines": {"a": {"makespan_us": {"median": -1, "low": 0, "high": 0}}}}}),
        json.dumps({"sweep": "step", **POINT, "comparison": {"engines": {}, "device": {"kind": "abacus", "name": "x"}}}),
        json.dumps({"sweep": "step", **POINT, "failure": FAILED, "settings": [4]}),
        json.dumps({"sweep": "step", **POINT, "failure": FAILED})[:-9],
    ],
)
def test_a_file_of_something_else_is_refused_and_stays(tmp_path, line, counted):
    path = tmp_path / "points.jsonl"
    good = json.dumps({"sweep": "step", **POINT, "failure": FAILED})
    path.write_text(f"{good}\n{line}\n")
    with pytest.raises(OutputError, match="line 2 is not a point of a sweep"):
        swept_over(path=path)
    assert path.read_text() == f"{good}\n{line}\n"
    assert not counted


def test_it_is_saved_as_a_table_and_as_points(tmp_path):
    found = swept_over({"n": [4, 8], "streams": [1]})
    lines = found.save(tmp_path / "points.jsonl").read_text().splitlines()
    assert [swept.Point.from_dict(json.loads(line)) for line in lines] == list(found.points)
    table = found.to_pandas()
    assert table["makespan_us"].tolist() == [point.makespan_us(engine) for point in found.points for engine in found.engines]
    assert table["streams"].tolist() == [1] * 4
    assert table["engine_streams"].tolist() == [1] * 4
    assert len(found.save(tmp_path / "points.csv").read_text().splitlines()) == 5
    assert found.save(tmp_path / "points.parquet").exists()
    mixed = [{"a": value, "b": 1} for value in (1, "x", None, True, [2, 3])]
    told = swept.Sweep("s", tuple(swept.Point(settings, failure=swept.Failure("E", "m")) for settings in mixed))
    assert told.save(tmp_path / "mixed.parquet").exists()
    assert told.to_pandas()["a"].tolist() == ["1", "x", "None", "True", "2,3"]


def test_two_sweeps_at_one_time_keep_each_others_points(tmp_path):
    path = tmp_path / "points.jsonl"
    points = swept_over().points
    first, second = swept.PointFile(path, "a"), swept.PointFile(path, "b")
    first.read()
    second.read()
    for one, other in zip(points[:3], points[3:6], strict=True):
        first.add(one)
        first.save()
        second.add(other)
        second.save()
    assert len(swept.PointFile(path, "a").read()) == len(swept.PointFile(path, "b").read()) == 3


def test_the_file_is_written_seldom_where_points_are_many(tmp_path, monkeypatch):
    kept = swept.PointFile(tmp_path / "points.jsonl", "s")
    writes = []
    monkeypatch.setattr(swept, "written_whole", lambda path: writes.append(path) or module.closing(SimpleNamespace(
        write_text=lambda *_, **__: None, close=lambda: None)))  # fmt: skip
    for number in range(2000):
        kept.add(swept.Point({"n": number}, failure=swept.Failure("E", "m")))
    kept.save()
    assert 100 < len(writes) < 500
