"""Memory accesses of Triton's kernels of this process, by parameter: the user's own, and those of torch.compile."""

from __future__ import annotations

import base64
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from streamscope.capturing.allocations import known_objects
from streamscope.capturing.prototypes import Role
from streamscope.capturing.ttir import KernelArguments, kernel_arguments
from streamscope.kernels.library.libraries import libraries


class TritonKernels:
    """Triton's kernels that are loaded now, found by their ``CUfunction``."""

    def __init__(self) -> None:
        self._kernels = dict(_loaded())

    def __contains__(self, function: int) -> bool:
        return function in self._kernels

    def roles(self, function: int, parameters: int) -> tuple[Role, ...] | str:
        """Return the role of each parameter of a kernel that has so many, or why its parameters do not tell all."""
        text = _ttir(self._kernels[function])
        found = kernel_arguments(text) if text is not None else None
        if found is None:
            return "Triton's text of it is not there" if text is None else "Triton's text of it is not understood"
        # Behind its arguments, Triton hands over scratch memory of its own, which no other launch uses at the same time.
        own = parameters - len(found.types)
        if not 0 <= own <= _SCRATCH:
            return f"Triton's text of it has {len(found.types)} arguments, and the kernel {parameters}"
        if not found.complete:
            return "it follows addresses that lie in memory"
        return (*_roles(found), *[Role.UNKNOWN] * own)


_SCRATCH = 2
"""Parameters that Triton adds: scratch memory for tensor maps, and for its profiler."""


def _roles(found: KernelArguments) -> Iterable[Role]:
    for number, kind in enumerate(found.types):
        if "ptr" not in kind and "desc" not in kind:
            yield Role.VALUE
        else:
            yield Role.WRITTEN if number in found.written else Role.READ


def _loaded() -> Iterable[tuple[int, Any]]:
    """Return each loaded kernel with its function: of Triton's launcher, and of torch.compile's own."""
    kinds = {
        getattr(sys.modules.get(module), name, None)
        for module, name in (
            ("triton.compiler.compiler", "CompiledKernel"),
            ("torch._inductor.runtime.static_cuda_launcher", "StaticallyLaunchedCudaKernel"),
            ("torch._inductor.runtime.static_triton_launcher", "StaticallyLaunchedCudaKernel"),
        )
    } - {None}
    if not kinds:
        return
    for one in known_objects():
        if type(one) in kinds and isinstance(function := getattr(one, "function", None), int):
            yield function, one


def _ttir(kernel: Any) -> str | None:
    """Return the TTIR text of a kernel: its own, or from Triton's cache, where torch.compile's launcher left it."""
    texts = getattr(kernel, "asm", None)
    if texts is not None:
        return str(texts["ttir"]) if "ttir" in texts else None
    folder = base64.b32encode(bytes.fromhex(kernel.hash)).decode().rstrip("=")
    for cache in _caches():
        path = cache / folder / f"{kernel.name}.ttir"
        if path.is_file():
            return path.read_text()
    return None


def _caches() -> Iterable[Path]:
    """Return the folders where Triton may have left its texts: its own, and those of torch.compile."""
    triton, inductor = sys.modules.get("triton"), sys.modules.get("torch._inductor.runtime.cache_dir_utils")
    if triton is not None:
        yield Path(triton.knobs.cache.dir)
    if inductor is not None:
        yield Path(inductor.triton_cache_dir(libraries().runtime.getDevice()))
