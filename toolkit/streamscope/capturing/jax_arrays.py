"""JAX in captured functions: refused by name. It launches on streams of its own, so a capture would keep what it computed then for good."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

REFUSED = "JAX launches on streams of its own, which no capture follows"
_SHARING = ("__dlpack__", "__cuda_array_interface__")
"""How arrays say where they lie, to others who then share the memory."""

_LOCK = threading.Lock()
_THREADS: list[int] = []
"""Threads that capture now."""
_OWN: dict[tuple[Any, str], Any] = {}
"""What stood in classes before ours did."""


@contextmanager
def jax_refused() -> Iterator[None]:
    """Refuse, in this thread, arrays of PyTorch's that JAX asks for, and arrays of JAX's that anybody asks for."""
    thread = threading.get_ident()
    with _LOCK:
        _THREADS.append(thread)
        if len(_THREADS) == 1:
            _stand_in()
    try:
        yield
    finally:
        with _LOCK:
            _THREADS.remove(thread)
            if not _THREADS:
                for (kind, name), own in _OWN.items():
                    setattr(kind, name, own)
                _OWN.clear()


def _stand_in() -> None:
    tensor, array = (
        getattr(sys.modules.get(module), name, None) for module, name in (("torch", "Tensor"), ("jax._src.array", "ArrayImpl"))
    )
    for kind in (tensor, array) if array is not None else ():
        for name in _SHARING if kind is not None else ():
            if (own := vars(kind).get(name)) is not None:
                _OWN[kind, name] = own
                setattr(kind, name, _refusing(own, anybody=kind is array))


def _refusing(own: Any, *, anybody: bool) -> Any:
    """Return a method or property that refuses JAX, or ``anybody``, in threads that capture."""
    if isinstance(own, property):
        assert own.fget is not None
        return property(_refusing(own.fget, anybody=anybody))
    shared: Callable[..., Any] = own

    def refusing(*args: Any, **kwargs: Any) -> Any:
        asks = sys._getframe(1).f_globals.get("__name__", "")  # noqa: SLF001 — as in `user_line`
        if threading.get_ident() in _THREADS and (anybody or asks.partition(".")[0] in ("jax", "jaxlib")):
            raise RuntimeError(REFUSED)
        return shared(*args, **kwargs)

    return refusing
