"""The registry of devices: one entry each. `ss.open_device` and the options go by it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from streamscope.doors import Door


@dataclass(frozen=True, kw_only=True)
class DeviceEntry:
    """One device: an entry of the door ``streamscope.devices``.

    Attributes
    ----------
    name : str
        Name in ``device=...``.
    line : str
        Description in one line.
    open : callable
        ``open() -> Device`` makes the device, see `streamscope.devices.protocol`. Where this machine has none, it raises `NoDeviceError`.
    automatic : bool
        Whether ``device="auto"`` tries it. The first that opens is taken; the simulated device is the last.
    """

    name: str
    line: str
    open: Callable[[], Any]
    automatic: bool = False


AUTO = "auto"
"""Choice of the first device that this machine has."""
DEVICES: Door[DeviceEntry] = Door(
    "device",
    {"cuda": "streamscope.devices.cuda:CUDA", "simulated": "streamscope.devices.simulated:SIMULATED"},
    DeviceEntry,
    reserved=(AUTO,),
)
"""All devices by name."""
