"""The registry of devices: one entry each. `ss.open_device` and the options go by it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any, SupportsIndex, TypeGuard

from streamscope.arguments import shown
from streamscope.doors import Door
from streamscope.errors import DeviceError
from streamscope.words import listed


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
        ``open(gpus) -> Device`` makes the device, see `streamscope.devices.protocol`. ``gpus`` is a tuple of numbers of this machine's
        GPUs, or None for the current one. Where the machine has none, it raises `NoDeviceError`; where too few, `DeviceError`.
    automatic : bool
        Whether ``device="auto"`` tries it. The first that opens is taken; the simulated device is the last.
    numbered : bool
        Whether ``"name:1"`` is one of several.
    simulate : callable, optional
        ``simulate(model=None, **options) -> Device`` makes one of another cost model. The simulated device has it.
    """

    name: str
    line: str
    open: Callable[[tuple[int, ...] | None], Any]
    automatic: bool = False
    numbered: bool = False
    simulate: Callable[..., Any] | None = None


MOST_GPUS = 8
"""GPUs of a host."""
AUTO = "auto"
"""Choice of the first device that this machine has."""
DEVICES: Door[DeviceEntry] = Door(
    "device",
    {"cuda": "streamscope.devices.cuda:CUDA", "simulated": "streamscope.devices.simulated:SIMULATED"},
    DeviceEntry,
    reserved=(AUTO,),
)
"""All devices by name."""


def simulated_device(model: Any = None, **options: Any) -> Any:
    """Return a simulated device, opened by its entry; the options are those of `SimulatedDevice`."""
    simulate = DEVICES["simulated"].simulate
    assert simulate is not None
    return simulate(model, **options)


def split_choice(choice: str, gpus: object = None) -> tuple[str, tuple[int, ...] | None]:
    """Return the name of a device and the numbers of its GPUs, from ``"cuda:1"`` or from what ``gpus=`` is; None for the current GPU.

    Raises
    ------
    DeviceError
        ``gpus`` is neither a number of GPUs nor a list of their numbers, or the choice names a GPU as well.

    Examples
    --------
    >>> from streamscope.device_entry import split_choice
    >>> split_choice("cuda:1"), split_choice("simulated", 2), split_choice("cuda", [0, 2])
    (('cuda', (1,)), ('simulated', (0, 1)), ('cuda', (0, 2)))
    """
    name, colon, number = choice.partition(":")
    numbers = numbers_of(gpus)
    if not colon or name not in DEVICES or not DEVICES[name].numbered or not number.isdecimal():
        return choice, numbers
    if numbers is not None:
        opened = listed([f"GPU {one}" for one in numbers])
        raise DeviceError(
            f"device={choice!r} names one GPU, so gpus={shown(gpus)} cannot stand beside it",
            hint=f"device={name!r}, gpus={shown(gpus)} opens {opened}; {choice!r} opens GPU {number} alone",
        )
    return name, (int(number),)


def numbers_of(gpus: object) -> tuple[int, ...] | None:
    """Return the numbers of GPUs that ``gpus=`` means: the first n, or those in a list; None for the current GPU, which 1 means, too."""
    if gpus is None:
        return None
    if isinstance(gpus, list | tuple | range) and all(map(_is_whole, gpus)):
        return _checked_numbers(gpus)
    if not _is_whole(gpus):
        raise _wrong_gpus(gpus, " is neither a number of GPUs nor a list of their numbers")
    if index(gpus) < 1:
        raise _wrong_gpus(gpus, ": a host has 1 or more GPUs")
    if index(gpus) > MOST_GPUS:
        raise DeviceError(f"gpus={shown(gpus)} is out of range", hint=f"1 to {MOST_GPUS}")
    return None if index(gpus) == 1 else tuple(range(index(gpus)))


def _checked_numbers(gpus: Sequence[SupportsIndex]) -> tuple[int, ...]:
    """Return the numbers in a list of GPUs."""
    numbers = tuple(map(index, gpus))
    if not numbers:
        raise _wrong_gpus(gpus, ": the list names no GPU")
    if min(numbers) < 0:
        raise _wrong_gpus(gpus, ": GPUs are numbered from 0 on")
    if len(set(numbers)) < len(numbers):
        raise DeviceError(f"gpus={shown(gpus)} has a GPU twice", hint="name each once")
    return numbers


def _wrong_gpus(gpus: object, what: str) -> DeviceError:
    return DeviceError(f"gpus={shown(gpus)}{what}", hint="gpus=2, or gpus=[0, 2]")


def _is_whole(value: object) -> TypeGuard[SupportsIndex]:
    return hasattr(value, "__index__") and not isinstance(value, bool)
