"""The choice of a recorder."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Protocol

from streamscope.arguments import shown
from streamscope.errors import RecordingError, StreamscopeError, described
from streamscope.recorder_entry import RECORDERS
from streamscope.words import a_kind

if TYPE_CHECKING:
    from streamscope.devices.protocol import Device
    from streamscope.engines.prepared import Prepared
    from streamscope.trace.trace import Trace

STAYED = (
    "CUPTI stayed in this process after a recording, so that launches are dearer, above all of graphs; start a new process for true times"
)
_ANOTHER = "choose another recorder"
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
    if chosen not in RECORDERS.own:
        return _GuestRecorder(chosen, device)
    recorder: Recorder = RECORDERS[chosen].on(device)
    return recorder


class _GuestRecorder:
    """A recorder of another package: where it fails, the error names it."""

    def __init__(self, name: str, device: Device) -> None:
        self._name = name
        self._recorder: Recorder = self._tried(RECORDERS[name].on, device)

    def record(self, prepared: Prepared, reload: Callable[[], None] = lambda: None) -> Trace:
        """Record a prepared program, as `Recorder.record` does."""
        from streamscope.trace.trace import Trace

        trace = self._tried(self._recorder.record, prepared, reload)
        if not isinstance(trace, Trace):
            raise RecordingError(f"{RECORDERS.named(self._name)} returned {a_kind(trace)}, not a Trace", hint=_ANOTHER)
        return trace

    def _tried(self, function: Callable[..., Any], *arguments: object) -> Any:
        try:
            return function(*arguments)
        except StreamscopeError:
            raise
        except Exception as error:
            raise RecordingError(f"{RECORDERS.named(self._name)} failed: {described(error)}", hint=_ANOTHER) from error
