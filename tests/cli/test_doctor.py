"""What the doctor finds on machines that have something, lack something, or have something broken."""

from __future__ import annotations

import importlib
import json
import tomllib
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from tests.recording.conftest import library  # noqa: F401 — a fixture
from tests.recording.fake_cupti import CUDA_EVENT, ActivityKind, record
from tests.recording.test_record import launch

from streamscope.cli import checks as doctor
from streamscope.cli.checks import diagnose
from streamscope.cli.main import main
from streamscope.devices.simulated import SimulatedDevice
from streamscope.errors import DeviceError
from streamscope.recording.subscription import too_new, without_cupti


def by_name(diagnosis):
    return {check.name: check for check in diagnosis.checks}


def without(monkeypatch, *packages):
    real = doctor._version_of
    monkeypatch.setattr(doctor, "_version_of", lambda package: None if package in packages else real(package))


def test_this_machine():
    diagnosis = diagnose()
    assert diagnosis.can_run
    checks = by_name(diagnosis)
    assert checks["simulated device"].found == "simulated NVIDIA H200, up to 8 GPUs"
    assert "kB" in checks["timeline"].found
    for check in diagnosis.checks:
        assert check.found
        assert "\n" not in check.todo
        assert bool(check.todo) == (check.state == "lacking") or check.name == "GPU"


def test_a_machine_without_a_gpu_lacks_nothing(monkeypatch):
    monkeypatch.setattr(doctor, "_driver", lambda: ("no NVIDIA driver", []))
    diagnosis = diagnose()
    gpu = [check for check in diagnosis.checks if check.topic == "For real times"]
    assert diagnosis.device == "simulated"
    assert diagnosis.can_run
    assert {check.state for check in gpu} == {"unneeded"}
    assert {check.name for check in gpu} == {"GPU", "CuPy", "cuda-bindings", "cuBLAS", "cuDNN", "CUPTI", "NCCL"}


def test_a_machine_without_a_gpu_needs_no_nccl(monkeypatch):
    monkeypatch.setattr(doctor, "_driver", lambda: ("no NVIDIA driver", []))
    without(monkeypatch, "nvidia-nccl-cu13", "nvidia-nccl-cu12")
    assert by_name(diagnose())["NCCL"].found == "not installed; for several GPUs, needed only with a GPU"


@pytest.mark.parametrize(("driver", "extra"), [("CUDA 12.8 (570.1)", "cuda12"), ("CUDA 13.0", "cuda13")])
def test_a_gpu_without_packages_names_the_extra(monkeypatch, driver, extra):
    monkeypatch.setattr(doctor, "_driver", lambda: (driver, ["NVIDIA X"]))
    monkeypatch.setattr(doctor, "_cuda_device", lambda: "no CUDA device: No module named 'cupy'")
    without(monkeypatch, "cupy-cuda13x", "cupy-cuda12x", "cupy")
    diagnosis = diagnose()
    checks = by_name(diagnosis)
    assert checks["CuPy"].state == checks["CUDA device"].state == "lacking"
    assert f".[{extra}]" in checks["CuPy"].todo
    assert f".[{extra}]" in checks["CUDA device"].todo
    assert diagnosis.device == "simulated"
    assert diagnosis.can_run


def test_what_it_cannot_run_without_are_the_dependencies(repository):
    required = tomllib.loads((repository / "pyproject.toml").read_text())["project"]["dependencies"]
    assert {*doctor._LIBRARIES, *doctor._NOTEBOOK_LIBRARIES} == {each.partition(">=")[0] for each in required}


def test_a_missing_library_stops_everything(monkeypatch, capsys):
    without(monkeypatch, "pyarrow")
    assert not diagnose().can_run
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert "pip install pyarrow" in out
    assert "cannot run here" in out


def test_a_missing_compiler_is_told_without_a_gpu(monkeypatch):
    def missing():
        raise ImportError("No module named 'cuda'")

    monkeypatch.setattr(doctor, "_driver", lambda: ("no NVIDIA driver", []))
    monkeypatch.setattr(doctor, "_compile", missing)
    diagnosis = diagnose()
    check = by_name(diagnosis)["NVRTC"]
    assert diagnosis.can_run
    assert check.state == "lacking"
    assert ".[nvrtc]" in check.todo


def test_a_missing_jupyterlab_does_not(monkeypatch):
    without(monkeypatch, "jupyterlab")
    diagnosis = diagnose()
    assert diagnosis.can_run
    assert "make lab" in by_name(diagnosis)["JupyterLab"].todo


def test_a_front_end_that_was_not_built(monkeypatch, tmp_path):
    monkeypatch.setattr("streamscope_widgets.payload.BUNDLE", tmp_path / "timeline.js")
    check = by_name(diagnose())["timeline"]
    assert check.state == "lacking"
    assert "make setup" in check.todo


def test_an_extension_of_another_build_in_jupyterlab(monkeypatch, tmp_path, bundle, repository):
    """Where JupyterLab looks first, there is none, this one, and another one."""
    monkeypatch.setattr("jupyter_core.paths.jupyter_path", lambda *_: [str(tmp_path)])
    folder = tmp_path / "streamscope"
    folder.mkdir()
    described = (repository / "widgets/labextension/package.json").read_text()
    found = [doctor._tried("", "", doctor._extension, "reload")]
    for text in (described, described.replace("?v=", "?v=0")):
        (folder / "package.json").write_text(text)
        found.append(doctor._tried("", "", doctor._extension, "reload"))
    assert [check.state for check in found] == ["lacking", "ok", "lacking"]
    assert found[2].found == f"of another build than Streamscope: {folder}"


@pytest.mark.parametrize(
    ("error", "found"),
    [(DeviceError("it failed", hint="try again"), "it failed"), (ZeroDivisionError("by 0\nsecond line"), "ZeroDivisionError: by 0")],
)
def test_whatever_breaks_is_reported(monkeypatch, error, found):
    def broken(*_):
        raise error

    monkeypatch.setattr("streamscope.devices.simulated.SimulatedDevice", broken)
    diagnosis = diagnose()
    check = by_name(diagnosis)["simulated device"]
    assert (check.state, check.found) == ("lacking", found)
    assert check.todo == (getattr(error, "hint", None) or doctor.REINSTALL)
    assert not diagnosis.can_run


def test_wrong_numbers_are_found(monkeypatch):
    monkeypatch.setattr(importlib.import_module("streamscope.program.reference"), "run_reference", lambda *_: [7.0])
    assert by_name(diagnose())["simulated device"].found == "the result of a small test is wrong"


def test_the_cache_of_kernels(monkeypatch, tmp_path):
    monkeypatch.setenv("STREAMSCOPE_CACHE_DIR", str(tmp_path))
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / f"{0:064x}.cubin").write_bytes(bytes(3 * 2**20))
    check = by_name(diagnose())["cache on disk"]
    assert (check.state, check.todo) == ("ok", "")
    assert check.found == f"{tmp_path / 'kernels'}, writable, 3.0 MiB of at most 512.0 MiB"


def test_a_cache_that_cannot_be(monkeypatch, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("STREAMSCOPE_CACHE_DIR", str(tmp_path / "file"))
    diagnosis = diagnose()
    check = by_name(diagnosis)["cache on disk"]
    assert (check.state, check.found) == ("lacking", f"in memory only: {tmp_path / 'file'} is not a folder")
    assert "STREAMSCOPE_CACHE_DIR" in check.todo
    assert diagnosis.can_run


@pytest.mark.usefixtures("homeless")
def test_a_cache_without_a_home_folder():
    assert by_name(diagnose())["cache on disk"].found == "in memory only: there is no home folder for ~/.cache"


def test_json_and_exit_code(capsys):
    assert main(["doctor", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["can_run"] is True
    assert content["device"] in ("cuda", "simulated")
    assert {"topic", "name", "state", "found", "todo", "essential"} == set(content["checks"][0])


@pytest.mark.parametrize(
    ("cuda", "python", "why", "todo"),
    [
        (13, (3, 13), "cupti-python is not installed", "pip install 'cupti-python>=13.0,<14'"),
        (13, (3, 14), "cupti-python is not installed", "pip install 'cupti-python>=13.2,<14'"),
        (12, (3, 12), "cupti-python is not installed", "pip install 'cupti-python>=12.8,<13'"),
        (12, (3, 14), "NVIDIA made no cupti-python of CUDA 12 for Python 3.14", "use Python 3.12 or 3.11, or a driver of CUDA 13"),
    ],
)
def test_cupti_cannot_be_had_from_everywhere(cuda, python, why, todo):
    assert without_cupti(cuda, python) == (why, todo)


def test_a_cupti_that_is_newer_than_the_driver():
    assert too_new("13.2.0", (13, 2), (3, 14)) == ""
    assert too_new("13.2.0", (13, 0), (3, 14)).startswith(
        "cupti-python 13.2 is newer than the driver's CUDA 13.0: install a newer driver, or use"
    )
    assert too_new("13.2.0", (13, 0), (3, 13)).endswith("or install an older cupti-python")


@pytest.mark.parametrize(
    ("kinds", "found"),
    [
        ({(0, 1): "nvlink", (0, 2): "nvlink", (1, 2): "nvlink"}, "NVLink"),
        ({(0, 1): "nvlink", (0, 2): "host", (1, 2): "host"}, "NVLink: 0–1; host memory: 0–2, 1–2"),
    ],
)
def test_links_between_gpus(monkeypatch, kinds, found):
    monkeypatch.setattr("streamscope.devices.cuda.gpus.link_kind", lambda *pair: kinds[pair])
    assert doctor._links(3) == found


def test_a_sum_over_all_gpus():
    assert doctor._sum_over(SimulatedDevice(gpus=3)) == "sums over 3 GPUs"


@pytest.mark.gpu
def test_a_machine_with_a_gpu():
    checks = by_name(diagnose())
    for name in ("GPU", "driver", "CuPy", "cuda-bindings", "CUDA device", "NVRTC", "cuBLAS", "cuDNN"):
        assert checks[name].state == "ok", checks[name]


@pytest.mark.parametrize(
    ("broken", "state", "found"),
    [
        (None, "ok", "permitted, for ss.record, "),
        (
            "layout",
            "lacking",
            "cupti-python is newer than the CUPTI that is loaded: it expects 32 bytes in records of kind 36, which have 24",
        ),
        ("refused", "lacking", "CUPTI refused cuptiActivityEnable: "),
    ],
)
def test_a_cupti_that_does_not_fit_the_driver_is_lacking(library, monkeypatch, broken, state, found):  # noqa: F811
    """Of one kind of records alone, which no kernel of a small program makes."""
    prepared = SimpleNamespace(load=lambda inputs: launch(library, correlation=5), run=list, wait=list, outputs=list)
    monkeypatch.setattr(doctor, "_run", lambda *_: prepared)
    monkeypatch.setattr(doctor, "_use_all_kinds", lambda: library.records.append(record(ActivityKind.CUDA_EVENT)))
    real = doctor._version_of
    monkeypatch.setattr(doctor, "_version_of", lambda package: "13.2.0" if package == "cupti-python" else real(package))
    if broken == "layout":
        wider = np.dtype([*CUDA_EVENT.descr, ("another", "u8")])
        layouts = library.subscription._layouts
        layouts[ActivityKind.CUDA_EVENT] = replace(layouts[ActivityKind.CUDA_EVENT], dtype=wider)
    if broken == "refused":
        library.refusals["cuptiActivityEnable 36"] = 8
    check = doctor._cupti("For real times", None, 13)
    assert (check.state, check.found[: len(found)]) == (state, found)
    assert bool(check.todo) == bool(broken)
