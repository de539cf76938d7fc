"""``streamscope calibrate``: measure this GPU's cost model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from streamscope.cli.terminal import notes, output
from streamscope.cli.wrong_usage import given_path
from streamscope.errors import NoDeviceError
from streamscope.files import writable_file


def calibrate(
    *,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="FILE", parser=given_path, help="Where to write it; by default, where later runs look.", show_default=False
        ),
    ] = None,
) -> None:
    """Measure what calls, kernels, copies and graphs cost on this GPU, and keep it.

    The event recorder takes the duration of its reference kernel from it, and the simulated device all of its times. It needs CUPTI.
    """
    from streamscope.devices.cuda import CudaDevice
    from streamscope.devices.measured_models import save_model
    from streamscope.recording.measure_costs import measure_cost_model

    if out is not None:
        writable_file(out)
    said = notes()
    try:
        device = CudaDevice()
    except NoDeviceError as error:
        raise NoDeviceError(error.message, hint="costs are measured on a GPU; `streamscope doctor` says what is missing here") from None
    model = measure_cost_model(device, lambda what: said.print(f"measuring {what}"))
    path = save_model(model, out)
    output().print(f"{model.provenance.device}: {model.memory_gb_s:g} GB/s, launch {model.launch_ns:g} ns, wrote {path}", soft_wrap=True)
