"""The default recorder of GPUs: CUDA events, checked by CUPTI where it can be had, and by stamps where CUPTI changes the run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import cast

from streamscope.devices.cuda.device import CudaDevice
from streamscope.devices.protocol import Device
from streamscope.engines.prepared import Prepared
from streamscope.errors import RecordingError
from streamscope.kernels.compile.program_kernels import program_kernels
from streamscope.recording.cupti import STRETCHED, CuptiRecorder
from streamscope.recording.events import EventRecorder, has_branches
from streamscope.recording.kernel_times import KernelTimes, kernel_times
from streamscope.recording.stamps import StampRecorder
from streamscope.trace.trace import Trace

_ENOUGH = 2
"""So many of CUPTI's runs that take as long as the program without it tell of it, whatever the others took."""
_AROUND_NS = 20_000.0
"""Events around a graph say at most so much more than CUPTI of its first start and last end: 12 µs over four GPUs."""
_STRETCHED_OVER_GPUS = 0.15
"""So much longer may graphs over several GPUs take under CUPTI: their gaps are shortened. Under CUPTI behind a gate on two H200, those of
`pipeline-parallel` took 1 to 12 % longer. By events alone, their busy time was 8 to 17 % off, and their overlap 13 to 36 points."""


class AutoRecorder:
    """Records runs of prepared programs by CUDA events, and lets CUPTI tell how long each kernel takes in the program's own order.

    Events alone do not know that: a kernel that is timed by itself finds other caches, and no neighbours. CUPTI delays the branches of some
    graphs, and then tells of another run. Their kernels are recorded by stamps, where they are generated. So is all of a program where
    CUPTI cannot be had: its trace then says how far its durations may be off. Over several GPUs there are no stamps: gaps of a graph that
    CUPTI makes a little longer are shortened, and of others events alone tell.

    CUPTI records runs of its own, and leaves the process before any time is taken that is shown as the program's.
    """

    def __init__(self, device: CudaDevice) -> None:
        self.device = device

    @classmethod
    def on(cls, device: Device) -> AutoRecorder:
        """Return a recorder for a GPU."""
        return cls(cast("CudaDevice", device))

    def record(self, prepared: Prepared, reload: Callable[[], None] = lambda: None) -> Trace:
        """Record a prepared program whose inputs are loaded and which has run twice; ``reload`` is called before each run."""
        return self.checked(prepared, reload).record(prepared, reload)

    def checked(self, prepared: Prepared, reload: Callable[[], None] = lambda: None) -> EventRecorder | StampRecorder:
        """Return the recorder of a program, with what CUPTI tells of it."""
        seen = self._seen(prepared, reload)
        # Stamps know the clock of one GPU.
        if seen is None and prepared.program.gpus == 1 and program_kernels(prepared.program, self.device.tuned):
            return StampRecorder(self.device)
        return replace(EventRecorder.on(cast("Device", self.device)), seen=seen)

    def _seen(self, prepared: Prepared, reload: Callable[[], None]) -> KernelTimes | None:
        """Return the times that CUPTI recorded; None where it cannot be had, loses records, or changes the run."""
        try:
            # Else nodes of a graph over several GPUs arrive one by one, and branches run in another order.
            gated = prepared.program.gpus > 1
            unrecorded_ns, runs = CuptiRecorder.on(self.device).runs(prepared, reload, beside_others=False, gated=gated)
        except RecordingError:  # CUPTI is missing, not permitted, or held by another.
            return None
        tables = [run.spans() for run in runs]
        # Some programs run in two ways, of which CUPTI may see the rarer one more often.
        least_ns, most_ns = (1 - STRETCHED) * unrecorded_ns - _AROUND_NS, (1 + STRETCHED) * unrecorded_ns
        as_long = [run for run in runs if gated and least_ns <= run.replays_ns <= most_ns]
        chosen = [table for run, table in zip(runs, tables, strict=True) if run in as_long or len(as_long) < _ENOUGH]
        seen = None if any(run.lost for run in runs) else kernel_times(chosen)
        if seen is None or not has_branches(prepared) or seen.replays_ns <= most_ns:
            return seen
        graphs = sum(bound.graph is not None for bound in prepared.bound)
        in_another_way = any(run.replays_ns < (1 - STRETCHED) * seen.replays_ns for run in as_long)
        if gated and graphs == 1 and not in_another_way and seen.replays_ns <= (1 + _STRETCHED_OVER_GPUS) * unrecorded_ns:
            return replace(seen, unrecorded_share=unrecorded_ns / seen.replays_ns)
        return None
