"""The CUDA device: CuPy for memory and launches, NVIDIA's cuda-python for the rest of the driver."""

from streamscope.device_entry import DeviceEntry
from streamscope.devices.cuda.bench import CudaBench
from streamscope.devices.cuda.device import CudaDevice

__all__ = ["CUDA", "CudaBench", "CudaDevice"]

CUDA = DeviceEntry(name="cuda", line="an NVIDIA GPU, through CuPy and cuda-python", open=CudaDevice, automatic=True, numbered=True)
