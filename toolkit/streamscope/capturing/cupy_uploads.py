"""NumPy arrays that captured functions hand to CuPy, as filters do with their weights: constants of the capture.

CuPy copies them from host memory that it uses again, which no capture allows. So they are put on the device beside the capture, and the
capture copies from there: the function may write to the array that it gets, and gets it anew in each run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np

from streamscope.capturing.allocations import PrivatePool
from streamscope.devices.cuda.captures import relaxed_captures
from streamscope.kernels.library.libraries import libraries


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
        _stand_in()
        thread = threading.get_ident()
        try:
            _ACTIVE[thread] = self
            yield
        finally:
            _ACTIVE.pop(thread, None)

    def copy_of(self, made: Callable[[], Any]) -> Any:
        """Return a captured copy of an array that is made beside the capture."""
        # On a stream that is not captured: the upload happens now, and the graph holds only the copy from there.
        with relaxed_captures(), self._pool.plain(), self._stream:
            self.arrays.append(made())
            self._stream.synchronize()
        return self.arrays[-1].copy(order="K")


_ACTIVE: dict[int, CupyUploads] = {}
"""Of the captures that go on, by the thread that each is made in."""


@cache
def _stand_in() -> None:
    """From now on, let the function that makes CuPy's arrays of others ask whether a capture goes on."""
    from cupy import _core

    plain = _core.array

    def array(given: Any, *arguments: Any, **keywords: Any) -> Any:
        uploads = _ACTIVE.get(threading.get_ident())
        if uploads is None or not _on_host(given):
            return plain(given, *arguments, **keywords)
        return uploads.copy_of(lambda: plain(given, *arguments, **keywords))

    _core.array = array


def _on_host(given: Any) -> bool:
    """Tell an array of NumPy's, or lists of numbers; a number alone is no copy."""
    if isinstance(given, list | tuple):
        return all(_on_host(one) or isinstance(one, int | float | complex | np.generic) for one in given)
    return isinstance(given, np.ndarray) and given.ndim > 0
