"""Forked children: what they inherit says at once that it does not work there, and what they make themselves works."""

from __future__ import annotations

import subprocess
import sys

import pytest

FORKED = """
import os, sys, threading
import numpy as np
import streamscope as ss
from streamscope.errors import EngineError

@ss.program
def double(x):
    return x + x

device = ss.open_device(sys.argv[1])
ones = np.ones(4, np.float32)
engine = ss.Engine("async", device=device)
h = engine.variable(ones, place="host")
x = engine.variable(ones)
engine.push(lambda values: values + 1, reads=(h,), writes=(h,))
engine.push(ss.ops.add, reads=(x, x), writes=(x,))
engine.run(double, ones)
engine.wait_all()
prepared = ss.prepare(double.trace(ones), engine="graph", device=device)
prepared.load([ones])
prepared.run()

# A thread of the parent's that holds what it can when the process is forked.
held, go = threading.Event(), threading.Event()

def hold():
    with prepared.lock, engine._issuer.lock, engine._programs.kept._lock, engine._issuer.memory._lock:
        held.set()
        go.wait()

threading.Thread(target=hold, daemon=True).start()
held.wait()

CALLS = {
    "variable": lambda: engine.variable(ones),
    "push": lambda: engine.push(ss.ops.add, reads=(x, x), writes=(x,)),
    "push host": lambda: engine.push(print, reads=(h,)),
    "write": lambda: engine.write(x, ones),
    "read": lambda: engine.read(x),
    "delete": lambda: engine.delete(x),
    "wait_to_read": lambda: engine.wait_to_read(h),
    "wait_to_write": lambda: engine.wait_to_write(x),
    "wait_all": lambda: engine.wait_all(),
    "bulk": lambda: engine.bulk().__enter__(),
    "run": lambda: engine.run(double, ones),
    "statistics": lambda: engine.statistics,
    "load": lambda: prepared.load([ones]),
    "prepared run": lambda: prepared.run(),
    "outputs": lambda: prepared.outputs(),
    "capture": lambda: prepared.capture(),
    "rebind": lambda: prepared.rebind({}),
    "retrace": lambda: prepared.retrace(double.trace(ones)),
    "segments": lambda: prepared.segments,
    "another engine there": lambda: ss.Engine("async", device=device).variable(ones) if sys.argv[1] == "simulated" else engine.read(x),
}

sys.stdout.flush()
child = os.fork()
if child == 0:
    for name, call in CALLS.items():
        try:
            call()
            print("not refused:", name)
        except EngineError as error:
            assert "before this process was forked" in error.message and "spawn" in error.hint, error
    with engine:
        pass
    engine.close()
    repr(engine), repr(prepared)
    with ss.Engine("async", device="simulated") as own:
        print("own", own.run(double, ones).tolist())
    del engine, prepared, x, h
    sys.exit(0)  # The way out with all finalizers.
status = os.waitpid(child, 0)[1]
go.set()
print("child", os.waitstatus_to_exitcode(status))
engine.push(ss.ops.add, reads=(x, x), writes=(x,))
prepared.run()
print("parent", engine.read(x).tolist(), engine.read(h).tolist(), prepared.outputs()[0].tolist())
engine.close()
"""


@pytest.mark.parametrize("device", ["simulated", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_what_a_forked_child_inherits_says_at_once_that_it_does_not_work_there(device, environment):
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKED, device]
    finished = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert finished.stderr == ""
    assert finished.stdout.splitlines() == [
        "own [2.0, 2.0, 2.0, 2.0]",
        "child 0",
        "parent [4.0, 4.0, 4.0, 4.0] [2.0, 2.0, 2.0, 2.0] [2.0, 2.0, 2.0, 2.0]",
    ]
