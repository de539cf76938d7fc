"""NVTX ranges by a module that notes pushes and pops: what they are called, how they nest, and that they end whatever happens."""

from __future__ import annotations

import sys
import threading
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

import streamscope as ss
from streamscope.engines.nvtx_ranges import RANGES
from streamscope.engines.plan import Issue
from streamscope.errors import DeviceError, EngineError
from streamscope.interrupts import deferred

X = np.linspace(-1, 1, 8, dtype=np.float32)


@ss.program
def step(x):
    """Operations in labels, one of them inside another, and one in none."""
    with ss.label("mlp"):
        h = x * x
        with ss.label("gate"):
            h = np.tanh(h)
            h = ss.ops.relu(h)
    return h + x


STEP = ["step", ["mlp", ["multiply"], ["gate", ["tanh"], ["relu"]]], ["add"]]


class Fake:
    """Notes ranges by thread, as trees of names."""

    def __init__(self):
        self.trees = {}
        self.open = {}

    def push(self, name):
        thread = threading.get_ident()
        inside = self.open.setdefault(thread, [self.trees.setdefault(thread, [])])
        inside[-1].append([name])
        inside.append(inside[-1][-1])

    def pop(self):
        assert len(self.open[threading.get_ident()]) > 1, "a range of the user's is closed"
        self.open[threading.get_ident()].pop()

    @property
    def here(self):
        return self.trees.get(threading.get_ident(), [])

    def check(self):
        """No range is open on any thread."""
        assert all(len(inside) == 1 for inside in self.open.values())


@pytest.fixture
def fake(monkeypatch):
    made, module = Fake(), ModuleType("nvtx")
    module.push_range, module.pop_range = made.push, made.pop
    monkeypatch.setitem(sys.modules, "nvtx", module)
    yield made
    ss.nvtx(False)
    made.check()


def prepared_for(engine):
    return ss.prepare(step, X, engine=engine, device="simulated", progress=False)


@pytest.mark.parametrize("engine", ["sync", "async", "dual"])
def test_labels_nest_in_the_run_and_operations_in_them(fake, engine):
    prepared = prepared_for(engine)
    prepared.run()
    assert fake.here == []
    ss.nvtx()
    prepared.run()
    ss.nvtx(False)
    prepared.run()
    assert fake.here == [STEP]
    assert prepared.host_totals.rows == ()


def test_a_graph_is_one_range_around_its_launch_and_its_first_run_has_all(fake):
    ss.nvtx(True)
    prepared = prepared_for("graph")
    for _ in range(3):
        prepared.run()
    assert fake.here == [STEP, ["step", ["graph of step"]], ["step", ["graph of step"]]]


def test_ranges_are_balanced_when_a_launch_fails(fake):
    prepared = prepared_for("async")
    ss.nvtx(True)
    failing = next(bound for bound in prepared.bound if isinstance(bound.step, Issue) and bound.step.launch.operation == 1)
    working = failing.call

    def fail():
        raise DeviceError("no")

    failing.call = fail
    prepared._calls = [bound.call for bound in prepared.bound]
    fake.push("mine")
    with pytest.raises(DeviceError, match="no"):
        prepared.run()
    fake.pop()
    failing.call = working
    prepared._calls = [bound.call for bound in prepared.bound]
    prepared.run()
    assert fake.here == [["mine", ["step", ["mlp", ["multiply"], ["gate", ["tanh"]]]]], STEP]


def test_ranges_that_are_switched_off_in_a_run_are_closed(fake):
    def off(values):
        ss.nvtx(False)
        return values

    switch = ss.host_function(off)
    prepared = ss.prepare(lambda x: switch(ss.ops.to_host(x)), X, engine="async", device="simulated", progress=False)
    ss.nvtx(True)
    prepared.run()
    assert fake.here[0][-1] == ["off"]


def test_ranges_and_totals_go_together(fake):
    prepared = prepared_for("async")
    ss.nvtx(True)
    prepared.host_totals.start()
    prepared.run()
    assert {row.name: row.count for row in prepared.host_totals.rows} == {"multiply": 1, "tanh": 1, "relu": 1, "add": 1}
    assert fake.here == [STEP]


@pytest.mark.parametrize("before", [True, False])
def test_a_pushed_engine_has_a_range_for_each_operation_bulk_and_host_function(fake, before):
    if before:
        ss.nvtx(True)
    with ss.Engine("async", device="simulated") as engine:
        ss.nvtx(True)
        x, h = engine.variable(X), engine.variable(X, place="host")
        fake.trees.clear()
        fake.open.clear()
        engine.push(ss.ops.add, reads=(x, x), writes=(x,))
        engine.push(ss.ops.add, reads=(x, x), writes=(x,))
        engine.push(lambda values: values + 1, reads=(h,), writes=(h,), name="plus one")
        engine.wait_all()
        with engine.bulk(2):
            for _ in range(2):
                engine.push(ss.ops.relu, reads=(x,), writes=(x,))
        engine.run(step, X)
        ss.nvtx(False)
        engine.push(ss.ops.add, reads=(x, x), writes=(x,))
        assert "issue" not in vars(engine._issuer)
    assert fake.here == [["add"], ["add"], ["bulk of 2: relu and relu"], STEP]
    (worker,) = [tree for thread, tree in fake.trees.items() if thread != threading.get_ident()]
    assert worker == [["plus one"]]


def test_a_host_function_that_fails_closes_its_range(fake):
    ss.nvtx(True)
    with ss.Engine("sync", device="simulated") as engine:
        h = engine.variable(X, place="host")
        engine.push(lambda values: values[99], reads=(h,), writes=(h,), name="broken")
        with pytest.raises(EngineError, match="broken"):
            engine.wait_all()
    assert fake.here == [["broken"]]
    fake.check()


def test_engines_that_are_gone_are_not_told(fake):
    with ss.Engine("async", device="simulated") as engine:
        watched = len(RANGES._watching)
        assert watched > 0
    del engine
    ss.nvtx(True)
    assert len(RANGES._watching) == watched - 1


def test_ctrl_c_comes_when_a_range_is_counted(fake, monkeypatch):
    ss.nvtx(True)
    opened, push = RANGES.opened(), fake.push
    assert opened is not None

    def interrupted(name):
        push(name)
        import _thread

        _thread.interrupt_main()

    opened._push = interrupted
    with pytest.raises(KeyboardInterrupt):
        opened.push("a")
    opened.close()
    fake.check()
    with deferred():
        assert fake.here == [["a"]]


def test_cupys_ranges_serve_without_the_package(monkeypatch):
    said = []
    monkeypatch.setitem(sys.modules, "nvtx", None)
    for name in ("cupy", "cupy.cuda"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    functions = SimpleNamespace(RangePush=said.append, RangePop=lambda: said.append(None))
    monkeypatch.setitem(sys.modules, "cupy.cuda.nvtx", functions)
    prepared = ss.prepare(lambda x: x + x, X, engine="async", device="simulated", progress=False)
    ss.nvtx(True)
    try:
        prepared.run()
    finally:
        ss.nvtx(False)
    assert said == ["<lambda>", "add", None, None]


def test_without_a_package_it_says_which_and_stays_off(monkeypatch):
    for name in ("nvtx", "cupy", "cupy.cuda", "cupy.cuda.nvtx"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(EngineError, match="needs a package that makes NVTX ranges") as raised:
        ss.nvtx(True)
    assert raised.value.hint == "pip install nvtx, or CuPy"
    assert not RANGES.on
    ss.nvtx(False)


@pytest.mark.parametrize("on", [1, "yes", None])
def test_a_wrong_argument_is_refused(on):
    with pytest.raises(EngineError, match="takes True or False"):
        ss.nvtx(on)
