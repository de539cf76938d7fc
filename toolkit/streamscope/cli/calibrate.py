"""``streamscope calibrate``: the cost model of this GPU, measured."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from streamscope.cli.parameters import out
from streamscope.cli.terminal import notes, output
from streamscope.errors import NoDeviceError
from streamscope.files import writable_file


def calibrate(*, file: Annotated[Path | None, out("FILE", "Where to write it; by default, where later runs look.")] = None) -> None:
    """Measure the costs of calls, kernels, copies and graphs on this GPU, and keep them.

    The event recorder takes the duration of its reference kernel from it, and the simulated device all of its times. It needs CUPTI.
    """
    from streamscope.calibrating.measure_costs import measure_cost_model
    from streamscope.devices.cuda import CudaDevice
    from streamscope.devices.measured_models import save_model

    if file is not None:
        writable_file(file)
    said = notes()
    try:
        device = CudaDevice()
    except NoDeviceError as error:
        raise NoDeviceError(error.message, hint="costs are measured on a GPU; `streamscope doctor` says what is missing here") from None
    model = measure_cost_model(device, lambda what: said.print(f"measuring {what}"))
    path = save_model(model, file)
    output().print(f"{model.provenance.device}: {model.memory_gb_s:g} GB/s, launch {model.launch_ns:g} ns, wrote {path}", soft_wrap=True)
