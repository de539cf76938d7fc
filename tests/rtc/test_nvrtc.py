"""NVRTC needs no GPU: every kernel that the operators generate compiles for three generations."""

from __future__ import annotations

import re

import pytest

from streamscope.errors import CompilationError
from streamscope.rtc.nvrtc import compile_cubin
from streamscope.rtc.source import KernelSource

pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC's bindings are not installed")

BROKEN = KernelSource("broken", 'extern "C" __global__ void broken(float* x)\n{\n    x[0] = undeclared;\n}\n')


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_100"])
def test_every_kernel_compiles(source, architecture):
    cubin = compile_cubin(source, architecture)
    assert cubin.startswith(b"\x7fELF")
    assert source.name.encode() in cubin


def test_a_compiled_kernel_is_kept_by_its_whole_source():
    code = 'extern "C" __global__ void kept(float* x) {{ x[0] = {}; }}'
    one, two = (KernelSource("kept", code.format(value)) for value in (1, 2))
    assert compile_cubin(one, "sm_90") is compile_cubin(KernelSource("kept", one.code), "sm_90")
    assert compile_cubin(one, "sm_90") != compile_cubin(two, "sm_90")
    assert compile_cubin(one, "sm_90") != compile_cubin(one, "sm_80")


def test_an_error_shows_the_log_and_the_numbered_source():
    with pytest.raises(CompilationError) as caught:
        compile_cubin(BROKEN, "sm_90")
    message = str(caught.value)
    assert "kernel 'broken' did not compile for sm_90" in message
    assert re.search(r'broken\.cu\(3\): error: identifier "undeclared" is undefined', message)
    assert "   3 |     x[0] = undeclared;" in message.splitlines()


def test_a_failure_is_not_kept():
    for _ in range(2):
        with pytest.raises(CompilationError, match="undeclared"):
            compile_cubin(BROKEN, "sm_90")


def test_an_unknown_architecture():
    with pytest.raises(CompilationError, match=r"sm_123.*\n.*gpu-architecture"):
        compile_cubin(KernelSource("empty", 'extern "C" __global__ void empty() {}'), "sm_123")
