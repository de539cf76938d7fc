"""Operators of one line, told where their expressions do not suit what they are applied to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from streamscope.errors import ProgramError
from streamscope.kernels.compile.groups import file_directive, nesting, unbalanced
from streamscope.kernels.expression.expressions import mistake_for
from streamscope.kernels.expression.mistakes import DEEPEST, mistake_in, unknown_function
from streamscope.kernels.expression.promotion import DType, Promoted, arithmetic
from streamscope.kernels.expression.tokens import Mistake
from streamscope.ops.application import Request
from streamscope.ops.definition import Definition
from streamscope.ops.pointwise import Elementwise, Scalars
from streamscope.program.symbol import Symbol
from streamscope.program.variable import ArraySpec

_WHOLE, _FLOATING = np.dtype(np.int32), np.dtype(np.float32)


class CheckedLine(Elementwise):
    """An element-wise operator of one line, which refuses operands whose dtypes its operators have no meaning for.

    Parameters
    ----------
    definition : Definition
    gradients : mapping of str to str
        The gradients' expressions by operand, as the user wrote them.
    """

    def __init__(self, definition: Definition, gradients: Mapping[str, str]) -> None:
        super().__init__(definition)
        self._gradients = gradients

    def promoted(self, specs: Sequence[ArraySpec], scalars: Scalars) -> Promoted:
        """Return the dtypes that the operands are taken in, and the result's."""
        promoted = super().promoted(specs, scalars)
        self._check(title(self.__name__), self.definition.expression, promoted, {})
        return promoted

    def gradient(self, dy: object, *operands: object, out: object = None, request: Request = "write") -> Any:
        """Return the gradient of each operand, inside a program; see `Elementwise.gradient`."""
        arrays, scalars = self.sorted_operands(operands)
        if self._gradients and isinstance(dy, Symbol) and dy.dtype.kind == "f" and all(isinstance(array, Symbol) for array in arrays):
            promoted = self.promoted([array.spec for array in arrays], scalars)
            for name, operand in zip(self.definition.operands, operands, strict=True):
                if isinstance(operand, Symbol) and operand.dtype.kind == "f":
                    self.check_gradient(name, promoted)
        return super().gradient(dy, *operands, out=out, request=request)

    def check_gradient(self, name: str, promoted: Promoted) -> None:
        """Check the expression of an operand's gradient, if it has one, for the dtypes of the operands; the result's is taken in its dtype.

        Raises
        ------
        ProgramError
            It has no meaning for them.
        """
        if name in self._gradients:
            result = self.definition.result
            of_result = {f"d{result}": arithmetic(promoted.result), result: arithmetic(promoted.first)}
            self._check(title(self.__name__, name), self._gradients[name], promoted, of_result)

    def _check(self, whose: str, expression: str, promoted: Promoted, of_result: Mapping[str, DType]) -> None:
        if self.definition.functions:
            return  # They may take what C's operators do not.
        taken = dict(zip(self.definition.operands, promoted.taken, strict=True))
        computed = {name: arithmetic(dtype) for name, dtype in taken.items()}
        dtypes = {**computed, **of_result, "T": arithmetic(promoted.first)}
        mistake = mistake_for(expression, tuple(dtypes.items()))
        if mistake is not None:
            operands = ", ".join(f"{name} {dtype.name}" for name, dtype in taken.items())
            raise refusal(f"{whose} of {operands}", mistake, expression)


def title(operator: str, gradient_of: str | None = None) -> str:
    """Return what messages call an expression: that of the operator's result, or of an operand's gradient."""
    return f"ss.elementwise {operator!r}" + ("" if gradient_of is None else f", gradient of {gradient_of}")


def check_syntax(whose: str, expression: str) -> None:
    """Check what shows without knowing what names mean.

    Raises
    ------
    ProgramError
        It is no expression of C++.
    """
    mistake = mistake_in(expression)
    if mistake is not None:
        raise refusal(whose, mistake, expression)


def check_functions(operator: str, functions: str) -> None:
    """Check that the source of the user's own functions is all that they are made of.

    Raises
    ------
    ProgramError
        It reads files, is nested too deeply, or leaves a bracket open or one too many.
    """
    directive = file_directive(functions)
    if directive is not None:
        raise ProgramError(
            f"{title(operator)}: functions= reads a file, by {directive}",
            hint="write the functions' source itself: machine code is cached by its source, which tells nothing of a file's content",
        )
    levels = nesting(functions)
    if levels > DEEPEST:
        raise ProgramError(f"{title(operator)}: functions= is nested {levels:,} levels deep", hint=f"the most is {DEEPEST}")
    bracket = unbalanced(functions)
    if bracket is not None:
        raise ProgramError(f"{title(operator)}: in functions=, {bracket!r} has no partner", hint="close what is opened, and nothing else")


def check_meaning(whose: str, expression: str, names: Sequence[str], functions: str, *, floating: Sequence[str], vouched: bool) -> None:
    """Check the functions that an expression calls, and its operators as far as that is possible without the dtypes of its operands.

    Parameters
    ----------
    whose : str
        The expression's `title`.
    expression : str
    names : sequence of str
        What the expression may name.
    functions : str
        CUDA source of the user's own functions.
    floating : sequence of str
        Names of what is a floating-point number in any case.
    vouched : bool
        Whether the user gave a reference, and so answers for functions that are unknown here.

    Raises
    ------
    ProgramError
        It is wrong for all dtypes.
    """
    mistake = unknown_function(expression, frozenset(names), functions, vouched=vouched)
    if mistake is None and not functions:  # which may take what C's operators do not
        # Whole numbers have every operator, so what is wrong for them is wrong for all.
        dtypes = tuple((name, _FLOATING if name in floating else _WHOLE) for name in (*names, "T"))
        mistake = mistake_for(expression, dtypes, exact=False)
    if mistake is not None:
        raise refusal(whose, mistake, expression)


def refusal(whose: str, mistake: Mistake, expression: str) -> ProgramError:
    """Return the error for a mistake in an expression."""
    return ProgramError(f"{whose}: {mistake.shown(expression)}", hint=mistake.hint)
