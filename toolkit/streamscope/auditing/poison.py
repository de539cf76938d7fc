"""Fresh memory of NumPy full of one byte, so that unwritten elements show in two calls."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from numpy._core import _multiarray_umath  # type: ignore[attr-defined]

# NumPy's C interface, which no release of 2.x changes: PyDataMem_SetHandler and PyDataMem_GetHandler, and how many places come before them.
_SET_HANDLER, _GET_HANDLER = 304, 305
_NAME = b"mem_handler"
_Malloc = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


class _Handler(ctypes.Structure):
    """PyDataMem_Handler, version 1: who hands out the memory of arrays."""

    _fields_ = (
        ("name", ctypes.c_char * 127),
        ("version", ctypes.c_uint8),
        ("context", ctypes.c_void_p),
        ("malloc", ctypes.c_void_p),
        ("calloc", ctypes.c_void_p),
        ("realloc", ctypes.c_void_p),
        ("free", ctypes.c_void_p),
    )


@contextmanager
def poisoned_memory(byte: int) -> Iterator[None]:
    """Let NumPy give memory full of one byte to new arrays: by ``np.empty``, ``np.ndarray``, and whatever else leaves it as it is.

    It holds for the calling thread, in the block. Its content is undefined anyway, so no function can mind. Ctrl-C that comes
    while NumPy allocates is raised at the end of the block, since no exception gets through C.
    """
    set_handler, get_handler, pointer, new_capsule = _interface()
    former = get_handler()
    handler, _, missed = _filling(pointer(former, _NAME), byte)
    set_handler(new_capsule(ctypes.addressof(handler), _NAME, None))
    try:
        yield
    finally:
        set_handler(former)
        if missed:
            raise missed.pop()


@cache
def _filling(former: int, byte: int) -> tuple[_Handler, object, list[BaseException]]:
    """Return a handler that fills the memory of another one, its function, and the errors it raised; all are kept for good.

    An array goes back to the handler that it came from, however late. The other one's function frees it.
    """
    handler = _Handler.from_buffer_copy(ctypes.cast(former, ctypes.POINTER(_Handler)).contents)
    allocate = _Malloc(handler.malloc or 0)
    missed: list[BaseException] = []

    def malloc(context: int | None, nbytes: int) -> int | None:
        address: int | None = None
        try:
            address = allocate(context, nbytes)
            if address:
                ctypes.memset(address, byte, nbytes)
        except BaseException as error:  # noqa: BLE001 — Ctrl-C, which is raised later
            missed.append(error)
        return address

    fill = _Malloc(malloc)
    handler.malloc = ctypes.cast(fill, ctypes.c_void_p).value
    return handler, fill, missed


@cache
def _interface() -> tuple[Any, Any, Any, Any]:
    pointer, new_capsule = ctypes.pythonapi.PyCapsule_GetPointer, ctypes.pythonapi.PyCapsule_New
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    new_capsule.restype, new_capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    table = ctypes.cast(pointer(_multiarray_umath._ARRAY_API, None), ctypes.POINTER(ctypes.c_void_p))  # noqa: SLF001 — its only name
    set_handler = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(table[_SET_HANDLER] or 0)
    return set_handler, ctypes.PYFUNCTYPE(ctypes.py_object)(table[_GET_HANDLER] or 0), pointer, new_capsule
