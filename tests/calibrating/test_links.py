"""The costs of links that `streamscope calibrate --gpus` measures: steps that hang, and the model of made-up readings."""

import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from streamscope.calibrating import link_costs
from streamscope.calibrating.link_costs import link_readings, run_step
from streamscope.calibrating.link_fit import fitted_links, held_out_errors
from streamscope.cli.main import main
from streamscope.devices.cost_model import CostModel
from streamscope.devices.link_model import COLLECTIVES, LinkModel
from streamscope.errors import DeviceError
from streamscope.kernels.library import libraries

GAP_NS = CostModel.load("h200").kernel_gap_ns
SIZES = [1 << exponent for exponent in range(10, 31, 4)]


def timed(nbytes, ns, **more):
    return {"nbytes": nbytes, "stream_ns": [ns + GAP_NS - 100, ns + GAP_NS], "call_ns": 20_000.0, **more}


def beside(neighbour, priority, share):
    what = {"kind": "all_reduce", "nbytes": 1 << 24, "neighbour": neighbour, "priority": priority}
    alone = {"communication": [70.0, 70.0], "compute": [80.0, 80.0]}
    together = {"communication": [100.0, 100.0], "compute": [80 / share] * 2}
    return what | {"alone_ns": alone, "beside_ns": together}


@pytest.fixture(autouse=True)
def _no_model_of_this_machine(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def readings():
    graph = {"graph_ns": 8000.0, "graph_alone_ns": 21_000.0, "graph_call_ns": 11_000.0}
    collectives = [timed(size, 9000 + size / 330, blocks=[24, 24], threads=[512, 544], **graph) for size in SIZES]
    reductions = [timed(size, 9700 + size / 330, blocks=[24, 24], threads=[512, 544], **graph) for size in SIZES]
    copies = [timed(size, 2000 + size / 400, direction="one") for size in SIZES]
    neighbours = [
        beside(name, priority, share) | {"nbytes": size}
        for name, share in (("matmul", 0.8), ("elementwise", 0.5))
        for priority in ("equal", "communication")
        for size in SIZES[-2:]
    ]
    machine = {"devices": ["NVIDIA X1", "NVIDIA X1"], "cuda": 13000, "nccl": 22803, "driver": "580.1", "versions": {}}
    steps = dict.fromkeys(COLLECTIVES, collectives) | {"all_reduce": reductions}
    return {
        "gpus": 2,
        "date": "2026-11-26",
        "errors": {},
        "steps": steps | {"machine": [machine], "peer_copies": copies, "host_copies": copies, "neighbours": neighbours},
    }


def test_the_command_keeps_the_model_and_tells_its_errors(tmp_path, monkeypatch, capsys):
    found = readings()
    more = {"kind": "send", "nbytes": 3 << 20, "stream_ns": [9000 + (3 << 20) / 330 + GAP_NS] * 2}
    found["steps"]["more_sizes"] = [more, more | {"stream_ns": [2 * more["stream_ns"][0]]}]
    monkeypatch.setattr(link_costs, "link_readings", lambda gpus, **_: found)
    monkeypatch.setattr(libraries, "libraries", lambda: SimpleNamespace(runtime=SimpleNamespace(getDeviceCount=lambda: 2)))
    path = tmp_path / "links.json"
    assert main(["calibrate", "--gpus", "2", "--out", str(path)]) == 0
    assert LinkModel.load(path) == fitted_links(found)
    said = capsys.readouterr().out
    assert "2 x NVIDIA X1: all-reduce of 1 GiB at 329 GB/s, sizes between within 50%, half of them within 25%, wrote" in said
    assert main(["calibrate", "--gpus", "3"]) == 1
    assert "3 GPUs were asked for, and there are 2" in capsys.readouterr().err


def test_a_step_that_hangs_is_ended_and_keeps_its_readings():
    hanging = "import sys, time; file = open(sys.argv[1], 'w'); file.write('4\\n5'); file.flush(); time.sleep(60)"
    found, error = run_step([sys.executable, "-c", hanging], 1.0)
    assert found == [4]
    assert error == "not done after 1 s"


def test_steps_for_which_no_time_is_left_are_named(tmp_path):
    found = link_readings(2, tmp_path / "found.json", limit_s=0)
    assert found["left out"][:2] == ["machine", "all_reduce"]
    with pytest.raises(DeviceError, match=r"no readings of machine, all_reduce.*the time was up"):
        fitted_links(found)


def test_the_model_of_made_up_readings():
    model = fitted_links(readings())
    for size in (SIZES[0], SIZES[2], 3 << 25):
        assert model.collective_ns("all_gather", size, 2) == pytest.approx(9000 + size / 330, rel=0.001)
        assert model.peer_copy_ns(size) == pytest.approx(2000 + size / 400, rel=0.001)
    assert model.channels("send", 1 << 20, 2) == 24
    assert model.channel_threads == 544
    assert (model.call_ns(2), model.call_ns(4)) == (20_000, 40_000)
    assert (model.hop_ns, model.graph_call_ns, model.graph_join_ns) == (700, 11_000, 13_000)
    assert model.kernel_speed_beside("matmul", 1 << 30) == pytest.approx(0.8)
    assert model.kernel_speed_beside("elementwise", 1 << 24) == pytest.approx(0.5)
    assert model.collective_speed_beside("matmul", 1 << 24) == pytest.approx(0.7)
    assert model.provenance.device == "2 x NVIDIA X1"
    assert model.provenance.versions["nccl"] == "2.28.3"


def test_gaps_of_graphs_are_those_of_chains_in_turns_beyond_a_chain_of_each():
    def chain(ns, call_ns=0.0):
        return {"ns": ns, "call_ns": call_ns, "launch_ns": 9000.0}

    found, costs = readings(), CostModel.load("h200")
    reduced = {"kind": "all_reduce", "nbytes": SIZES[2], "kernels": chain(2000.0), "alone": chain(8000.0, 3000.0), "both": chain(13_000.0)}
    copied = {"kind": "copy", "nbytes": SIZES[2], "kernels": chain(2000.0)}
    copied["both"] = chain(2 * (2000 + round(2000 + SIZES[2] / 400) + costs.graph_node_gap_ns + 9000))
    without, model = fitted_links(found), fitted_links(found | {"steps": found["steps"] | {"graph_gaps": [reduced, copied]}})
    built_in = LinkModel.load()
    assert (without.graph_part_ns, without.graph_copy_ns) == (built_in.graph_part_ns, built_in.graph_copy_ns)
    assert without.provenance.how["graph_copy_ns"].startswith("not measured here")
    assert (model.graph_part_ns, model.graph_copy_ns, model.graph_arrival_ns) == (1500, 2000, 7000)
    assert model.graph_collective_ns == 3000 + model.graph_behind_ns
    assert model.graph_gpu_ns == built_in.graph_gpu_ns
    assert model.provenance.how["graph_part_ns"].startswith("measured")


def test_a_smaller_collective_never_takes_more_time():
    found = readings()
    found["steps"]["send"] = [timed(size, ns, blocks=[1]) for size, ns in zip(SIZES, (5000, 4000), strict=False)]
    assert [fitted_links(found).collective_ns("send", size, 2) for size in SIZES[:2]] == [4000, 4000]


def test_errors_are_of_readings_that_the_table_does_not_have():
    found = readings()
    ns = 9000 + 3 * (1 << 20) / 330 + GAP_NS
    more = {"kind": "send", "nbytes": 1 << 21, "stream_ns": [9000 + (1 << 21) / 330 + GAP_NS] * 2}
    found["steps"]["more_sizes"] = [more, more | {"nbytes": 3 << 20, "stream_ns": [0.8 * ns, 0.5 * ns]}]
    model = fitted_links(found)
    assert len(model.collective_points[2]["send"]) == len(SIZES) + 1
    assert held_out_errors(model, found)["send"] == pytest.approx([0.25], abs=0.001)


def test_the_built_in_model_is_that_of_the_committed_readings(repository):
    found = json.loads((repository / "benchmarks" / "results" / "link_costs.json").read_text(encoding="utf-8"))
    model, built_in = fitted_links(found), LinkModel.load("h100")
    assert model.collective_points[2] == built_in.collective_points[2]
    assert model.peer_points == built_in.peer_points
    assert built_in.is_measured(4)
    sizes = [abs(each) for kind in held_out_errors(model, found).values() for each in kind]
    assert len(sizes) >= 60
    assert np.median(sizes) < 0.012
    assert max(sizes) < 0.15
