"""Element-wise operators of the user's own, from one line of CUDA."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from streamscope.arguments import Kinds, are_strings, check_kinds
from streamscope.errors import ProgramError
from streamscope.kernels.elementwise.compiler_errors import Written, note
from streamscope.kernels.expression.expressions import compiled, names_in
from streamscope.kernels.expression.functions import OF_WHOLE, UnknownExpressionError
from streamscope.kernels.expression.tokens import RESERVED, tokens
from streamscope.ops.definition import Definition
from streamscope.ops.elementwise_operator import Elementwise
from streamscope.program.user_line import user_line

DEEPEST, _MOST_WORDS = 64, 8000
"""Limits of a text's brackets and words: NVRTC ends the process for 4,000 levels in a thread, and takes minutes for 400 kB."""
_LINE = re.compile(r"\s*([A-Za-z_]\w*)\s*=(?!=)(.+)", re.DOTALL)


def elementwise(
    line: str,
    *,
    name: str | None = None,
    operands: Sequence[str] | None = None,
    gradient: Mapping[str, str] | None = None,
    reference: Callable[..., Any] | None = None,
    like: np.ufunc | None = None,
) -> Elementwise:
    """Make an element-wise operator of one line of CUDA; it broadcasts, promotes and loads vectors like all others.

    For example ``ss.elementwise("y = x > 0 ? x : a * x", gradient={"x": "x > 0 ? dy : a * dy"})``. In the expression, ``T`` is the type
    of arithmetic (write ``T(0.5)`` so that float stays float); half is computed in float.

    Operands are converted to the dtypes that NumPy's function takes them in (see ``like``). So an int32 beside a float32 is a double,
    and the result is one. In a line, or with gradients, that use an operator of whole numbers (``% & | ^ ~ << >>``), whole numbers stay
    whole: ``y = (k & 1) ? x : 0`` takes an int32 ``k`` and a float32 ``x``. They meet the others as in C: ``(k >> 1) / 2`` is whole,
    ``k * x`` is a double. The result's dtype is the same in both cases.

    Parameters
    ----------
    line : str
        ``result = expression``, of at most 8,000 words, nested at most 64 levels deep.
    name : str, optional
        Name in timelines; by default the result's name.
    operands : sequence of str, optional
        The operands' names; by default in order of appearance.
    gradient : mapping of str to str, optional
        For operands that have one, the CUDA expression of their gradient: over the operands, the result (``y``) and its gradient (``dy``).
    reference : callable, optional
        NumPy function of the operands. By default the expression itself is evaluated in NumPy, with C's types of numbers and the device's
        conversions; one with unknown functions runs on CUDA only. Whole numbers are NumPy's: they wrap, and give 0 where they
        are divided by zero or shifted left by their width.
    like : numpy.ufunc, optional
        Whose dtypes it has: by default those of ``np.add``; ``np.exp`` makes whole numbers floating, ``np.less`` gives bools.

    Raises
    ------
    ProgramError
        The line is not an assignment, or a name is reserved or unknown.
    CompilationError
        NVRTC rejects the expression, where the operator's kernel is compiled; the message shows this line.

    Examples
    --------
    >>> leaky = ss.elementwise("y = x > 0 ? x : a * x", gradient={"x": "x > 0 ? dy : a * dy"})
    >>> with ss.Engine(device="simulated") as engine:
    ...     print(engine.run(ss.program(lambda x: leaky(x, 0.5)), np.array([-2.0, 3.0])))
    [-1.  3.]
    """
    check_kinds("ss.elementwise", _KINDS, line, name, operands, gradient, reference, like)
    match = _LINE.fullmatch(line)
    # No part of the pattern, which would try all ways to share out the spaces.
    right = "" if match is None else match[2].strip().removesuffix(";").rstrip()
    if match is None or not right:
        raise ProgramError(f"ss.elementwise: {line!r} is not an assignment", hint='write for example "y = a * x + b"')
    result, expression = match[1], _in_one_line(right)
    called = result if name is None else name
    written = {operand: _in_one_line(text) for operand, text in (gradient or {}).items()}
    for whose, text in [(_title(called), expression), *((_title(called, operand), text) for operand, text in written.items())]:
        _check_expression(whose, text)
    named = tuple(operands) if operands is not None else tuple(names_in(expression))
    _check_names(called, result, expression, named, written)
    definition = Definition(
        name=called,
        summary=f"Return ``{expression}``.",
        operands=named,
        expression=expression,
        like=like or (np.add if len(named) > 1 else np.positive),
        reference=reference,
        vouched=reference is not None,
        unknown="" if reference is not None else _unknown(expression),
        keep_whole=any(token.text in OF_WHOLE for text in (expression, *written.values()) for token in tokens(text)),
        gradient=None if gradient is None else tuple(_with_dy(result, written.get(operand)) for operand in named),
        result=result,
    )
    texts = (expression, *(text for text in definition.gradient or () if text is not None))
    note(Written(called, f"{result} = {expression}", texts, user_line()))
    return Elementwise(definition)


_KINDS: Kinds = {
    "line": (lambda value: isinstance(value, str), 'a text like "y = a * x + b"'),
    "name": (lambda value: value is None or isinstance(value, str), "a text"),
    "operands": (lambda value: value is None or are_strings(value), 'names, for example ["x", "a"]'),
    "gradient": (
        lambda value: value is None or (isinstance(value, Mapping) and are_strings(value) and are_strings(value.values())),
        'expressions by operand, for example {"x": "a * dy"}',
    ),
    "reference": (lambda value: value is None or callable(value), "a function of NumPy arrays"),
    "like": (
        lambda value: value is None or (isinstance(value, np.ufunc) and value.nout == 1),
        "a NumPy function with dtypes, for example np.exp",
    ),
}


def _in_one_line(text: str) -> str:
    return re.sub(r"\s", " ", text)


def _with_dy(result: str, text: str | None) -> str | None:
    return None if text is None else re.sub(rf"\bd{result}\b", "dy", text)


def _check_names(called: str, result: str, expression: str, operands: Sequence[str], gradient: Mapping[str, str]) -> None:
    def require(condition: bool, problem: str, hint: str) -> None:  # noqa: FBT001 — the condition is the point
        if not condition:
            raise ProgramError(f"ss.elementwise {called!r}: {problem}", hint=hint)

    def usable(word: str) -> bool:
        good = word.isidentifier() and word.isascii() and not word.startswith("__")
        return good and word not in RESERVED and word not in ("dy", f"d{result}")

    require(called.isidentifier() and called.isascii(), "the name must be an identifier", "kernels are named after it")
    require(bool(operands), f"{expression!r} has no operands", "name at least one")
    require(len(set(operands)) == len(operands), f"operands {', '.join(operands)} are not different", "name each once")
    for operand in operands:
        problem = f"{operand!r} cannot be a name of an operand, or of the result"
        require(usable(operand), problem, "use another: it means something in CUDA, or in gradients")
    require(result not in operands, f"{result!r} is the result and an operand", "give out= where it is applied to update in place")
    unknown = [operand for operand in names_in(expression) if operand not in operands]
    require(not unknown, f"{', '.join(unknown)} is not an operand", f"operands are {', '.join(operands)}")
    strange = [operand for operand in gradient if operand not in operands]
    require(not strange, f"gradient of {', '.join(strange)}, which is not an operand", f"operands are {', '.join(operands)}")
    known = {*operands, result, f"d{result}"}
    for operand, text in gradient.items():
        unknown = [each for each in names_in(text) if each not in known]
        require(not unknown, f"the gradient of {operand} names {', '.join(unknown)}", f"it may name {', '.join(sorted(known))}")
        named = names_in(text)
        forgotten = f"d{result}" not in named and any(each in named for each in (*operands, result))
        require(not forgotten, f"the gradient of {operand} does not name d{result}", f"multiply with it: d{result} * ({text})")


def _unknown(expression: str) -> str:
    """Return the part of an expression that has no meaning in NumPy."""
    try:
        compiled(expression)
    except UnknownExpressionError as error:
        return str(error)
    return ""


def _title(operator: str, gradient_of: str | None = None) -> str:
    """Name an expression, for messages: the operator's result, or an operand's gradient."""
    return f"ss.elementwise {operator!r}" + ("" if gradient_of is None else f", gradient of {gradient_of}")


def _check_expression(whose: str, expression: str) -> None:
    """Raise a `ProgramError` where a text would not stay one expression in a kernel, or would keep NVRTC busy for minutes."""
    foreign = re.search(r"//|/\*|<%|%>|%:|[;{}#\"'\\@$`]", expression)
    if foreign is not None:
        raise ProgramError(
            f"{whose}: {foreign[0]!r} has no place in {expression!r}", hint="give one expression; more goes into a kernel: ss.operator"
        )
    words, levels = sum(1 for _ in islice(tokens(expression), _MOST_WORDS + 1)), _nesting(expression)
    if words > _MOST_WORDS:
        raise ProgramError(f"{whose}: the expression has more than {_MOST_WORDS:,} words", hint="make several operators of it")
    if levels > DEEPEST:
        raise ProgramError(
            f"{whose}: the expression is nested {levels:,} levels deep, and the most is {DEEPEST}", hint="make several operators of it"
        )


def _nesting(expression: str) -> int:
    """Return how deep the brackets of an expression are nested."""
    deepest = level = 0
    for bracket in re.findall(r"[()\[\]]", expression):
        level = level + 1 if bracket in "([" else max(0, level - 1)
        deepest = max(deepest, level)
    return deepest
