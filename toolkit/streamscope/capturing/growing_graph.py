"""A graph while it is captured: which nodes have come to it so far."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

from streamscope.errors import DeviceError


class GrowingGraph:
    """The graph that a stream captures into. CUDA allows to read it meanwhile, from any thread.

    Parameters
    ----------
    stream : int
        The pointer of a stream that captures.

    Raises
    ------
    DeviceError
        The stream does not capture.
    """

    def __init__(self, stream: int) -> None:
        self._handle = _captured_by(stream)
        self._room = (ctypes.c_uint64 * 1024)()

    def count(self) -> int:
        """Return the number of nodes so far."""
        count = ctypes.c_size_t()
        _checked(_driver().cuGraphGetNodes(self._handle, None, ctypes.byref(count)))
        return count.value

    def since(self, count: int) -> tuple[int, ...]:
        """Return the handles of the nodes that came when there were ``count`` already: CUDA lists nodes as they come."""
        now = self.count()
        if now == count:
            return ()
        if now > len(self._room):
            self._room = (ctypes.c_uint64 * (2 * now))()
        found = ctypes.c_size_t(now)
        _checked(_driver().cuGraphGetNodes(self._handle, self._room, ctypes.byref(found)))
        return tuple(self._room[count:now])


def _captured_by(stream: int) -> ctypes.c_void_p:
    status, identity, graph = ctypes.c_int(), ctypes.c_uint64(), ctypes.c_void_p()
    # By ctypes: what cuda-python's function returns differs from version to version.
    _checked(_driver().cuStreamGetCaptureInfo_v2(stream, *map(ctypes.byref, (status, identity, graph)), None, None))
    if not graph.value:
        raise DeviceError("the stream does not capture")
    return graph


def _checked(status: int) -> None:
    if status != 0:
        raise DeviceError(f"reading a graph that is being captured failed with CUDA's error {status}")


@cache
def _driver() -> Any:
    driver = ctypes.CDLL("libcuda.so.1")
    driver.cuGraphGetNodes.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    driver.cuStreamGetCaptureInfo_v2.argtypes = [ctypes.c_void_p] * 6
    return driver
