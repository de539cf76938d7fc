"""The launch of a generated element-wise kernel as data, so that it can be looked into: fusion makes one of several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from streamscope.kernels.elementwise.fitting import bind
from streamscope.kernels.form import Variant
from streamscope.kernels.signature import Signature

if TYPE_CHECKING:
    from streamscope.devices.cuda import CudaBench, CudaCall


@dataclass(frozen=True)
class ElementwiseCall:
    """What prepares the launch of an element-wise kernel: a `Launch.cuda`.

    Attributes
    ----------
    signature : Signature
    numbers : mapping of str to number
        The operands that are no arrays, by name.
    """

    signature: Signature
    numbers: Mapping[str, np.generic]

    def __call__(self, bench: CudaBench, reads: Sequence[Any], writes: Sequence[Any], variant: Variant | None = None) -> CudaCall:
        """Prepare the launch; where it accumulates, the last array that it reads is the one it writes."""
        return bind(bench, self.signature, [*reads[: len(self.signature.arrays)], *writes], self.numbers, variant)
