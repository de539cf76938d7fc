"""The bench on which an operator prepares a launch: kernels, library calls and functions of the user's own, bound to one stream."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any

from streamscope.errors import OutOfMemoryError, ProgramError
from streamscope.interrupts import deferred
from streamscope.kernels.library.libraries import OUT_OF_MEMORY_HINT, libraries
from streamscope.kernels.source import KernelSource
from streamscope.program.launch import CudaCall

if TYPE_CHECKING:
    from streamscope.devices.cuda.device import CudaDevice
    from streamscope.devices.cuda.streams import CudaStream


class PackedArguments:
    """Kernel arguments laid out once as the driver wants them: an array of pointers to the values."""

    def __init__(self, arguments: Sequence[Any]) -> None:
        self.values = [ctypes.c_void_p(a.data.ptr) if hasattr(a, "data") and hasattr(a.data, "ptr") else a for a in arguments]
        # Kept: the values are addresses of their memory.
        self.arrays = tuple(arguments)
        self.pointers = (ctypes.c_void_p * max(1, len(self.values)))(*(ctypes.addressof(value) for value in self.values))
        self.address = ctypes.addressof(self.pointers)


class CudaBench:
    """Prepares launches for one stream of a CUDA device."""

    def __init__(self, device: CudaDevice, stream: CudaStream, what: str = "a function", owner: tuple[int, int] | None = None) -> None:
        self.device = device
        self.stream = stream
        self.what = what
        """Names the operator in errors."""
        self.owner = owner
        """Operation and part of the launch that is prepared. Its kernels stamp their blocks if the device's `stamping` is open."""
        self.stamps = device.stamps
        self.tuned = device.tuned

    def kernel(self, source: KernelSource, blocks: int, threads: int, arguments: Sequence[Any]) -> CudaCall:
        """Prepare a kernel of our own; without blocks, nothing is launched.

        ``arguments``: CuPy arrays, passed as pointers, and ctypes scalars.
        """
        if blocks == 0:
            return _nothing
        if self.stamps is not None and self.owner is not None:
            source, arguments = self.stamps.stamping(source, self.owner, blocks, threads, arguments)
        module = self.device.module(source, self.stream.gpu)
        function = module.get_function(source.name)
        packed = PackedArguments(arguments)
        launch = libraries().driver.launchKernel
        call = partial(launch, function.ptr, blocks, 1, 1, threads, 1, 1, 0, self.stream.pointer, packed.address, 0)
        # The launch knows addresses only: with the call go arguments, machine code and stream.
        _keep_alive(call, packed, module, function, self.stream, self.stamps)
        return call

    def matmul(self, a: Any, b: Any, out: Any) -> CudaCall:
        """Prepare a matrix product of CuPy arrays, row-major."""
        call: CudaCall = self.stream.cublas.matmul(a, b, out)
        _keep_alive(call, self.stream)
        return call

    def function(self, function: Callable[[], None]) -> CudaCall:
        """Prepare a function that launches on the current CuPy stream, with memory of the stream's own for its allocations."""

        def call() -> None:
            token = _scope.set(self)
            try:
                with self.stream.current():
                    function()
            except MemoryError as error:
                raise OutOfMemoryError(f"{self.what}: {error}", hint=OUT_OF_MEMORY_HINT) from error
            finally:
                _scope.reset(token)

        return call


_scope: ContextVar[CudaBench | None] = ContextVar("streamscope_scope", default=None)


@contextlib.contextmanager
def auxiliary_stream() -> Iterator[AbstractContextManager[Any]]:
    """Put the launches of the block on an auxiliary stream, inside an operator made with `ss.operator`.

    On entering, the auxiliary stream waits for the operator's; on leaving, the operator's for the auxiliary one; by events, never by the
    host. What runs beside it on the operator's own stream goes inside the block, too. Under an engine with one stream both are that
    stream, so the operator's code is the same.

    Raises
    ------
    ProgramError
        You used it outside an operator.

    Examples
    --------
    The square and the double of one array, beside each other:

    >>> @ss.operator(
    ...     reads=["x"],
    ...     writes=["squared", "doubled"],
    ...     shapes=lambda x: {"squared": (x.shape, x.dtype), "doubled": (x.shape, x.dtype)},
    ...     reference=lambda x: (x * x, x + x),
    ... )
    ... def square_and_double(x, squared, doubled):
    ...     import cupy
    ...     with ss.auxiliary_stream() as main:
    ...         cupy.multiply(x, x, out=squared)
    ...         with main:
    ...             cupy.add(x, x, out=doubled)
    >>> prepared = ss.prepare(lambda x: square_and_double(x), np.arange(3.0), device="simulated")
    >>> prepared.run()
    >>> prepared.outputs()
    [array([0., 1., 4.]), array([0., 2., 4.])]
    """
    bench = _scope.get()
    if bench is None:
        raise ProgramError("ss.auxiliary_stream was used outside an operator", hint="use it in a function decorated with @ss.operator")
    auxiliary = bench.stream.auxiliary
    if auxiliary is None:
        yield bench.stream.current()
        return
    fork, join = bench.device.scope_events(bench.stream)
    bench.stream.record(fork)
    auxiliary.wait(fork)
    try:
        with auxiliary.current():
            yield bench.stream.current()
    finally:
        with deferred():  # Who waits for the operator's stream waits for both.
            auxiliary.record(join)
            bench.stream.wait(join)


def _keep_alive(call: CudaCall, *objects: object) -> None:
    call.kept = objects  # type: ignore[attr-defined]


def _nothing() -> None:
    """Launch nothing: the array is empty."""
