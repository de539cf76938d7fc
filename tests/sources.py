"""Generated sources of an element-wise operator, for operands by their dtypes."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

import streamscope as ss
from streamscope.kernels.compile.program_kernels import program_kernels
from streamscope.kernels.form import Variant


def _is_dtype(operand):
    return isinstance(operand, str | np.dtype)


def source_of(operator, *operands, shapes=None, request="write", items=None, gradient_of=None):
    """Return the source of the kernel for operands in fresh memory: dtypes of arrays, which have one large shape by default, and numbers.

    ``items`` are the vectors that a thread has in flight; with ``gradient_of`` it is the gradient of an operand, by its name.
    """
    names = operator.definition.operands
    arrays = [name for name, operand in zip(names, operands, strict=True) if _is_dtype(operand)]
    dtypes = [operand for operand in operands if _is_dtype(operand)]
    specs = [ss.ArraySpec(shape, dtype) for shape, dtype in zip(shapes or [(2**20,)] * len(dtypes), dtypes, strict=True)]

    def given(symbols):
        variables = dict(zip(arrays, symbols, strict=True))
        return [variables.get(name, operand) for name, operand in zip(names, operands, strict=True)]

    def result_of(*symbols):
        return operator(*given(symbols))

    program = ss.program(result_of).trace(*specs)
    result = program.variables[program.outputs[0]].spec
    if gradient_of is not None:
        program = ss.program(lambda dy, *symbols: operator.gradient(dy, *given(symbols))).trace(result, *specs)
    elif request == "add":
        program = ss.program(lambda out, *symbols: operator(*given(symbols), out=out, request="add")).trace(result, *specs)
    tuned = None if items is None else SimpleNamespace(of=lambda source, size: Variant(items=items))
    start = "" if gradient_of is None else f"{operator.__name__}_gradient_" + f"{gradient_of}_" * (len(names) > 1)
    return "\n".join(kernel.code for kernel in program_kernels(program, tuned) if kernel.name.startswith(start))
