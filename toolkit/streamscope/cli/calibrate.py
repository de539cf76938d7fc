"""``streamscope calibrate``: the cost model of this GPU, or the link model of this host, measured."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Annotated

import typer

from streamscope.cli.parameters import out
from streamscope.cli.terminal import notes, output
from streamscope.errors import NoDeviceError
from streamscope.files import writable_file


def calibrate(
    *,
    gpus: Annotated[
        int | None, typer.Option("--gpus", metavar="N", min=2, help="Measure copies and collectives between the first N GPUs instead.")
    ] = None,
    file: Annotated[Path | None, out("FILE", "Where to write it; by default, where later runs look.")] = None,
) -> None:
    """Measure the costs of calls, kernels, copies and graphs on this GPU, and keep them.

    The event recorder takes the duration of its reference kernel from it, and the simulated device all of its times. It needs CUPTI.
    With --gpus, it measures the links between GPUs and the collectives over them, which plans for them go by: in two minutes, with NCCL.
    """
    if file is not None:
        writable_file(file)
    if gpus is None:
        _calibrate_gpu(file)
    else:
        _calibrate_links(gpus, file)


def _calibrate_gpu(file: Path | None) -> None:
    from streamscope.calibrating.measure_costs import measure_cost_model
    from streamscope.devices.cuda import CudaDevice
    from streamscope.devices.measured_models import save_model

    said = notes()
    try:
        device = CudaDevice()
    except NoDeviceError as error:
        raise _without_gpu(error) from None
    model = measure_cost_model(device, lambda what: said.print(f"measuring {what}"))
    path = save_model(model, file)
    output().print(f"{model.provenance.device}: {model.memory_gb_s:g} GB/s, launch {model.launch_ns:g} ns, wrote {path}", soft_wrap=True)


def _calibrate_links(gpus: int, file: Path | None) -> None:
    from streamscope.calibrating.link_costs import link_readings
    from streamscope.calibrating.link_fit import fitted_links, held_out_errors
    from streamscope.devices.measured_models import save_model
    from streamscope.kernels.library.libraries import libraries

    said = notes()
    try:
        found = libraries().runtime.getDeviceCount()
    except NoDeviceError as error:
        raise _without_gpu(error) from None
    if found < gpus:
        there = f"there {'is' if found == 1 else 'are'} {found}"
        raise NoDeviceError(f"{gpus} GPUs were asked for, and {there}", hint="`streamscope doctor` lists them")
    readings = link_readings(gpus, progress=lambda what: said.print(f"measuring {what.replace('_', ' ')}"))
    model = fitted_links(readings)
    path = save_model(model, file)
    speed = model.bus_gb_s("all_reduce", 1 << 30, gpus)
    errors = [abs(error) for each in held_out_errors(model, readings).values() for error in each]
    checked = f"sizes between within {max(errors):.0%}, half of them within {median(errors):.0%}, " if errors else ""
    output().print(f"{model.provenance.device}: all-reduce of 1 GiB at {speed:.0f} GB/s, {checked}wrote {path}", soft_wrap=True)


def _without_gpu(error: NoDeviceError) -> NoDeviceError:
    return NoDeviceError(error.message, hint="costs are measured on a GPU; `streamscope doctor` says what is missing here")
