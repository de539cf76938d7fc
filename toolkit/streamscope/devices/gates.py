"""Work that is queued behind a gate, so that it does not wait for the host; the kernel that times are compared with, and its primer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from streamscope.devices.protocol import Device, Event, Gate, Stream
from streamscope.errors import DeviceError, RecordingError
from streamscope.interrupts import deferred, nothing_collected
from streamscope.kernels.source import KernelSource
from streamscope.ops import add, bitwise_xor
from streamscope.program.launch import Cost, Launch, LaunchKind
from streamscope.program.symbol import Symbol
from streamscope.program.variable import ArraySpec, MemoryPlace
from streamscope.tracing import program

_REFERENCE_SPEC = ArraySpec((4096,), np.dtype(np.float32))
_PRIMER_SPEC = ArraySpec((4096,), np.dtype(np.int16))
SHIELD_NS = 4_000
_SHIELD = KernelSource(
    "shield",
    f"""
extern "C" __global__ void shield()
{{
    unsigned long long begun, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begun) :: "memory");
    do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now) :: "memory"); while (now - begun < {SHIELD_NS});
}}
""",
)


def gpu_of(stream: Stream | Event) -> dict[str, int]:
    """Return the argument that makes an event, or memory, for a stream's GPU; none for GPU 0, which is all that some devices know."""
    gpu: int = getattr(stream, "gpu", 0)
    return {"gpu": gpu} if gpu else {}


def timed_event(device: Device, stream: Stream) -> Event:
    """Make an event with timing that a stream can record."""
    return device.event(timing=True, **gpu_of(stream))


def reference_call(device: Device, stream: Stream) -> Callable[[], None]:
    """Prepare the reference kernel: the addition of two arrays of 4,096 float32, whose duration is `reference_kernel`.

    It works on memory as the kernels do that are to be timed: after an empty one, an event comes 0.1 to 0.2 µs earlier.
    """
    return _call_on_zeros(device, stream, lambda x: add(x, x), _REFERENCE_SPEC)


def primer_call(device: Device, stream: Stream) -> Callable[[], None]:
    """Prepare a kernel that goes ahead of those that are to be timed, the reference among them.

    Programs hardly ever use it, so that it is never the same as the one behind it: a kernel that follows itself begins 0.2 µs earlier.
    """
    return _call_on_zeros(device, stream, lambda x: bitwise_xor(x, x), _PRIMER_SPEC)


def shield_call(device: Device, stream: Stream) -> Callable[[], None]:
    """Prepare a kernel of one thread that does nothing for `SHIELD_NS`: meanwhile the device takes up the launch behind it.

    A launch that comes right behind an event is taken up only then, and a library's, with its kilobytes of arguments, takes 0.1 to 0.2 µs
    longer for that than the reference. CUPTI does not count that as the kernel's, and in a row of kernels it costs nothing.
    """
    cost = Cost(0, blocks=1, threads=1, alone_ns=SHIELD_NS)
    launch = Launch(0, 0, "shield", LaunchKind.KERNEL, (), (), cost, lambda _: [], lambda bench, *_: bench.kernel(_SHIELD, 1, 1, []))
    return device.bind(launch, [], [], stream)


def _call_on_zeros(device: Device, stream: Stream, function: Callable[[Symbol], Symbol], spec: ArraySpec) -> Callable[[], None]:
    zeros = np.zeros(spec.shape, spec.dtype)
    (launch,) = program(function).trace(zeros).launches()
    where = gpu_of(stream)
    buffers = [device.allocate(spec, MemoryPlace.DEVICE, **where) for _ in range(2)]
    device.write(buffers[0], zeros)
    return device.bind(launch, [buffers[0], buffers[0]], [buffers[1]], stream)


@contextmanager
def held(device: Device, streams: Sequence[Stream], what: str = "an operation") -> Iterator[Gate]:
    """Hold streams while the block queues work on them, then let them go, whatever happens; Ctrl-C waits for that.

    The block may open the gate itself.
    """
    # The finaliser of a prepared program waits for its streams: collected behind a closed gate, it would wait until that gives up.
    with deferred(), nothing_collected():
        gate = device.gate()
        try:
            for stream in streams:
                gate.hold(stream)
            yield gate
        finally:
            _open(gate, what)


def _open(gate: Gate, what: str) -> None:
    try:
        gate.open()
    except DeviceError as error:
        raise RecordingError(f"{what} waited for the device while it was timed: {error.message}", hint=error.hint) from error
