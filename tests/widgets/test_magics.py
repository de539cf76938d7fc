"""The cell magic, by running real cells."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from IPython.core.completer import provisionalcompleter
from IPython.core.error import UsageError
from IPython.core.inputtransformer2 import TransformerManager
from IPython.utils.capture import capture_output
from tests.widgets.conftest import a_shell

from streamscope.analysis.table import device_words
from streamscope.comparing.comparison import Comparison, load_comparison
from streamscope.devices.simulated import SimulatedDevice
from streamscope.engines import engine_names
from streamscope.errors import NoDeviceError, OutputError, ProgramError
from streamscope.options import REPORT
from streamscope.results.result import report_suffix
from streamscope.trace import DeviceInfo
from streamscope_widgets import expectations
from streamscope_widgets.expectations import metric_names
from streamscope_widgets.magic_options import FLAGS
from streamscope_widgets.magics import Session, run_assert

pytestmark = pytest.mark.usefixtures("bundle")
SIMULATED = "--device simulated"
SIMULATED_WORDS = device_words(SimulatedDevice().info)
SETUP = "%load_ext streamscope\nimport numpy as np, streamscope as ss\nx = np.ones((4, 4), np.float32)\nw = x / 4\nn = 2"


@pytest.fixture(scope="module")
def one_shell(tmp_path_factory):
    """A shell with the extension and some arrays."""
    with a_shell(tmp_path_factory.mktemp("ipython"), SETUP) as made:
        yield made


@pytest.fixture
def shell(one_shell):
    """The shell, whose names are afterwards what they were."""
    names = dict(one_shell.user_ns)
    yield one_shell
    one_shell.user_ns.clear()
    one_shell.user_ns.update(names)


def run(shell, cell):
    with capture_output() as captured:
        result = shell.run_cell(cell)
    return result, captured


def test_the_comparison_is_assigned_and_shown(shell):
    result, captured = run(
        shell, f"%%streamscope {SIMULATED} --engines async,graph -o runs --no-timeline\nh = ss.ops.matmul(x, w)\nss.ops.relu(h)"
    )
    result.raise_error()
    runs = shell.user_ns["runs"]
    assert isinstance(runs, Comparison)
    assert list(runs) == ["async", "graph"]
    assert runs["graph"].metrics.kernel_count == 2
    assert runs["graph"].correct
    (shown,) = captured.outputs
    assert SIMULATED_WORDS in shown.data["text/html"]
    assert runs.verdict in shown.data["text/plain"]
    assert "h" not in shell.user_ns
    assert result.result is None


def test_the_cell_sees_the_users_names_and_leaves_them_alone(shell):
    cell = f"%%streamscope {SIMULATED} --engines sync -o runs --no-timeline\nn = n + 1\nfor _ in range(n):\n    x = ss.ops.relu(x)\nx"
    run(shell, cell)[0].raise_error()
    assert shell.user_ns["runs"]["sync"].metrics.kernel_count == 3
    assert shell.user_ns["n"] == 2
    np.testing.assert_array_equal(shell.user_ns["x"], np.ones((4, 4)))


def test_the_timeline_comes_after_the_comparison(shell):
    cell = "--engines sync\nss.ops.relu(x)"
    result, captured = run(shell, f"%%streamscope {SIMULATED} {cell}")
    result.raise_error()
    comparison, widget = captured.outputs
    assert SIMULATED_WORDS in comparison.data["text/html"]
    assert "application/vnd.jupyter.widget-view+json" in widget.data
    result, captured = run(shell, f"%%streamscope {SIMULATED} --no-timeline {cell}")
    result.raise_error()
    (comparison,) = captured.outputs
    assert SIMULATED_WORDS in comparison.data["text/html"]


def test_errors_of_the_cell_are_raised_and_point_at_its_line(shell):
    result, captured = run(shell, f"%%streamscope {SIMULATED}\nh = ss.ops.relu(x)\nh = h + 1 / 0\nss.ops.relu(h)")
    assert isinstance(result.error_in_exec, ZeroDivisionError)
    assert "----> 3 h = h + 1 / 0" in captured.stdout
    frame = result.error_in_exec.__traceback__
    while frame.tb_next:
        frame = frame.tb_next
    assert frame.tb_lineno == 3


@pytest.mark.parametrize(
    ("cell", "error"),
    [
        ("y = ss.ops.relu(x)", ProgramError),
        ("ss.ops.relu(missing)", NameError),
        ("print(ss.ops.relu(x))", ProgramError),
        ("ss.ops.matmul(x, np.ones(3, np.float32))", ProgramError),
        ("ss.ops.relu(x", ProgramError),
    ],
)
def test_a_cell_that_is_no_program(shell, cell, error):
    result, _ = run(shell, f"%%streamscope {SIMULATED} -o runs\n{cell}")
    assert isinstance(result.error_in_exec, error)
    assert "runs" not in shell.user_ns


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--engines sync,warp", "unknown engine 'warp'"),
        ("--engines ,", "no engine"),
        ("--repeats 0", "'0' is not a whole number from 1 to 200000"),
        ("--repeats many", "'many' is not a whole number"),
        ("--streams 129", "'129' is not a whole number from 1 to 128"),
        ("--device tpu", "invalid choice: 'tpu'"),
        ("-o 2x", "'2x' is not the name of a variable"),
        ("-o class", "'class' is not the name of a variable"),
        ("--fast", "unknown option '--fast' (%streamscope --help lists the options)"),
        ("--repeets 3", "unknown option '--repeets' (did you mean --repeats?)"),
        ("more", "unknown option 'more'"),
        ("--set batch=2", "a setting needs a workload (--workload NAME)"),
        ("--workload cnn", "--workload brings its program: write %streamscope on one line"),
        ("--name '2 GiB", "No closing quotation (close the quotes)"),
    ],
)
def test_wrong_options_are_usage_errors_and_nothing_runs(shell, line, message):
    result, _ = run(shell, f"%%streamscope {line}\nran = True\nss.ops.relu(x)")
    assert isinstance(result.error_in_exec, UsageError)
    assert message in str(result.error_in_exec)


def test_hints_are_in_the_words_of_the_line(shell, monkeypatch):
    def missing(_, gpus=None):
        raise NoDeviceError("no CUDA device", hint="use device='simulated'")

    monkeypatch.setattr("streamscope.devices.open_device", missing)
    result, _ = run(shell, "%%streamscope --device cuda\nss.ops.relu(x)")
    assert str(result.error_in_exec) == "no CUDA device (use --device simulated)"


@pytest.mark.parametrize(
    "cell", ["%%streamscope -h\nss.ops.relu(x)", "%streamscope --help", "%%streamscope --help", "\n%%streamscope -h  \n\n  \n"]
)
def test_help(shell, cell):
    result, captured = run(shell, cell)
    result.raise_error()
    assert captured.stdout.startswith("usage: %%streamscope ")
    for flag in FLAGS:
        assert flag in captured.stdout


def test_a_workload_needs_no_line_below(shell):
    result, _ = run(shell, f"%%streamscope --workload branches {SIMULATED} --engines sync --repeats 1 --no-timeline -o runs\n")
    result.raise_error()
    assert list(shell.user_ns["runs"]) == ["sync"]


def test_help_names_each_kind_of_report():
    """As `report_suffix` says in its hint."""
    with pytest.raises(OutputError) as refused:
        report_suffix(Path("report.txt"))
    endings = re.findall(r"\.[a-z]+", refused.value.hint)
    assert endings
    assert re.findall(r"\.[a-z]+", REPORT.help) == endings


@pytest.mark.parametrize("cell", ["%streamscope --engines sync", "%%streamscope --engines sync", "%%streamscope", "%%streamscope\n\n"])
def test_without_a_cell(shell, cell):
    result, _ = run(shell, cell)
    assert isinstance(result.error_in_exec, UsageError)
    assert "operations below it" in str(result.error_in_exec)


def test_other_magics_stay_as_they_are(shell):
    result, _ = run(shell, "%%streamscope_assert overlap > 0")
    assert isinstance(result.error_in_exec, UsageError)
    for cell in ("print(1)\n%%streamscope", "text = (\n%%streamscope\n)"):
        assert shell.transform_cell(cell) == TransformerManager().transform_cell(cell)


def test_a_name_a_fused_cell_and_files(shell, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = f"{SIMULATED} --engines async --name 'first layer' --fuse --save kept --report step.html -o runs --no-timeline"
    result, captured = run(shell, f"%%streamscope {options}\nss.ops.relu(x * w + 1)")
    result.raise_error()
    runs = shell.user_ns["runs"]
    assert runs.program == "first layer"
    assert runs["async"].metrics.kernel_count == 1
    assert load_comparison("kept").program == "first layer"
    assert "first layer" in (tmp_path / "step.html").read_text()
    assert captured.stdout == "Saved in kept\nReport: step.html\n"


@pytest.mark.parametrize("file", ["step.docx", "/proc/step.html"])
def test_a_report_that_cannot_be_written_is_refused_before_the_work(shell, file):
    result, captured = run(shell, f"%%streamscope {SIMULATED} --report {file}\nss.ops.relu(x)")
    with pytest.raises(OutputError, match="cannot write"):
        result.raise_error()
    assert not captured.outputs


def test_a_workload_with_its_settings(shell):
    options = f"{SIMULATED} --engines graph -o runs --no-timeline --workload branches --set branches=3 --set length=2 --set size=64"
    run(shell, f"%streamscope {options}")[0].raise_error()
    runs = shell.user_ns["runs"]
    assert runs.program == "branches"
    assert runs.settings == {"branches": 3, "length": 2, "size": 64, "copies": 0}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--workload cn", "unknown workload 'cn' (choose from elementwise-chain, "),
        ("--workload cnn --set size", "--set 'size' is not NAME=VALUE"),
        ("--workload cnn --set width=3", "width"),
        ("--workload data-parallel --gpus 4 --set gpus=2", "setting gpus=2 of 'data-parallel' stands beside 4 GPUs to run on"),
    ],
)
def test_a_workload_that_there_is_not(shell, options, message):
    result, _ = run(shell, f"%streamscope {SIMULATED} {options}")
    assert isinstance(result.error_in_exec, UsageError)
    assert message in str(result.error_in_exec)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("%%streamscope --en", {"--engines"}),
        ("%%streamscope --engines as", {"async"}),
        ("%%streamscope --engines async,gr", {"graph", "graph-dual"}),
        ("%%streamscope --engines=a", {"async"}),
        ("%%streamscope --device ", {"auto", "cuda", "simulated"}),
        ("%%streamscope --recorder ", {"auto", "events", "stamps", "cupti"}),
        ("%streamscope --workload c", {"conv-backward", "cnn"}),
        ("%streamscope --workload branches --set b", {"branches="}),
        ("%%streamscope -o runs --fuse --no", {"--no-timeline"}),
        ("%streamscope_assert over", {"overlap"}),
        ("%streamscope_assert graph.make", {"graph.makespan_us"}),
        ("%streamscope_", {"%streamscope_assert"}),
    ],
)
def test_options_and_values_are_completed(shell, line, expected):
    with provisionalcompleter():  # as a notebook asks, with the rest of the cell below
        found = {completion.text for completion in shell.Completer.completions(f"{line}\nx @ w", len(line))}
    assert found == expected  # and none of Python's names


class TestAssert:
    @pytest.fixture
    def compared(self, shell):
        cell = "a, b = ss.ops.tanh(x), ss.ops.exp(x)\nfor _ in range(5):\n    a, b = ss.ops.tanh(a), ss.ops.exp(b)\na + b"
        run(shell, f"%%streamscope {SIMULATED} --no-timeline -o runs\n{cell}")[0].raise_error()
        return shell.user_ns["runs"]

    def test_what_holds_says_what_was_measured(self, shell, compared):
        best = compared.assessment.best[0]
        measured = compared.metrics[best].overlap
        result, captured = run(shell, "%streamscope_assert overlap >= 0 and sync.makespan_us > 0.001 ms, graph.kernel_count == 13")
        result.raise_error()
        us = compared.metrics["sync"].makespan_us
        assert captured.stdout.splitlines() == [
            f"overlap of {best}, the fastest, is {measured:.6g} (simulated): >= 0",
            f"makespan_us of sync is {us / 1e3:.6g} ms (simulated): > 0.001 ms",
            "kernel_count of graph is 13 (simulated): == 13",
        ]

    def test_no_engine_is_called_the_fastest_where_that_cannot_be_told(self, compared):
        cuda = DeviceInfo("cuda", "NVIDIA H200")
        runs = [replace(run, trace=replace(run.trace, info=replace(run.trace.info, device=cuda))) for run in compared.values()]
        measured = Comparison("step", cuda, runs)
        shortest = min(measured, key=lambda engine: measured.metrics[engine].makespan_us)
        (said,) = expectations.check(measured, "kernel_count > 0")
        assert said == f"kernel_count of {shortest}, the engine with the shortest median time, is 13: > 0"

    def test_what_does_not_hold_fails_the_cell_with_all_that_was_measured(self, shell, compared):
        result, captured = run(shell, "%streamscope_assert sync.overlap > 30 %, graph.kernel_count < 20, async.makespan_us < 1")
        error = result.error_in_exec
        assert isinstance(error, AssertionError)
        us = compared.metrics["async"].makespan_us
        assert str(error) == (
            f"overlap of sync is 0 % (simulated), expected > 30 %; makespan_us of async is {us:.6g} µs (simulated), expected < 1"
        )
        assert "kernel_count" not in str(error)
        assert "expectations.py" not in captured.stdout

    def test_a_metric_without_a_value_is_not_as_expected(self, shell, compared):
        assert compared.metrics["graph"].copy_overlap is None
        result, _ = run(shell, "%streamscope_assert graph.copy_overlap >= 0")
        assert "copy_overlap of graph has no value (simulated), expected >= 0" in str(result.error_in_exec)

    @pytest.mark.usefixtures("compared")
    @pytest.mark.parametrize(
        ("line", "message"),
        [
            ("", "needs a condition"),
            ("overlap", "'overlap' is not a condition"),
            ("overlap > many", "is not a condition"),
            ("overlap > 0.3 and", "needs a condition"),
            ("overlapp > 0.3", "unknown metric 'overlapp' (did you mean overlap?)"),
            ("engine == 3", "unknown metric 'engine'"),
            ("warp.overlap > 0.3", "engine 'warp' was not compared (there are sync, async"),
            ("grph.overlap > 0.3", "engine 'grph' was not compared (did you mean graph?)"),
            ("overlap > 3 ms", "overlap is not counted in 'ms' (it takes %)"),
            ("makespan_us < 3 MiB", "makespan_us is not counted in 'MiB' (it takes µs, "),
            ("kernel_count > 3 %", "kernel_count is not counted in '%' (it takes no unit)"),
            ("--runs x overlap > 0.3", "'x' is not a comparison"),
            ("__class__ > 3", "unknown metric '__class__'"),
        ],
    )
    def test_what_cannot_be_read_is_wrong_usage(self, shell, line, message):
        result, _ = run(shell, f"%streamscope_assert {line}")
        assert isinstance(result.error_in_exec, UsageError)
        assert message in str(result.error_in_exec)

    def test_a_comparison_by_the_name_of_its_variable(self, shell, compared):
        shell.user_ns["mine"] = compared
        run(shell, "%streamscope_assert --runs mine device_memory_bytes < 1 GiB")[0].raise_error()

    @pytest.mark.parametrize("metric", metric_names())
    def test_every_metric_that_tables_show_can_be_expected(self, shell, compared, metric):
        value = compared.metrics["graph"].__getattribute__(metric)
        result, _ = run(shell, f"%streamscope_assert graph.{metric} >= {0 if value is None else value!r}")
        assert (result.error_in_exec is None) == (value is not None)

    def test_help(self, shell):
        result, captured = run(shell, "%streamscope_assert --help")
        result.raise_error()
        assert captured.stdout.startswith("usage: %streamscope_assert")
        assert "busy_fraction" in captured.stdout


def test_nothing_can_be_expected_before_a_comparison(one_shell):
    fresh = Session(one_shell)
    with pytest.raises(UsageError, match="no comparison was made by %%streamscope yet"):
        run_assert(fresh, "overlap > 0.3")


@pytest.mark.filterwarnings("default")
def test_in_a_notebook_which_a_failing_cell_stops(monkeypatch, repository):
    pytest.importorskip("ipykernel")
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError
    from nbformat import v4

    monkeypatch.setenv("PYTHONPATH", f"{repository / 'toolkit'}:{repository / 'widgets'}")
    works = f"%%streamscope {SIMULATED} -o runs\nh = ss.ops.matmul(x, w)\nss.ops.relu(h)"
    fails = f"%%streamscope {SIMULATED}\nss.ops.relu(x) * (1 / 0)"
    notebook = v4.new_notebook(cells=[v4.new_code_cell(cell) for cell in (SETUP, works, "list(runs)", fails, "'not reached'")])
    with pytest.raises(CellExecutionError, match="ZeroDivisionError"):
        NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    outputs = notebook.cells[1].outputs
    shown = [output.data for output in outputs if any(output.data.values())]
    still, live = ["text/html", "text/plain"], ["application/vnd.jupyter.widget-view+json", "text/html", "text/plain"]
    assert [sorted(data) for data in shown] == [still, live]
    assert SIMULATED_WORDS in shown[0]["text/html"]
    assert shown[0]["text/html"].count("<img") == 1
    assert "progress" not in str(outputs)
    assert notebook.cells[2].outputs[0].data["text/plain"] == str(list(engine_names()))
    assert notebook.cells[4].outputs == []


def test_loading_the_extension_loads_nothing_of_what_runs(repository):
    code = """
import json, sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
before = set(sys.modules)
shell.run_line_magic("load_ext", "streamscope")
print(json.dumps(sorted({name.partition(".")[0] for name in set(sys.modules) - before})))
print(json.dumps(sorted(name for name in sys.modules if name.startswith(("streamscope.comparing", "streamscope.engines")))))
"""
    environment = {"PYTHONPATH": f"{repository / 'toolkit'}:{repository / 'widgets'}", "HOME": "/nowhere"}
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True, timeout=60)
    packages, ours = map(json.loads, result.stdout.splitlines())
    assert ours == []
    assert not {"numpy", "pandas", "plotly", "pyarrow", "ipywidgets", "anywidget"} & set(packages)


def test_importing_the_library_does_not_import_ipython(repository):
    code = "import sys, streamscope; streamscope.compare; sys.exit('IPython' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, env={"PYTHONPATH": str(repository / "toolkit")}).returncode == 0
