"""Each engine's run is handed on as soon as it is recorded, in a thread of its own as the explorer has it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

import streamscope as ss
from streamscope.comparing.compare import comparison_of
from streamscope.devices import open_device
from streamscope.measuring.case import Case

ENGINES = ("async", "dual", "graph", "graph-dual")


class Watching:
    """Notes the runs, and stops after some."""

    def __init__(self, most=9):
        self.runs, self.most, self.steps = [], most, 0

    def __call__(self, what, step, steps, /):
        self.steps += 1

    def recorded(self, run):
        self.runs.append(run)
        if len(self.runs) > self.most:
            raise RuntimeError("enough")


def compared(device, watching):
    def work():
        opened = open_device(device)
        opened.use()
        function, inputs = ss.workload("branches").build(branches=2, length=2, size=1000, copies=1)
        case = Case.of(function, inputs, "ss.compare")
        return comparison_of(case, opened, [*ENGINES], 2, 3, progress=watching, recorded=watching.recorded)

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(work).result()


def test_it_takes_each_run_in_turn():
    watching = Watching()
    found = compared("simulated", watching)
    assert [run.engine for run in watching.runs] == list(ENGINES)
    assert all(found[run.engine] is run for run in watching.runs)
    assert watching.steps > len(ENGINES)


def test_what_it_raises_ends_the_comparison():
    watching = Watching(most=1)
    with pytest.raises(RuntimeError, match="enough"):
        compared("simulated", watching)
    assert [run.engine for run in watching.runs] == ["async", "dual"]


def test_a_comparison_keeps_its_settings_and_its_name():
    function, inputs = ss.workload("branches").build(branches=2, length=2)
    found = ss.compare(function, *inputs, engines="async", device="simulated", settings={"length": 2}, progress=False)
    assert (found.program, found.settings) == ("parallel_branches", {"length": 2})
    assert ss.compare(function, *inputs, engines="async", device="simulated", name="mine", progress=False).program == "mine"


@pytest.mark.gpu
def test_a_gpu_is_measured_in_another_thread_as_well():
    watching = Watching()
    found = compared("cuda", watching)
    assert [run.engine for run in watching.runs] == list(ENGINES)
    assert all(run.correct for run in found.values())
    assert not found.device.simulated
    assert compared("cuda", Watching())["graph"].correct


@pytest.mark.parametrize(("gpus", "said"), [(2, []), (4, []), (3, ["links of 3 GPUs are worked out from those measured on 2 and 4"])])
def test_links_that_were_not_measured_are_told(gpus, said):
    function, inputs = ss.workload("data-parallel").build(gpus=gpus, width=64, rows=64)
    runs = ss.compare(function, *inputs, engines=["async"], device="simulated", progress=False)
    assert [note for note in runs["async"].trace.info.notes if "links" in note] == said
    assert [note for note in runs.to_dict()["engines"]["async"]["flags"] if "links" in note] == said
