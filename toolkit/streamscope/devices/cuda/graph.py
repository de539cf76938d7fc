"""Instantiated CUDA graphs."""

from __future__ import annotations

from streamscope.devices.cuda.driver import checked, cuda_errors, libraries
from streamscope.devices.cuda.streams import CudaStream


class GraphDestroyer:
    """Destroys graphs when that is allowed: CUDA forbids it while the thread captures, and breaks the capture that goes on."""

    def __init__(self) -> None:
        self._waiting: list[int] = []
        self.capturing = False

    def destroy(self, executable: int) -> None:
        """Destroy an instantiated graph now, or after the capture that goes on."""
        self._waiting.append(executable)
        if not self.capturing:
            self.flush()

    def flush(self) -> None:
        """Destroy what waited."""
        while self._waiting:
            libraries().runtime.graphExecDestroy(self._waiting.pop())


class CudaGraph:
    """An instantiated graph; takes over the captured graph."""

    def __init__(self, captured: int, destroyer: GraphDestroyer) -> None:
        lib = libraries()
        self._runtime = lib.runtime
        self._destroyer = destroyer
        self._executable = 0
        try:
            _, self.node_count = checked(lib.cuda.cuGraphGetNodes(lib.cuda.CUgraph(captured)))
            with cuda_errors("instantiating a graph"):
                self._executable = lib.runtime.graphInstantiate(captured)
                lib.runtime.graphUpload(self._executable, 0)
        finally:
            lib.runtime.graphDestroy(captured)

    def launch(self, stream: CudaStream) -> None:
        """Put one replay on a stream."""
        self._runtime.graphLaunch(self._executable, stream.pointer)

    def __del__(self) -> None:
        if getattr(self, "_executable", 0):
            self._destroyer.destroy(self._executable)
