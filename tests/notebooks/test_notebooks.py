"""The notebooks run from top to bottom, and the recordings beside them open."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

import streamscope as ss
from streamscope.engines import PLANNERS
from streamscope.workloads import WORKLOADS

nbformat = pytest.importorskip("nbformat")
pytest.importorskip("nbclient")

NOTEBOOKS = ("01_compare_engines.ipynb",)
RECORDINGS = ("branches", "cnn", "conv-backward", "elementwise-chain", "pipeline")
MOST_BYTES = 1_500_000
# Copies with the outputs of a GPU, made by scripts/execute_notebook.py.
COPIES = sorted((Path(__file__).parents[2] / "notebooks" / "recorded").glob("*.executed.ipynb"))
WIDGET = "application/vnd.jupyter.widget-view+json"
PLOTLY = "application/vnd.plotly.v1+json"
# A kernel's own warnings are about the machine; ours and those of the libraries that we call are errors.
STRICT_SITE = "import warnings\nfor name in ('streamscope', 'streamscope_widgets', '__main__'):\n"
STRICT_SITE += "    warnings.filterwarnings('error', module=rf'{name}(\\.|$)')\n"


def outputs(notebook, mime):
    """Return what the notebook displayed of one MIME type."""
    shown = (output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs)
    return [output["data"][mime] for output in shown if mime in output.get("data", {})]


def streams(notebook):
    """Return what the notebook printed, by stream."""
    printed = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs if output.output_type == "stream"]
    return {name: "".join(output["text"] for output in printed if output["name"] == name) for name in ("stdout", "stderr")}


@pytest.fixture(scope="module")
def execute(repository):
    """`execute` of the script that makes the copy with outputs."""
    spec = importlib.util.spec_from_file_location("execute_notebook", repository / "scripts" / "execute_notebook.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.execute


@pytest.fixture(scope="module", params=NOTEBOOKS)
def executed(request, repository, execute, tmp_path_factory):
    """A notebook with its outputs, run in a copy of the folders it reads, on the simulated device."""
    root = tmp_path_factory.mktemp("checkout")
    shutil.copytree(repository / "notebooks", root / "notebooks")
    shutil.copytree(repository / "benchmarks" / "results", root / "benchmarks" / "results")
    startup = root / "ipython" / "profile_default" / "startup"
    startup.mkdir(parents=True)
    (startup / "strict.py").write_text(STRICT_SITE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(str(repository / part) for part in ("toolkit", "widgets")))
        patch.setenv("IPYTHONDIR", str(root / "ipython"))
        patch.setenv("CUDA_VISIBLE_DEVICES", "")  # The driver then lists no GPU, so that `auto` is the simulated device.
        patch.delenv("PLOTLY_RENDERER", raising=False)
        return execute(root / "notebooks" / request.param)


def test_every_notebook_is_tested(repository):
    assert sorted(path.name for path in (repository / "notebooks").glob("*.ipynb")) == sorted(NOTEBOOKS)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebook_is_stored_without_outputs(repository, name):
    notebook = nbformat.read(repository / "notebooks" / name, as_version=4)
    nbformat.validate(notebook)
    assert notebook.metadata.kernelspec.name == "python3"
    assert "widgets" not in notebook.metadata
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert (cell.outputs, cell.execution_count) == ([], None)


def test_notebook_runs_and_shows_what_it_speaks_of(executed):
    # `execute` raises where a cell fails; that every cell ran is seen by its number.
    code = [cell for cell in executed.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    verdicts = [html for html in outputs(executed, "text/html") if "graph" in html and "<img" in html]
    simulated = [html for html in verdicts if "simulated" in html]
    assert len(simulated) >= 4
    assert len(verdicts) - len(simulated) >= 4, "recorded comparisons are not shown as simulated ones"
    assert len(outputs(executed, WIDGET)) >= 5
    assert len(outputs(executed, PLOTLY)) >= 5


def test_notebook_complains_of_nothing(executed):
    assert streams(executed)["stderr"] == ""


def test_notebook_says_that_it_ran_on_the_simulated_device(executed):
    assert "(simulated)" in streams(executed)["stdout"].splitlines()[0]


def test_every_widget_that_was_shown_can_be_shown_again(executed):
    shown = {view["model_id"] for view in outputs(executed, WIDGET)}
    (state,) = executed.metadata.widgets.values()
    assert shown <= set(state["state"])


def test_saved_notebook_stays_small(executed):
    assert len(nbformat.writes(executed).encode()) < MOST_BYTES


@pytest.mark.parametrize("copy", COPIES, ids=lambda path: path.name)
def test_copy_with_outputs_is_of_a_gpu_and_of_the_notebook_as_it_is(repository, copy):
    executed = nbformat.read(copy, as_version=4)
    notebook = nbformat.read(repository / "notebooks" / copy.name.replace(".executed", ""), as_version=4)
    assert [cell.source for cell in executed.cells] == [cell.source for cell in notebook.cells]
    assert "(cuda)" in streams(executed)["stdout"].splitlines()[0]
    assert copy.stat().st_size < MOST_BYTES


def test_there_is_a_recording_of_every_workload(repository):
    recorded = {path.name for path in (repository / "notebooks" / "recorded").iterdir() if path.is_dir()}
    assert recorded == set(RECORDINGS) == set(WORKLOADS)


@pytest.fixture(params=RECORDINGS)
def recording(request, repository):
    """The folder of one recording."""
    return repository / "notebooks" / "recorded" / request.param


def test_recording_opens_with_its_verdict_and_numbers(recording):
    stored = json.loads((recording / "comparison.json").read_text(encoding="utf-8"))
    comparison = ss.load_comparison(recording)
    assert list(comparison) == list(PLANNERS)
    assert comparison.verdict == stored["verdict"]
    written = json.loads(json.dumps(comparison.to_json()))
    assert written == {key: stored[key] for key in written}
    for engine, run in comparison.items():
        assert run.metrics.makespan_us == pytest.approx(np.median(stored["makespans_ns"][engine]) / 1e3)


def test_recording_is_real_and_right(recording):
    comparison = ss.load_comparison(recording)
    assert (comparison.device.kind, comparison.device.name) == ("cuda", "NVIDIA H200")
    assert all(run.correct for run in comparison.values())
    for engine, run in comparison.items():
        assert run.trace.info.device == comparison.device
        assert (run.trace.info.engine, run.trace.info.recorder) == (engine, "events")


def test_recordings_are_of_one_program_each(recording):
    comparison = ss.load_comparison(recording)
    kernels = {engine: run.metrics.kernel_count for engine, run in comparison.items()}
    assert len(set(kernels.values())) == 1, kernels


def makespan_us(repository, workload):
    comparison = ss.load_comparison(repository / "notebooks" / "recorded" / workload)
    return {engine: metrics.makespan_us for engine, metrics in comparison.metrics.items()}


def test_a_graph_makes_the_recorded_chain_at_least_two_and_a_half_times_faster(repository):
    chain = makespan_us(repository, "elementwise-chain")
    assert chain["async"] / chain["graph"] >= 2.5


def test_a_second_stream_inside_the_graph_pays_for_the_recorded_gradients(repository):
    gradients = makespan_us(repository, "conv-backward")
    assert gradients["graph-dual"] < gradients["graph"]


def test_recorded_kernels_overlap_only_on_two_streams(recording):
    overlap = {engine: metrics.overlap for engine, metrics in ss.load_comparison(recording).metrics.items()}
    assert [overlap[engine] for engine in ("sync", "async", "graph")] == [0, 0, 0]
