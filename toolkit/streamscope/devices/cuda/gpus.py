"""The GPUs of this machine: the framework's current one, calls with one of them current, and the links between them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from itertools import permutations

from streamscope.errors import DeviceError
from streamscope.kernels.library.libraries import checked, libraries
from streamscope.words import counted, listed

BY_ADDRESS = 4
"""cudaMemcpyDefault: between GPUs, too, and in a capture, which cudaMemcpyPeerAsync cannot be in."""
_ALREADY_ENABLED = 704  # cudaErrorPeerAccessAlreadyEnabled


def current_gpu() -> int:
    """Return the number of the framework's current GPU: PyTorch's where it is loaded and uses CUDA, else CuPy's."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is not None and cuda.is_initialized():
        return int(cuda.current_device())
    return int(libraries().runtime.getDevice())


def check_gpus(indices: Sequence[int], count: int) -> None:
    """Check that a machine with ``count`` GPUs has those that are asked for.

    Raises
    ------
    DeviceError
        It has not.
    """
    if all(0 <= index < count for index in indices):
        return
    wanted = len(indices)
    simulated = f"device='simulated', gpus={wanted}" if wanted > 1 else "device='simulated'"
    raise DeviceError(
        f"{named(indices)} {'were' if wanted > 1 else 'was'} asked for, and this machine has {counted(count, 'GPU')}, numbered from 0",
        hint=f"ask for fewer, or simulate a host: {simulated}",
    )


def named(indices: Sequence[int]) -> str:
    """Name GPUs of the machine: ``GPU 1``, or ``GPUs 0 and 2``."""
    return f"GPU{'s' if len(indices) > 1 else ''} {listed([str(index) for index in indices])}"


def with_current(index: int, call: Callable[[], None]) -> Callable[[], None]:
    """Return a call that runs with a GPU current on the calling thread, and leaves the thread's own current."""
    runtime = libraries().runtime
    current, choose = runtime.getDevice, runtime.setDevice

    def switched() -> None:
        before = current()
        if before == index:
            call()
            return
        choose(index)
        try:
            call()
        finally:
            choose(before)

    return switched


def linked(indices: Sequence[int]) -> dict[tuple[int, int], str]:
    """Let GPUs reach each other's memory where the hardware can, and return the link of each pair of places, see `link_kind`."""
    return {(a, b): _linked(indices[a], indices[b]) for a, b in permutations(range(len(indices)), 2)}


def _linked(index: int, peer: int) -> str:
    kind = link_kind(index, peer)
    if kind != "host":
        lib = libraries()
        with lib.cupy.cuda.Device(index):
            try:
                lib.runtime.deviceEnablePeerAccess(peer)
            except lib.runtime.CUDARuntimeError as error:
                if error.status != _ALREADY_ENABLED:
                    raise
    return kind


def link_kind(index: int, peer: int) -> str:
    """Return how one of the machine's GPUs reaches another's memory: by ``"nvlink"``, ``"pcie"`` or the ``"host"``."""
    lib = libraries()
    if not lib.runtime.deviceCanAccessPeer(index, peer):
        return "host"
    cuda = lib.cuda
    devices = [checked(cuda.cuDeviceGet(one)) for one in (index, peer)]
    # Atomics of one GPU in the memory of another run over NVLink, and not over PCIe.
    attribute = cuda.CUdevice_P2PAttribute.CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED
    return "nvlink" if checked(cuda.cuDeviceGetP2PAttribute(attribute, *devices)) else "pcie"
