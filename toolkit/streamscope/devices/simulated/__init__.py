"""The simulated device: a discrete-event model of a GPU and its host calls on a virtual clock, with real numbers in memory.

::

    device.py            the Device protocol: what engines call
      streams.py         in-order queues, the events recorded on them, the gates that hold them
      graphs.py          streams under capture, instantiated graphs and their launches
    execution.py         launches: kernels share the multiprocessors, copies queue for the bus
    memory.py            buffers, poison, capacity
    result_cache.py      what expensive launches computed last
    core.py              the discrete-event core: actions in order of time, the host's clock, faults
"""

from streamscope.device_entry import MOST_GPUS, DeviceEntry
from streamscope.devices.log import DeviceLog, LogRecord
from streamscope.devices.simulated.core import Delays
from streamscope.devices.simulated.device import SimulatedDevice
from streamscope.errors import DeviceError

__all__ = ["SIMULATED", "Delays", "DeviceLog", "LogRecord", "SimulatedDevice"]


def _opened(gpus: tuple[int, ...] | None) -> SimulatedDevice:
    """Open a simulated GPU, or a host of as many as there are numbers, which are all alike."""
    if beyond := [number for number in gpus or () if number >= MOST_GPUS]:
        raise DeviceError(f"there is no simulated GPU {beyond[0]}: a host has up to {MOST_GPUS}", hint=f"0 to {MOST_GPUS - 1}")
    return SimulatedDevice(gpus=len(gpus or (0,)))


SIMULATED = DeviceEntry(
    name="simulated", line="a discrete-event model of GPUs; computes with NumPy", open=_opened, simulate=SimulatedDevice
)
