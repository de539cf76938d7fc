"""Numbers of PyTorch's optimisers that captured kernels were given, such as a learning rate.

Kernels that were captured keep them, whatever a scheduler makes of them in Python. So a call is refused where they have changed. A learning
rate that is a tensor on the GPU is memory, which kernels read anew.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streamscope.capturing.allocations import known_objects
from streamscope.capturing.arrays import is_tensor
from streamscope.capturing.memory import NodeMemory, around, united
from streamscope.words import counted

Numbers = list[dict[str, Any]]
"""For each group of parameters its numbers, by their names."""
_KINDS = (bool, int, float, str, type(None))


@dataclass(frozen=True)
class Given:
    """An optimiser, and the numbers that its kernels were given."""

    optimiser: Any
    numbers: Numbers

    def changed(self) -> str:
        """Say which of the numbers is another one by now; nothing where none is. A scheduler that is made later adds some."""
        kind, groups = type(self.optimiser).__name__, self.optimiser.param_groups
        if len(groups) != len(self.numbers):
            return f"{kind} has {counted(len(groups), 'group')} of parameters, and {len(self.numbers)} when it was captured"
        for known, group in zip(self.numbers, groups, strict=True):
            for name, number in known.items():
                now = group.get(name)
                if now is not number and (not _is_number(now) or now != number):
                    return f"{name} of {kind} is {now}, and {number} was captured"
        return ""


HOW = (
    "give it a tensor, which kernels read anew: Adam(..., lr=torch.tensor(1e-3, device='cuda'), capturable=True), "
    "SGD(..., lr=torch.tensor(0.1, device='cuda'), fused=True)"
)
"""What a user can do where a scheduler changes a number."""


def optimisers() -> list[Any]:
    """Return all optimisers of PyTorch's that there are."""
    optim = sys.modules.get("torch.optim")
    return [] if optim is None else [one for one in known_objects() if issubclass(type(one), optim.Optimizer)]


def numbers_of(optimiser: Any) -> Numbers:
    """Return the numbers of an optimiser that Python gives to kernels."""
    return [{name: value for name, value in group.items() if _is_number(value)} for group in optimiser.param_groups]


def that_step(given: Iterable[Given], memories: Iterable[NodeMemory]) -> list[Given]:
    """Return those of some optimisers whose parameters captured kernels write."""
    written = united((one.start, one.end) for memory in memories for one in memory.accesses if one.writes and one.start < one.end)
    return [each for each in given if any(around(written, at) is not None for at in _addresses(each.optimiser.param_groups))]


def _addresses(groups: Sequence[Mapping[str, Any]]) -> Iterable[int]:
    return (int(one.data_ptr()) for group in groups for one in group["params"] if is_tensor(one) and one.is_cuda)


def _is_number(value: Any) -> bool:
    return type(value) in _KINDS or (type(value) is tuple and all(type(one) in _KINDS for one in value))
