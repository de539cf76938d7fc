"""Element-wise kernels fitted to arrays: the layout made compact, the widest form that the alignment allows, the arguments."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from streamscope.kernels.elementwise.elementwise_source import elementwise_source, placed_arrays
from streamscope.kernels.form import DEFAULT, THREADS, Variant, choose_form
from streamscope.kernels.layout import StridedLayout, broadcast_strides, compact, layout_numbers, row_major
from streamscope.kernels.signature import Signature
from streamscope.kernels.source import KernelSource

if TYPE_CHECKING:
    from streamscope.devices.cuda import CudaBench, CudaCall

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Fitted:
    """A kernel that fits some arrays, and what it is launched with besides them.

    Attributes
    ----------
    source : KernelSource
    blocks : int
        0 for empty arrays: nothing is launched.
    size : int
        Elements of the result.
    lead : int, optional
        Elements by which all arrays begin behind a vector boundary; None where the kernel has no masks, and so does not ask.
    numbers : tuple of int
        The kernel's layout argument; empty where it has none.
    """

    source: KernelSource
    blocks: int
    size: int
    lead: int | None
    numbers: tuple[int, ...]


def fitted(
    signature: Signature,
    shapes: Sequence[Shape],
    strides: Sequence[Sequence[int]],
    addresses: Sequence[int] | None = None,
    variant: Variant = DEFAULT,
) -> Fitted:
    """Return the kernel for arrays of these shapes and strides, at these addresses.

    Parameters
    ----------
    signature : Signature
    shapes : sequence of tuple of int
        Of the operands that are arrays, and of the result.
    strides : sequence of sequence of int
        In elements.
    addresses : sequence of int, optional
        Of first elements; by default those of fresh allocations.
    variant : Variant
    """
    target, size = shapes[-1], math.prod(shapes[-1])
    walked = [broadcast_strides(shape, steps, target) for shape, steps in zip(shapes, strides, strict=True)]
    layout = compact(target, walked) if size else StridedLayout((1,), ((1,),) * len(shapes))
    choice = choose_form(layout, [np.dtype(dtype).itemsize for dtype in signature.dtypes], addresses, variant)
    placed = placed_arrays(signature, choice.form)
    numbers = tuple(layout_numbers(layout, placed)) if placed else ()
    lead = choice.lead if choice.form.masked else None
    return Fitted(elementwise_source(signature, choice.form), choice.form.blocks(size, choice.lead), size, lead, numbers)


@lru_cache(maxsize=4096)
def fitted_fresh(signature: Signature, shapes: tuple[Shape, ...], variant: Variant = DEFAULT) -> Fitted:
    """Return the kernel for freshly allocated arrays of these shapes: contiguous, and aligned."""
    return fitted(signature, shapes, [row_major(shape) for shape in shapes], variant=variant)


def bind(
    bench: CudaBench, signature: Signature, arrays: Sequence[Any], scalars: Mapping[str, Any], variant: Variant | None = None
) -> CudaCall:
    """Prepare the launch of an element-wise kernel.

    Parameters
    ----------
    bench : CudaBench
    signature : Signature
    arrays : sequence of CuPy array
        The operands that are arrays, in order, and the result.
    scalars : mapping of str to number
        The other operands, by name.
    variant : Variant, optional
        By default the one that tuning has chosen on the bench's device, where it has.
    """
    shapes, addresses = [array.shape for array in arrays], [array.data.ptr for array in arrays]
    strides = [[step // array.itemsize for step in array.strides] for array in arrays]
    kernel = fitted(signature, shapes, strides, addresses, variant or DEFAULT)
    if variant is None and bench.tuned is not None:
        chosen = bench.tuned.of(kernel.source, kernel.size)
        if chosen is not None:
            kernel = fitted(signature, shapes, strides, addresses, chosen)
    arguments = [*signature.arguments(arrays, scalars), arrays[-1], ctypes.c_longlong(kernel.size)]
    if kernel.lead is not None:
        arguments.append(ctypes.c_int(kernel.lead))
    if kernel.numbers:
        arguments.append((ctypes.c_longlong * len(kernel.numbers))(*kernel.numbers))
    return bench.kernel(kernel.source, kernel.blocks, THREADS, arguments)
