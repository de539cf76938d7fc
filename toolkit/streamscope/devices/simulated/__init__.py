"""The simulated device: a discrete-event model of a GPU and its host calls on a virtual clock, with real numbers in memory.

::

    device.py            the Device protocol: what engines call
      streams.py         in-order queues and the items on them
      events.py          points in streams; gates.py, which hold streams
      capture.py         streams under capture, and what breaks a capture
      graphs.py          instantiated graphs and their replays
    core.py              what all of these share: the host's clock, faults, the log
      timeline.py        the discrete-event core: actions in order of time
      execution.py       one launch: reads at its start, runs, commits at its end
      multiprocessors.py kernels side by side, sharing the chip
      copy_engine.py     copies one after the other, an engine for each direction
      memory.py          buffers, poison, capacity
      log.py             when each launch truly ran
"""

from streamscope.devices.log import DeviceLog, LogRecord
from streamscope.devices.simulated.core import Delays
from streamscope.devices.simulated.device import SimulatedDevice

__all__ = ["Delays", "DeviceLog", "LogRecord", "SimulatedDevice"]
