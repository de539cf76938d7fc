"""Devices: where operations run."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from streamscope.arguments import shown
from streamscope.device_entry import AUTO, DEVICES, numbers_of, simulated_device, split_choice
from streamscope.errors import DeviceError, NoDeviceError, UnusedGpusWarning, described
from streamscope.program.launch import LaunchKind
from streamscope.trace.info import DeviceInfo
from streamscope.words import counted

if TYPE_CHECKING:
    from streamscope.devices.protocol import Device
    from streamscope.program.operation import Program


SIMULATED, _CUDA = "simulated", "cuda"


def open_device(choice: str | Device = "auto", *, gpus: int | Sequence[int] | None = None) -> Device:
    """Open a device to run on: one GPU, or several of one host.

    Parameters
    ----------
    choice : {"auto", "cuda", "cuda:1", "simulated"} or Device
        ``"auto"`` is CUDA where there is a GPU, else simulated. ``"cuda"`` is the framework's current GPU: PyTorch's where that is in use,
        else CuPy's; ``"cuda:1"`` is another one. In calls with arrays on a GPU, ``"auto"`` and ``"cuda"`` are that one. Other packages may
        add names. A device is returned as it is.
    gpus : int or list of int, optional
        A host: how many GPUs, or which. `ss.gpu` counts places in that list. The simulated host has up to 8.

    Returns
    -------
    Device
        Give it to several calls, for example to `prepare`, so that they share it.

    Raises
    ------
    NoDeviceError
        You asked for CUDA, and there is no usable GPU.
    DeviceError
        The choice is unknown, or not a device, or a device of another package fails; there are fewer GPUs; or ``gpus`` stands beside a
        device that is open.

    Examples
    --------
    >>> device = ss.open_device("simulated")
    >>> device.info.name, device.info.simulated
    ('simulated NVIDIA H200', True)
    >>> ss.open_device(device) is device
    True
    """
    check_device(choice, gpus)
    if not isinstance(choice, str):
        return choice
    name, numbers = split_choice(choice, gpus)
    if name != AUTO:
        return _opened(name, numbers)
    for each in [name for name, entry in DEVICES.items() if entry.automatic]:
        try:
            return _opened(each, numbers)
        except NoDeviceError:
            pass
        except Exception as error:
            if each in DEVICES.own:
                raise
            DEVICES.warn(each, error.__cause__ or error)
    return _opened(SIMULATED, numbers)


def _opened(name: str, gpus: tuple[int, ...] | None) -> Device:
    try:
        device: Device = DEVICES[name].open(gpus)
        if name in DEVICES.own:
            return device
    except Exception as error:
        if name in DEVICES.own or isinstance(error, NoDeviceError):
            raise
        raise DeviceError(f"the {DEVICES.named(name)} cannot be opened: {described(error)}") from error
    if not isinstance(getattr(device, "info", None), DeviceInfo):
        raise DeviceError(f"the {DEVICES.named(name)} opens {shown(device)}, which is no device")
    there, wanted = getattr(device, "gpus", 1), len(gpus or (0,))
    if there != wanted:
        raise DeviceError(f"the {DEVICES.named(name)} has {counted(there, 'GPU')}, not {wanted}", hint=f"device='simulated', gpus={wanted}")
    return device


def device_for(
    program: Program, choice: str | Device = "auto", *, gpus: int | Sequence[int] | None = None, inputs: Sequence[object] = ()
) -> Device:
    """Open a device that can run a program, by default of as many GPUs as it needs; of a program of one GPU, that of its inputs.

    Of captured code that was read from a file there are no kernels, so it is simulated. GPUs that are asked for and not used are told.
    """
    asked = len(numbers_of(gpus) or (0,))
    if asked > program.gpus:
        warnings.warn(f"{program.name!r} uses {program.gpus} of the {asked} GPUs", UnusedGpusWarning, stacklevel=4)
    if gpus is None and program.gpus > 1 and isinstance(choice, str):
        gpus = program.gpus
    if all(launch.cuda is not None or launch.kind is not LaunchKind.KERNEL for launch in program.launches()):
        near = gpus is None and isinstance(choice, str) and choice in (AUTO, _CUDA)
        gpu = _gpu_of(inputs) if near else None
        if gpu is None:
            return open_device(choice, gpus=gpus)
        try:
            return open_device(f"{_CUDA}:{gpu}")
        except NoDeviceError:  # Another library's arrays: CuPy, which we need, may be missing.
            if choice != AUTO:
                raise
            return open_device(choice)
    if isinstance(choice, str) and choice in (AUTO, SIMULATED):
        check_device(choice, gpus)
        simulated: Device = simulated_device(measured_on=program.measured_on)
        return simulated
    opened = open_device(choice, gpus=gpus)
    if not opened.info.simulated:
        what = f"{program.name!r} was read from a file, without its kernels, so {opened.info.name} cannot run it"
        raise DeviceError(what, hint="device='simulated', or capture the function again")
    return opened


def _gpu_of(inputs: Sequence[object]) -> int | None:
    """Return the number of the GPU on which arrays lie; None where none does, or they lie on several."""
    found = {_number(value) for value in inputs if getattr(value, "is_cuda", False) or hasattr(value, "__cuda_array_interface__")}
    return found.pop() if len(found) == 1 else None


def _number(array: Any) -> int | None:
    """Return the number of an array's GPU: PyTorch calls it the index of a device, CuPy and JAX its id."""
    device = getattr(array, "device", None)
    number = getattr(device, "index" if getattr(array, "is_cuda", False) else "id", None)
    return number if isinstance(number, int) else None


def check_device(choice: object, gpus: object = None) -> None:
    """Check that `open_device` would know a user's choice, without opening it."""
    if isinstance(choice, str):
        name, _ = split_choice(choice, gpus)
        if name != AUTO and name not in DEVICES:
            raise DeviceError(f"unknown device {choice!r}", hint=f"choose {_names()}")
        return
    # A class that is not called yet has a property of that name.
    info = getattr(choice, "info", None)
    if not isinstance(info, DeviceInfo):
        raise DeviceError(f"{shown(choice)} is not a device", hint=f"choose {_names()}, or pass what ss.open_device returned")
    if gpus is not None:
        there, kind = getattr(choice, "gpus", 1), info.kind
        raise DeviceError(
            f"gpus={shown(gpus)} stands beside a device that is open, which has {counted(there, 'GPU')}",
            hint=f"open it with them, ss.open_device({kind!r}, gpus={shown(gpus)}), or name it: device={kind!r}, gpus={shown(gpus)}",
        )


def _names() -> str:
    """Return the choices in words: ``"auto, cuda or simulated"``."""
    *names, last = AUTO, *DEVICES
    return f"{', '.join(names)} or {last}"
