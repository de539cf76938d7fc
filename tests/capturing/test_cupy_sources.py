"""The source text of CuPy's kernels, by their module: with a CuPy that compiles nothing."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

from streamscope.capturing import cupy_captures
from streamscope.capturing.cupy_captures import note_sources, source_of


class Function:
    """A kernel of a module."""

    def __init__(self, module):
        self.module = module


class Ufunc:
    """A function of CuPy's that remembers its kernels."""

    def __init__(self):
        self._kernel_memo = {"float32": Function(SimpleNamespace(ptr=1))}


class RawKernel:
    """A kernel of the user's own, which is loaded on one of two devices."""

    def __init__(self, code, module):
        self.code = code
        self.cache = [None, Function(module)]


@pytest.fixture
def cupy(monkeypatch):
    """A CuPy whose modules are numbered from 100 on; a kernel's address is that of its module."""
    names = ("cupy", "cupy.cuda", "cupy.cuda.compiler", "cupy.cuda.function", "cupy._core", "cupy._core._kernel")
    modules = {name: ModuleType(name) for name in names}
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
        parent, _, own = name.rpartition(".")
        if parent:
            setattr(modules[parent], own, module)
    numbers = iter(range(100, 10_000))
    cupy = modules["cupy"]
    cupy.clear_memo, cupy.RawKernel = lambda: None, RawKernel
    modules["cupy.cuda.compiler"]._compile_module_with_cache = lambda source, options=(), **_: SimpleNamespace(ptr=next(numbers))
    modules["cupy.cuda.function"].Function = Function
    modules["cupy._core._kernel"].ufunc, modules["cupy._core._kernel"].ElementwiseKernel = Ufunc, type("ElementwiseKernel", (), {})
    driver = SimpleNamespace(CUfunction=int, cuFuncGetModule=lambda function: (0, function))
    monkeypatch.setattr(cupy_captures, "libraries", lambda: SimpleNamespace(cuda=driver))
    monkeypatch.setattr(cupy_captures, "_SOURCES", {})
    monkeypatch.setattr(cupy_captures, "_KEPT", [])
    note_sources.cache_clear()
    yield cupy
    note_sources.cache_clear()


def test_what_is_compiled_later_is_known(cupy):
    compiled = cupy.cuda.compiler
    assert source_of(compiled._compile_module_with_cache("before").ptr) is None
    note_sources()
    module = compiled._compile_module_with_cache("after", ("-std=c++17",), arch="90")
    assert source_of(module.ptr) == "after"
    assert source_of(7) is None


def test_kernels_that_were_loaded_before_are_loaded_again_and_stay(cupy):
    ufunc = Ufunc()
    kernel = ufunc._kernel_memo["float32"]
    note_sources()
    assert ufunc._kernel_memo == {}
    assert any(one is kernel for one in cupy_captures._KEPT)


def test_a_raw_kernel_has_its_source_itself(cupy):
    kernel = RawKernel("mine", SimpleNamespace(ptr=5))
    note_sources()
    assert source_of(5) == "mine"
    assert kernel.code == "mine"


def test_a_source_in_which_each_variable_is_one_of_the_device_is_not_known(cupy):
    note_sources()
    assert source_of(cupy.cuda.compiler._compile_module_with_cache("int calls;", ("-default-device",)).ptr) is None
    jit = cupy.cuda.compiler._compile_module_with_cache("of CuPy's", ("-DCUPY_JIT_MODE", "-default-device"))
    assert source_of(jit.ptr) == "of CuPy's"


def test_no_more_sources_are_kept_than_fit(cupy, monkeypatch):
    monkeypatch.setattr(cupy_captures, "MOST", 3)
    note_sources()
    modules = [cupy.cuda.compiler._compile_module_with_cache(str(number)) for number in range(5)]
    assert [source_of(one.ptr) for one in modules] == [None, None, "2", "3", "4"]
