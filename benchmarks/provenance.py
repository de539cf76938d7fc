"""Where and when something was measured: what every result in `results` says of itself."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from streamscope.devices.protocol import Device
from streamscope.trace.info import library_versions


def provenance(device: Device, **versions: str) -> dict[str, Any]:
    """Return the device, the versions of the libraries, peers' ``versions`` among them, and the time in UTC."""
    return {
        "device": device.info.name,
        "details": dict(device.info.details),
        "versions": library_versions() | versions,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
