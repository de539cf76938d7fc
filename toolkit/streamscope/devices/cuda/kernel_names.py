"""Names of kernels, readable."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from functools import cache
from typing import Any

LONGEST = 60


@cache
def _demangler() -> tuple[Callable[..., Any], Callable[..., Any]] | None:
    try:
        library, libc = ctypes.CDLL("libstdc++.so.6"), ctypes.CDLL(None)
    except OSError:
        return None
    demangle = library["__cxa_demangle"]
    demangle.restype = ctypes.c_void_p
    demangle.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    libc.free.argtypes = [ctypes.c_void_p]
    return demangle, libc.free


def demangled(name: str) -> str:
    """Return a C++ name as it was written; other names, and where there is no C++ library, as they are."""
    functions = _demangler() if name.startswith("_Z") else None
    if functions is None:
        return name
    demangle, free = functions
    pointer = demangle(name.encode(), None, None, None)
    if not pointer:
        return name
    try:
        return ctypes.string_at(pointer).decode(errors="replace")
    finally:
        free(pointer)


def short_name(name: str) -> str:
    """Return what a timeline calls a kernel: the function's own name, and the functor that a generic kernel applies.

    ``void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, …>(…)`` is
    ``vectorized_elementwise_kernel CUDAFunctor_add``.
    """
    full = demangled(name).removeprefix("void ")
    head = re.split(r"[<(]", full, maxsplit=1)[0]
    own = head.rsplit("::", 1)[-1].strip() or full
    functor = re.search(r"(\w*[Ff]unctor\w*)", full[len(head) :])
    text = f"{own} {functor.group(1)}" if functor else own
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
