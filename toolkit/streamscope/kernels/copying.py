"""Copies of views: what lies in any steps is put together, one element after the other. The bits are copied, whatever they mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from streamscope.kernels.elementwise.specialization import bind
from streamscope.kernels.signature import Parameter, Signature
from streamscope.program.launch import CudaBench, CudaCall

WORDS = {1: "uint8", 2: "int16", 4: "int32", 8: "int64"}
"""Dtype of the whole numbers that elements of so many bytes are copied as."""


@cache
def copy_signature(itemsize: int) -> Signature:
    """Return what the kernel computes that copies elements of so many bytes."""
    word = WORDS[itemsize]
    return Signature("copy", (Parameter("x", word, word),), word, "x", word)


@dataclass(frozen=True)
class CopyCall:
    """What prepares the launch of a copy: a `Launch.cuda`.

    Attributes
    ----------
    shape : tuple of int
        Of what is copied; the result may have another one, with the elements in the same order.
    """

    shape: tuple[int, ...]

    def __call__(self, bench: CudaBench, reads: Sequence[Any], writes: Sequence[Any]) -> CudaCall:
        """Prepare the launch."""
        (source,), (target,) = reads, writes
        return bind(bench, copy_signature(source.itemsize), [source, target.reshape(self.shape)], {})
