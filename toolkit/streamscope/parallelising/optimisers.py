"""Numbers of PyTorch's optimisers that captured kernels were given, such as a learning rate.

Kernels that were captured keep them, whatever a scheduler makes of them in Python. So a call is refused where they have changed. A learning
rate that is a tensor on the GPU is memory, which kernels read anew.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamscope.capturing.allocations import known_objects
from streamscope.capturing.arrays import holds_numbers, is_tensor, on_device, plainly
from streamscope.capturing.memory import NodeMemory, around, united
from streamscope.words import counted

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
