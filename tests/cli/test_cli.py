"""The command line, through a real process and in this one."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.conftest import NO_GPU

import streamscope
from streamscope import options
from streamscope.analysis.metric import ENGINE, HOST, metrics_of
from streamscope.analysis.table import device_words
from streamscope.cli.app import COMMANDS
from streamscope.cli.main import main
from streamscope.comparing import compare as comparing
from streamscope.comparing.comparison import load_comparison
from streamscope.engine_entry import ENGINES
from streamscope.errors import EngineError
from streamscope.measuring import case
from streamscope.workloads import WORKLOADS

SMALL = ("compare", "elementwise-chain", "--set", "length=6", "--set", "size=64", "--device", "simulated")
ROOT = Path(streamscope.__file__).resolve().parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(str(ROOT / part) for part in ("toolkit", "widgets")), "NO_COLOR": "1"}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "streamscope", *arguments]


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*arguments), env={**ENVIRONMENT, **environment}, capture_output=True, text=True, check=False, timeout=120)


def kinds(folder: Path) -> list[str]:
    """Return the names in a folder, a star for the hashes in names of traces."""
    return sorted(re.sub("-[0-9a-f]{12}[.]", "-*.", path.name) for path in folder.iterdir())


PARALLEL = ("compare", "data-parallel", "--device", "simulated")
FAILURES = {
    "unknown workload": (("compare", "nope"), 2, "unknown workload 'nope'", "elementwise-chain"),
    "setting of captured code": (("compare", "my.captured.json", "--set", "depth=3"), 2, "code has no settings", "leave --set out"),
    "no captured code": (("compare", "my.captured.json"), 1, "cannot read my.captured.json", "captured.save"),
    "unknown setting": (("compare", "cnn", "--set", "depth=3"), 2, "no setting 'depth'", "size, channels"),
    "setting that is no number": (("compare", "cnn", "--set", "size=big"), 2, "size='big'", "3 to 512"),
    "setting out of range": (("compare", "cnn", "--set", "size=1"), 2, "out of range", "3 to 512"),
    "more GPUs than a host has": ((*PARALLEL, "--gpus", "99999999999999"), 2, "'99999999999999' is out of range: 1 to 8", "compare --help"),
    "no GPU": ((*PARALLEL, "--gpus", "0"), 2, "'0' is out of range: 1 to 8", "compare --help"),
    "fewer GPUs than none": ((*PARALLEL, "--gpus", "-1"), 2, "'-1' is out of range: 1 to 8", "compare --help"),
    "a GPU below none": ((*PARALLEL, "--gpus", "0,-1"), 2, "'0,-1' is out of range", "compare --help"),
    "a GPU twice": ((*PARALLEL, "--gpus", "0,0"), 2, "'0,0' has a GPU twice", "compare --help"),
    "GPUs that are no number": ((*PARALLEL, "--gpus", "two"), 2, "'two' is neither a number of GPUs", "compare --help"),
    "one GPU for a workload over several": ((*PARALLEL, "--gpus", "1"), 2, "setting gpus=1 of 'data-parallel' is out of range", "2 to 8"),
    "two numbers of GPUs": ((*PARALLEL, "--gpus", "4", "--set", "gpus=2"), 2, "gpus=2 of 'data-parallel' stands beside 4", "leave one"),
    "unknown engine": ((*SMALL, "--engines", "sync,warp"), 2, "unknown engine 'warp'", "graph-dual"),
    "no engine": ((*SMALL, "--engines", ","), 2, "no engine", "choose from"),
    "setting without a value": (("compare", "cnn", "--set", "size"), 2, "'size' is not NAME=VALUE", "compare --help"),
    "repeats that are not positive": ((*SMALL, "--repeats", "0"), 2, "--repeats", "compare --help"),
    "more repeats than are kept": ((*SMALL, "--repeats", "200001"), 2, "--repeats", "compare --help"),
    "repeats that are no number": ((*SMALL, "--repeats", "many"), 2, "--repeats", "compare --help"),
    "unknown device": (("compare", "cnn", "--device", "tpu"), 2, "'tpu' is not one of auto, cuda, simulated", "compare --help"),
    "too many streams": ((*SMALL, "--streams", "129"), 2, "--streams", "compare --help"),
    "no folder to write to": ((*SMALL, "--out", ""), 2, "--out", "compare --help"),
    "no file for advice": (
        ("advise", "--device", "simulated", "--out", ""),
        2,
        "'' cannot be a path: name a file or a folder",
        "advise --help",
    ),
    "no file for costs": (("calibrate", "--out", ""), 2, "'' cannot be a path", "calibrate --help"),
    "no workload": (("compare",), 2, "WORKLOAD", "compare --help"),
    "unknown option": (("compare", "cnn", "--fast"), 2, "--fast", "compare --help"),
    "unknown command": (("contrast",), 2, "contrast", "streamscope --help"),
}  # fmt: skip


def check_refused(capsys, message, hint=""):
    """Check that a command printed an error and a hint, and nothing else."""
    out, err = capsys.readouterr()
    assert out == ""
    first, second = err.splitlines()
    assert first.startswith("error: ")
    assert message in first
    assert second.startswith("hint: ")
    assert hint in second


def check_failure(code, out, err, expected):
    _, expected_code, message, hint = expected
    assert code == expected_code, err
    assert out == ""
    first, *rest = err.splitlines()
    assert first.startswith("error: ")
    assert message in first
    assert len(rest) <= 1
    assert all(line.startswith("hint: ") for line in rest)
    assert hint in "".join(rest)


@pytest.mark.parametrize("name", FAILURES)
def test_failures_are_one_line_and_a_hint(name, capsys):
    check_failure(main(FAILURES[name][0]), *capsys.readouterr(), FAILURES[name])


def test_cuda_without_a_gpu_in_a_real_process(tmp_path):
    arguments = ("compare", "cnn", "--device", "cuda", "--out", str(tmp_path / "out"))
    result = run(*arguments, CUDA_VISIBLE_DEVICES="")
    check_failure(result.returncode, result.stdout, result.stderr, (arguments, 1, "no CUDA device", "--device simulated"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not NO_GPU, reason="there is one")
@pytest.mark.parametrize("arguments", [(), ("--gpus", "2")])
def test_costs_without_a_gpu(arguments, capsys):
    """It has no --device."""
    code, (out, err) = main(("calibrate", *arguments)), capsys.readouterr()
    check_failure(code, out, err, ((), 1, "no CUDA device", "streamscope doctor"))
    assert "simulated" not in err


@pytest.mark.parametrize(
    ("hint", "said"),
    [
        ("check nvidia-smi, or use device='simulated'", "check nvidia-smi, or use --device simulated"),
        ("name='one kernel', streams=4 and engines='sync'", "--name 'one kernel', --streams 4 and --engines sync"),
        ("ask the device='s owner", "ask the device='s owner"),
        (None, None),
    ],
)
def test_hints_are_in_the_words_of_a_line(hint, said):
    assert options.hint_on_a_line(hint) == said


def test_a_file_in_the_way_is_found_before_anything_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(comparing, "compare", lambda *_, **__: pytest.fail("it ran"))
    taken = tmp_path / "taken"
    taken.write_text("mine")
    for folder in (taken, taken / "below", Path("/proc/streamscope")):
        code = main((*SMALL, "--out", str(folder)))
        check_failure(code, *capsys.readouterr(), ((), 1, f"cannot write to folder {folder}", "choose another folder"))
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]
    assert taken.read_text() == "mine"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder(tmp_path):
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o500)
    result = run(*SMALL, "--out", str(folder))
    check_failure(result.returncode, result.stdout, result.stderr, ((), 1, "cannot write to folder", "choose another folder"))


def test_a_folder_named_like_a_file_leaves_the_rest_as_it_was(tmp_path, capsys):
    (tmp_path / "report.html").mkdir()
    (tmp_path / "comparison.json").write_text("older")
    assert main((*SMALL, "--engines", "sync", "--out", str(tmp_path))) == 1
    assert "report.html: it is a folder" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["comparison.json", "report.html"]
    assert (tmp_path / "comparison.json").read_text() == "older"


def test_nothing_is_left_when_a_run_fails(tmp_path, monkeypatch):
    def fails(*_, **__):
        raise EngineError("it went wrong")

    monkeypatch.setattr(comparing, "compare", fails)
    assert main((*SMALL, "--out", str(tmp_path / "a" / "b"))) == 1
    assert list(tmp_path.iterdir()) == []


def test_json_is_one_object_on_standard_output(tmp_path, capsys):
    assert main((*SMALL, "--json", "--out", str(tmp_path))) == 0
    out, err = capsys.readouterr()
    content = json.loads(out)
    assert out.count("\n") == 1
    assert content["workload"] == "elementwise-chain"
    assert content["device"]["kind"] == "simulated"
    assert list(content["engines"]) == list(ENGINES)
    for values in content["engines"].values():
        assert set(values["makespan_us"]) == {"median", "low", "high"}
        assert {"gpu_busy_us", "idle_us", "overlap", "kernel_count", "launch_latency_us", "api_time_us", "max_abs_error"} <= set(values)
        assert values["kernel_count"] == 6
        assert values["max_abs_error"] <= values["tolerance"]
    assert str(tmp_path / "report.html") in err
    stored = json.loads((tmp_path / "comparison.json").read_text())
    assert stored.pop("makespans_ns").keys() == stored.pop("traces").keys() == content["engines"].keys()
    for own in ("schema", "digest"):
        stored.pop(own)
    assert stored == content


def test_out_is_whole_and_can_be_loaded(tmp_path, capsys):
    assert main((*SMALL, "--engines", "async,graph", "--out", str(tmp_path / "new" / "folder"))) == 0
    out, err = capsys.readouterr()
    assert err == ""
    folder = tmp_path / "new" / "folder"
    assert kinds(folder) == ["async-*.parquet", "comparison.json", "graph-*.parquet", "report.html"]
    loaded = load_comparison(folder)
    assert loaded.program == "elementwise-chain"
    assert list(loaded) == ["async", "graph"]
    assert loaded.verdict in " ".join(out.split())
    assert "elementwise-chain" in (folder / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("width", [80, 120])
def test_the_table_fits_and_says_that_it_is_simulated(width, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(width))
    assert main(("compare", "pipeline", "--set", "size=4096", "--device", "simulated")) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    assert device_words(streamscope.open_device("simulated").info) in lines[0]
    of_several = ("exposed_us", "hidden_us", "collective_wait_us")
    for quantity in metrics_of(ENGINE):
        if HOST in quantity.scope or quantity.name in of_several:
            continue
        assert any(line.startswith(quantity.heading) for line in lines), quantity.heading
    assert any(line.startswith("against async") for line in lines)


def test_wrong_results_exit_with_3_after_everything_is_written(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(case, "largest_error", lambda *_: (9.0, 1.0))
    assert main((*SMALL, "--engines", "sync", "--out", str(tmp_path))) == 3
    out, err = capsys.readouterr()
    assert "RESULTS ARE WRONG under sync" in out
    assert err.splitlines()[0] == "error: the results of sync are wrong: off by 9 from the NumPy reference, tolerance 1"
    assert kinds(tmp_path) == ["comparison.json", "report.html", "sync-*.parquet"]


def test_memory_of_this_machine_that_runs_out_is_told_in_a_line(monkeypatch, capsys):
    def hungry(*_, **__):
        raise MemoryError("Unable to allocate 9 TiB")

    monkeypatch.setattr(comparing, "compare", hungry)
    assert main(SMALL) == 1
    assert capsys.readouterr().err.splitlines()[0].endswith("this machine has too little memory: Unable to allocate 9 TiB")


def test_an_unexpected_exception_shows(monkeypatch):
    def broken(*_, **__):
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(comparing, "compare", broken)
    with pytest.raises(ZeroDivisionError):
        main(SMALL)


@pytest.mark.parametrize("arguments", [("workloads",), ("doctor", "--json")], ids=["rich", "plain"])
def test_a_broken_pipe_is_quiet(arguments):
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as nobody:
        result = subprocess.run(
            command(*arguments), env=ENVIRONMENT, stdout=nobody, stderr=subprocess.PIPE, text=True, check=False, timeout=120
        )
    assert result.stderr == ""
    assert result.returncode == 1


def test_workloads_lists_every_setting(capsys):
    assert main(["workloads"]) == 0
    out = capsys.readouterr().out
    for workload in WORKLOADS.values():
        assert workload.name in out
        for name, setting in workload.settings.items():
            assert f"{name}={setting.default} " in out


def test_version_and_help(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"streamscope {streamscope.__version__}\n"
    assert main([]) == 0
    assert {"compare", "workloads", "doctor"} <= set(capsys.readouterr().out.split())
    assert main(["compare", "-h"]) == 0
    assert {option.flag for option in options.COMPARE_OPTIONS} <= set(capsys.readouterr().out.split())


def test_a_name_and_a_fused_workload(capsys):
    sizes = ["--set", "length=5", "--set", "size=64"]
    line = ["compare", "elementwise-chain", *sizes, "--device", "simulated", "--engines", "async", "--json", "--name"]
    assert main([*line, "first layer", "--fuse"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["workload"] == "first layer"
    assert found["engines"]["async"]["kernel_count"] == 1


@pytest.mark.parametrize("gpus", ["3", "0,2,5"])
def test_a_workload_is_made_for_the_gpus_to_run_on(gpus, capsys):
    settings = [part for setting in ("layers=1", "width=16", "rows=4") for part in ("--set", setting)]
    assert main([*PARALLEL, *settings, "--engines", "async", "--gpus", gpus]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("data-parallel over 3 GPUs · simulated")
    assert err == ""


@pytest.mark.filterwarnings("always::streamscope.errors.UnusedGpusWarning")
def test_gpus_that_nothing_uses_are_told(capsys):
    assert main([*SMALL, "--engines", "sync", "--gpus", "4"]) == 0
    assert capsys.readouterr().err == "warning: 'elementwise_chain' uses 1 of the 4 GPUs\n"


def test_options_have_the_defaults_of_the_function():
    defaults = {name: parameter.default for name, parameter in inspect.signature(comparing.compare).parameters.items()}
    assert {option.name: option.default for option in options.COMPARE_OPTIONS} == {
        option.name: defaults[option.name] for option in options.COMPARE_OPTIONS
    }


@pytest.mark.parametrize("made", COMMANDS, ids=lambda made: made.__name__)
def test_each_command_has_a_file_of_its_name(made):
    assert made.__module__ == f"streamscope.cli.{made.__name__}"
