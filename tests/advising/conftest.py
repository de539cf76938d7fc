"""The costs of the simulated H200, fitted once for all tests, and chains with kernels of any length."""

from __future__ import annotations

import pytest

from streamscope.advising.break_even import DeviceCosts, chain, forked
from streamscope.devices.simulated import SimulatedDevice
from streamscope.engines.prepared import prepare_traced
from streamscope.measuring.case import run_ns


@pytest.fixture(scope="session")
def costs():
    return DeviceCosts.of(SimulatedDevice())


@pytest.fixture(scope="session")
def simulated_ns():
    """Return a function that runs a small program on the simulated device, each kernel as long as one says, and times a run."""

    def makespan_ns(made, engine, length_ns):
        program, inputs = made
        traced, device = program.trace(*inputs), SimulatedDevice()
        alone = {launch.name: device.estimate_ns(launch) for launch in traced.launches()}
        stretched = SimulatedDevice(delays=lambda launch, stream: (0.0, length_ns / alone[launch.name]))
        prepared = prepare_traced(traced, engine, stretched)
        prepared.load(inputs)
        for _ in range(3):
            prepared.run()
        prepared.wait()
        return run_ns(prepared)[1]

    return makespan_ns


@pytest.fixture(scope="session")
def simulated_chain_ns(simulated_ns):
    """``(engine, count, length_ns)`` to the makespan of a chain, in ns."""
    return lambda engine, count, length_ns: simulated_ns(chain(count, 64), engine, length_ns)


@pytest.fixture(scope="session")
def simulated_branches_ns(simulated_ns):
    """``(engine, count, length_ns)`` to the makespan of two branches that meet, in ns."""
    return lambda engine, count, length_ns: simulated_ns(forked(1, count, 16), engine, length_ns)
