"""Applying an operator inside a program: checks of operands and ``out``, and the work of an operator of one kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, cast, get_args

from streamscope.arrays import Array
from streamscope.errors import ProgramError
from streamscope.kernels.form import VECTOR_BYTES
from streamscope.kernels.reduce.reducers import FLOATS
from streamscope.kernels.source import PlannedKernel
from streamscope.program.launch import Cost, CudaBench, CudaCall, Launch
from streamscope.program.symbol import Symbol
from streamscope.program.tracer import AN_INPUT, Application, Attributes, Operator, current_tracer
from streamscope.program.variable import ArraySpec
from streamscope.words import a_kind

Request = Literal["write", "add", "null"]
_REQUESTS: tuple[Request, ...] = get_args(Request)
"""Requests: ``out`` is replaced, added to, or left alone."""


def require(condition: bool, operator: str, problem: str, hint: str | None = None) -> None:  # noqa: FBT001 — the condition is the point
    """Raise a `ProgramError` that names the operator unless a condition holds."""
    if not condition:
        raise ProgramError(f"{operator}: {problem}", hint=hint)


def check_request(operator: str, request: str, *, has_target: bool) -> None:
    """Raise a `ProgramError` unless the request is known: replace, add to, or leave ``out`` alone."""
    require(request in _REQUESTS, operator, f"request={request!r} is unknown", f"use one of {', '.join(_REQUESTS)}")
    require(request == "write" or has_target, operator, f"request={request!r} needs a variable", "name it with out=")


def apply_request(
    operator: Operator, arrays: Sequence[object], attributes: Attributes, out: object, request: Request, *, adding: Operator | None = None
) -> Symbol:
    """Apply an operator inside a program as ``request`` says: replace ``out``, add to it, or only check the operands.

    ``adding`` is applied to the operands and ``out`` where it is added to, if that is not the same operator.
    """
    tracer = current_tracer(operator.name)
    check_request(operator.name, request, has_target=out is not None)
    if request == "null":
        operator.infer(specs_of(operator.name, arrays), attributes)
        return cast("Symbol", out)
    if request == "add":
        return cast("Symbol", tracer.apply(adding or operator, [*arrays, out], {**attributes, "request": "add"}, out))
    return cast("Symbol", tracer.apply(operator, arrays, attributes, out))


def specs_of(operator: str, operands: Sequence[object]) -> list[ArraySpec]:
    """Return the specs of variables."""
    for operand in operands:
        if not isinstance(operand, Symbol):
            raise ProgramError(f"{operator}: it takes variables, got {a_kind(operand)}", hint=AN_INPUT)
    return [cast("Symbol", operand).spec for operand in operands]


def shape_of_argument(operator: str, x: object, dy: object) -> tuple[int, ...]:
    """Return the shape of an argument that a gradient ``dy`` is passed back to."""
    argument, gradient = specs_of(operator, [x, dy])
    same = argument.dtype == gradient.dtype
    require(same, operator, f"x is {argument.dtype.name} and dy is {gradient.dtype.name}", "use one dtype")
    return argument.shape


def _is_aligned(*arrays: Any) -> bool:
    """Tell whether all arrays in device memory begin on a boundary of vectors."""
    return all(int(array.data.ptr) % VECTOR_BYTES == 0 for array in arrays)


def planned_launch(
    application: Application,
    name: str,
    planned: Callable[..., PlannedKernel],
    function: Callable[..., Array],
    flops: int,
    *,
    pointers: slice = slice(None),
    scalars: Sequence[Any] = (),
    moved_bytes: int | None = None,
    exact: bool = False,
) -> tuple[Launch, ...]:
    """Return the work of an operation with one result that launches one kernel; see `Cost` and `Launch`.

    ``planned(aligned=...)`` returns the kernel, ``aligned`` telling whether all arrays begin on a boundary of vectors, and ``function`` is
    the NumPy function of arrays that means the same. The kernel takes those of the arrays that are read which ``pointers`` says, and
    ``scalars`` behind the result. By default, as many bytes are moved as all arrays have.
    """
    (result,) = application.write_specs

    def reference(arrays: Sequence[Array]) -> Sequence[Array]:
        return [function(*arrays).reshape(result.shape).astype(result.dtype, copy=False)]

    def cuda(bench: CudaBench, reads: Sequence[Any], writes: Sequence[Any]) -> CudaCall:
        return planned(aligned=_is_aligned(*reads, *writes)).bind(bench, [*reads[pointers], *writes, *scalars])

    fresh = planned(aligned=True)
    nbytes = application.nbytes if moved_bytes is None else moved_bytes
    cost = Cost(nbytes, flops, max(1, fresh.blocks), fresh.threads, fresh.stages)
    return application.kernel(name, cost, reference, cuda, exact=exact)


def declared_spec(declared: Any, problem: str) -> ArraySpec:
    """Return the spec of a result that a user declares as ``(shape, dtype)``; ``problem`` is the error's text where it is none."""
    try:
        shape, dtype = declared
        return ArraySpec(tuple(shape), dtype)
    except (TypeError, ValueError):
        raise ProgramError(problem, hint="give (shape, dtype)") from None


def require_float(specs: Sequence[ArraySpec], operator: str, hint: str = "") -> None:
    """Raise a `ProgramError`, with a further hint, unless all arguments are of one floating dtype that the kernels support."""
    names = [spec.dtype.name for spec in specs]
    fits = names[0] in FLOATS and len(set(names)) == 1
    if not fits:
        advice = f"use one of {', '.join(FLOATS)} for all arguments{'; ' if hint else ''}{hint}"
        require(fits, operator, f"dtypes {', '.join(names)} do not fit", advice)
