"""CuPy in captured functions: its matrix products, NumPy arrays that it is given, and the source text of its kernels.

CuPy refuses to call cuBLAS in a capture, so a handle of ours makes the same calls. All products (``@``, dot, matmul, tensordot, einsum, …)
end in a few functions of one module, which CuPy looks up there when it calls them; while a capture goes on, ours stand there.

CuPy copies NumPy arrays from host memory that it uses again, which no capture allows. They are put on the device beside it, and the
capture copies from there, anew in each run. And CuPy keeps no source text, and has no public hook: its own function that compiles, which
all its kernels pass, is wrapped.
"""

from __future__ import annotations

import ctypes
import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from traceback import walk_tb
from types import ModuleType
from typing import Any

import numpy as np

from streamscope.capturing.allocations import PrivatePool, known_objects
from streamscope.capturing.memory import AddressRange
from streamscope.capturing.nodes import GrowingGraph
from streamscope.capturing.operators import Operator
from streamscope.devices.cuda.captures import CAPTURES, relaxed_captures
from streamscope.errors import DeviceError
from streamscope.interrupts import when_gone
from streamscope.kernels.library.cublas import WORKSPACE_BYTES, checked_status, library
from streamscope.kernels.library.libraries import libraries
from streamscope.program.user_line import UserLines, line_of_error, user_frame
from streamscope.tracebacks import is_known

_WORKSPACES = 8
"""Products take turns with so many workspaces; two that use the same one keep their order."""
_ITEM_BYTES = {0: 4, 1: 8, 2: 2, 4: 8, 5: 16, 14: 2}
"""Of a cudaDataType_t: real and complex numbers of 32 and 64 bits, halves, bfloat16."""
_COMPUTE_TYPES = {0: 68, 1: 70, 4: 68, 5: 70}
"""The cublasComputeType_t that computes in a cudaDataType_t, as older callers say it."""
_FROM_ADDRESSES = "takes its matrices from arrays of addresses"


class CupyProducts:
    """Makes CuPy's matrix products in one thread, and notes the memory that each captured one touches.

    Let the function run `through` it once before the capture, so that cuBLAS has loaded its kernels.
    """

    def __init__(self) -> None:
        self.operators: list[Operator] = []
        """The products that were captured."""
        self.workspaces: list[AddressRange] = []
        """Workspace of cuBLAS; its content does not outlive a product."""
        self._handle, self._memory = ctypes.c_void_p(), list[Any]()
        self._calls, self._lines = 0, UserLines()
        when_gone(self, partial(CAPTURES.destroy, partial(_let_go, self._handle, self._memory)))

    @contextmanager
    def through(self) -> Iterator[None]:
        """Let CuPy's products in this thread come here in the block."""
        thread = threading.get_ident()
        # Other threads may capture at the same time: CuPy's own functions come back with the last.
        with _LOCK:
            if not _ACTIVE:
                _stand_in()
            _ACTIVE[thread] = self
        try:
            yield
        finally:
            with _LOCK:
                del _ACTIVE[thread]
                if not _ACTIVE:
                    _stand_back()

    def call(self, name: str, arguments: tuple[Any, ...]) -> None:
        """Make a call of cuBLAS as CuPy would make it; the first argument is CuPy's handle."""
        stream = libraries().cupy.cuda.get_current_stream().ptr
        cublas, graph = library(), _graph(stream)
        if graph is None:
            self._warm()
        elif not self.workspaces:
            raise DeviceError(
                "the function computed a matrix product that its calls before the capture did not", hint="let each call do the same"
            )
        workspace = self.workspaces[self._calls % len(self.workspaces)]
        self._calls += 1
        checked_status(cublas.cublasSetStream_v2(self._handle, stream), "cublasSetStream")
        # After the stream, which sets the workspace back to cuBLAS's own.
        checked_status(cublas.cublasSetWorkspace_v2(self._handle, workspace[0], WORKSPACE_BYTES), "cublasSetWorkspace")
        before = graph.count() if graph is not None else 0
        symbol, own, reads, writes = _CALLS[name](name, *arguments[1:])
        checked_status(getattr(cublas, symbol)(self._handle, *own), symbol)
        if graph is not None:
            why_unknown = "" if writes else f"{symbol} {_FROM_ADDRESSES}"
            launched = graph.since(before)
            line = self._lines.of(user_frame(is_known))
            self.operators.append(Operator(symbol, "", line, launched, reads, writes, range(0), why_unknown))

    def _warm(self) -> None:
        """Make the handle and, for each of the first products, a workspace: in a capture, neither may be made."""
        if self._handle.value is None:
            checked_status(library().cublasCreate_v2(ctypes.byref(self._handle)), "cublasCreate")
        if len(self.workspaces) < _WORKSPACES:
            memory = libraries().cupy.cuda.memory.Memory(WORKSPACE_BYTES)
            self._memory.append(memory)
            self.workspaces.append((int(memory.ptr), int(memory.ptr) + WORKSPACE_BYTES))


def what_was_refused(error: BaseException) -> str:
    """Return the call that CuPy refuses in a capture, and the user's line, if an error names them; else nothing.

    ``"cupy.linalg.solve calls cusolver.sgetrf (model.py:12)"``
    """
    line = line_of_error(error)
    if line is None or not isinstance(error, NotImplementedError) or "during stream capture" not in str(error):
        return ""
    names: list[str] = []
    for frame, _ in walk_tb(error.__traceback__):
        module, function = frame.f_globals.get("__name__", ""), frame.f_code.co_name
        # Frames of Cython's have their module in the function's name.
        names = [*names, function if function.startswith(module) else f"{module}.{function}"] if is_known(module) else []
    calls = [one.partition(".libs.")[2] for one in names if one.startswith("cupy_backends.")]
    return f"{_public(names[0])} calls {calls[0]} ({line.where})" if calls else ""


def _public(name: str) -> str:
    """Return the public name of a function of CuPy: ``cupy.linalg._solve.solve`` is ``cupy.linalg.solve``."""
    head, *parts, own = name.split(".")
    return ".".join([head, *(part for part in parts if not part.startswith("_") and part != "core"), own])


def _graph(stream: int) -> GrowingGraph | None:
    """Return the graph that a stream captures into; None if it does not capture."""
    try:
        return GrowingGraph(stream)
    except DeviceError:
        return None


def _let_go(handle: ctypes.c_void_p, memory: list[Any]) -> None:
    memory.clear()
    if handle.value is not None:
        library().cublasDestroy_v2(handle)


_LOCK = threading.Lock()
_ACTIVE: dict[int, CupyProducts] = {}
"""By the thread that they are made in."""
_CUPYS: dict[str, Callable[..., Any]] = {}
"""CuPy's own functions while ours stand in for them."""


def _module() -> ModuleType:
    from cupy_backends.cuda.libs import cublas

    return cublas  # type: ignore[no-any-return]  # CuPy has no types


def _stand_in() -> None:
    cublas = _module()
    for name in _CALLS:
        _CUPYS[name] = getattr(cublas, name)
        setattr(cublas, name, partial(_called, name))


def _stand_back() -> None:
    cublas = _module()
    for name, function in _CUPYS.items():
        setattr(cublas, name, function)


def _called(name: str, *arguments: Any) -> Any:
    products = _ACTIVE.get(threading.get_ident())
    return _CUPYS[name](*arguments) if products is None else products.call(name, arguments)


_Made = tuple[str, tuple[Any, ...], tuple[AddressRange, ...], tuple[AddressRange, ...]]
"""A call of cuBLAS: name, arguments, inputs, output."""


def _gemm_ex(_: str, *given: Any) -> _Made:
    turned_a, turned_b, m, n, k, one, a, a_type, a_step, b, b_type, b_step, zero, c, c_type, c_step, compute, algorithm = given
    own = (*_sizes(given), one, a, a_type, a_step, b, b_type, b_step, zero, c, c_type, c_step)
    reads = _matrix(a, m, k, turned_a, a_step, a_type), _matrix(b, k, n, turned_b, b_step, b_type)
    return "cublasGemmEx", (*own, _COMPUTE_TYPES.get(compute, compute), algorithm), reads, (_matrix(c, m, n, 0, c_step, c_type),)


def _gemm_strided(_: str, *given: Any) -> _Made:
    turned_a, turned_b, m, n, k, one, a, a_type, a_step, a_apart, b, b_type, b_step, b_apart, *rest = given
    zero, c, c_type, c_step, c_apart, count, compute, algorithm = rest
    first = a, a_type, a_step, a_apart
    second = b, b_type, b_step, b_apart
    own = (*_sizes(given), one, *first, *second, zero, c, c_type, c_step, c_apart, count)
    reads = (
        _matrix(a, m, k, turned_a, a_step, a_type, (count - 1) * a_apart),
        _matrix(b, k, n, turned_b, b_step, b_type, (count - 1) * b_apart),
    )
    writes = (_matrix(c, m, n, 0, c_step, c_type, (count - 1) * c_apart),)
    return "cublasGemmStridedBatchedEx", (*own, _COMPUTE_TYPES.get(compute, compute), algorithm), reads, writes


def _gemm_batched(name: str, *given: Any) -> _Made:
    _, _, _, _, _, one, a, a_step, b, b_step, zero, c, c_step, count = given
    own = (*_sizes(given), one, a, a_step, b, b_step, zero, c, c_step, count)
    return f"cublas{name[0].upper()}gemmBatched", own, (), ()


def _geam(name: str, *given: Any) -> _Made:
    turned_a, turned_b, m, n, one, a, a_step, zero, b, b_step, c, c_step = given
    own = (turned_a, turned_b, m, n, one, a, a_step, zero, b, b_step, c, c_step)
    kind = {"s": 0, "d": 1}[name[0]]
    reads = _matrix(a, m, n, turned_a, a_step, kind), _matrix(b, m, n, turned_b, b_step, kind)
    return f"cublas{name[0].upper()}geam", own, reads, (_matrix(c, m, n, 0, c_step, kind),)


_CALLS: dict[str, Callable[..., _Made]] = {
    "gemmEx": _gemm_ex,
    "gemmStridedBatchedEx": _gemm_strided,
    **{f"{kind}gemmBatched": _gemm_batched for kind in "sdcz"},
    **{f"{kind}geam": _geam for kind in "sd"},
}
"""CuPy's functions that ours stand in for."""


def _sizes(given: tuple[Any, ...]) -> tuple[int, ...]:
    """Return which matrices are transposed, and the three extents."""
    return tuple(int(one) for one in given[:5])


def _matrix(address: int, rows: int, columns: int, turned: int, step: int, kind: int, apart: int = 0) -> AddressRange:
    """Return where a matrix lies whose columns are ``step`` elements apart, or several, the last of them ``apart`` from the first."""
    rows, columns = (columns, rows) if turned else (rows, columns)
    return address, address + (apart + (columns - 1) * step + rows) * _ITEM_BYTES[kind]


class CupyUploads:
    """Puts NumPy arrays on the device once; must live as long as the graph."""

    def __init__(self) -> None:
        self.arrays: list[Any] = []
        """Their device arrays."""
        # Not the pool of the capture, whose memory is cleared between runs.
        self._pool, self._stream = PrivatePool(), libraries().cupy.cuda.Stream(non_blocking=True)

    @contextmanager
    def constant(self) -> Iterator[None]:
        """Let NumPy arrays that CuPy is given become constants in the block, in the calling thread."""
        _uploads_stand_in()
        thread = threading.get_ident()
        try:
            _UPLOADING[thread] = self
            yield
        finally:
            _UPLOADING.pop(thread, None)

    def copy_of(self, made: Callable[[], Any]) -> Any:
        """Return a captured copy of an array that is made beside the capture."""
        # On a stream that is not captured: the upload happens now, and the graph holds only the copy from there.
        with relaxed_captures(), self._pool.plain(), self._stream:
            self.arrays.append(made())
            self._stream.synchronize()
        return self.arrays[-1].copy(order="K")


_UPLOADING: dict[int, CupyUploads] = {}
"""Of the captures that go on, by the thread that each is made in."""


@cache
def _uploads_stand_in() -> None:
    """From now on, let the function that makes CuPy's arrays of others ask whether a capture goes on."""
    from cupy import _core

    plain = _core.array

    def array(given: Any, *arguments: Any, **keywords: Any) -> Any:
        uploads = _UPLOADING.get(threading.get_ident())
        if uploads is None or not _on_host(given):
            return plain(given, *arguments, **keywords)
        return uploads.copy_of(lambda: plain(given, *arguments, **keywords))

    _core.array = array


def _on_host(given: Any) -> bool:
    """Tell an array of NumPy's, or lists of numbers; a number alone is no copy."""
    if isinstance(given, list | tuple):
        return all(_on_host(one) or isinstance(one, int | float | complex | np.generic) for one in given)
    return isinstance(given, np.ndarray) and given.ndim > 0


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
