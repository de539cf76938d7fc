"""Instantiated CUDA graphs, and objects that may be destroyed only outside captures."""

from __future__ import annotations

import ctypes
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from streamscope.devices.cuda.graph_nodes import graph_nodes, node_count, nodes_in_order
from streamscope.devices.cuda.node_launches import Call, node_launch
from streamscope.devices.cuda.streams import CudaStream
from streamscope.devices.graph_node import GraphNode
from streamscope.errors import DeviceError
from streamscope.interrupts import when_gone
from streamscope.kernels.library.libraries import checked, cuda_errors, driver_call, libraries

_UPDATE_FAILURE = 910  # CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE


class Captures:
    """Captures under way, gates that hold streams, and objects that wait to be destroyed until there are none.

    A capture is its thread's own. While it goes on, CUDA forbids that thread to destroy instantiated graphs, and any thread to wait for the
    whole device. Libraries wait so when they destroy their handles, and the driver when it unloads machine code. Such a wait breaks the
    capture, and behind a closed gate it has no end. Python's garbage collector does not know that.
    """

    def __init__(self) -> None:
        self._thread = threading.local()
        self._everywhere: set[object] = set()
        self._waiting: deque[Callable[[], object]] = deque()

    @property
    def active(self) -> bool:
        """Whether the calling thread captures."""
        return bool(self._own())

    def begun(self, stream: int) -> None:
        """Note that the calling thread captures a stream."""
        self._own().add(stream)
        self.forbid(stream)

    def ended(self, stream: int) -> None:
        """Note that a capture is over, and destroy the objects that waited for that."""
        self._own().discard(stream)
        self.allow(stream)

    def forbid(self, key: object) -> None:
        """Let nothing be destroyed until the key is allowed: in no thread."""
        self._everywhere.add(key)

    def allow(self, key: object) -> None:
        """Destroy the objects that waited for a key, if no other key is held."""
        self._everywhere.discard(key)
        self._destroy_waiting()

    def destroy(self, destroy: Callable[[], object]) -> None:
        """Call a function that destroys something: now, or after the captures that go on. At the end of the process, nothing is."""
        if sys.is_finalizing():
            return
        self._waiting.append(destroy)
        self._destroy_waiting()

    def _destroy_waiting(self) -> None:
        # Another thread may take from the queue at the same time, or the collector put something there.
        with suppress(IndexError):
            while not self._everywhere:
                self._waiting.popleft()()

    def _own(self) -> set[int]:
        streams: set[int] | None = getattr(self._thread, "streams", None)
        if streams is None:
            streams = self._thread.streams = set()
        return streams


CAPTURES = Captures()
"""Of the process: a capture belongs to a thread, whichever device object began it."""


@contextmanager
def relaxed_captures() -> Iterator[None]:
    """Let the calling thread make calls that CUDA forbids during a capture, though they do not break it."""
    cuda = libraries().cuda
    before = checked(cuda.cuThreadExchangeStreamCaptureMode(cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
    try:
        yield
    finally:
        checked(cuda.cuThreadExchangeStreamCaptureMode(before))


class CudaGraph:
    """An instantiated graph, with the captured graph that it was made from or last updated with, which tells its nodes."""

    def __init__(self, captured: int, captures: Captures, uploads: Any, refused: str = "") -> None:
        runtime = libraries().runtime
        self.refused = refused
        """Why the update was refused that this graph replaces."""
        self.kept: object = None
        """Objects that must live as long as the graph."""
        self._runtime = runtime
        self._captures = captures
        self._uploads = uploads
        """On which it is put on the device. The host waits for that, since CUDA does not say that a launch on another stream does."""
        self._captured = captured
        """Address of the captured graph, which is taken over."""
        self._owned = {"graphExecDestroy": 0, "graphDestroy": captured}
        # Before it is instantiated: if that fails, the captured graph is destroyed all the same.
        when_gone(self, partial(_destroy, captures, runtime, self._owned))
        self._nodes: tuple[GraphNode, ...] | None = None
        self.node_count = node_count(captured)
        with cuda_errors("instantiating a graph"):
            self._executable = self._owned["graphExecDestroy"] = runtime.graphInstantiate(captured)
            self._upload()

    @property
    def nodes(self) -> tuple[GraphNode, ...]:
        """The nodes, in the order of capture; read from CUDA when first asked for."""
        if self._nodes is None:
            self._nodes = graph_nodes(self._captured)
        return self._nodes

    def launch(self, stream: CudaStream) -> None:
        """Put one replay on a stream."""
        self.launch_on(stream.pointer)

    def launch_on(self, stream: int) -> None:
        """Put one replay on a stream that is known by its address."""
        self._runtime.graphLaunch(self._executable, stream)

    def calls(self, stream: CudaStream) -> list[tuple[GraphNode, Call]]:
        """Return each node with a call that launches it alone, in an order in which they can run.

        The calls hold until the graph goes or is updated, which owns their arguments.

        Raises
        ------
        EngineError
            A node cannot be launched by itself.
        """
        return [(node, node_launch(handle, node).bind(stream.pointer)) for handle, node in nodes_in_order(self._captured)]

    def update(self, captured: int) -> str:
        """Apply a captured graph, and take it over; launches from now on replay it.

        Where CUDA refuses, return why; ``captured`` is then still the caller's.
        """
        try:
            refused = _update(self._executable, captured)
        except DeviceError:
            self._runtime.graphDestroy(captured)
            raise
        if refused:
            return refused
        # The new one is kept: nodes are read from it, and calls of single nodes use arguments that it owns.
        self._captures.destroy(partial(self._runtime.graphDestroy, self._captured))
        self._captured = self._owned["graphDestroy"] = captured
        self._nodes, self.node_count = None, node_count(captured)
        with cuda_errors("uploading a graph"):
            self._upload()
        return ""

    def _upload(self) -> None:
        self._runtime.graphUpload(self._executable, self._uploads.ptr)
        self._uploads.synchronize()


def _destroy(captures: Captures, runtime: Any, owned: dict[str, int]) -> None:
    """Destroy the CUDA objects of a graph, by the name of the function that does so."""
    for destroy, address in owned.items():
        if address:
            captures.destroy(partial(getattr(runtime, destroy), address))


class _UpdateInfo(ctypes.Structure):
    """CUgraphExecUpdateResultInfo."""

    _fields_ = (("result", ctypes.c_int), ("error_node", ctypes.c_void_p), ("error_from_node", ctypes.c_void_p))


def _update(executable: int, captured: int) -> str:
    """Call cuGraphExecUpdate; return why it was refused, or nothing."""
    info = _UpdateInfo()
    # By ctypes: cuda-python hands out the reason of a refusal with success only.
    status = driver_call("cuGraphExecUpdate_v2", ctypes.c_void_p(executable), ctypes.c_void_p(captured), ctypes.byref(info))
    if int(status) == 0:
        return ""
    if int(status) != _UPDATE_FAILURE:
        raise DeviceError(f"updating a graph failed: {status.name}")
    reason = libraries().cuda.CUgraphExecUpdateResult(info.result).name.removeprefix("CU_GRAPH_EXEC_UPDATE_ERROR")
    return reason.strip("_").lower().replace("_", " ") or "no reason was given"
