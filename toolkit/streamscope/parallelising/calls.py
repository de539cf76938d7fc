"""How a function is called: its arguments by the names of its parameters, so that ``f(x, y)`` and ``f(x, y=y)`` are one call.

The mode of a call and the numbers of PyTorch's optimisers, such as a learning rate, belong to it. Captured kernels keep the numbers that
they were given, whatever a scheduler makes of them in Python. So a call is refused where they have changed. A learning rate that is a
tensor on the GPU is memory, which kernels read anew.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from streamscope.capturing.allocations import known_objects
from streamscope.capturing.arrays import holds_numbers, is_tensor, on_device, plainly
from streamscope.capturing.memory import NodeMemory, around, united
from streamscope.errors import ProgramError
from streamscope.signatures import signature_of
from streamscope.words import counted

_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_FOR_ALL = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)

Arguments = dict[str, Any]
"""By the names of the parameters."""
Mode = tuple[bool | None, str, bool]
"""Whether the called module trains, None without one; autocast's dtype, or ``"off"``; and whether gradients are on."""
PLAIN_MODE: Mode = (None, "off", True)
"""Of calls without PyTorch."""


class Calls:
    """Names the arguments of calls of one function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.name = name_of(function)
        inner = _unwrapped(function)
        self._owner = getattr(inner, "__self__", inner)
        self._signature = _signature(function)
        parameters = self._signature.parameters.values()
        self._names = tuple(one.name for one in parameters if one.kind in _BY_POSITION)
        self._named = frozenset(one.name for one in parameters if one.kind in _NAMED)
        self._plain = not any(one.kind in _FOR_ALL for one in parameters)
        self._required = frozenset(one.name for one in parameters if one.default is one.empty and one.kind not in _FOR_ALL)
        self._defaults = {one.name: one.default for one in parameters if one.default is not one.empty and _is_plain(one.default)}

    def arguments(self, positional: Sequence[Any], named: Mapping[str, Any]) -> Arguments:
        """Return the arguments of a call by name, in the order of the parameters, with plain values that the function has by default."""
        if self._plain and len(positional) <= len(self._names) and self._named.issuperset(named):
            given = dict(zip(self._names, positional, strict=False))
            if given.keys().isdisjoint(named) and self._required <= given.keys() | named.keys():
                return self._ordered(self._defaults | given | dict(named))
        try:
            bound = self._signature.bind(*positional, **named)
        except TypeError as error:
            raise ProgramError(f"{self.name} cannot be called like this: {error}", hint=f"it is {self.name}{self._signature}") from None
        return self._ordered(self._defaults | dict(bound.arguments))

    def _ordered(self, arguments: Mapping[str, Any]) -> Arguments:
        return {name: arguments[name] for name in self._signature.parameters if name in arguments}

    def mode(self) -> Mode:
        """Return the mode of a call: settings besides arguments that users switch between calls."""
        torch = sys.modules.get("torch")
        training = getattr(self._owner, "training", None)
        if torch is None:
            return training, *PLAIN_MODE[1:]
        casts = str(torch.get_autocast_dtype("cuda")) if torch.is_autocast_enabled() else "off"
        return training, casts, torch.is_grad_enabled()

    def in_mode(self, mode: Mode) -> Callable[[], bool]:
        """Return a function that tells whether a call has a mode: bound, since each call asks."""
        torch, (training, casts, gradients) = sys.modules.get("torch"), mode
        if torch is None or casts != PLAIN_MODE[1]:
            return lambda: self.mode() == mode
        owner: Any = self._owner
        casting, with_gradients = torch.is_autocast_enabled, torch.is_grad_enabled
        if training is None:
            return lambda: with_gradients() == gradients and not casting()
        return lambda: owner.training == training and with_gradients() == gradients and not casting()

    def call(self, function: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
        """Call a function with arguments that `arguments` named."""
        bound = inspect.BoundArguments(self._signature, self._ordered(arguments))
        return function(*bound.args, **bound.kwargs)


_MODES = (
    ("the module's 'training'", "call its .train() or .eval() before, as it was captured"),
    ("autocast", "call it with autocast as it was captured"),
    ("torch.is_grad_enabled()", "call it with gradients on or off as it was captured, for example under torch.no_grad()"),
)
"""Parts of a mode, and the remedy where one differs."""


def other_mode(captured: Mode, now: Mode) -> tuple[str, str]:
    """Say how a mode differs from the captured one, with a remedy; nothing where it does not."""
    found = zip(_MODES, captured, now, strict=True)
    return next(((f"{what} is {new}, and {old} was captured", how) for (what, how), old, new in found if old != new), ("", ""))


def name_of(function: Callable[..., Any]) -> str:
    """Name a function; a module by its class, a partial function by its function."""
    if not hasattr(function, "__name__"):
        function = _unwrapped(function)
    return str(getattr(function, "__name__", type(function).__name__))


def _unwrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    """Unwrap partial functions and functions compiled by PyTorch."""
    while (inner := function.func if isinstance(function, partial) else getattr(function, "_orig_mod", function)) is not function:
        function = inner
    return function


def described(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with named parameters: of a module of PyTorch's, its ``forward``, since a call of it takes anything."""
    module = getattr(function, "_orig_mod", function)
    forward = getattr(module, "forward", None)
    return forward if callable(forward) and not inspect.isroutine(function) else function


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    try:
        return signature_of(described(function))
    except (TypeError, ValueError):  # a built-in function without a signature
        return inspect.Signature([inspect.Parameter("arguments", inspect.Parameter.VAR_POSITIONAL)])


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, bool | int | float | complex | str)


_Numbers = list[dict[str, Any]]
"""For each group of parameters its numbers, by their names."""
_KINDS = (bool, int, float, str, np.generic, type(None))


@dataclass(frozen=True)
class Given:
    """An optimiser, and the numbers that its kernels were given."""

    optimiser: Any
    numbers: _Numbers

    def changed(self) -> str:
        """Say which of the numbers is another one by now; nothing where none is. A scheduler that is made later adds some."""
        kind, groups = type(self.optimiser).__name__, self.optimiser.param_groups
        if len(groups) != len(self.numbers):
            return f"{kind} has {counted(len(groups), 'group')} of parameters, and {len(self.numbers)} when it was captured"
        for known, group in zip(self.numbers, groups, strict=True):
            for name, number in known.items():
                now = group.get(name)
                if now is number or (type(now) is type(number) and now == number):
                    continue  # Each call asks.
                now = _value_of(now) if _is_number(now) else now
                if not _is_number(now) or now != number:
                    return f"{name} of {kind} is {now}, and {number} was captured"
        return ""


HOW = (
    "give it a tensor, which kernels read anew: Adam(..., lr=torch.tensor(1e-3, device='cuda'), capturable=True), "
    "SGD(..., lr=torch.tensor(0.1, device='cuda'), fused=True)"
)
"""Remedy where a scheduler changes a number."""


def optimisers() -> list[Any]:
    """Return all optimisers of PyTorch's that there are, without any whose making failed: an error's frames hold such ones."""
    optim = sys.modules.get("torch.optim")
    found = [] if optim is None else [one for one in known_objects() if issubclass(type(one), optim.Optimizer)]
    return [one for one in found if hasattr(one, "param_groups")]


def numbers_of(optimiser: Any) -> _Numbers:
    """Return the numbers of an optimiser that Python gives to kernels."""
    return [
        {name: _value_of(value) for name, value in group.items() if name != "params" and _is_number(value)}
        for group in optimiser.param_groups
    ]


def that_step(given: Iterable[Given], memories: Iterable[NodeMemory]) -> list[Given]:
    """Return those of some optimisers whose parameters captured kernels write."""
    written = united((one.start, one.end) for memory in memories for one in memory.accesses if one.writes and one.start < one.end)
    with plainly():
        return [each for each in given if any(around(written, at) is not None for at in _addresses(each.optimiser.param_groups))]


def _addresses(groups: Sequence[Mapping[str, Any]]) -> Iterable[int]:
    return (int(one.data_ptr()) for group in groups for one in group["params"] if is_tensor(one) and on_device(one))


def _is_number(value: Any) -> bool:
    """Tell a number that kernels are given, several of them, or one in host memory; names of parameters are none."""
    if isinstance(value, list | tuple):
        return not any(isinstance(one, str) for one in value) and all(map(_is_number, value))
    return isinstance(value, _KINDS) or (holds_numbers(value) and value.ndim == 0)


def _value_of(value: Any) -> Any:
    """Return a number as kernels get it, copied: its memory may be overwritten."""
    if isinstance(value, list | tuple):
        return tuple(map(_value_of, value))
    return value if isinstance(value, _KINDS) else value.item()
