"""What machine code says of its kernels, against what the assembler itself reports."""

from __future__ import annotations

import re

import pytest

from streamscope.kernels.compile import nvrtc
from streamscope.kernels.compile.batch import unit_code
from streamscope.kernels.compile.cubin import Cubin, resources_of
from streamscope.kernels.compile.nvrtc import compile_unit
from streamscope.kernels.source import KernelSource

SHARED = """extern "C" __global__ void shared(float* x)
{
    __shared__ float s[1000];
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = s[999 - threadIdx.x];
}
"""
STACK = """extern "C" __global__ void stack(float* x, int n)
{
    float a[100];
    for (int i = 0; i < 100; ++i) a[i] = x[i];
    for (int i = 0; i < n; ++i) a[(i * 7) % 100] += a[i % 100];
    x[n] = a[n % 100];
}
"""
ODD = [KernelSource("shared", SHARED), KernelSource("stack", STACK)]
# ptxas says: Compiling entry function 'name' … N bytes stack frame … Used N registers … N bytes smem
ENTRY = re.compile(r"entry function '(\w+)'.*?(\d+) bytes stack frame.*?Used (\d+) registers(.*?)$", re.DOTALL | re.MULTILINE)


@pytest.fixture
def assembled(monkeypatch):
    """Return a function that compiles a unit; it returns the machine code and what ptxas reports of each kernel."""
    pytest.importorskip("cuda.bindings.nvrtc")
    monkeypatch.setattr(nvrtc, "OPTIONS", (*nvrtc.OPTIONS, "--ptxas-options=-v"))

    def assemble(code, architecture):
        image, log = compile_unit(code, "unit", architecture)
        assert image is not None, log
        reported = {}
        for name, stack, registers, rest in ENTRY.findall(log):
            shared = re.search(r"(\d+) bytes smem", rest)
            reported[name] = (int(registers), int(shared[1]) if shared else 0, int(stack))
        return image, reported

    return assemble


def read(image):
    return {name: (found.registers, found.shared_bytes, found.stack_bytes) for name, found in resources_of(image).items()}


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_100"])
def test_registers_shared_memory_and_stack_are_those_that_ptxas_reports(assembled, architecture):
    image, reported = assembled(unit_code(tuple(ODD)), architecture)
    assert set(reported) == {"shared", "stack"}, "ptxas reported nothing"
    assert read(image) == reported
    assert read(image)["shared"][1] == 4000
    assert read(image)["stack"][2] >= 400


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_100"])
def test_of_generated_kernels(assembled, source, architecture):
    image, reported = assembled(source.code, architecture)
    assert set(reported) == {source.name}
    assert read(image) == reported


def test_code_bytes_are_those_of_the_text_sections(assembled):
    image, _ = assembled(unit_code(tuple(ODD)), "sm_90")
    for found in resources_of(image).values():
        assert found.code_bytes > 0
        assert found.code_bytes % 16 == 0  # an instruction
    assert sum(found.code_bytes for found in resources_of(image).values()) < len(image)


@pytest.mark.parametrize("image", [b"", b"\x7fELF", b"PTX text", b"\x7fELF\x01" + bytes(100), b"\x7fELF\x02" + bytes(range(100))])
def test_what_is_no_cubin(image):
    assert resources_of(image) == {}


def test_digests_tell_cubins_apart():
    one, two = (Cubin(image, "sm_90", "13.0", 1, 1) for image in (b"a", b"b"))
    assert one.digest != two.digest
    assert one.digest == "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"  # SHA-256 of "a"
