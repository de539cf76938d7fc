"""NVRTC needs no GPU: kernels of the operators compile for three generations, and what it rejects is told."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from streamscope.errors import CompilationError, NoDeviceError
from streamscope.rtc import nvrtc
from streamscope.rtc.batch import compile_kernel
from streamscope.rtc.kernel_cache import KernelCache, kernel_key
from streamscope.rtc.nvrtc import checked_architecture, compile_unit, supported_architectures
from streamscope.rtc.source import KernelSource

EMPTY = 'extern "C" __global__ void empty() {}'
BROKEN = KernelSource("broken", 'extern "C" __global__ void broken(float* x)\n{\n    x[0] = undeclared;\n}\n')


@pytest.fixture
def bindings():
    return pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC's bindings are not installed")


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_100"])
def test_every_kernel_compiles(bindings, source, architecture):
    cubin = compile_kernel(source, architecture)
    assert cubin.image.startswith(b"\x7fELF")
    assert source.name in cubin.resources  # with others, where another test has compiled it together with them


def test_a_compiled_kernel_is_kept_by_its_whole_source(bindings):
    code = 'extern "C" __global__ void kept(float* x) {{ x[0] = {}; }}'
    one, two = (KernelSource("kept", code.format(value)) for value in (1, 2))
    assert compile_kernel(one, "sm_90") is compile_kernel(KernelSource("kept", one.code), "sm_90")
    assert compile_kernel(one, "sm_90").image != compile_kernel(two, "sm_90").image
    assert compile_kernel(one, "sm_90").image != compile_kernel(one, "sm_80").image


def test_an_error_shows_the_log_and_the_numbered_source(bindings):
    with pytest.raises(CompilationError) as caught:
        compile_kernel(BROKEN, "sm_90")
    message = str(caught.value)
    assert "kernel 'broken' did not compile for sm_90" in message
    assert re.search(r'broken\.cu\(3\): error: identifier "undeclared" is undefined', message)
    assert "   3 |     x[0] = undeclared;" in message.splitlines()


def test_a_failure_is_not_kept(bindings):
    for _ in range(2):
        with pytest.raises(CompilationError, match="undeclared"):
            compile_kernel(BROKEN, "sm_90")


@pytest.mark.parametrize("architecture", ["sm_123", "sm90", "", "--std=c++11"])
def test_an_unknown_architecture(bindings, architecture):
    with pytest.raises(CompilationError, match=r"(?s)does not take the options.*gpu-architecture.*sm_90, for example"):
        compile_unit(EMPTY, "empty", architecture)


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("nowhere")], ids=["FIFO", "folder", "broken link"])
@pytest.mark.filterwarnings("ignore::streamscope.errors.CacheWarning")
def test_whatever_is_in_the_place_of_its_file_a_kernel_compiles(bindings, tmp_path, make):
    kernel = KernelSource("empty", EMPTY)
    make(tmp_path / f"{kernel_key(kernel, 'sm_90')}.cubin")
    cache = KernelCache(tmp_path)
    assert compile_kernel(kernel, "sm_90", cache=cache) is compile_kernel(kernel, "sm_90", cache=cache)


def test_the_architectures_that_nvrtc_lists_and_their_variants_are_known(bindings):
    assert {"sm_80", "sm_90"} <= set(supported_architectures())
    for name in (*supported_architectures(), "sm_90a"):
        assert checked_architecture(name) == name


NAMES_OF_NONE = ["sm_90 ", "sm_90\n", " sm_90", "SM_90", "compute_90", "sm_123", "sm_80a", "sm_1a", "sm_90\na", ""]
NO_ARCHITECTURES = [*NAMES_OF_NONE, b"sm_90", 90, True, ["sm_90"]]


@pytest.mark.parametrize("given", NO_ARCHITECTURES)
def test_what_is_no_architecture(bindings, given):
    with pytest.raises(CompilationError) as caught:
        checked_architecture(given)
    assert f"architecture={given!r} is no architecture" in caught.value.message
    assert all(name in caught.value.hint for name in supported_architectures())


def test_a_unit_and_its_warnings(bindings):
    image, log = compile_unit('extern "C" __global__ void unused() { int never; }', "unused", "sm_90")
    assert image is not None
    assert b".text.unused\0" in image
    assert "unused.cu(1)" in log
    assert compile_unit("nonsense", "some", "sm_90")[0] is None


def test_without_nvrtc(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    monkeypatch.setattr(nvrtc, "nvrtc_version", nvrtc.nvrtc_version.__wrapped__)
    monkeypatch.setattr("streamscope.rtc.kernel_cache.nvrtc_version", nvrtc.nvrtc_version)
    for call in (
        nvrtc.nvrtc_version,
        lambda: compile_unit(EMPTY, "e", "sm_90"),
        lambda: compile_kernel(BROKEN, "sm_90", cache=KernelCache(tmp_path)),
    ):
        with pytest.raises(NoDeviceError, match="NVRTC cannot be loaded") as caught:
            call()
        assert "pip install" in str(caught.value)
