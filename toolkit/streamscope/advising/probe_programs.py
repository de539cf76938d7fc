"""Small programs whose times show what launches, graphs and second streams cost."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from streamscope.ops import add
from streamscope.ops.softmaxes import softmax
from streamscope.program.symbol import Symbol
from streamscope.program.tracer import empty
from streamscope.tracing import ProgramFunction, program

Inputs = tuple[npt.NDArray[np.float32], ...]

ROWS = 2
"""Rows of a branch's arrays: a softmax has one block for each, so that two of them have room side by side on any GPU."""


def chain(length: int, size: int) -> tuple[ProgramFunction, Inputs]:
    """Return additions of ``size`` float32 values, each on the result of the one before, and their inputs."""

    @program
    def chain(x: Symbol, step: Symbol) -> Symbol:
        total = empty(size)
        add(x, step, out=total)
        for _ in range(length - 1):
            add(total, step, out=total)
        return total

    return chain, (np.zeros(size, np.float32), np.full(size, 1e-3, np.float32))


def forked(blocks: int, length: int, columns: int) -> tuple[ProgramFunction, Inputs]:
    """Return blocks of two independent branches that meet in an addition, and their input.

    A branch has ``length`` softmax kernels on a few long rows: they run as long as one wishes and leave most of a GPU free.
    """

    @program
    def forked(x: Symbol) -> Symbol:
        for _ in range(blocks):
            left, right = x, x
            for _ in range(length):
                left, right = softmax(left), softmax(right)
            x = add(left, right)
        return x

    return forked, (np.ones((ROWS, columns), np.float32),)
