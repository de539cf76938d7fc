"""Gradients of element-wise operators: for each operand one kernel, which also sums over the axes along which it was broadcast."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, cast

import numpy as np

from streamscope.arrays import Array
from streamscope.kernels.elementwise.specialization import ElementwiseCall, Shape, Specialized, specialized_fresh
from streamscope.kernels.expression.functions import UnknownExpressionError
from streamscope.kernels.form import THREADS
from streamscope.kernels.reduce.broadcast_sum import FittedSum, bind_sum, fresh_sums, number_of
from streamscope.kernels.signature import Parameter, Signature
from streamscope.ops.application import Request, check_request, require
from streamscope.ops.definition import Definition
from streamscope.ops.elementwise_operator import Elementwise, broadcast_shape, evaluated, operand_values
from streamscope.program.launch import Cost, CudaBench, CudaCall, Launch, Reference
from streamscope.program.symbol import Symbol
from streamscope.program.tracer import Application, Attributes, Backward, Operator, current_tracer
from streamscope.program.variable import ArraySpec
from streamscope.program.view import any_view, forward_view
from streamscope.words import counted

_Numbers = Mapping[str, np.generic]


def gradients(operator: Elementwise, dy: object, operands: Sequence[object], *, out: object, request: Request) -> Any:
    """Return the gradient of each operand; see `Elementwise.gradient`."""
    definition = operator.definition
    require(definition.gradient is not None, operator.__name__, "it has no gradient", "it is not differentiable")
    arrays, scalars = operator.sorted_operands(operands)
    require(all(isinstance(array, Symbol) for array in (dy, *arrays)), operator.__name__, "the gradient is of variables of the program")
    specs = [array.spec for array in arrays]
    promoted = operator.promoted(specs, scalars)
    shape = broadcast_shape(operator.__name__, [spec.shape for spec in specs])
    _check_upstream(operator.__name__, dy, shape)
    forward = operator.signature(specs, scalars)
    numbers = operator.numbers(promoted, scalars)
    named = dict(zip(definition.operands, operands, strict=True))
    made: dict[str, tuple[Signature, list[Any]]] = {}
    for (name, operand), expression in zip(named.items(), definition.gradient or (), strict=True):
        if expression is not None and isinstance(operand, Symbol) and operand.dtype.kind == "f":
            signature = _signature(definition, forward, name, expression, operand.dtype.name, dy.dtype.name, request == "add")  # type: ignore[attr-defined]
            made[name] = signature, [dy, *(named[parameter.name] for parameter in signature.arrays[1:])]
    targets = _targets(operator.__name__, out, list(named), list(made), request)
    results: dict[str, Any] = dict.fromkeys(named)
    for name in _order(operator.__name__, {name: reads for name, (_, reads) in made.items()}, targets):
        signature, reads = made[name]
        results[name] = targets[name] if request == "null" else applied_gradient(signature, reads, named[name].spec, numbers, targets[name])  # type: ignore[attr-defined]
    return next(iter(results.values())) if len(results) == 1 else tuple(results.values())


def pulled_back(operator: Elementwise, backward: Backward) -> Sequence[Symbol | None]:
    """Return the gradient of each array for a backward pass: a kernel for each that is wanted, and none where it is that of the result."""
    definition, scalars = operator.definition, backward.attributes.get("scalars", {})
    places = {name: place for place, name in enumerate(name for name in definition.operands if name not in scalars)}
    specs = backward.read_specs[: len(places)]
    forward = operator.signature(specs, scalars)
    numbers = operator.numbers(operator.promoted(specs, scalars), scalars)

    def of(name: str, spec: ArraySpec) -> Symbol | None:
        expression, dy = (definition.gradient or ())[definition.operands.index(name)], backward.dy
        if expression == "0" or name in definition.choosing:
            return None
        require(expression is not None, operator.__name__, f"it has no gradient of {name}", "name one in ss.elementwise(gradient={...})")
        if expression == "dy" and spec == dy.spec:
            return dy
        signature = _signature(definition, forward, name, str(expression), spec.dtype.name, dy.dtype.name, accumulate=False)
        reads = [dy, *(backward.operand(places[parameter.name]) for parameter in signature.arrays[1:])]
        return cast("Symbol", applied_gradient(signature, reads, spec, numbers, None))

    found = [of(name, spec) if wanted else None for name, spec, wanted in zip(places, specs, backward.wanted, strict=False)]
    return [*found, backward.dy] if backward.adds else found


def _targets(operator: str, out: object, names: Sequence[str], made: Sequence[str], request: Request) -> dict[str, Any]:
    """Return where the gradient of each operand goes; None: to a new variable."""
    check_request(operator, request, has_target=out is not None)
    if not isinstance(out, tuple | list):
        count = len(made)
        require(out is None or count == 1, operator, f"out= names 1 variable for {count} gradients", "give a tuple of one for each operand")
        return dict.fromkeys(names, out)
    require(len(out) == len(names), operator, f"out= names {counted(len(out), 'variable')} for {counted(len(names), 'gradient')}")
    given = [target.id for name, target in zip(names, out, strict=True) if isinstance(target, Symbol) and name in made]
    require(request != "write" or len(set(given)) == len(given), operator, "out= names one variable for two gradients", "name another")
    return dict(zip(names, out, strict=True))


def _order(operator: str, reads: Mapping[str, Sequence[Any]], targets: Mapping[str, Any]) -> list[str]:
    """Order the operands so that no gradient is written over an input of a later one."""
    left, order = {name: {each.id for each in some} for name, some in reads.items()}, list[str]()
    written = {name: target.id if isinstance(target, Symbol) else None for name, target in targets.items()}
    while left:
        free = (name for name in left if not any(written[name] in left[other] for other in left if other != name))
        name = next(free, None)
        require(name is not None, operator, "out= names operands that other gradients read", "let a gradient go to a new variable")
        order.append(str(name))
        del left[str(name)]
    return order


def _check_upstream(operator: str, dy: Any, shape: tuple[int, ...]) -> None:
    require(dy.shape == shape, operator, f"the result's gradient has shape {dy.shape}, the result {shape}")
    require(dy.dtype.kind == "f", operator, f"the result's gradient is {dy.dtype.name}", "gradients are floating-point numbers")


@lru_cache(maxsize=4096)
def _signature(
    definition: Definition,
    forward: Signature,
    operand: str,
    expression: str,
    result: str,
    upstream: str,
    accumulate: bool,  # noqa: FBT001 — a key of the cache
) -> Signature:
    """Return the signature of one operand's gradient, which reads only the operands that its expression names."""
    needs_result = re.search(rf"\b{definition.result}\b", expression) is not None
    text = " ".join([expression, *([forward.expression] if needs_result else [])])
    used = tuple(parameter for parameter in forward.parameters if re.search(rf"\b{parameter.name}\b", text))
    name = f"{definition.name}_gradient" + (f"_{operand}" if len(definition.operands) > 1 else "")
    return Signature(
        name,
        (Parameter("dy", upstream, forward.result), *used),
        result,
        expression,
        forward.arithmetic,
        ((definition.result, forward.expression),) * needs_result,
        accumulate,
        wraps=True,
    )


def applied_gradient(signature: Signature, reads: Sequence[Any], target: ArraySpec, numbers: _Numbers, out: object) -> Any:
    """Apply the gradient that a signature computes of variables, the first of which has the shape that the others are broadcast to."""

    def infer(specs: Sequence[ArraySpec], attributes: Attributes) -> Sequence[ArraySpec]:
        return [target]

    def build(application: Application) -> tuple[Launch, ...]:
        return summing_launch(application, signature, scalars)

    scalars = {parameter.name: numbers[parameter.name] for parameter in signature.parameters if parameter.scalar}
    attributes: dict[str, Any] = {"scalars": {name: number.item() for name, number in scalars.items()}} if scalars else {}
    if signature.accumulate:
        require(out is not None, signature.name, "request='add' needs a variable", "name it with out=")
        reads, attributes = [*reads, out], attributes | {"request": "add"}
    operator = Operator(
        signature.name, infer, build, in_place=True, reads_view=any_view if reads[0].shape == target.shape else forward_view
    )
    return current_tracer(signature.name).apply(operator, reads, attributes, out)


def summing_launch(application: Application, signature: Signature, scalars: _Numbers) -> tuple[Launch, ...]:
    """Return the launch of a signature summed over the axes along which the result is 1 or has none.

    The first array has the shape that all others are broadcast to.
    """
    specs = application.read_specs[: len(application.read_specs) - signature.accumulate]
    (target,) = application.write_specs
    shapes = tuple(spec.shape for spec in (*specs, target))
    walked = shapes[0]  # the shape of the result's gradient, which all are broadcast to
    kernels = _fresh_kernels(signature, shapes)

    def summing(bench: CudaBench, reads: Sequence[Any], writes: Sequence[Any]) -> CudaCall:
        return bind_sum(bench, signature, [*reads[: len(specs)], *writes], scalars)

    cost = Cost(application.nbytes, 4 * math.prod(walked), max(1, kernels[0].blocks), THREADS, 2 * (walked != target.shape))
    if len(kernels) > 1:
        summed = cast("Sequence[FittedSum]", kernels)
        scratch_bytes = summed[0].parts * summed[0].size * np.dtype(number_of(signature)).itemsize
        cost = replace(cost, then=Cost(scratch_bytes + target.nbytes, 0, summed[1].blocks, THREADS, 1))
    reference, unknown = _reference(signature, scalars, target)
    cuda = ElementwiseCall(signature, scalars) if walked == target.shape else summing
    return application.kernel(signature.name, cost, reference, cuda, unknown=unknown)


def _fresh_kernels(signature: Signature, shapes: tuple[Shape, ...]) -> Sequence[Specialized | FittedSum]:
    """Return the kernels for freshly allocated arrays: one, or two where sums are computed in parts."""
    return [specialized_fresh(signature, shapes)] if shapes[0] == shapes[-1] else fresh_sums(signature, shapes)


def _reference(signature: Signature, scalars: _Numbers, target: ArraySpec) -> tuple[Reference | None, str]:
    """Return the gradient in NumPy, from the same expression; where it has no meaning there, None and the unknown part."""
    try:
        function = evaluated(signature)
    except UnknownExpressionError as error:
        return None, str(error)

    def reference(arrays: Sequence[Array]) -> Sequence[Array]:
        gradient = _summed_to(function(*operand_values(signature, arrays, scalars)), target.shape)
        if signature.accumulate:
            gradient = arrays[-1].astype(gradient.dtype) + gradient
        return [gradient.astype(target.dtype, copy=False)]

    return reference, ""


def _summed_to(values: Array, shape: tuple[int, ...]) -> Array:
    """Return the sum over the axes along which an array of ``shape`` was broadcast to that of ``values``."""
    missing = values.ndim - len(shape)
    repeated = tuple(axis for axis in range(values.ndim) if axis < missing or (shape[axis - missing] == 1 and values.shape[axis] != 1))
    return values.sum(axis=repeated, dtype=values.dtype, keepdims=True).reshape(shape) if repeated else values
