"""Where and when something was measured: what every result in `results` says of itself; and how results are kept there."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from streamscope.devices.protocol import Device
from streamscope.files import written_whole
from streamscope.trace.info import library_versions


def provenance(device: Device, **versions: str) -> dict[str, Any]:
    """Return the device, the versions of the libraries, peers' ``versions`` among them, and the time in UTC."""
    return {
        "device": device.info.name,
        "details": dict(device.info.details),
        "versions": library_versions() | versions,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def keep(name: str, content: Mapping[str, Any]) -> None:
    """Write a result to the file that the program's first argument names, by default to one of this name in `results`."""
    target = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent / "results" / name)
    with written_whole(target) as path:
        path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
