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


class AutoRecorder:
    """Records runs of prepared programs by CUDA events, and lets CUPTI tell how long each kernel takes in the program's own order.

    Events alone do not know that: a kernel that is timed by itself finds other caches, and no neighbours. CUPTI delays the branches of some
    graphs, and then tells of another run. Their kernels are recorded by stamps, where they are generated. So is all of a program where
    CUPTI cannot be had: its trace then says how far its durations may be off.

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
        seen, fits = self._seen(prepared, reload)
        told = seen is not None and (fits or not has_branches(prepared))
        # Stamps know the clock of one GPU.
        if not told and prepared.program.gpus == 1 and program_kernels(prepared.program, self.device.tuned):
            return StampRecorder(self.device)
        return replace(EventRecorder.on(cast("Device", self.device)), seen=seen if told else None)

    def _seen(self, prepared: Prepared, reload: Callable[[], None]) -> tuple[KernelTimes | None, bool]:
        """Return CUPTI's trace, None where it cannot be had or loses records; and whether graphs take as long as without recording."""
        try:
            # Else nodes of a graph over several GPUs arrive one by one, and branches run in another order.
            gated = prepared.program.gpus > 1
            unrecorded_ns, runs = CuptiRecorder.on(self.device).runs(prepared, reload, beside_others=False, gated=gated)
        except RecordingError:  # CUPTI is missing, not permitted, or held by another.
            return None, False
        tables = [run.spans() for run in runs]
        if gated:
            # Some programs run in two ways, of which CUPTI may see the rarer one more often.
            least_ns, most_ns = (1 - STRETCHED) * unrecorded_ns - _AROUND_NS, (1 + STRETCHED) * unrecorded_ns
            as_long = [table for run, table in zip(runs, tables, strict=True) if least_ns <= run.replays_ns <= most_ns]
            tables = as_long if len(as_long) >= _ENOUGH else tables
        seen = None if any(run.lost for run in runs) else kernel_times(tables)
        return seen, seen is not None and seen.replays_ns <= (1 + STRETCHED) * unrecorded_ns
