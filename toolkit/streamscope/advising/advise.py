"""`ss.advise`: whether a graph or a second stream pays on this device, and for a program."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

from streamscope.advising.advice import Advice
from streamscope.advising.device_costs import DeviceCosts, fitted_costs
from streamscope.advising.forecast import forecast
from streamscope.advising.probing import probe_count
from streamscope.advising.task import Task
from streamscope.calling import verb
from streamscope.capturing.function import CapturedFunction
from streamscope.devices import open_device
from streamscope.devices.protocol import Device
from streamscope.errors import ProgramError
from streamscope.progress import Progress, showing
from streamscope.tracing import ProgramFunction

_costs: dict[tuple[str, ...], DeviceCosts] = {}
_fitting = threading.Lock()


@verb
def advise(
    program: Callable[..., Any] | ProgramFunction | CapturedFunction | None = None,
    /,
    *inputs: Any,
    device: str | Device = "auto",
    progress: bool | Progress = True,
    **attributes: Any,
) -> Advice:
    """Find out at which kernel length and count a graph, or a second stream, pays on this device; and for a program, if one is given.

    The device's costs are fitted to small programs that run under our own engines: launches of the host, graph launches and their nodes,
    gaps between kernels, waits between streams, captures. That takes some seconds, once a process and device. A program is then
    predicted from one recorded run under async, and measured, so that one sees how far to believe the prediction.

    Parameters
    ----------
    program : callable, ProgramFunction or CapturedFunction, optional
        A function over variables, or what ``ss.capture`` returned, which takes no inputs.
    *inputs : array
        Arguments of the program: NumPy or CuPy arrays.
    device : {"auto", "cuda", "simulated"} or Device
    progress : bool or callable
        Show a progress bar, or call ``progress(what, step, steps)``.
    **attributes : object
        Passed on to the function as they are, for example ``training=True``.

    Raises
    ------
    ProgramError
        The program or its inputs are wrong.
    DeviceError
        The device is missing, or failed.
    """
    if program is None and inputs:
        raise ProgramError("ss.advise got inputs, but no program", hint="ss.advise(program, *inputs), or ss.advise() for the device alone")
    task = None if program is None else Task.of(program, inputs, "ss.advise", attributes)
    opened = open_device(device)
    with showing("measuring the device", progress=progress) as shown:
        done = itertools.count()
        steps = probe_count() + 2
        costs = device_costs(opened, lambda what: shown(f"measuring {what}", next(done), steps))
        shown("predicting", steps - 1, steps)
        return Advice(costs, None if task is None else forecast(task, opened, costs))


def device_costs(device: Device, said: Callable[[str], None] = lambda what: None) -> DeviceCosts:
    """Return a device's costs, fitted at the first call for it in this process; ``said`` is told what is being measured.

    Raises
    ------
    DeviceError
        The device failed.
    """
    # Devices of one kind are alike; simulated ones are if their cost models are.
    key = (device.info.kind, device.info.name, repr(sorted(device.info.details.items())), repr(getattr(device, "model", None)))
    with _fitting:
        if key not in _costs:
            _costs[key] = fitted_costs(device, said)
        return _costs[key]
