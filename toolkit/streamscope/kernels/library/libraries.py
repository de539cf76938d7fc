"""The CUDA libraries, imported when first used, and their errors in our words."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import SimpleNamespace
from typing import Any

from streamscope.errors import DeviceError, NoDeviceError, OutOfMemoryError
from streamscope.interrupts import deferred

INSTALL_HINT = "on a machine with an NVIDIA driver, pip install '.[cuda13]' (or cuda12) in the clone; else use device='simulated'"
SUCCESS, NOT_READY = 0, 600
"""cudaError: nothing is wrong; work is pending."""
_NO_GPU_HINT = "check nvidia-smi, or use device='simulated'"
_OUT_OF_MEMORY = 2
"""cudaErrorMemoryAllocation, and CUDA_ERROR_OUT_OF_MEMORY."""
OUT_OF_MEMORY_HINT = "use smaller arrays, or free memory held by other programs"


def has_driver() -> bool:
    """Tell whether there is an NVIDIA driver, without any package; whether it has a GPU, only a call of it tells."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def driver_version() -> tuple[int, int]:
    """Return the newest CUDA version that the driver supports, for example ``(13, 0)``; ``(0, 0)`` without a driver."""
    version = ctypes.c_int(0)
    if has_driver():
        ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
    return version.value // 1000, version.value % 1000 // 10


@cache
def libraries() -> SimpleNamespace:
    """Return CuPy, its driver and runtime calls, and cuda-python's driver as one namespace."""
    try:
        with deferred():  # Ctrl-C in the middle would leave CuPy half imported for the rest of the process.
            import cupy
            from cuda.bindings import driver as cuda
            from cupy_backends.cuda.api import driver, runtime
    except ImportError as error:
        if not has_driver():
            raise NoDeviceError("no CUDA device: there is no NVIDIA driver here", hint=_NO_GPU_HINT) from None
        raise NoDeviceError(f"no CUDA device: {error}", hint=INSTALL_HINT) from None
    try:
        count = runtime.getDeviceCount()
    except runtime.CUDARuntimeError as error:
        raise NoDeviceError(f"no CUDA device: {error}", hint=_NO_GPU_HINT) from None
    if count == 0:
        raise NoDeviceError("no CUDA device: the driver lists none", hint=_NO_GPU_HINT)
    return SimpleNamespace(cupy=cupy, cuda=cuda, driver=driver, runtime=runtime)


@cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def driver_call(name: str, *arguments: object) -> Any:
    """Call a function of the driver without cuda-python, and return its status, a CUresult; addresses come as ``ctypes.c_void_p``.

    A driver that is older than the function raises an `AttributeError`.
    """
    return libraries().cuda.CUresult(driver_function(name)(*arguments))


def driver_function(name: str) -> Callable[..., int]:
    """Return a function of the driver, for calls that count each microsecond; its result is the number of a status."""
    found: Callable[..., int] = getattr(_driver(), name)
    return found


def checked(result: tuple[Any, ...]) -> Any:
    """Return the result of a call of cuda-python, without its status.

    Raises
    ------
    OutOfMemoryError
        The status says so.
    DeviceError
        The status is not success.
    """
    status, *values = result
    if int(status) == _OUT_OF_MEMORY:
        raise OutOfMemoryError(f"CUDA call failed: {status.name}", hint=OUT_OF_MEMORY_HINT)
    if int(status) != 0:
        raise DeviceError(f"CUDA call failed: {status.name}")
    if len(values) > 1:
        return tuple(values)
    return values[0] if values else None


@contextmanager
def cuda_errors(what: str) -> Iterator[None]:
    """Turn errors of CuPy into ours, with the action that failed."""
    lib = libraries()
    try:
        yield
    except lib.cupy.cuda.memory.OutOfMemoryError as error:
        raise OutOfMemoryError(f"{what}: {error}", hint=OUT_OF_MEMORY_HINT) from error
    except (lib.runtime.CUDARuntimeError, lib.driver.CUDADriverError) as error:
        if error.status == _OUT_OF_MEMORY:
            raise OutOfMemoryError(f"{what}: {error}", hint=OUT_OF_MEMORY_HINT) from error
        raise DeviceError(f"{what}: {error}") from error
