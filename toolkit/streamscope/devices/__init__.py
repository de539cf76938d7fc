"""Devices: where operations run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamscope.arguments import shown
from streamscope.device_entry import AUTO, DEVICES
from streamscope.errors import DeviceError, NoDeviceError, described
from streamscope.program.launch import LaunchKind
from streamscope.trace.info import DeviceInfo

if TYPE_CHECKING:
    from streamscope.devices.protocol import Device
    from streamscope.program.operation import Program


SIMULATED = "simulated"


def open_device(choice: str | Device = "auto") -> Device:
    """Open a device to run on.

    Parameters
    ----------
    choice : {"auto", "cuda", "simulated"} or Device
        ``"auto"`` is CUDA where there is a GPU, else simulated. Other packages may add names. A device is returned as it is.

    Returns
    -------
    Device
        Give it to several calls, for example to `prepare`, so that they share it.

    Raises
    ------
    NoDeviceError
        You asked for CUDA, and there is no usable GPU.
    DeviceError
        The choice is unknown, or not a device, or a device of another package fails.

    Examples
    --------
    >>> device = ss.open_device("simulated")
    >>> device.info.name, device.info.simulated
    ('simulated NVIDIA H200', True)
    >>> ss.open_device(device) is device
    True
    """
    check_device(choice)
    if not isinstance(choice, str):
        return choice
    if choice != AUTO:
        return _opened(choice)
    for name in [name for name, entry in DEVICES.items() if entry.automatic]:
        try:
            return _opened(name)
        except NoDeviceError:
            pass
        except Exception as error:
            if name in DEVICES.own:
                raise
            DEVICES.warn(name, error.__cause__ or error)
    return open_device(SIMULATED)


def _opened(name: str) -> Device:
    try:
        device: Device = DEVICES[name].open()
        if name in DEVICES.own or isinstance(getattr(device, "info", None), DeviceInfo):
            return device
    except Exception as error:
        if name in DEVICES.own or isinstance(error, NoDeviceError):
            raise
        raise DeviceError(f"the {DEVICES.named(name)} cannot be opened: {described(error)}") from error
    raise DeviceError(f"the {DEVICES.named(name)} opens {shown(device)}, which is no device")


def device_for(program: Program, choice: str | Device = "auto") -> Device:
    """Open a device that can run a program: of captured code that was read from a file there are no kernels, so it is simulated."""
    if all(launch.cuda is not None or launch.kind is not LaunchKind.KERNEL for launch in program.launches()):
        return open_device(choice)
    from streamscope.devices.simulated import SimulatedDevice

    if isinstance(choice, str) and choice in (AUTO, SIMULATED):
        return SimulatedDevice(measured_on=program.measured_on)
    opened = open_device(choice)
    if not opened.info.simulated:
        what = f"{program.name!r} was read from a file, without its kernels, so {opened.info.name} cannot run it"
        raise DeviceError(what, hint="device='simulated', or capture the function again")
    return opened


def check_device(choice: object) -> None:
    """Check that `open_device` would know a user's choice, without opening it."""
    if isinstance(choice, str):
        if choice != AUTO and choice not in DEVICES:
            raise DeviceError(f"unknown device {choice!r}", hint=f"choose {_names()}")
    # A class that is not called yet has a property of that name.
    elif not isinstance(getattr(choice, "info", None), DeviceInfo):
        raise DeviceError(f"{shown(choice)} is not a device", hint=f"choose {_names()}, or pass what ss.open_device returned")


def _names() -> str:
    """Return the choices in words: ``"auto, cuda or simulated"``."""
    *names, last = AUTO, *DEVICES
    return f"{', '.join(names)} or {last}"
