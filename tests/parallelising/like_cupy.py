"""Arrays like CuPy's, in the memory of NumPy's."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np


class Like:
    """An array like CuPy's."""

    __cuda_array_interface__ = None

    def __init__(self, values):
        self.values = values
        self.shape, self.dtype, self.strides, self.size = values.shape, values.dtype, values.strides, values.size
        self.itemsize = values.itemsize
        self.device = SimpleNamespace(id=0)
        self.data = SimpleNamespace(ptr=values.ctypes.data)

    @property
    def nbytes(self):
        return self.values.nbytes

    def copy(self, order="K"):
        return Like(self.values.copy(order=order))

    def __setitem__(self, where, other):
        self.values[where] = other.values

    def __getitem__(self, where):
        return Like(self.values[where])


def filled(value, count=4):
    return Like(np.full(count, float(value)))
