"""What stamps leave out of kernels, as CUPTI measures it on this host: the time ahead of the first stamp and behind the last."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from weakref import WeakKeyDictionary

import numpy as np

from streamscope.devices.cuda.device import CudaDevice
from streamscope.devices.cuda.stamps import Slots, StampMemory
from streamscope.errors import RecordingError
from streamscope.recording.subscription import subscription

ROUNDS, WARM = 14, 2

Kernel = tuple[str, int, int]
"""A kernel's symbol, blocks, and threads of a block."""
Launches = Sequence[tuple[Callable[[], object], Sequence[int]]]
"""Calls that launch stamped kernels, and the places of these in the memory's slots, in their order."""

_KNOWN: WeakKeyDictionary[CudaDevice, dict[Kernel, float]] = WeakKeyDictionary()


def kernel_of(slots: Slots) -> Kernel:
    """Return whose stamps these are."""
    return slots.symbol, slots.blocks, slots.threads


def left_out_ns(device: CudaDevice, memory: StampMemory, launches: Launches) -> dict[Kernel, float]:
    """Return how much longer each stamped kernel takes, by CUPTI, than from its first stamp to its last, in the mean of some runs alone.

    What was measured before in this process is known. Of other kernels, nothing is returned where CUPTI cannot be had, or where somebody
    else launches kernels meanwhile.
    """
    known = _KNOWN.setdefault(device, {})
    new: dict[Kernel, tuple[Callable[[], object], Sequence[int]]] = {}
    for call, slots in launches:
        new.update((kernel, (call, slots)) for slot in slots if (kernel := kernel_of(memory.slots[slot])) not in known)
    if new:
        chosen = list({id(call): (call, slots) for call, slots in new.values()}.values())
        with suppress(RecordingError):  # CUPTI is missing, not permitted, or held by another.
            known |= _measured(device, memory, chosen)
    return known


def _measured(device: CudaDevice, memory: StampMemory, launches: Launches) -> dict[Kernel, float]:
    own = [slot for _, slots in launches for slot in slots]
    extents = []
    with subscription().recording(["CONCURRENT_KERNEL"], beside_others=False) as found:
        for _ in range(ROUNDS):
            for call, _ in launches:
                call()
                device.synchronize()  # Alone: what runs side by side waits for room, which CUPTI counts.
            stamps = memory.read()
            extents.append([int(stamps[slot][:, 1].max() - stamps[slot][:, 0].min()) for slot in own])
    work = found[0].work
    if len(work) != ROUNDS * len(own):
        return {}
    work = work[np.argsort(work["correlation"], kind="stable")]
    lengths = (work["end_ns"] - work["start_ns"]).reshape(ROUNDS, len(own))
    left_out = np.sort((lengths - np.array(extents))[WARM:], axis=0)
    # The mean of the middle half: both clocks step by 32 ns, and a median of their readings does, too.
    quarter = len(left_out) // 4
    means = left_out[quarter : len(left_out) - quarter].mean(axis=0)
    return {kernel_of(memory.slots[slot]): float(mean) for slot, mean in zip(own, means, strict=True)}
