"""Temporary allocations of PyTorch's operators, learnt from a plain call."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from streamscope.capturing.allocations import TorchCounts
from streamscope.capturing.dispatching import storages_in, tensors_in
from streamscope.capturing.memory import AddressRange


class Workspaces:
    """Notes the temporaries of each operator of a plain call, and the generators that users' operators draw from."""

    def __init__(self, counts: TorchCounts) -> None:
        self.generators: list[Any] = []
        """Each once; PyTorch's own is not among them."""
        self._counts = counts
        self._calls: list[tuple[range, tuple[int, ...]]] = []
        self._sizes: list[tuple[int, ...]] = []

    def run(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call an operator, and note which allocations were made meanwhile."""
        torch = sys.modules["torch"]
        for value in (*args, *kwargs.values()):
            if isinstance(value, torch.Generator) and value.device.type == "cuda":
                # An operator is given another Python object of the same generator.
                known = {one._cdata for one in (*torch.cuda.default_generators, *self.generators)}  # noqa: SLF001 — PyTorch's address of it
                self.generators += [] if value._cdata in known else [value]  # noqa: SLF001
        before = self._counts.now().allocations
        result = function(*args, **kwargs)
        after = self._counts.now().allocations
        results = storages_in(tensors_in(result)) if after > before else ()
        self._calls.append((range(before, after), tuple(storage.data_ptr() for _, storage in results)))
        return result

    def learn(self, made: Sequence[AddressRange]) -> None:
        """Take the sizes from the allocator's events."""
        self._sizes = [
            tuple(end - start for start, end in (made[number] for number in numbers if number < len(made)) if start not in results)
            for numbers, results in self._calls
        ]

    def of(self, call: int) -> tuple[int, ...]:
        """Return how many bytes an operator allocated for itself each time, by its number among all calls; nothing where none is known."""
        return self._sizes[call] if call < len(self._sizes) else ()
