"""Instantiated CUDA graphs."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from weakref import WeakSet

from streamscope.devices.cuda.captures import Captures
from streamscope.devices.cuda.graph_nodes import first_nodes, first_sets, graph_nodes, node_count, nodes_in_order
from streamscope.devices.cuda.node_launches import Call, node_launch
from streamscope.devices.cuda.streams import CudaStream
from streamscope.devices.graph_node import GraphNode
from streamscope.errors import DeviceError
from streamscope.interrupts import deferred, when_gone
from streamscope.kernels.library.libraries import checked, cuda_errors, driver_call, driver_function, libraries

_UPDATE_FAILURE = 910  # CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE


class CudaGraph:
    """An instantiated graph, with the captured graph that it was made from or last updated with, which tells its nodes."""

    def __init__(self, captured: int, captures: Captures, uploads: Any, refused: str = "") -> None:
        runtime = libraries().runtime
        self.refused = refused
        """Why the update was refused that this graph replaces."""
        self.lost = False
        """Whether it was destroyed: its collectives were aborted."""
        self.kept: object = None
        """Objects that must live as long as the graph."""
        self._runtime: Any = runtime
        self._captures = captures
        self._uploads = uploads
        """On which it is put on the device. The host waits for that, since CUDA does not say that a launch on another stream does."""
        self._captured = captured
        """Address of the captured graph, which is taken over."""
        self._owned = {"graphExecDestroy": 0, "graphDestroy": captured}
        # Before it is instantiated: if that fails, the captured graph is destroyed all the same.
        when_gone(self, partial(_destroy, captures, runtime, self._owned))
        self._nodes: tuple[GraphNode, ...] | None = None
        self._longer: WeakSet[CudaGraph] = WeakSet()
        """Graphs of these nodes behind another one."""
        self.node_count = node_count(captured)
        with cuda_errors("instantiating a graph"):
            self._executable = self._owned["graphExecDestroy"] = runtime.graphInstantiate(captured)
            self.launch_on = partial(runtime.graphLaunch, self._executable)
            """Puts one replay on a stream that is known by its address; no method, since each microsecond counts."""
            self._kept_by_callers: list[partial[Any]] = [self.launch_on]
            """They refuse after `break_off`."""
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

    def first_sets(self, written: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return the memory that a kernel before the nodes, which has ``written`` other memory, must also set to zero: see `behind`."""
        return list(first_sets(self._captured, written).values())

    def behind(
        self, kernel: int, blocks: int, threads: int, arguments: int, written: Sequence[tuple[int, int]]
    ) -> tuple[CudaGraph, Callable[[], int]]:
        """Return a graph that runs a kernel before these nodes, and a function that reads the kernel's arguments anew.

        They count for launches from then on: those that are queued, or run, keep theirs. It returns CUDA's status, 0 for success.
        Sets of small memory to zero, with which the nodes begin, are left out. So the kernel is the only node that waits for none,
        which makes the launch cheaper.

        ``arguments``: address of pointers to them, as `cuLaunchKernel` takes it.
        ``written``: regions of memory that the kernel writes, besides `first_sets` of them.
        """
        graph, node = ctypes.c_void_p(), ctypes.c_void_p()
        parameters = _KernelNode(kernel, (blocks, 1, 1), (threads, 1, 1), 0, arguments)
        with deferred():
            _call("cuGraphClone", ctypes.byref(graph), ctypes.c_void_p(self._captured))
            try:
                for each in first_sets(int(graph.value or 0), written):
                    _call("cuGraphDestroyNode", ctypes.c_void_p(each))
                waiting = first_nodes(int(graph.value or 0))
                _call("cuGraphAddKernelNode_v2", ctypes.byref(node), graph, None, ctypes.c_size_t(0), ctypes.byref(parameters))
                nodes = (ctypes.c_void_p * len(waiting))(*waiting)
                before = type(nodes)(*[node.value] * len(nodes))
                _call("cuGraphAddDependencies", graph, before, nodes, ctypes.c_size_t(len(nodes)))
            except BaseException:
                self._captures.destroy(partial(self._runtime.graphDestroy, graph.value))
                raise
            made = CudaGraph(int(graph.value or 0), self._captures, self._uploads)
        made.kept = self.kept
        self._longer.add(made)
        asked = ctypes.c_void_p(made._executable), node, ctypes.byref(parameters)
        read_anew = partial(driver_function("cuGraphExecKernelNodeSetParams_v2"), *asked)
        made._kept_by_callers.append(read_anew)
        return made, read_anew

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
        if self.lost:
            return "the graph was destroyed"
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

    def break_off(self, why: str) -> None:
        """Destroy the graph, also one that runs; from now on a launch is a `DeviceError` with this reason."""
        for longer in self._longer:
            longer.break_off(why)
        self.lost = True
        for kept in self._kept_by_callers:
            kept.__setstate__((_refuse, (why,), {}, None))  # type: ignore[attr-defined]  # In place, as pickle does it.
        owned = dict(self._owned)
        self._owned.update(dict.fromkeys(owned, 0))  # The finaliser has the same mapping.
        self._nodes = self._nodes or ()
        _destroy(self._captures, self._runtime, owned)

    def _upload(self) -> None:
        self._runtime.graphUpload(self._executable, self._uploads.ptr)
        self._uploads.synchronize()


def _refuse(why: str, *_: object) -> None:
    """Raise DeviceError."""
    raise DeviceError(why, hint="capture it again")


def _destroy(captures: Captures, runtime: Any, owned: dict[str, int]) -> None:
    """Destroy the CUDA objects of a graph, by the name of the function that does so."""
    for destroy, address in owned.items():
        if address:
            captures.destroy(partial(getattr(runtime, destroy), address))


class _KernelNode(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS."""

    _fields_ = (
        ("function", ctypes.c_void_p),
        ("blocks", 3 * ctypes.c_uint),
        ("threads", 3 * ctypes.c_uint),
        ("shared_bytes", ctypes.c_uint),
        ("arguments", ctypes.c_void_p),
        ("extra", ctypes.c_void_p),
        ("kernel", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
    )


def _call(name: str, *arguments: object) -> None:
    checked((driver_call(name, *arguments),))


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
