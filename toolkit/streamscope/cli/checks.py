"""Checks of this machine, each with a remedy. They try things, and do not guess from versions."""

from __future__ import annotations

import ctypes
import importlib
import platform
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from streamscope.device_entry import MOST_GPUS
from streamscope.engine_entry import DEFAULT_ENGINE
from streamscope.errors import CompilationError, StreamscopeError
from streamscope.results import widgets
from streamscope.words import binary_size

if TYPE_CHECKING:
    from streamscope.devices.cuda import CudaDevice

_State = Literal["ok", "lacking", "unneeded"]

# Together, the dependencies in pyproject.toml: an extra that is missing stops nothing.
_LIBRARIES = ("msgspec", "numpy", "pandas", "pyarrow", "rich", "scipy", "typer")
_NOTEBOOK_LIBRARIES = ("ipython", "ipywidgets", "anywidget", "plotly")
REINSTALL = "`make setup` in the clone, or pip install --upgrade . there"
_PERMISSION = (
    "run as root, or let the administrator load the driver with NVreg_RestrictProfilingToAdminUsers=0; all but CUPTI works without"
)


@dataclass(frozen=True)
class Check:
    """One thing that was looked at."""

    topic: str
    """The heading that it stands under."""
    name: str
    state: _State
    """States of a check; "unneeded" without a GPU."""
    found: str
    """The finding, or the reason of a failure."""
    todo: str = ""
    """Remedy, in one line; empty where it is ok."""
    essential: bool = False
    """Whether Streamscope cannot run at all without it."""


@dataclass(frozen=True)
class Diagnosis:
    """Result of `diagnose`."""

    checks: tuple[Check, ...]

    @property
    def can_run(self) -> bool:
        """Whether Streamscope can run at all, on whichever device."""
        return all(check.state == "ok" for check in self.checks if check.essential)

    @property
    def device(self) -> Literal["cuda", "simulated"]:
        """Choice of ``--device auto`` here."""
        return "cuda" if any(check.name == "CUDA device" and check.state == "ok" for check in self.checks) else "simulated"

    def to_dict(self) -> dict[str, Any]:
        """Return the diagnosis as JSON values."""
        return {"can_run": self.can_run, "device": self.device, "checks": [asdict(check) for check in self.checks]}


def diagnose() -> Diagnosis:
    """Look at this machine."""
    return Diagnosis((*_basics(), *_gpu(), *_run_time_compilation(), *_notebook()))


def _basics() -> Iterator[Check]:
    topic = "To run at all"
    yield Check(topic, "Python", "ok", platform.python_version())
    yield _packages(topic, "libraries", _LIBRARIES, essential=True)
    yield _tried(topic, "simulated device", _simulate, REINSTALL, essential=True)


def _gpu() -> Iterator[Check]:
    """Yield the checks for measured times; without a GPU, missing parts are not called a lack."""
    topic = "For real times"
    driver, gpus = _driver()
    if not gpus:
        todo = "nothing, if simulated times are enough; else run on a machine with an NVIDIA GPU and its driver"
        yield Check(topic, "GPU", "unneeded", driver, todo)
        for name, packages in _GPU_PACKAGES.items():
            if name != "NVRTC":  # which needs no GPU
                use = f"{_USES[name]}, " if name in _USES else ""
                yield Check(topic, name, "unneeded", _versions(packages) or f"not installed; {use}needed only with a GPU")
        return
    extra = f"pip install '.[cuda{12 if driver.startswith('CUDA 12') else 13}]' in the clone"
    yield Check(topic, "GPU", "ok", ", ".join(gpus))
    yield Check(topic, "driver", "ok", driver)
    yield from (_any_of(topic, name, _GPU_PACKAGES[name], extra) for name in ("CuPy", "cuda-bindings"))
    device = _cuda_device()
    if isinstance(device, str):
        yield Check(topic, "CUDA device", "lacking", device, extra)
        return
    yield Check(topic, "CUDA device", "ok", f"{device.info.name}, {device.info.details['multiprocessors']} multiprocessors")
    yield _tried(topic, "generated kernels", lambda: _compile_and_run(device), extra)
    yield _tried(topic, "cuBLAS", lambda: _multiply(device), extra)
    yield _tried(topic, "cuDNN", lambda: _convolve(device), extra)
    yield _cupti(topic, device, 12 if driver.startswith("CUDA 12") else 13)
    if len(gpus) > 1:
        yield _tried(topic, "between GPUs", lambda: _links(len(gpus)), "nothing: copies go through the host's memory")
        yield _tried(topic, "NCCL", lambda: _nccl(len(gpus)), f"{extra}; until then, copies carry collectives out, which is slower")


def _run_time_compilation() -> Iterator[Check]:
    from streamscope.kernels.compile.cubin_folder import WHERE_ELSE
    from streamscope.kernels.compile.kernel_cache import kernel_cache
    from streamscope.kernels.compile.nvrtc import INSTALL_HINT

    topic, name, folder = "For kernels made at run time", "cache on disk", kernel_cache().folder
    yield _tried(topic, "NVRTC", _compile, INSTALL_HINT)
    problem = folder.problem()
    if problem:
        yield Check(topic, name, "lacking", f"in memory only: {problem}", WHERE_ELSE)
        return
    used = sum(file.bytes for file in folder.files())
    yield Check(topic, name, "ok", f"{folder.path}, writable, {binary_size(used)} of at most {binary_size(folder.most_bytes)}")


def _notebook() -> Iterator[Check]:
    topic = "In a notebook"
    yield _packages(topic, "notebook packages", _NOTEBOOK_LIBRARIES)
    yield _tried(topic, "timeline", _bundle, "run `make setup` in the clone, or reinstall the wheel")
    version = _version_of("jupyterlab")
    todo = "" if version else "`make lab` in the clone installs it, or use another notebook"
    yield Check(topic, "JupyterLab", "ok" if version else "lacking", version or "not installed", todo)
    if version:
        yield _tried(topic, "its extension", _extension, "run `make lab` in the clone, or reinstall the wheel; then reload JupyterLab")


_GPU_PACKAGES = {
    "CuPy": ("cupy-cuda13x", "cupy-cuda12x", "cupy"),
    "cuda-bindings": ("cuda-bindings",),
    "NVRTC": ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12"),
    "cuBLAS": ("nvidia-cublas", "nvidia-cublas-cu12"),
    "cuDNN": ("nvidia-cudnn-frontend",),
    "CUPTI": ("cupti-python",),
    "NCCL": ("nvidia-nccl-cu13", "nvidia-nccl-cu12"),
}


_FOR_CUPTI = "for ss.record"
_USES = {"CUPTI": _FOR_CUPTI, "NCCL": "for several GPUs"}
"""Of packages that not everybody with a GPU needs."""


def _version_of(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _versions(packages: Sequence[str]) -> str:
    return ", ".join(f"{package} {version}" for package in packages if (version := _version_of(package)))


def _packages(topic: str, name: str, packages: Sequence[str], *, essential: bool = False) -> Check:
    """Check that all of some packages are installed."""
    missing = [package for package in packages if _version_of(package) is None]
    found = f"missing: {', '.join(missing)}" if missing else _versions(packages)
    todo = f"pip install {' '.join(missing)}" if missing else ""
    return Check(topic, name, "lacking" if missing else "ok", found, todo, essential)


def _any_of(topic: str, name: str, packages: Sequence[str], todo: str) -> Check:
    found = _versions(packages)
    return Check(topic, name, "ok" if found else "lacking", found or "not installed", "" if found else todo)


def _tried(topic: str, name: str, attempt: Callable[[], str], todo: str, *, essential: bool = False) -> Check:
    """Try something; its result is the finding."""
    try:
        return Check(topic, name, "ok", attempt(), essential=essential)
    except StreamscopeError as error:
        return Check(topic, name, "lacking", _first_line(error.message), error.hint or todo, essential)
    except Exception as error:  # noqa: BLE001 — whatever a library does when it is broken, a doctor reports it.
        return Check(topic, name, "lacking", f"{type(error).__name__}: {_first_line(str(error))}", todo, essential)


def _first_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[0]


def _driver() -> tuple[str, list[str]]:
    """Ask the driver itself, so that the answer does not hang on any package: its version, and the names of the GPUs."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no NVIDIA driver", []
    version, count = ctypes.c_int(), ctypes.c_int()
    status = cuda.cuInit(0) or cuda.cuDriverGetVersion(ctypes.byref(version)) or cuda.cuDeviceGetCount(ctypes.byref(count))
    if status:
        return f"the NVIDIA driver answers with error {status}", []
    names = []
    for index in range(count.value):
        name = ctypes.create_string_buffer(256)
        cuda.cuDeviceGetName(name, len(name), index)
        names.append(name.value.decode())
    major, minor = divmod(version.value, 1000)
    module = Path("/sys/module/nvidia/version")
    release = f" ({module.read_text().strip()})" if module.is_file() else ""
    return f"CUDA {major}.{minor // 10}{release}", names


def _cuda_device() -> CudaDevice | str:
    """Open the device, or say why it cannot be."""
    try:
        from streamscope.devices.cuda import CudaDevice

        return CudaDevice()
    except Exception as error:  # noqa: BLE001 — as above
        return _first_line(error.message if isinstance(error, StreamscopeError) else repr(error))


def _simulate() -> str:
    from streamscope.devices.simulated import SimulatedDevice

    device = SimulatedDevice()
    _run(device, lambda x: x + x, np.arange(8, dtype=np.float32))
    return f"{device.info.name}, up to {MOST_GPUS} GPUs"


def _compile() -> str:
    from streamscope.kernels.compile.nvrtc import compile_unit, nvrtc_version

    image, log = compile_unit('extern "C" __global__ void nothing() {}', "nothing", "sm_90")
    if image is None:
        raise CompilationError(f"a kernel that does nothing does not compile: {log}")
    return f"{nvrtc_version()} compiles, which needs no GPU"


def _compile_and_run(device: CudaDevice) -> str:
    _run(device, lambda x: x + x, np.arange(8, dtype=np.float32))
    return f"compiles for {device.architecture}"


def _multiply(device: CudaDevice) -> str:
    _run(device, lambda x: x @ x, np.eye(16, dtype=np.float32))
    return _versions(_GPU_PACKAGES["cuBLAS"]) or "multiplies matrices"


def _convolve(device: CudaDevice) -> str:
    from streamscope.ops.convolutions import convolution

    image, weights = np.ones((1, 8, 8, 8), np.float16), np.ones((8, 3, 3, 8), np.float16)
    _run(device, lambda x, w: convolution(x, w, padding=1), image, weights)
    cudnn = importlib.import_module("cudnn")
    return f"{cudnn.backend_version_string()}, {_versions(_GPU_PACKAGES['cuDNN'])}"


def _links(gpus: int) -> str:
    """Return how the GPUs reach each other's memory: ``NVLink``, or ``NVLink: 0–1; host memory: 0–2, 1–2``."""
    from streamscope.devices.cuda.gpus import link_kind

    names = {"nvlink": "NVLink", "pcie": "PCIe", "host": "host memory"}
    pairs: dict[str, list[str]] = {}
    for a, b in combinations(range(gpus), 2):
        pairs.setdefault(names[link_kind(a, b)], []).append(f"{a}–{b}")
    return "; ".join(name if len(pairs) == 1 else f"{name}: {', '.join(these)}" for name, these in pairs.items())


def _sum_over(device: Any) -> str:
    """Sum a few numbers over all GPUs of a host."""
    from streamscope.ops.communication import all_reduce

    _run(device, lambda *each: all_reduce(each), *(np.full(8, gpu, np.float32) for gpu in range(device.gpus)))
    return f"sums over {device.gpus} GPUs"


def _nccl(gpus: int) -> str:
    from streamscope.devices.cuda import CudaDevice
    from streamscope.devices.cuda.nccl import nccl_version

    return f"{nccl_version()}, {_sum_over(CudaDevice(range(gpus)))}"


def _cupti(topic: str, device: CudaDevice, cuda: int) -> Check:
    from streamscope.recording.subscription import without_cupti

    if _version_of("cupti-python") is None:
        why, todo = without_cupti(cuda)
        return Check(topic, "CUPTI", "lacking", f"{why}; {_FOR_CUPTI}", f"{todo}; all else works without")
    return _tried(topic, "CUPTI", lambda: _record(device), _PERMISSION)


def _record(device: CudaDevice) -> str:
    """Record work of each kind: CUPTI may refuse one, and the layout of its records is checked only where there are any."""
    from streamscope.recording.record import record

    values = np.arange(8, dtype=np.float32)
    prepared = _run(device, lambda x: x + x, values)
    with record("doctor") as recording:
        _use_all_kinds()
        prepared.load([values])
        prepared.run()
        prepared.wait()
        prepared.outputs()
    found = f"permitted, {_FOR_CUPTI}, {_versions(_GPU_PACKAGES['CUPTI'])}"
    return "; ".join([found, *recording.trace.info.notes])


def _use_all_kinds() -> None:
    """Name a range, set memory, record an event and wait for it: a small program does none of these."""
    from streamscope.kernels.library.libraries import libraries

    cupy = libraries().cupy
    cupy.cuda.nvtx.RangePush("doctor")
    cupy.zeros(8)
    event = cupy.cuda.Event()
    event.record()
    event.synchronize()
    cupy.cuda.nvtx.RangePop()


def _run(device: Any, function: Callable[..., Any], *inputs: Any) -> Any:
    """Run a program twice and compare its result with NumPy's."""
    from streamscope.engines.prepared import prepare_traced
    from streamscope.errors import DeviceError
    from streamscope.program.reference import run_reference
    from streamscope.tracing import program

    traced = program(function).trace(*inputs)
    prepared = prepare_traced(traced, DEFAULT_ENGINE, device)
    for _ in range(2):
        prepared.load(inputs)
        prepared.run()
        prepared.wait()
    for result, expected in zip(prepared.outputs(), run_reference(traced, inputs), strict=True):
        if not np.allclose(result, expected, rtol=1e-2):
            raise DeviceError("the result of a small test is wrong", hint="do not believe results from this machine")
    return prepared


def _extension() -> str:
    """Find the extension of JupyterLab here, which must belong to this package."""
    from jupyter_core.paths import jupyter_path

    folders = [Path(folder, "streamscope") for folder in jupyter_path("labextensions")]
    folder = next((folder for folder in folders if (folder / "package.json").is_file()), None)
    if folder is None:
        raise StreamscopeError("not installed: JupyterLab opens no traces")
    source: str = widgets.load("payload:bundle_source")()
    own = source.partition("extension ")[2].partition(",")[0]
    if f'lab.js?v={own}"' not in (folder / "package.json").read_text(encoding="utf-8"):
        raise StreamscopeError(f"of another build than Streamscope: {folder}")
    return f"{own}, as Streamscope's"


def _bundle() -> str:
    source: str = widgets.load("payload:bundle_source")()
    return f"{len(source.encode()) / 1000:.0f} kB of JavaScript"
