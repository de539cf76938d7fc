"""Signature of a generated element-wise kernel: an expression over named operands, with all dtypes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from streamscope.kernels.expression.functions import functions_source
from streamscope.kernels.expression.promotion import arithmetic
from streamscope.kernels.expression.wrapping import wrapped
from streamscope.kernels.source import COMPUTE, STORAGE

RESULT = "out"
"""Name of the result's array in kernels."""


@cache
def ctype_of(dtype: str) -> Callable[[Any], Any]:
    """Return ctypes' type of numbers of a dtype as a kernel takes them: half as float."""
    kind: Callable[[Any], Any] = np.ctypeslib.as_ctypes_type(arithmetic(np.dtype(dtype)))
    return kind


@dataclass(frozen=True)
class Parameter:
    """One operand of an expression."""

    name: str
    """Name in the expression."""
    stored: str
    """Dtype in memory."""
    taken: str
    """Dtype that the expression sees; half is float in arithmetic."""
    scalar: bool = False
    """An argument of the kernel instead of an array."""

    @property
    def argument(self) -> str:
        """Name of its array or number in the kernel: no name of the kernel's own begins so, whatever the expression's name is."""
        return f"in_{self.name}"


@dataclass(frozen=True)
class Signature:
    """An expression over operands of known dtypes."""

    name: str
    """Readable name of the operator."""
    parameters: tuple[Parameter, ...]
    result: str
    """Dtype of the result."""
    expression: str
    """CUDA expression over the parameters' names, and over ``T``, the type of arithmetic."""
    arithmetic: str
    """Dtype that ``T`` stands for; half stands for float."""
    lets: tuple[tuple[str, str], ...] = ()
    """Names with the expressions that they stand for, computed first; of type ``T``."""
    accumulate: bool = False
    """The value is added to the result instead of replacing it."""
    wraps: bool = False
    """Whole numbers that overflow wrap, and give 0 where they are divided by zero, as in NumPy
    (`streamscope.kernels.expression.wrapping`)."""

    @property
    def arrays(self) -> tuple[Parameter, ...]:
        """The operands that are arrays."""
        return tuple(parameter for parameter in self.parameters if not parameter.scalar)

    @property
    def updated(self) -> tuple[Parameter, ...]:
        """The operands whose arrays are written, too: ``value`` sets the ``new_`` of each."""
        return ()

    @property
    def dtypes(self) -> list[str]:
        """Stored dtypes of all arrays, the result last."""
        return [parameter.stored for parameter in self.arrays] + [self.result]

    @property
    def title(self) -> str:
        """Readable beginning of the kernel's name: the operator and the dtypes, each once where they are all the same."""
        return "_".join([self.name, *(self.dtypes[:1] if len(set(self.dtypes)) == 1 else self.dtypes), *["to"] * self.accumulate])

    @property
    def declarations(self) -> list[str]:
        """Parameters of a kernel for the operands, in order, and for the result."""
        pointers = {each: f"{STORAGE[each.stored]}*" if each in self.updated else f"const {STORAGE[each.stored]}*" for each in self.arrays}
        operands = [f"{pointers.get(each, COMPUTE[each.taken])} {each.argument}" for each in self.parameters]
        return [*operands, f"{STORAGE[self.result]}* {RESULT}"]

    def arguments(self, arrays: Sequence[Any], numbers: Mapping[str, Any]) -> list[Any]:
        """Return the launch arguments for the operands, in order: arrays as they are, numbers in their C++ types."""
        operands = iter(arrays)
        return [ctype_of(each.taken)(numbers[each.name].item()) if each.scalar else next(operands) for each in self.parameters]

    def device_functions(self) -> str:
        """Return the device functions that the expression calls, but for the shared ones."""
        return ""

    def value_source(self) -> str:
        """Return the device function ``value`` of one element of each operand, with the functions that it calls."""
        texts = [self.expression, *(text for _, text in self.lets), self.device_functions()]
        return functions_source(texts) + self.own_source()

    def own_source(self) -> str:
        """Return the device function ``value`` with the functions that it calls, but for the shared ones."""
        taken = [f"{COMPUTE[parameter.taken]} {parameter.name}" for parameter in self.parameters]
        parameters = ", ".join([*taken, *(f"{COMPUTE[parameter.taken]}& new_{parameter.name}" for parameter in self.updated)])
        texts = [self.expression, *(text for _, text in self.lets)]
        lines = [f"const T {name} = {self._compiled(text)}" for name, text in self.lets] + [f"return {self._compiled(self.expression)}"]
        if self.lets or any(re.search(r"\bT\b", text) for text in texts):
            lines.insert(0, f"using T = {COMPUTE[self.arithmetic]};")
        body = "\n".join(f"    {line}" for line in lines)
        return f"{self.device_functions()}__device__ inline {COMPUTE[self.result]} value({parameters})\n{{\n{body}\n}}\n"

    def _compiled(self, expression: str) -> str:
        """Return the end of the statement that computes an expression, with a comment that holds it where something else is compiled."""
        code = wrapped(expression, self._computed_dtypes()) if self.wraps else expression
        return f"{expression};" if code == expression else f"{code};  // {expression}"

    def _computed_dtypes(self) -> tuple[tuple[str, np.dtype[Any]], ...]:
        """Return the dtypes of the expression's names, as the kernel computes with them."""
        dtypes = {parameter.name: parameter.taken for parameter in self.parameters}
        dtypes |= dict.fromkeys(("T", *(name for name, _ in self.lets)), self.arithmetic)
        return tuple((name, arithmetic(np.dtype(dtype))) for name, dtype in dtypes.items())
