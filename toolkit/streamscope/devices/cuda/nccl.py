"""NCCL, through CuPy: communicators of several GPUs of this process, and how they are aborted."""

from __future__ import annotations

import ctypes
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Protocol
from weakref import WeakSet

from streamscope.errors import DeviceError, NoDeviceError
from streamscope.interrupts import deferred

INSTALL_HINT = "pip install '.[cuda13]' (or cuda12) in the clone brings NCCL"
_ABORT_S = 20.0
"""NCCL needs milliseconds to abort, once the graphs that hold its kernels have gone."""

DTYPES = {"int8": 0, "uint8": 1, "int32": 2, "int64": 4, "uint64": 5, "float16": 6, "float32": 7, "float64": 8}
"""ncclDataType_t of those of our dtypes that NCCL has."""
REDUCTIONS = {"sum": 0, "max": 2, "min": 3, "mean": 4}
"""ncclRedOp_t."""
BYTES = DTYPES["uint8"]


@cache
def nccl() -> Any:
    """Return CuPy's module of NCCL.

    Raises
    ------
    NoDeviceError
        NCCL is not installed, or does not load.
    """
    with deferred(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # CuPy's: we say so ourselves.
        try:
            from cupy.cuda import nccl
        except ImportError as error:
            raise NoDeviceError(f"NCCL cannot be loaded: {error}", hint=INSTALL_HINT) from None
    if not nccl.available:
        raise NoDeviceError("NCCL is not installed", hint=INSTALL_HINT)
    return nccl


def has_nccl() -> bool:
    """Tell whether NCCL is there."""
    try:
        nccl()
    except NoDeviceError:
        return False
    return True


def nccl_version() -> str:
    """Return the version of NCCL, for example ``"2.28.9"``."""
    version = int(nccl().get_version())
    return f"{version // 10_000}.{version // 100 % 100}.{version % 100}"


@contextmanager
def nccl_errors(what: str) -> Iterator[None]:
    """Turn errors of NCCL into ours, with the action that failed."""
    try:
        yield
    except nccl().NcclError as error:
        raise DeviceError(f"{what}: {error}", hint="start Python with NCCL_DEBUG=WARN in the environment, and NCCL says more") from error


class Holder(Protocol):
    """A graph that holds kernels of NCCL."""

    def break_off(self, why: str) -> None:
        """Destroy the graph, also one that runs."""


class Communicators:
    """One communicator for each GPU of a group, all of this process.

    ``indices``: the machine's numbers of the GPUs. Making communicators takes up to a second, and waits for the GPUs.
    """

    def __init__(self, indices: Sequence[int]) -> None:
        with deferred(), nccl_errors("making communicators"):
            self.parts: list[Any] = nccl().NcclCommunicator.initAll(list(indices))
        for part in self.parts:
            # CuPy would destroy it at the end of the process, and NCCL then waits for graphs with its kernels, which are still there.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(part))
        self.aborted = False
        self.graphs: WeakSet[Holder] = WeakSet()
        """Graphs that hold its kernels."""

    def check(self) -> None:
        """Raise a `DeviceError` where NCCL has found an error meanwhile, for example of a link."""
        with nccl_errors("a collective failed"):
            for part in self.parts:
                part.check_async_error()

    def keep_track(self, graph: Holder) -> None:
        """Note that a graph holds kernels of these communicators."""
        self.graphs.add(graph)
        if self.aborted:
            self._break_off()

    def abort(self) -> None:
        """End the collectives that are under way, and destroy the graphs that hold others."""
        self.aborted = True
        # Side by side: each call tells the kernels of one GPU to end, and then waits for all, and for the graphs.
        threads = [threading.Thread(target=part.abort, name="streamscope abort", daemon=True) for part in self.parts]
        for thread in threads:
            thread.start()
        self._break_off()
        for thread in threads:
            thread.join(_ABORT_S)
        if any(thread.is_alive() for thread in threads):
            raise DeviceError(f"NCCL did not abort within {_ABORT_S:g} s", hint="restart the kernel, or end the process")

    def _break_off(self) -> None:
        for graph in list(self.graphs):
            graph.break_off("a graph cannot be launched any more, since its collectives were aborted")
