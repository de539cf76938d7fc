"""The calls of cuBLAS that are needed, by ctypes: CuPy refuses to call cuBLAS while a graph is captured."""

from __future__ import annotations

import ctypes
from functools import cache, partial
from typing import Any

from streamscope.errors import DeviceError, NoDeviceError
from streamscope.kernels.gemm import LIMIT, gemm
from streamscope.kernels.library.libraries import INSTALL_HINT
from streamscope.program.launch import CudaCall

WORKSPACE_BYTES = 32 << 20
"""Workspace that cuBLAS recommends for Hopper; one for each stream, so that no memory is allocated inside a capture."""

_DATA_TYPES = {"float32": 0, "float64": 1, "float16": 2}  # cudaDataType_t
_COMPUTE_TYPES = {"float16": 68, "float32": 68, "float64": 70}  # CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_64F
_DEFAULT_ALGORITHM = -1


@cache
def library() -> ctypes.CDLL:
    """Return cuBLAS."""
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib

        library = ctypes.CDLL(load_nvidia_dynamic_lib("cublas").abs_path)
    except (ImportError, OSError, RuntimeError) as error:
        raise NoDeviceError(f"cuBLAS cannot be loaded: {error}", hint=INSTALL_HINT) from None
    pointer, integer = ctypes.c_void_p, ctypes.c_int
    library.cublasDestroy_v2.argtypes = [pointer]
    library.cublasSetStream_v2.argtypes = [pointer, pointer]
    library.cublasSetWorkspace_v2.argtypes = [pointer, pointer, ctypes.c_size_t]
    sizes: list[Any] = [pointer, *[integer] * 5]  # the handle, what is transposed, and the extents
    library.cublasGemmEx.argtypes = [
        *sizes, pointer, pointer, integer, integer, pointer, integer, integer, pointer, pointer, integer, integer, integer, integer,
    ]  # fmt: skip
    matrices: list[Any] = [pointer, integer, integer, ctypes.c_longlong]
    library.cublasGemmStridedBatchedEx.argtypes = [*sizes, pointer, *matrices, *matrices, pointer, *matrices, integer, integer, integer]
    for kind in "SDCZ":
        batched = getattr(library, f"cublas{kind}gemmBatched")  # Not by index: each of those is a function of its own.
        batched.argtypes = [*sizes, pointer, pointer, integer, pointer, integer, pointer, pointer, integer, integer]
    for kind in "SD":
        scaled: list[Any] = [pointer, pointer, integer]
        getattr(library, f"cublas{kind}geam").argtypes = [pointer, *[integer] * 4, *scaled, *scaled, pointer, integer]
    return library


class CublasHandle:
    """A cuBLAS handle bound to one stream (a `devices.cuda.streams.CudaStream`) and its workspace."""

    def __init__(self, stream: Any) -> None:
        self._library = library()
        self._handle = ctypes.c_void_p()
        checked_status(self._library.cublasCreate_v2(ctypes.byref(self._handle)), "cublasCreate")
        # The CuPy stream, not ours, which is to go when nobody but this handle uses it.
        self._stream = stream.handle
        checked_status(self._library.cublasSetStream_v2(self._handle, stream.pointer), "cublasSetStream")
        self._workspace = stream.device.empty_bytes(WORKSPACE_BYTES, stream.gpu)
        address = self._workspace.data.ptr
        checked_status(self._library.cublasSetWorkspace_v2(self._handle, address, WORKSPACE_BYTES), "cublasSetWorkspace")

    def destroy(self) -> None:
        """Give the handle back; nothing that was prepared with it may be called any more."""
        self._library.cublasDestroy_v2(self._handle)

    def matmul(self, a: Any, b: Any, out: Any) -> CudaCall:
        """Prepare ``out = a @ b`` for CuPy arrays in any steps that `gemm` accepts; cuBLAS is column-major, so it is ``out' = b' a'``."""
        product = gemm(a.shape, _steps(a), b.shape, _steps(b))
        if product is None:
            hint = f"copy them first; cuBLAS counts rows, columns and matrices up to {LIMIT - 1:,}"
            raise DeviceError(f"cuBLAS cannot multiply arrays of shapes {a.shape} and {b.shape} with these strides", hint=hint)
        dtype = a.dtype.name
        scalar = ctypes.c_double if dtype == "float64" else ctypes.c_float
        one, zero, data = scalar(1), scalar(0), _DATA_TYPES[dtype]
        several = product.count > 1
        sizes = product.columns, product.rows, product.inner
        first, second, result = (
            (array.data.ptr, data, leading, *((apart,) if several else ()))
            for array, leading, apart in (
                (b, product.b.leading, product.b.apart),
                (a, product.a.leading, product.a.apart),
                (out, product.columns, product.rows * product.columns),
            )
        )
        name = "cublasGemmStridedBatchedEx" if several else "cublasGemmEx"
        call = partial(
            getattr(self._library, name), self._handle, int(product.b.transposed), int(product.a.transposed), *sizes,
            ctypes.addressof(one), *first, *second, ctypes.addressof(zero), *result, *((product.count,) if several else ()),
            _COMPUTE_TYPES[dtype], _DEFAULT_ALGORITHM,
        )  # fmt: skip
        kept = (one, zero, a, b, out)

        def launch(kept: object = kept) -> None:
            checked_status(call(), name)

        return launch


def _steps(array: Any) -> list[int]:
    """Return an array's strides in elements."""
    return [step // array.itemsize for step in array.strides]


def checked_status(status: int, call: str) -> None:
    """Raise an error of ours unless a call of cuBLAS succeeded."""
    if status != 0:
        raise DeviceError(f"{call} failed with status {status}", hint="see cublasStatus_t in cuBLAS's documentation")
