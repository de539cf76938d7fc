"""``%%streamscope record``, by running real cells: with a recording that needs no GPU, and with none."""

from __future__ import annotations

import inspect

import pytest
from IPython.core.completer import provisionalcompleter
from IPython.core.error import UsageError
from IPython.utils.capture import capture_output
from tests.widgets.conftest import a_shell

from streamscope.devices import open_device
from streamscope.errors import NoDeviceError, RecordingError
from streamscope.recording.record import record
from streamscope.trace import DeviceInfo, SpanBuilder, SpanKind, Trace, TraceInfo
from streamscope_widgets import cell_recording
from streamscope_widgets.magic_options import RECORD_FLAGS

pytestmark = pytest.mark.usefixtures("bundle")


class Recorded:
    """What `ss.record` returns, without a GPU: a trace with one kernel for each time that the block was entered."""

    def __init__(self, name, gpu, last, stacks, memory):
        self.name, self.gpu, self.last, self.stacks, self.memory, self.begun, self.ended = name, gpu, last, stacks, memory, 0, False

    def __enter__(self):
        self.begun += 1
        return self

    def __exit__(self, *error):
        self.ended = True

    @property
    def trace(self):
        if not self.ended:
            raise RecordingError("has not ended")
        builder = SpanBuilder(["thread 1", "stream 7"])
        builder.add(SpanKind.KERNEL, "gemm", "stream 7", 0, 1_000)
        return Trace(builder.build(), TraceInfo("recorded", self.name, DeviceInfo("cuda", "a GPU"), "cupti"))


@pytest.fixture
def shell(tmp_path):
    with a_shell(tmp_path, "%load_ext streamscope") as made:
        yield made


@pytest.fixture
def recordings(monkeypatch):
    made = []

    def fake(name, *, gpu=None, last=None, stacks=False, memory=False):
        made.append(Recorded(name, gpu, last, stacks, memory))
        return made[-1]

    # What stands in for it is called alike.
    assert list(inspect.signature(record).parameters) == ["name", "gpu", "path", "last", "stacks", "memory"]
    monkeypatch.setattr(cell_recording, "record", fake)
    return made


def run(shell, cell):
    with capture_output() as captured:
        result = shell.run_cell(cell, store_history=True)
    return result, captured


def test_a_cell_is_recorded_shown_and_kept_and_runs_as_any_cell(shell, recordings):
    result, captured = run(shell, "%%streamscope record --name step --gpu 1 --memory\nvalue = 20\ntwice = value * 2\ntwice + 2")
    result.raise_error()
    assert (result.result, shell.user_ns["twice"]) == (42, 40)
    (made,) = recordings
    assert (made.name, made.gpu, made.last, made.stacks, made.memory, made.begun) == ("step", 1, None, False, True, 1)
    assert shell.user_ns["step"].info.program == "step"
    summary, live = (output.data for output in captured.outputs[:2])
    assert "step · recorded · a GPU" in summary["text/html"]
    assert "application/vnd.jupyter.widget-view+json" in live


def test_without_a_name_or_a_timeline(shell, recordings):
    names = set(shell.user_ns)
    result, captured = run(shell, "%%streamscope record --no-timeline\nfor _ in range(3): pass")
    result.raise_error()
    assert result.result is None
    assert recordings[0].name == "cell"
    assert "cell · recorded · a GPU" in captured.outputs[0].data["text/html"]
    assert len(captured.outputs) == 1
    assert {name for name in set(shell.user_ns) - names if not name.startswith("_")} == set()


def test_an_error_of_the_cell_is_raised_with_its_line_and_what_ran_is_shown(shell, recordings):
    result, captured = run(shell, "%%streamscope record --name step --no-timeline\nvalue = 1\n\nvalue / 0\nafter = 2")
    assert isinstance(result.error_in_exec, ZeroDivisionError)
    assert "----> 4 value / 0" in captured.stdout
    assert "streamscope" not in captured.stdout.replace("%%streamscope", "").replace("what Streamscope did", "")
    assert "after" not in shell.user_ns
    assert shell.user_ns["step"].info.program == "step"
    assert "step · recorded · a GPU" in captured.outputs[0].data["text/html"]


def test_what_is_not_python_is_not_recorded(shell, recordings):
    result, captured = run(shell, "%%streamscope record\nvalue = = 1")
    assert result.error_in_exec is not None
    assert captured.stdout.rstrip().endswith("SyntaxError: invalid syntax")
    assert recordings == []


def test_magics_in_the_cell_work(shell, recordings):
    result, _ = run(shell, "%%streamscope record --no-timeline\n%alias_magic other time\nx = !echo one\nx[0]")
    result.raise_error()
    assert result.result == "one"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("record --nme step", "unknown option '--nme' (did you mean --name?)"),
        ("record --name 2nd", "'2nd' is not the name of a variable"),
        ("record --gpu first", "'first' is not a whole number from 0 to 1023"),
        ("recor --name step", "unknown option 'recor'"),
    ],
)
def test_wrong_options_are_usage_errors_and_nothing_runs(shell, recordings, line, message):
    result, _ = run(shell, f"%%streamscope {line}\nran = True")
    assert isinstance(result.error_in_exec, UsageError)
    assert message in str(result.error_in_exec)
    assert "ran" not in shell.user_ns
    assert recordings == []


def test_help_and_completion(shell):
    for cell in ("%%streamscope record --help\npass", "%%streamscope record --help", "%streamscope record -h"):
        result, captured = run(shell, cell)
        result.raise_error()
        assert captured.stdout.startswith("usage: %%streamscope record ")
        assert [flag for flag in RECORD_FLAGS if flag not in captured.stdout] == []
    with provisionalcompleter():
        for line, expected in {"%%streamscope re": {"record"}, "%%streamscope record --n": {"--name", "--no-timeline"}}.items():
            assert {each.text for each in shell.Completer.completions(f"{line}\nx", len(line))} == expected


def test_one_line_has_no_cell_to_record(shell):
    result, _ = run(shell, "%streamscope record --name step")
    assert isinstance(result.error_in_exec, UsageError)
    assert "needs a cell" in str(result.error_in_exec)


def test_where_nothing_can_be_recorded_the_cell_does_not_run_and_the_way_out_is_told(shell):
    try:
        open_device("cuda")
    except NoDeviceError:
        pass
    else:
        pytest.skip("this machine has a GPU")
    result, captured = run(shell, "%%streamscope record --name step\nran = True")
    assert isinstance(result.error_in_exec, RecordingError)
    assert result.error_in_exec.hint
    assert {"ran", "step"}.isdisjoint(shell.user_ns)
    assert captured.outputs == []


def test_last_seconds_and_lines(shell, recordings):
    result, _ = run(shell, "%%streamscope record --last 2.5 --stacks\npass")
    result.raise_error()
    (made,) = recordings
    assert (made.last, made.stacks) == (2.5, True)


@pytest.mark.parametrize(("line", "error", "said"), [("--last soon", UsageError, "soon"), ("--last 0", RecordingError, "last=0.0 must be")])
def test_seconds_that_are_none_are_refused(shell, line, error, said):
    result, _ = run(shell, f"%%streamscope record {line}\nran = True")
    with pytest.raises(error, match=said):
        result.raise_error()
    assert "ran" not in shell.user_ns
