"""Instantiated CUDA graphs."""

from __future__ import annotations

from streamscope.devices.cuda.driver import checked, cuda_errors, libraries
from streamscope.devices.cuda.streams import CudaStream


class CudaGraph:
    """An instantiated graph; takes over the captured graph."""

    def __init__(self, captured: int) -> None:
        lib = libraries()
        self._runtime = lib.runtime
        try:
            _, self.node_count = checked(lib.cuda.cuGraphGetNodes(lib.cuda.CUgraph(captured)))
            with cuda_errors("instantiating a graph"):
                self._executable: int = lib.runtime.graphInstantiate(captured)
                lib.runtime.graphUpload(self._executable, 0)
        finally:
            lib.runtime.graphDestroy(captured)

    def launch(self, stream: CudaStream) -> None:
        """Put one replay on a stream."""
        self._runtime.graphLaunch(self._executable, stream.pointer)

    def __del__(self) -> None:
        if getattr(self, "_executable", 0):
            self._runtime.graphExecDestroy(self._executable)
