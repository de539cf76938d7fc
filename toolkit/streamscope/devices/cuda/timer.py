"""The device's timer (``%globaltimer``), and how it maps to the host's clock: by a kernel that answers the host with the time."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamscope.devices.cuda.bench import CudaBench
from streamscope.errors import DeviceError
from streamscope.interrupts import deferred
from streamscope.kernels.library.libraries import libraries
from streamscope.kernels.source import KernelSource

if TYPE_CHECKING:
    from streamscope.devices.cuda.device import CudaDevice
    from streamscope.devices.cuda.streams import CudaStream

_QUESTIONS = 100
_PATIENCE_NS = 200_000_000
"""The kernel stops waiting for the host after so long, so that a host that was stopped meets no kernel that runs for ever."""

_ANSWERING = KernelSource(
    "answering",
    f"""
// Writes the time at which it saw each number that the host wrote.
__device__ inline unsigned long long now()
{{
    unsigned long long time;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time) :: "memory");
    return time;
}}
extern "C" __global__ void answering(volatile unsigned long long* question, volatile unsigned long long* answer, int count)
{{
    const unsigned long long begin = now();
    for (unsigned long long number = 1; number <= count; ++number) {{
        while (*question < number && now() - begin < {_PATIENCE_NS}ull) {{}}
        *answer = now();
    }}
}}
""",
)


@dataclass(frozen=True)
class TimerClock:
    """Maps the device's timer to the host's clock."""

    offset_ns: int
    """Host time where the timer is 0. Whole: the timer counts from 1970, which leaves a float no nanoseconds."""
    uncertainty_ns: float
    """Half the width of the interval that the offset is known to lie in."""


def align_timer(device: CudaDevice, stream: CudaStream) -> TimerClock:
    """Align the device's timer with the host's clock; the stream must be empty, and is so again.

    A kernel waits for a number that the host writes, and answers with the time. That lies between the writing and the reading of the
    answer, which bounds the offset from both sides; it is the middle of what all answers allow. An H200 answers within 2.5 µs. A kernel
    that is launched for each sample took 10.
    """
    memory = libraries().cupy.cuda.alloc_pinned_memory(128)
    words = (ctypes.c_uint64 * 16).from_address(memory.ptr)
    words[0] = words[8] = 0  # lines of their own
    pointers = [ctypes.c_void_p(memory.ptr), ctypes.c_void_p(memory.ptr + 64), ctypes.c_int(_QUESTIONS)]
    low, high = None, None
    with deferred():
        CudaBench(device, stream, "the timer").kernel(_ANSWERING, 1, 1, pointers)()
        try:
            for number in range(1, _QUESTIONS + 1):
                before, time, after = _asked(device, words, number)
                # The first answers wait for the kernel to start.
                if number > _QUESTIONS // 10:
                    low = before - time if low is None else max(low, before - time)
                    high = after - time if high is None else min(high, after - time)
        finally:
            # The kernel must end whatever happened: it leaves its loop once all numbers are written.
            words[0] = _QUESTIONS
            stream.synchronize()
    assert low is not None
    assert high is not None
    return TimerClock((low + high) // 2, abs(high - low) / 2)


def _asked(device: CudaDevice, words: ctypes.Array[ctypes.c_uint64], number: int) -> tuple[int, int, int]:
    """Return the host's clock before a question, the time that the device answered with, and the clock after it."""
    last, now = words[8], device.now_ns
    before = now()
    words[0] = number
    limit = before + _PATIENCE_NS
    while words[8] == last:
        if now() > limit:
            raise DeviceError("the kernel that reads the device's clock did not answer", hint="is the GPU busy with other work?")
    after = now()
    return before, words[8], after
