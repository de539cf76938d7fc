"""The CUDA device: CuPy for memory and launches, NVIDIA's cuda-python for the rest of the driver."""

from streamscope.devices.cuda.bench import CudaBench
from streamscope.devices.cuda.device import CudaDevice

__all__ = ["CudaBench", "CudaDevice"]
