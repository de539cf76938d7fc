"""The registry of recorders: one entry each. ``recorder=...`` and the options go by it."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from streamscope.doors import Door


@runtime_checkable
class RecorderEntry(Protocol):
    """One recorder, by its class: an entry of the door ``streamscope.recorders``."""

    def on(self, device: Any) -> Any:
        """Return a `streamscope.recording.recorders.Recorder` for a device, or raise a RecordingError that names the missing capability."""


RECORDERS: Door[RecorderEntry] = Door(
    "recorder",
    {
        "auto": "streamscope.recording.auto:AutoRecorder",
        "events": "streamscope.recording.events:EventRecorder",
        "stamps": "streamscope.recording.stamps:StampRecorder",
        "cupti": "streamscope.recording.cupti:CuptiRecorder",
    },
    RecorderEntry,
)
"""Recorders by the names that ``recorder=`` takes. A comparison loads only the one that it uses."""
