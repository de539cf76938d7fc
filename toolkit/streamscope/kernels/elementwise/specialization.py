"""Element-wise kernels specialized for arrays: the layout made compact, the widest form that the alignment allows, the arguments."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from streamscope.kernels.elementwise.elementwise_source import elementwise_source, placed_arrays
from streamscope.kernels.form import DEFAULT, THREADS, Form, Variant, choose_form
from streamscope.kernels.layout import StridedLayout, broadcast_strides, compact, layout_numbers
from streamscope.kernels.signature import Signature
from streamscope.kernels.source import KernelSource
from streamscope.program.launch import CudaBench, CudaCall
from streamscope.program.view import row_major

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Specialized:
    """A kernel that suits some arrays, and its other launch arguments."""

    signature: Signature
    form: Form
    blocks: int
    """0 for empty arrays: nothing is launched."""
    size: int
    """Elements of the result."""
    lead: int | None
    """Elements by which all arrays begin behind a vector boundary; None where the kernel has no masks, and so does not ask."""
    numbers: tuple[int, ...]
    """The kernel's layout argument; empty where it has none."""

    @property
    def source(self) -> KernelSource:
        """The kernel's source, made when it is first asked for."""
        return elementwise_source(self.signature, self.form)


def specialized(
    signature: Signature,
    shapes: Sequence[Shape],
    strides: Sequence[Sequence[int]],
    addresses: Sequence[int] | None = None,
    variant: Variant = DEFAULT,
) -> Specialized:
    """Return the kernel for operands that are arrays, and a result, of these shapes and strides (in elements).

    Addresses are those of first elements; by default those of fresh allocations.
    """
    target, size = shapes[-1], math.prod(shapes[-1])
    walked = [broadcast_strides(shape, steps, target) for shape, steps in zip(shapes, strides, strict=True)]
    layout = compact(target, walked) if size else StridedLayout((1,), ((1,),) * len(shapes))
    form, lead = choose_form(layout, [np.dtype(dtype).itemsize for dtype in signature.dtypes], addresses, variant)
    placed = placed_arrays(signature, form)
    numbers = tuple(layout_numbers(layout, placed)) if placed else ()
    return Specialized(signature, form, form.blocks(size, lead), size, lead if form.masked else None, numbers)


@lru_cache(maxsize=4096)
def specialized_fresh(signature: Signature, shapes: tuple[Shape, ...], variant: Variant = DEFAULT) -> Specialized:
    """Return the kernel for freshly allocated arrays of these shapes: contiguous, and aligned."""
    return specialized(signature, shapes, [row_major(shape) for shape in shapes], variant=variant)


def bind(
    bench: CudaBench, signature: Signature, arrays: Sequence[Any], scalars: Mapping[str, Any], variant: Variant | None = None
) -> CudaCall:
    """Prepare the launch of an element-wise kernel.

    ``arrays``: the operands that are arrays, in order, and the result.
    ``scalars``: the other operands, by name.
    ``variant``: by default the one that tuning has chosen on the bench's device, where it has.
    """
    shapes, addresses = [array.shape for array in arrays], [array.data.ptr for array in arrays]
    strides = [[step // array.itemsize for step in array.strides] for array in arrays]
    kernel = specialized(signature, shapes, strides, addresses, variant or DEFAULT)
    if variant is None and bench.tuned is not None:
        chosen = bench.tuned.of(kernel.source, kernel.size)
        if chosen is not None:
            kernel = specialized(signature, shapes, strides, addresses, chosen)
    arguments = [*signature.arguments(arrays, scalars), arrays[-1], ctypes.c_longlong(kernel.size)]
    if kernel.lead is not None:
        arguments.append(ctypes.c_int(kernel.lead))
    if kernel.numbers:
        arguments.append((ctypes.c_longlong * len(kernel.numbers))(*kernel.numbers))
    return bench.kernel(kernel.source, kernel.blocks, THREADS, arguments)


@dataclass(frozen=True)
class ElementwiseCall:
    """Prepares the launch of an element-wise kernel: a `Launch.cuda`."""

    signature: Signature
    numbers: Mapping[str, np.generic]
    """The operands that are not arrays, by name."""

    def __call__(self, bench: CudaBench, reads: Sequence[Any], writes: Sequence[Any], variant: Variant | None = None) -> CudaCall:
        """Prepare the launch; where it accumulates, the last array that it reads is the one it writes. Others that it writes, it reads."""
        return bind(bench, self.signature, [*reads[: len(self.signature.arrays)], writes[-1]], self.numbers, variant)
