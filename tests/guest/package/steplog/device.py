"""Our accelerator, as a model: Streamscope's simulated device with launches that cost twice as much."""

from dataclasses import replace

from streamscope.device_entry import DeviceEntry
from streamscope.devices.cost_model import CostModel
from streamscope.devices.simulated import SimulatedDevice


def open_accelerator(gpus):
    """Return the device, of which there is one; one that is not there raises `NoDeviceError`."""
    model = CostModel.load()
    provenance = replace(model.provenance, device="accelerator")
    return SimulatedDevice(replace(model, launch_ns=2 * model.launch_ns, provenance=provenance))


DEVICE = DeviceEntry(name="accelerator", line="our accelerator, simulated", open=open_accelerator)
