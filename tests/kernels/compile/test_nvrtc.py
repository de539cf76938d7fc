"""NVRTC needs no GPU: kernels of the operators compile for three generations, and what it rejects is told."""

from __future__ import annotations

import os
import re
import struct
import sys
from pathlib import Path

import pytest

from streamscope.errors import CompilationError, NoDeviceError
from streamscope.kernels.compile import nvrtc
from streamscope.kernels.compile.batch import compile_kernel
from streamscope.kernels.compile.kernel_cache import KernelCache, kernel_key
from streamscope.kernels.compile.nvrtc import checked_architecture, compile_unit, supported_architectures
from streamscope.kernels.source import KernelSource

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


def test_the_architectures_that_nvrtc_lists_are_known(bindings):
    assert {"sm_80", "sm_90"} <= set(supported_architectures())
    for name in supported_architectures():
        assert checked_architecture(name) == name


NAMES_OF_NONE = ["sm_90 ", "sm_90\n", " sm_90", "SM_90", "compute_90", "sm_123", "sm_80a", "sm_1a", "sm_90\na", ""]
NO_ARCHITECTURES = [*NAMES_OF_NONE, b"sm_90", 90, True, ["sm_90"]]


@pytest.mark.parametrize("given", NO_ARCHITECTURES)
def test_what_is_no_architecture(bindings, given):
    with pytest.raises(CompilationError) as caught:
        checked_architecture(given)
    assert f"architecture={given!r} is unknown to this NVRTC" in caught.value.message
    assert all(name in caught.value.hint for name in supported_architectures())


def test_a_unit_and_its_warnings(bindings):
    image, log = compile_unit('extern "C" __global__ void unused() { int never; }', "unused", "sm_90")
    assert image is not None
    assert b".text.unused\0" in image
    assert "unused.cu(1)" in log
    assert compile_unit("nonsense", "some", "sm_90")[0] is None


def library(path, build_id=b"", content=b""):
    """Write an ELF file of two sections: the names, and the linker's note if there is a build ID."""
    names = b"\0.shstrtab\0.note.gnu.build-id\0"
    note = struct.pack("<III4s", 4, len(build_id), 3, b"GNU") + build_id
    sections = [(1, 3, 64, len(names)), (11, 7, 64 + len(names), len(note))][: 2 if build_id else 1]
    header = struct.pack("<5s35xQ10xHHH", b"\x7fELF\x02", 64 + len(names) + len(note), 64, len(sections), 0).ljust(64, b"\0")
    table = b"".join(struct.pack("<IIQQQQ24x", name, kind, 0, 0, start, size) for name, kind, start, size in sections)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(header + names + note + table + content)
    return path


@pytest.fixture
def build_with(monkeypatch, tmp_path):
    """Return a function that returns the build, and a kernel's key, of NVRTC 13.0 where the process has mapped some files."""
    build = nvrtc.nvrtc_build.__wrapped__
    monkeypatch.setattr(nvrtc, "nvrtc_version", lambda: "13.0")
    monkeypatch.setattr("streamscope.kernels.compile.kernel_cache.nvrtc_build", build)
    monkeypatch.setattr(nvrtc, "MAPS", tmp_path / "maps")

    def build_with(*mapped):
        lines = [f"7f8f4c400000-7f8f4c82d000 {mode} 00000000 fe:00 54       {path}\n" for path in mapped for mode in ("r--p", "r-xp")]
        (tmp_path / "maps").write_text("7ffc-7ffd rw-p 00000000 00:00 0\n" + "".join(lines))
        return build(), kernel_key(BROKEN, "sm_90")

    return build_with


def test_builds_of_one_version_have_other_keys(build_with, tmp_path):
    """An update of NVRTC may compile otherwise, and has the version of the one before."""
    old, new = library(tmp_path / "old" / "libnvrtc.so.13", b"a" * 20), library(tmp_path / "new" / "libnvrtc.so.13.0.96", b"b" * 20)
    assert build_with(old)[0] == f"13.0 {'61' * 20}"
    assert build_with(new)[0] == f"13.0 {'62' * 20}"
    assert len({build_with(*paths)[1] for paths in [(old,), (new,), (old, new), ()]}) == 4


def test_the_same_library_has_the_same_key_wherever_and_whenever_it_was_installed(build_with, tmp_path):
    one, other = (library(tmp_path / place / "libnvrtc.so.13", b"a" * 20) for place in ("a wheel", "cuda/lib64"))
    os.utime(other, (1, 1))
    assert build_with(one) == build_with(other) == build_with(one, other)


def test_a_library_without_a_build_id_is_known_by_its_size_and_time(build_with, tmp_path):
    for name, write in [("none", library), ("no ELF", lambda path: path.write_bytes(b"x")), ("empty", lambda path: path.write_bytes(b""))]:
        path = tmp_path / name / "libnvrtc.so.13"
        path.parent.mkdir()
        write(path)
        os.utime(path, ns=(5, 5))
        assert build_with(path)[0] == f"13.0 {path.stat().st_size} 5"


def test_other_libraries_are_none_of_it(build_with, tmp_path):
    ours = library(tmp_path / "libnvrtc.so.13", b"a" * 20)
    names = [
        "libnvrtc-builtins.so.13.0",
        "libnvrtc.so.12",
        "libnvrtc.so.130",
        "libnvrtc.so.13.old",
        "nvrtc.cpython-311-x86_64-linux-gnu.so",
    ]
    assert build_with(ours) == build_with(ours, *(library(tmp_path / name, b"b" * 20) for name in names))


def test_where_no_library_can_be_found_it_is_the_version(build_with, tmp_path, monkeypatch):
    assert build_with()[0] == "13.0"
    assert build_with(tmp_path / "gone" / "libnvrtc.so.13")[0] == "13.0"
    assert build_with(f"{library(tmp_path / 'libnvrtc.so.13', b'a' * 20)} (deleted)")[0] == "13.0"  # by an update
    monkeypatch.setattr(nvrtc, "MAPS", tmp_path / "none")
    assert nvrtc.nvrtc_build.__wrapped__() == "13.0"


def test_the_build_of_the_nvrtc_that_is_installed(bindings):
    version, _, build = nvrtc.nvrtc_build().partition(" ")
    assert version == nvrtc.nvrtc_version()
    assert build


def test_without_nvrtc(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    monkeypatch.setattr(nvrtc, "nvrtc_version", nvrtc.nvrtc_version.__wrapped__)
    monkeypatch.setattr("streamscope.kernels.compile.kernel_cache.nvrtc_build", nvrtc.nvrtc_build.__wrapped__)
    for call in (
        nvrtc.nvrtc_version,
        nvrtc.nvrtc_build.__wrapped__,
        lambda: compile_unit(EMPTY, "e", "sm_90"),
        lambda: compile_kernel(BROKEN, "sm_90", cache=KernelCache(tmp_path)),
    ):
        with pytest.raises(NoDeviceError, match="NVRTC cannot be loaded") as caught:
            call()
        assert "pip install" in str(caught.value)
