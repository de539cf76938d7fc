"""Checks of the pushed engine's arguments."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from inspect import Parameter
from numbers import Real
from threading import TIMEOUT_MAX
from typing import Any, NamedTuple

from streamscope.arguments import shown
from streamscope.engine_entry import DEFAULT_ENGINE, ENGINES
from streamscope.engines.pushed.variable import PushedVariable
from streamscope.errors import EngineError, ProgramError
from streamscope.program.tracer import is_operator, takes_list
from streamscope.program.variable import MemoryPlace
from streamscope.signatures import signature_of
from streamscope.words import a_kind, counted

_ENGINE_VARIABLE = "STREAMSCOPE_ENGINE"


class Asked(NamedTuple):
    """A push as its caller wrote it."""

    function: Callable[..., Any]
    reads: tuple[PushedVariable, ...]
    writes: tuple[PushedVariable, ...]
    priority: int
    name: str | None
    attributes: Mapping[str, Any]


def chosen_engine(name: object) -> str:
    """Return the name of an engine: the argument, else the environment variable's, else the default."""
    variable = os.environ.get(_ENGINE_VARIABLE, "")
    chosen = name if name is not None else variable.strip() or DEFAULT_ENGINE
    if not isinstance(chosen, str) or chosen not in ENGINES:
        origin = "" if name is not None else f" in the environment variable {_ENGINE_VARIABLE}"
        raise EngineError(f"unknown engine {chosen!r}{origin}", hint=f"choose from {', '.join(ENGINES)}")
    return chosen


def checked_timeout(timeout: object) -> float | None:
    """Return a wait's time-out in seconds; None: it has none."""
    if timeout is None:
        return None
    if not isinstance(timeout, bool) and isinstance(timeout, Real) and float(timeout) > 0:
        return min(float(timeout), TIMEOUT_MAX)
    raise EngineError(f"timeout={shown(timeout)} is no number of seconds above 0", hint="leave it out to wait as long as it takes")


def checked_place(place: object) -> MemoryPlace:
    """Return where a variable is to lie."""
    if not isinstance(place, str) or place not in ("device", "host"):
        raise ProgramError(f"place={place!r} is neither 'device' nor 'host'")
    return MemoryPlace(place)


def checked_gpu(gpu: object, gpus: int, place: MemoryPlace) -> int:
    """Return the GPU, of so many, whose memory a variable is to be in."""
    if not isinstance(gpu, int) or isinstance(gpu, bool) or not 0 <= gpu < gpus:
        raise ProgramError(
            f"gpu={shown(gpu)} is no GPU of this engine, which has {counted(gpus, 'GPU')}, numbered from 0",
            hint="make the engine with more: ss.Engine(gpus=...); device='simulated' has up to 8",
        )
    if gpu and place is MemoryPlace.HOST:
        raise ProgramError(f"gpu={gpu} and place='host' were both given", hint="host memory belongs to no GPU: leave gpu= out")
    return gpu


def listed(argument: str, variables: Iterable[PushedVariable]) -> tuple[PushedVariable, ...]:
    """Return variables as a tuple."""
    try:
        return tuple(variables)
    except TypeError:
        raise ProgramError(f"{argument}= is {variables!r}", hint=f"give a tuple of variables: {argument}=(x,)") from None


def checked_name(name: object) -> str | None:
    """Name an object for errors, by a given name if there is one."""
    if name is not None and not isinstance(name, str):
        raise ProgramError(f"name={name!r} is {a_kind(name)}, not a string", hint="it is what errors say; it may be left out")
    return name


def checked_function(function: Callable[..., Any], name: str | None, attributes: Mapping[str, Any], priority: int) -> str:
    """Name an operation for errors."""
    if not callable(function):
        raise ProgramError(f"push wants a function or an operator, not {a_kind(function)}")
    title = checked_name(name) or getattr(function, "__name__", None) or getattr(function, "name", None) or type(function).__name__
    check_hashable(function, attributes)
    if not isinstance(priority, int):
        raise ProgramError(f"priority={priority!r} is not a whole number", hint="0 is ordinary; above 0, the highest goes first")
    return title


def check_complete(function: Callable[..., Any], title: str, reads: int, attributes: Mapping[str, Any]) -> None:
    """Check that an operator has the attributes that it needs beside the variables that it reads."""
    if not is_operator(function):
        return
    try:
        parameters = [*signature_of(function).parameters.values()][1 if takes_list(function) else reads :]
    except (TypeError, ValueError):  # A built-in one says nothing.
        return
    several = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    for each in parameters:
        if each.default is each.empty and each.kind not in several and each.name not in attributes:
            raise ProgramError(
                f"{title} needs {each.name}=, which was not given",
                hint=f"engine.push(..., {each.name}=...), or another variable in reads=",
            )


def check_hashable(function: object, attributes: Mapping[str, Any]) -> None:
    """Check that a function and its attributes can be part of a key."""
    for what, value in (("the function", function), *((f"attribute {key}=", value) for key, value in attributes.items())):
        try:
            hash(value)
        except TypeError:
            raise ProgramError(
                f"{what} is {a_kind(value)}, which cannot be looked up", hint="pass a tuple, or fix it in a function"
            ) from None
