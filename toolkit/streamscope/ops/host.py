"""Host memory: copies between it and the device, and Python functions that run on the host."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from functools import partial
from numbers import Real
from typing import Any, cast, overload

from streamscope.arguments import shown
from streamscope.arrays import Array
from streamscope.errors import ProgramError
from streamscope.ops.application import declared_spec
from streamscope.program.launch import Cost, HostCall, Launch, LaunchKind
from streamscope.program.symbol import Symbol
from streamscope.program.tracer import Application, Attributes, Operator, applies_operators
from streamscope.program.variable import ArraySpec, MemoryPlace
from streamscope.program.view import any_view, one_piece
from streamscope.signatures import signature_of
from streamscope.words import a_kind, counted


def _infer(specs: Sequence[ArraySpec], attributes: Attributes) -> Sequence[ArraySpec]:
    return [specs[0]]


def _reference(arrays: Sequence[Array]) -> Sequence[Array]:
    return [arrays[0].copy()]


def _builder(name: str, kind: LaunchKind) -> Callable[[Application], tuple[Launch, ...]]:
    def build(application: Application) -> tuple[Launch, ...]:
        cost = Cost(application.read_specs[0].nbytes, blocks=0, threads=0)
        return (Launch(application.operation, 0, name, kind, application.reads, application.writes, cost, _reference),)

    return build


# In a backward pass, gradients of variables in host memory lie in device memory, where they can be summed.
_to_device = Operator(
    "to_device", _infer, _builder("to_device", LaunchKind.COPY_IN), MemoryPlace.HOST, MemoryPlace.DEVICE, reads_view=one_piece,
    gradient=lambda backward: [backward.dy],
)  # fmt: skip
_to_host = Operator(
    "to_host", _infer, _builder("to_host", LaunchKind.COPY_OUT), MemoryPlace.DEVICE, MemoryPlace.HOST, reads_view=one_piece,
    gradient=lambda backward: [backward.dy],
)  # fmt: skip


@applies_operators
def to_device(x: object, *, out: object = None) -> Symbol:
    """Copy a variable from page-locked host memory to the device.

    Parameters
    ----------
    x : variable
        In host memory.
    out : variable, optional
        Where the result goes, in device memory; by default a new variable.

    Raises
    ------
    ProgramError
        Called outside a program, or the operands do not fit.

    Examples
    --------
    >>> print(ss.program(ss.ops.to_device).trace(np.ones(4)))
    to_device: 1 operation, 2 variables
         0  %1:float64[4] = to_device(%0:float64[4])    # ...
    """
    return cast("Symbol", _to_device(x, out=out))


@applies_operators
def to_host(x: object, *, out: object = None) -> Symbol:
    """Copy a variable from the device to page-locked host memory.

    Parameters
    ----------
    x : variable
        In device memory.
    out : variable, optional
        Where the result goes, in host memory; by default a new variable.

    Raises
    ------
    ProgramError
        Called outside a program, or the operands do not fit.

    Examples
    --------
    >>> with ss.Engine(device="simulated") as engine:
    ...     print(engine.run(ss.program(lambda x: ss.ops.to_host(x * 2)), np.array([1.0, 2.0])))
    [2. 4.]
    """
    return cast("Symbol", _to_host(x, out=out))


Results = Sequence[tuple[Sequence[int], Any]]


@overload
def host_function(function: Callable[..., Any], *, results: Results | None = None, duration_us: float = 20.0) -> Operator: ...
@overload
def host_function(
    function: None = None, *, results: Results | None = None, duration_us: float = 20.0
) -> Callable[[Callable[..., Any]], Operator]: ...
def host_function(function: Callable[..., Any] | None = None, *, results: Results | None = None, duration_us: float = 20.0) -> Any:
    """Make an operator of a Python function over NumPy arrays in host memory (a decorator).

    Parameters
    ----------
    function : callable
        ``function(*arrays) -> array or tuple of arrays``; it must not change its arguments. Keywords that you give when you apply it,
        numbers or options, is passed on.
    results : sequence of (shape, dtype), optional
        Its results. By default one array like the first argument. A function that returns nothing has none: ``results=[]``.
    duration_us : float
        How long it takes on the simulated device, in µs.

    Raises
    ------
    ProgramError
        An argument is of another kind, ``results`` are not possible, or ``duration_us`` is negative. When it is applied: the function
        cannot take that many arguments, or its result is unknown.

    Examples
    --------
    >>> @ss.host_function(duration_us=50)
    ... def doubled(x):
    ...     return 2 * x
    >>> with ss.Engine(device="simulated") as engine:
    ...     print(engine.run(ss.program(doubled), np.array([1.0, 2.0])))
    [2. 4.]
    """
    _check_function(function)
    duration_ns = _duration_ns(duration_us)
    specs_of_results = _declared(results)

    def make(function: Callable[..., Any]) -> Operator:
        _check_function(function)
        name = getattr(function, "__name__", "host_function")

        def infer(specs: Sequence[ArraySpec], attributes: Attributes) -> Sequence[ArraySpec]:
            _check_arguments(name, function, len(specs), attributes)
            if specs_of_results is not None:
                return specs_of_results
            if not specs:
                raise ProgramError(f"{name} has no arguments, so its result is unknown", hint="give results=[(shape, dtype)]")
            return [specs[0]]

        def build(application: Application) -> HostCall:
            attributes = application.attributes
            called = partial(function, **attributes) if attributes else function
            return HostCall(application.operation, name, application.reads, application.writes, called, duration_ns)

        return Operator(name, infer, build, MemoryPlace.HOST, MemoryPlace.HOST, in_place=True, reads_view=any_view)

    return make if function is None else make(function)


def _check_function(function: object) -> None:
    if function is not None and not callable(function):
        raise ProgramError(f"ss.host_function wants a function, not {a_kind(function)}", hint="see help(ss.host_function)")


def _duration_ns(duration_us: object) -> float:
    try:
        duration_ns = float(duration_us) * 1e3 if isinstance(duration_us, Real) and not isinstance(duration_us, bool) else math.nan
    except OverflowError:
        duration_ns = math.inf
    if not math.isfinite(duration_ns):
        raise ProgramError(f"duration_us={shown(duration_us)} must be a time", hint="give a number of µs, 0 or more")
    if duration_ns < 0:
        raise ProgramError(f"duration_us={duration_us} is negative", hint="give a number of µs, 0 or more")
    return duration_ns


def _declared(results: object) -> list[ArraySpec] | None:
    if results is None:
        return None
    if isinstance(results, str) or not isinstance(results, Collection):
        raise ProgramError(
            f"ss.host_function: results={shown(results)} must be shapes and dtypes", hint="give [(shape, dtype)], one for each"
        )
    return [declared_spec(each, f"ss.host_function: results= has {shown(each)}") for each in results]


def _check_arguments(name: str, function: Callable[..., Any], count: int, attributes: Attributes) -> None:
    for attribute, value in attributes.items():
        if isinstance(value, Symbol):
            hint = "give variables by position; an argument by name is a number or an option"
            raise ProgramError(f"{name} was given the variable {value.name!r} by name, {attribute}=", hint=hint)
    try:
        signature = signature_of(function)
    except ValueError:  # a built-in one says nothing
        return
    try:
        signature.bind(*range(count), **attributes)
    except TypeError as error:
        named = "".join(f", {attribute}=" for attribute in attributes)
        raise ProgramError(f"{name} cannot take {counted(count, 'argument')}{named}: {error}") from None
