"""The choice of a recorder."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from typing import TYPE_CHECKING, Protocol

from streamscope.arguments import shown
from streamscope.errors import RecordingError
from streamscope.recorder_entry import RECORDERS

if TYPE_CHECKING:
    from streamscope.devices.protocol import Device
    from streamscope.engines.prepared import Prepared
    from streamscope.trace.trace import Trace

STAYED = (
    "CUPTI stayed in this process after a recording, so that launches are dearer, above all of graphs; start a new process for true times"
)
STAYS: list[Callable[[], bool]] = []
"""Of each profiler that was loaded, a function that tells whether it is still there."""


def cupti_stayed() -> bool:
    """Tell whether CUPTI stayed in this process after a recording."""
    return any(stays() for stays in STAYS)


class Recorder(Protocol):
    """Records runs of prepared programs."""

    def record(self, prepared: Prepared, reload: Callable[[], None] = ...) -> Trace:
        """Record a prepared program whose inputs are loaded and which has run twice; ``reload`` is called before each run."""


def checked_recorder(name: object) -> str:
    """Return the name of a recorder."""
    if isinstance(name, str) and name in RECORDERS:
        return name
    near = get_close_matches(name, RECORDERS, n=1) if isinstance(name, str) else []
    hint = f"did you mean {near[0]}?" if near else f"one of {', '.join(RECORDERS)}"
    raise RecordingError(f"recorder={shown(name)} is unknown", hint=hint)


def recorder_of(device: Device, name: str = "auto") -> Recorder:
    """Return a recorder for a device; a device that keeps a log of its own is recorded by that, whatever the name.

    ``"auto"`` is CUDA events, checked by the machine's other recorders; ``"events"`` is CUDA events alone, which need no permission.
    """
    log = device.log
    if log is not None:
        # Here, since it needs engines and devices, which recording of any code (`ss.record`) does not.
        from streamscope.recording.device_log import DeviceLogRecorder

        return DeviceLogRecorder(device, log, name)
    chosen = "events" if name == "auto" and device.info.kind != "cuda" else name
    recorder: Recorder = RECORDERS[chosen].on(device)
    return recorder
