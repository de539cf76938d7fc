"""The element-wise operator: applies a definition to variables and Python numbers, and chooses the kernel that this takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from streamscope.arrays import Array
from streamscope.errors import ProgramError
from streamscope.kernels.elementwise.specialization import ElementwiseCall, specialized_fresh
from streamscope.kernels.expression import c_arithmetic
from streamscope.kernels.expression.expressions import compiled
from streamscope.kernels.expression.promotion import DType, Promoted, arithmetic, converted, kind_of, promote
from streamscope.kernels.form import THREADS
from streamscope.kernels.signature import Parameter, Signature
from streamscope.ops.application import Request, apply_request, require
from streamscope.ops.definition import Definition, Reference, call_signature, documentation, example_of
from streamscope.program.launch import Cost, Launch
from streamscope.program.symbol import Symbol
from streamscope.program.tracer import Application, Attributes, Backward, Operator, applies_operators, current_tracer
from streamscope.program.variable import ArraySpec
from streamscope.program.view import any_view

_LONG_FLOPS = 4
"""Of an element: so many follow each other, divisions and exponentials mostly, and take a thread about as long as waiting for others."""
_MOST_AXES = 32
"""Of arrays that NumPy broadcasts."""
Scalars = Mapping[str, Any]


@applies_operators
class Elementwise:
    """An element-wise operator.

    Apply it, inside a program, to variables that broadcast against each other and to Python numbers:

    - ``operator(a, b)`` returns a new variable;
    - ``operator(a, b, out=c)`` writes to a variable, which may be an operand (in place);
    - ``operator(a, b, out=c, request="add")`` adds to ``c``; ``request="null"`` checks the operands and does nothing.
    """

    def __init__(self, definition: Definition) -> None:
        self.definition = definition
        self.__name__ = definition.name
        code = f"{definition.whole} or {definition.expression}" if definition.whole else definition.expression
        gradient = "It has a gradient." if definition.gradient is not None else "It has no gradient."
        notes = f"Notes\n-----\nDtypes are those of ``np.{definition.like.__name__}``. CUDA: ``{code}``, half computed in float. {gradient}"
        self.__doc__ = documentation(definition.summary, Elementwise.__call__, notes, definition.example)
        self.__signature__ = call_signature(definition)
        rule = self._pulled_back if definition.gradient is not None else None
        self._operator = Operator(definition.name, self._infer, self._build, in_place=True, reads_view=any_view, gradient=rule)

    def __repr__(self) -> str:
        return f"<element-wise operator {self.definition.name}({', '.join(self.definition.operands)})>"

    def __call__(self, *operands: object, out: object = None, request: Request = "write") -> Symbol:
        """Apply the operator inside a program that is being traced.

        Parameters
        ----------
        operands : variable or number
            At least one is a variable. Shapes broadcast and dtypes promote as in NumPy.
        out : variable, optional
            Where the result goes, which may be an operand (in place); by default a new variable.
        request : {"write", "add", "null"}
            Whether ``out`` is replaced, added to or left alone.

        Raises
        ------
        ProgramError
            Called outside a program, or the operands do not fit.
        """
        arrays, scalars = self.sorted_operands(operands)
        return apply_request(self._operator, arrays, {"scalars": scalars} if scalars else {}, out, request)

    def update(self, target: Symbol, *operands: object) -> Symbol:
        """Write the result to a variable, or to a part of one, which keeps its shape and dtype, as NumPy does for ``x += y``."""
        arrays, scalars = self.sorted_operands(operands)
        return current_tracer(self.__name__).update(self._operator, arrays, {"scalars": scalars} if scalars else {}, target)

    def gradient(self, dy: object, *operands: object, out: object = None, request: Request = "write") -> Any:
        """Return the gradient of each operand, inside a program: one variable for one operand, else a tuple.

        It is computed by one kernel an operand, which also sums over the axes along which the operand was broadcast. Operands that are
        numbers, or whole numbers, or that the operator is not differentiable by, have None.

        Parameters
        ----------
        dy : variable
            Gradient of the result, of its shape.
        operands : variable or number
            The operator's operands.
        out : variable, or tuple of them, optional
            Where the gradients go, an entry for each operand; None in a tuple makes a new variable. It may be an operand that no other
            gradient reads once it is written.
        request : {"write", "add", "null"}
            Whether ``out`` is replaced, added to or left alone.

        Raises
        ------
        ProgramError
            The operator is not differentiable, or the operands do not fit.
        """
        from streamscope.ops.elementwise_gradients import gradients

        return gradients(self, dy, operands, out=out, request=request)

    def _pulled_back(self, backward: Backward) -> Sequence[Symbol | None]:
        from streamscope.ops.elementwise_gradients import pulled_back

        return pulled_back(self, backward)

    def signature(self, specs: Sequence[ArraySpec], scalars: Scalars, *, accumulate: bool = False) -> Signature:
        """Return the kernel's signature for arrays of these dtypes and these numbers."""
        scalar = tuple(name in scalars for name in self.definition.operands)
        return _signature(self.definition, self._kinds(specs, scalars), self.promoted(specs, scalars), scalar, accumulate)

    def promoted(self, specs: Sequence[ArraySpec], scalars: Scalars) -> Promoted:
        """Return the dtypes that the operands are taken in, and the result's."""
        return promote(self.__name__, self.definition.like, self._kinds(specs, scalars), keep_whole=self.definition.keep_whole)

    def _kinds(self, specs: Sequence[ArraySpec], scalars: Scalars) -> tuple[DType | type, ...]:
        arrays = iter(specs)
        return tuple(kind_of(scalars[name]) if name in scalars else next(arrays).dtype for name in self.definition.operands)

    def sorted_operands(self, operands: Sequence[object]) -> tuple[list[Any], dict[str, Any]]:
        """Return the operands that are arrays, in order, and the numbers by name."""
        names = self.definition.operands
        wanted = f"{len(names)} operand{'s' * (len(names) != 1)} ({', '.join(names)})"
        require(len(operands) == len(names), self.__name__, f"it takes {wanted}, got {len(operands)}")
        # NumPy's numbers hand themselves over as arrays without axes where they are compared with a variable.
        given = [operand[()] if isinstance(operand, np.ndarray) and operand.ndim == 0 else operand for operand in operands]
        scalars = {
            name: operand for name, operand in zip(names, given, strict=True) if isinstance(operand, bool | int | float | np.generic)
        }
        arrays = [operand for name, operand in zip(names, given, strict=True) if name not in scalars]
        require(bool(arrays), self.__name__, "all operands are numbers", "compute it in Python, or pass a variable")
        return arrays, scalars

    def _infer(self, specs: Sequence[ArraySpec], attributes: Attributes) -> Sequence[ArraySpec]:
        scalars = attributes.get("scalars", {})
        operands = specs[: len(self.definition.operands) - len(scalars)]
        promoted = self.promoted(operands, scalars)
        self.numbers(promoted, scalars)
        return [ArraySpec(broadcast_shape(self.__name__, [spec.shape for spec in operands]), promoted.result)]

    def numbers(self, promoted: Promoted, scalars: Scalars) -> dict[str, np.generic]:
        """Return the numbers in the dtypes that they are taken in."""
        taken = dict(zip(self.definition.operands, promoted.taken, strict=True))
        numbers = {name: converted(self.__name__, number, taken[name]) for name, number in scalars.items()}
        if self.__name__ == "power" and "b" in numbers and taken["b"].kind in "iu":
            require(int(numbers["b"]) >= 0, "power", f"whole numbers to the power of {scalars['b']}", "use a floating-point exponent")
        return numbers

    def _build(self, application: Application) -> tuple[Launch, ...]:
        accumulate = application.attributes.get("request") == "add"
        scalars = application.attributes.get("scalars", {})
        specs = application.read_specs[: len(application.read_specs) - accumulate]
        (result,) = application.write_specs
        promoted = self.promoted(specs, scalars)
        numbers = self.numbers(promoted, scalars)
        signature = self.signature(specs, scalars, accumulate=accumulate)
        kernel = specialized_fresh(signature, tuple(spec.shape for spec in (*specs, result)))
        flops = self.definition.flops
        return application.kernel(
            self.__name__,
            Cost(application.nbytes, flops * result.size, max(1, kernel.blocks), THREADS, int(flops >= _LONG_FLOPS)),
            self._reference(signature, numbers, accumulate=accumulate),
            ElementwiseCall(signature, numbers),
            unknown=self.definition.unknown,
            vouched=self.definition.vouched,
        )

    def _reference(self, signature: Signature, numbers: Mapping[str, np.generic], *, accumulate: bool) -> Any:
        if self.definition.reference is None and self.definition.unknown:
            return None
        function = self.definition.reference or evaluated(signature)

        def reference(arrays: Sequence[Array]) -> Sequence[Array]:
            values = function(*operand_values(signature, arrays, numbers))
            if accumulate:
                values = arrays[-1].astype(arithmetic(arrays[-1].dtype)) + values
            return [np.asarray(values).astype(signature.result, copy=False)]

        return reference


def defined(
    operands: tuple[str, ...],
    name: str,
    summary: str,
    expression: str,
    like: np.ufunc,
    gradient: str | tuple[str | None, ...] | None = None,
    *,
    reference: Reference | None = None,
    **others: Any,
) -> Elementwise:
    """Make an operator that is ``like`` itself in NumPy unless there is another reference; see `Definition`."""
    gradients = (gradient,) if isinstance(gradient, str) else gradient
    shown = example_of(name)
    return Elementwise(
        Definition(name, summary, operands, expression, like, reference or like, gradient=gradients, example=shown, **others)
    )


def evaluated(signature: Signature) -> Reference:
    """Evaluate a kernel's own expression in NumPy, on operands as the kernel takes them."""
    evaluate, lets = compiled(signature.expression), [(name, compiled(text)) for name, text in signature.lets]
    number, result = arithmetic(np.dtype(signature.arithmetic)), arithmetic(np.dtype(signature.result))

    def reference(*values: Any) -> Any:
        named = {"T": number, **{parameter.name: value for parameter, value in zip(signature.parameters, values, strict=True)}}
        for name, text in lets:
            named[name] = c_arithmetic.converted(text(named), number)
        # An expression need not name all operands, but the result has the shape of all.
        return np.broadcast_to(c_arithmetic.converted(evaluate(named), result), np.broadcast_shapes(*map(np.shape, values)))

    return reference


def operand_values(signature: Signature, arrays: Sequence[Array], numbers: Mapping[str, np.generic]) -> list[Any]:
    """Return the operands as the kernel takes them: converted, half to float32."""
    remaining = iter(arrays)
    return [
        (numbers[parameter.name] if parameter.scalar else next(remaining)).astype(arithmetic(np.dtype(parameter.taken)), copy=False)
        for parameter in signature.parameters
    ]


def broadcast_shape(operator: str, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Return the shape that shapes broadcast to."""
    axes = max(map(len, shapes))
    hint = "merge axes of the arrays that you pass: x.reshape(...)"
    require(axes <= _MOST_AXES, operator, f"a shape has {axes} axes; the most is {_MOST_AXES}", hint)
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        named = " and ".join(map(str, shapes))
        raise ProgramError(f"{operator}: shapes {named} do not broadcast", hint="from the right, extents must be equal or 1") from None


@lru_cache(maxsize=4096)
def _signature(
    definition: Definition,
    kinds: tuple[DType | type, ...],
    promoted: Promoted,
    scalar: tuple[bool, ...],
    accumulate: bool,  # noqa: FBT001 — a key of the cache
) -> Signature:
    parameters = tuple(
        Parameter(name, taken.name if is_scalar else np.dtype(kind).name, taken.name, is_scalar)
        for name, kind, taken, is_scalar in zip(definition.operands, kinds, promoted.taken, scalar, strict=True)
    )
    return Signature(
        definition.name,
        parameters,
        promoted.result.name,
        definition.expression_for(promoted.taken, promoted.first),
        promoted.first.name,
        accumulate=accumulate,
        wraps=True,
    )
