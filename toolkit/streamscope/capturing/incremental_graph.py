"""A graph while it is captured: which nodes have come to it so far."""

from __future__ import annotations

import ctypes

from streamscope.errors import DeviceError
from streamscope.kernels.library.libraries import checked, driver_call


class GrowingGraph:
    """The graph that a stream captures into. CUDA allows to read it meanwhile, from any thread.

    ``stream``: the pointer of a stream that captures.

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
        checked((driver_call("cuGraphGetNodes", self._handle, None, ctypes.byref(count)),))
        return count.value

    def since(self, count: int) -> tuple[int, ...]:
        """Return the handles of the nodes that came when there were ``count`` already: CUDA lists nodes as they come."""
        now = self.count()
        if now == count:
            return ()
        if now > len(self._room):
            self._room = (ctypes.c_uint64 * (2 * now))()
        found = ctypes.c_size_t(now)
        checked((driver_call("cuGraphGetNodes", self._handle, self._room, ctypes.byref(found)),))
        return tuple(self._room[count:now])


def _captured_by(stream: int) -> ctypes.c_void_p:
    status, identity, graph = ctypes.c_int(), ctypes.c_uint64(), ctypes.c_void_p()
    found = map(ctypes.byref, (status, identity, graph))
    # By ctypes: what cuda-python's function returns differs from version to version.
    checked((driver_call("cuStreamGetCaptureInfo_v2", ctypes.c_void_p(stream), *found, None, None),))
    if not graph.value:
        raise DeviceError("the stream does not capture")
    return graph
