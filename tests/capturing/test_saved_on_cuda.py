"""What a GPU captured opens again as what it was, and simulates to about what the GPU takes."""

from __future__ import annotations

import pytest

import streamscope as ss

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def captured():
    cupy = pytest.importorskip("cupy")

    def branches(x):
        return tuple(cupy.tanh(cupy.exp(-x * (number + 1))) for number in range(6))

    return ss.capture(branches, cupy.linspace(0, 1, 1 << 16, dtype=cupy.float32))


def test_a_capture_opens_as_what_it_was(captured, tmp_path):
    loaded = ss.load_captured(captured.save(tmp_path / "branches.captured.json"))
    assert (loaded.nodes, loaded.memories, loaded.durations_us) == (captured.nodes, captured.memories, captured.durations_us)
    assert loaded.certificate().to_dict() == captured.certificate().to_dict()
    assert loaded.capture_us == pytest.approx(captured.capture_us, rel=0.5)  # measured anew each time that it is asked for
    assert loaded.origin() == captured.origin()
    assert loaded.device == ss.open_device("cuda").info.name
    assert all(launch.cost.per_multiprocessor > 0 for launch in loaded.program.launches())


def test_it_runs_on_the_simulated_device_though_there_is_a_gpu(captured, tmp_path):
    loaded = ss.load_captured(captured.save(tmp_path / "branches.captured.json"))
    runs = ss.compare(loaded, engines="graph,graph-dual", progress=False)
    assert runs.device.simulated
    assert runs["graph"].metrics.makespan_us >= sum(captured.durations_us)  # The capture is a chain.
    assert runs["graph-dual"].metrics.makespan_us < runs["graph"].metrics.makespan_us
    with pytest.raises(ss.StreamscopeError, match="without its kernels"):
        ss.prepare(loaded, device="cuda", progress=False)
