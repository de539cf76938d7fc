"""Faults over several GPUs: operands that fail, Ctrl-C, time-outs; `benchmarks/pushed_faults.py` plants thousands."""

from __future__ import annotations

import importlib
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from tests.interrupting import Calls, profiled

import streamscope as ss
from streamscope.errors import EngineError

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


def test_a_hundred_planted_faults_leave_no_hang(environment, tmp_path):
    """In a process of its own, which ends by itself where one hangs."""
    faults = "operand=30,ctrl-c in a push=30,ctrl-c in a wait=20,time-out=20"
    command = [
        sys.executable,
        BENCHMARKS / "pushed_faults.py",
        tmp_path / "result.json",
        "--gpus",
        "3",
        "--pushes",
        "0",
        "--faults",
        faults,
    ]
    finished = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert finished.returncode == 0, finished.stderr
    assert "'time-out': {'planted': 20, 'raised': 20}" in finished.stdout
    assert "'operand': {'planted': 30, 'raised': 30}" in finished.stdout


@pytest.mark.parametrize("name", ["sync", "async", "dual"])
def test_an_operand_that_failed_skips_the_collective_on_all_gpus_and_every_result_carries_it(name):
    with ss.Engine(name, device="simulated", gpus=3) as engine:
        operands, results = ([engine.variable(np.ones(4), gpu=gpu) for gpu in range(3)] for _ in range(2))
        h = engine.variable(np.ones(4), place="host")
        engine.push(lambda values: values[7], reads=(h,), writes=(h,), name="broken")
        engine.push(ss.ops.to_device, reads=(h,), writes=(operands[1],))
        engine.push(ss.ops.all_reduce, reads=operands, writes=results)
        engine.push(ss.ops.add, reads=(results[2], results[2]), writes=(operands[2],))
        with pytest.raises(EngineError, match=r"broken .* failed: IndexError"):
            engine.wait_to_read(operands[2])
        for each in results[:2]:  # Once on each GPU.
            with pytest.raises(EngineError, match=r"broken .* failed: IndexError"):
                engine.read(each)
        assert [each.version for each in results] == [0, 0, 0]
        np.testing.assert_array_equal([engine.read(each) for each in results], np.ones((3, 4)))
        engine.push(ss.ops.all_reduce, reads=operands, writes=results)
        np.testing.assert_array_equal([engine.read(each) for each in results], np.full((3, 4), 3.0))


def test_random_pushes_on_every_engine(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    faults = importlib.import_module("pushed_faults")
    monkeypatch.setattr(faults.faulthandler, "dump_traceback_later", lambda *_, **__: None)
    assert faults.pushed(faults.opened("simulated", 4), 4, 200) == {"async": 200, "dual": 200, "sync": 200}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("again", [False, True], ids=["first", "again"])
@pytest.mark.parametrize("name", ["sync", "async"])
def test_ctrl_c_at_any_call_of_a_push_leaves_no_part_alone(name, again):
    with ss.Engine(name, device="simulated", gpus=2) as engine:
        u, v = (engine.variable(np.ones(4), gpu=gpu) for gpu in (0, 1))
        engine.push(ss.ops.all_reduce, reads=(u, v), writes=[engine.variable(u.spec, gpu=gpu) for gpu in (0, 1)])
        p, q = (engine.variable(np.zeros(4), gpu=gpu) for gpu in (0, 1))

        def push(results):
            engine.push(ss.ops.all_reduce, reads=(u, v), writes=results)

        def targets():
            return (p, q) if again else tuple(engine.variable(np.zeros(4), gpu=gpu) for gpu in (0, 1))

        push(targets())
        results = targets()
        with profiled(undisturbed := Calls()):
            push(results)
        for at in range(1, undisturbed.countdown.count + 1, 1 if again else 3):
            results = targets()
            before = [each.version for each in results]
            with suppress(KeyboardInterrupt), profiled(Calls(at)):
                push(results)
            with suppress(EngineError):  # It was interrupted.
                engine.wait_all(timeout=1.0)
            engine.wait_all(timeout=1.0)
            done = [each.version - version for each, version in zip(results, before, strict=True)]
            assert done in ([0, 0], [1, 1]), at
        push(results)
        np.testing.assert_array_equal([engine.read(each) for each in results], np.full((2, 4), 2.0))
