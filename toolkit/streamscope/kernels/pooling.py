"""Kernels of pooling and of its gradients: the values for ``cuda/pooling.cuh``."""

from __future__ import annotations

from ctypes import c_int, c_longlong
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np

from streamscope.kernels.cuda import fill, pieces
from streamscope.kernels.form import THREADS, VECTOR_BYTES
from streamscope.kernels.layout import INDEX32_LIMIT
from streamscope.kernels.library.cudnn import ConvolutionShape
from streamscope.kernels.source import COMPUTE, INFINITY, STORAGE, KernelSource, PlannedKernel, loaded, named_source, stored, vector_types

_CUDA = pieces("pooling")

_UNROLLED = 8
"""Windows of more rows are loops: a kernel of theirs would be long."""


@dataclass(frozen=True)
class _PoolingForm:
    """Variant of the source, besides kind and dtype."""

    vector: int
    """Channels that a thread takes."""
    window: int
    stride: int
    padding: int
    """The same for height and width."""
    wide: bool
    """Indices need 64 bits."""


def planned_pooling(name: str, shape: ConvolutionShape, dtype: str, *, aligned: bool) -> PlannedKernel:
    """Return the kernel called ``max_pool``, ``avg_pool`` or one of these with ``_gradient`` for images of a shape."""
    images, height, width, channels = shape.x
    _, rows, columns, _ = shape.y
    most = VECTOR_BYTES // np.dtype(dtype).itemsize
    vector = most if aligned and channels % most == 0 else 1
    pixels = images * (height * width if name.endswith("_gradient") else rows * columns)
    size = pixels * channels // vector
    wide = max(images * height * width, images * rows * columns) * channels >= INDEX32_LIMIT - THREADS
    form = _PoolingForm(vector, shape.w[1], shape.stride, shape.padding, wide)
    numbers = (size, channels // vector, height, width, rows, columns)
    source, number = partial(_pooling_source, name, dtype, form), c_longlong if wide else c_int
    return PlannedKernel(source, -(-size // THREADS), THREADS, numbers, number, stages=1 + name.endswith("_gradient"))


@lru_cache(maxsize=256)
def _pooling_source(name: str, dtype: str, form: _PoolingForm) -> KernelSource:
    """Return a kernel: ``(x, out, ...)``, or for a gradient ``(dy, out, ...)`` or ``(dy, x, y, out, ...)``; see `planned_pooling`."""
    element, largest = STORAGE[dtype], name.startswith("max")
    places = {"threads": THREADS, "element": element}
    places |= {"vector": form.vector, "window": form.window, "stride": form.stride, "padding": form.padding}
    mean = f"real({form.window * form.window})"
    arithmetic = fill(
        _CUDA["arithmetic"],
        real=COMPUTE[dtype],
        index="long long" if form.wide else "int",
        infinite=INFINITY[dtype],
    )
    if name.endswith("_gradient"):
        gradient = loaded(dtype, "gradient.item[k]")
        before = "pixels[(row * width + column) * channels * $vector + k]".replace("$vector", str(form.vector))
        first = fill(
            _CUDA["added_if_first"],
            **places,
            own_value=loaded(dtype, "own.item[k]"),
            largest_value=loaded(dtype, "largest.item[k]"),
            before_value=loaded(dtype, before),
            gradient_value=gradient,
        )
        kernel = fill(
            _CUDA["backward"],
            **places,
            parameters=", ".join(f"const {element}* {each}" for each in (("dy", "x", "y") if largest else ("dy",))),
            own=fill(_CUDA["own"], **places) if largest else "",
            added=first if largest else fill(_CUDA["added"], **places, gradient_value=gradient),
            write=stored(dtype, "result.item[k]", "total[k]" if largest else f"total[k] / {mean}"),
        )
    else:
        value = loaded(dtype, "values.item[k]")
        kernel = fill(
            _CUDA["forward"],
            **places,
            start="lowest()" if largest else "0",
            unrolled="#pragma unroll" if form.window <= _UNROLLED else "#pragma unroll 1",
            joined=f"larger(total[k], {value})" if largest else f"total[k] + {value}",
            write=stored(dtype, "result.item[k]", "total[k]" if largest else f"total[k] / {mean}"),
        )
    title = f"{name}_{form.window}_{form.stride}_{form.padding}_{dtype}_x{form.vector}{'_wide' * form.wide}"
    return named_source(title, f"{vector_types(dtype)}{arithmetic}\n{kernel}")
