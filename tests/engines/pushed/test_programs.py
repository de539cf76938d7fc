"""Programs that an engine runs: which preparations it keeps, for which shapes and attributes, and which make room."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import streamscope as ss
from streamscope.devices.cost_model import CostModel
from streamscope.devices.simulated import SimulatedDevice
from streamscope.engines.pushed.engine import Engine
from streamscope.errors import OutOfMemoryError, ProgramError

PROGRAMS = "streamscope.engines.pushed.programs"


@ss.program
def doubled(x):
    return x + x


@ss.program
def scaled(x, *, factor=1, training=False):
    return x * factor if training else x + 0


@pytest.fixture(autouse=True)
def much_host_memory(monkeypatch):
    """Whatever else this machine does."""
    monkeypatch.setattr(f"{PROGRAMS}.free_bytes", lambda: 1 << 40)


def device_of(nbytes):
    """Return a simulated device with so much memory."""
    return SimulatedDevice(replace(CostModel.load(), memory_gb=nbytes / 1e9))


def run_doubled(engine, *lengths):
    for length in lengths:
        x = np.arange(length, dtype=np.float32)
        np.testing.assert_array_equal(engine.run(doubled, x), 2 * x)


def counts(engine):
    numbers = engine.statistics
    return numbers.programs_prepared, numbers.programs_evicted, numbers.programs_kept


def test_forty_shapes_in_turn_are_prepared_once_each(device):
    with Engine("graph", device=device) as engine:
        for _ in range(3):
            run_doubled(engine, *range(1, 41))
        assert counts(engine) == (40, 0, 40)
        assert engine.statistics.program_runs == 120
        # From the second run on each is a graph.
        assert all(entry.idle[0].graphs for entry in engine._programs.kept._entries.values())


def test_when_device_memory_gets_short_programs_go_by_use():
    # 1,000 bytes for each shape, two variables; an eighth stays free: 35 of them fit.
    with Engine("graph", device=device_of(40_000)) as engine:
        for length in range(125, 185):
            run_doubled(engine, 125, 125 + length % 2)  # Used again and again, so they stay.
            run_doubled(engine, length)
        prepared, evicted, kept = counts(engine)
        assert evicted > 0
        assert prepared == 60  # None that was in use was prepared anew.
        assert 20 < kept < 40
        assert engine.device.free_share() > 0


@pytest.mark.parametrize("engine_name", ["async", "graph"])
def test_when_memory_runs_out_others_make_room_before_anything_fails(engine_name):
    with Engine(engine_name, device=device_of(1 << 20)) as engine:
        lengths = [40_000, 50_000, 60_000, 70_000, 120_000]  # 8 bytes each; two or three fit, or only the last
        run_doubled(engine, *lengths, *lengths)
        prepared, evicted, kept = counts(engine)
        assert (prepared, kept) == (10, prepared - evicted)
        with pytest.raises(OutOfMemoryError, match=r"input 'x' needs|add .* needs"):
            engine.run(doubled, np.ones(140_000, np.float32))
        run_doubled(engine, 40_000)


def test_programs_make_room_for_variables():
    with Engine("async", device=device_of(1 << 20)) as engine:
        run_doubled(engine, 40_000, 50_000)
        x = engine.variable(np.ones(200_000, np.float32))
        assert engine.read(x).sum() == 200_000
        assert counts(engine) == (2, 2, 0)


def test_when_host_memory_is_short_few_are_kept(monkeypatch, device):
    monkeypatch.setattr(f"{PROGRAMS}.free_bytes", lambda: 0)
    with Engine("async", device=device) as engine:
        run_doubled(engine, *range(1, 31))
        assert counts(engine) == (30, 14, 16)


@pytest.mark.parametrize("engine_name", ["async", "graph"])
def test_a_flag_that_changes_what_is_traced_has_a_preparation_of_its_own(engine_name, device):
    x = np.arange(4, dtype=np.float32)
    with Engine(engine_name, device=device) as engine:
        for _ in range(3):
            np.testing.assert_array_equal(engine.run(scaled, x, training=True, factor=3), 3 * x)
            np.testing.assert_array_equal(engine.run(scaled, x, training=False, factor=3), x)
        assert counts(engine) == (2, 0, 2)
        whole = np.arange(4)
        assert engine.run(scaled, whole, training=True, factor=2).dtype == np.int64
        assert engine.run(scaled, whole, factor=2.0, training=True).dtype == np.float64  # 2 == 2.0, and another program
        engine.run(scaled, whole, training=True, factor=2.0)
        assert counts(engine) == (4, 0, 4)


def test_attributes_that_no_program_takes():
    x = np.ones(3, np.float32)
    with Engine("async", device="simulated") as engine:
        with pytest.raises(ProgramError, match="attribute factor= is an ndarray, which cannot be looked up"):
            engine.run(scaled, x, training=True, factor=x)
        assert counts(engine) == (0, 0, 0)


def test_attributes_reach_a_program_inside_a_program():
    @ss.program
    def outer(x, *, training):
        return scaled(x, factor=5, training=training)

    x = np.arange(4, dtype=np.float32)
    with Engine("graph", device="simulated") as engine:
        np.testing.assert_array_equal(engine.run(outer, x, training=True), 5 * x)
        np.testing.assert_array_equal(engine.run(outer, x, training=False), x)
