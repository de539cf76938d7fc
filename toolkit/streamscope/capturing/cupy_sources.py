"""The source text of the kernels that CuPy compiles, by the module that a kernel comes from.

CuPy keeps no source text, and has no public hook. So its own function that compiles, which all its kernels pass, is wrapped.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import cache
from typing import Any

from streamscope.capturing.allocations import known_objects
from streamscope.kernels.library.libraries import libraries

MOST = 4096
"""Modules whose sources are known. They stay loaded, since CUDA gives the address of one that is gone to the next, whoever loads that."""
_SOURCES: dict[int, tuple[Any, str]] = {}
"""Modules and their sources by the address of the ``CUmodule``, in the order in which they were loaded."""
_UNKNOWN = ("-default-device", "--device-as-default-execution-space")
"""Options under which any variable of the source is one in device memory."""
_KEPT: list[Any] = []
"""Kernels that CuPy has forgotten since, but graphs of the user's may still hold."""


def source_of(function: int) -> str | None:
    """Return the source text that a ``CUfunction`` was compiled from; None if CuPy did not compile it, or before `note_sources`."""
    cuda = libraries().cuda
    status, module = cuda.cuFuncGetModule(cuda.CUfunction(function))
    _, source = _SOURCES.get(int(module), (None, None)) if int(status) == 0 else (None, None)
    return source


def _note(module: Any, source: str) -> None:
    _SOURCES[int(module.ptr)] = module, source
    while len(_SOURCES) > MOST:
        del _SOURCES[next(iter(_SOURCES))]


@cache
def note_sources() -> None:
    """From now on, note the sources that CuPy compiles; earlier kernels it loads again from its cache when they are used next."""
    # Should a later CuPy compile elsewhere, its kernels have no text, and captured code runs in the order of the capture.
    from cupy.cuda import compiler
    from cupy.cuda.function import Function

    compile_module: Callable[..., Any] = compiler._compile_module_with_cache  # noqa: SLF001 — see above

    def noting(source: str, options: tuple[str, ...] = (), **others: Any) -> Any:
        module = compile_module(source, options, **others)
        hides = "-DCUPY_JIT_MODE" not in options and any(one in options for one in _UNKNOWN)
        if hasattr(module, "ptr") and not hides:
            _note(module, source)
        return module

    compiler._compile_module_with_cache = noting  # noqa: SLF001
    everything = known_objects()
    _KEPT.extend(one for one in everything if type(one) is Function)
    _forget(everything)


def _forget(everything: list[Any]) -> None:
    """Let CuPy forget the kernels that it has loaded; those of a `RawKernel` keep their source."""
    import cupy
    from cupy._core._kernel import ElementwiseKernel, ufunc

    cupy.clear_memo()
    for one in everything:
        if type(one) is ufunc:
            one._kernel_memo.clear()  # noqa: SLF001
        elif type(one) is ElementwiseKernel:
            one._elementwise_kernel_memo.clear()  # noqa: SLF001
        elif type(one) is cupy.RawKernel and one.code is not None:
            loaded = (each for held in gc.get_referents(one) if isinstance(held, list) for each in held)
            for each in filter(None, loaded):
                _note(each.module, one.code)
        elif type(one).__name__ == "_JitRawKernel":
            one._cache.clear()  # noqa: SLF001
