"""Which nodes of a graph have ended while it runs: behind each of them, a set of one byte, for which nothing waits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from streamscope.kernels.library.libraries import checked, libraries


class NodeMarks:
    """Marks of nodes of a graph that is not instantiated yet.

    The bytes lie in device memory, which can be read by a copy on another stream even if a kernel never ends.

    ``graph``: address of the graph, which gets as many nodes more.
    ``nodes``: addresses of the nodes that are marked.
    """

    def __init__(self, graph: int, nodes: Sequence[int]) -> None:
        lib = libraries()
        self._bytes: Any = lib.cupy.empty(max(1, len(nodes)), np.uint8)
        self._pinned: Any = lib.cupy.cuda.alloc_pinned_memory(max(1, len(nodes)))
        # Of its own: a copy on the graph's stream would wait for the kernel that hangs.
        self._stream: Any = lib.cupy.cuda.Stream(non_blocking=True)
        lib.runtime.memsetAsync(self._bytes.data.ptr, 0, self._bytes.nbytes, self._stream.ptr)
        self._stream.synchronize()
        self._count = len(nodes)
        cuda, context = lib.cuda, checked(lib.cuda.cuCtxGetCurrent())
        for number, node in enumerate(nodes):
            mark = cuda.CUDA_MEMSET_NODE_PARAMS()
            mark.dst = cuda.CUdeviceptr(self._bytes.data.ptr + number)
            mark.value, mark.elementSize, mark.width, mark.height, mark.pitch = 1, 1, 1, 1, 1
            # A leaf behind its node: it adds no order between nodes of the graph.
            checked(cuda.cuGraphAddMemsetNode(cuda.CUgraph(graph), [cuda.CUgraphNode(node)], 1, mark, context))

    def ended(self) -> npt.NDArray[np.bool_]:
        """Return which nodes have ended by now, in their order."""
        runtime = libraries().runtime
        runtime.memcpyAsync(self._pinned.ptr, self._bytes.data.ptr, self._bytes.nbytes, runtime.memcpyDeviceToHost, self._stream.ptr)
        self._stream.synchronize()
        return np.asarray(np.frombuffer(self._pinned, np.uint8, self._count) != 0)


def under_way(edges: Sequence[Sequence[int]], ended: Sequence[bool] | npt.NDArray[np.bool_]) -> list[int]:
    """Return the nodes that have not ended though all have that they wait for.

    ``edges``: for each node those that it comes directly after.

    Examples
    --------
    >>> under_way([(), (), (0, 1), (0,)], [True, False, False, False])
    [1, 3]
    """
    return [number for number, earlier in enumerate(edges) if not ended[number] and all(ended[one] for one in earlier)]
