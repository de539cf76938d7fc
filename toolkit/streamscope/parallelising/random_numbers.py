"""Random numbers of captured PyTorch code: fresh ones in each run, and those that a plain call would draw.

Kernels that PyTorch captures read seed and offset of their random numbers from two words of device memory. `torch.cuda.CUDAGraph.replay`
fills them from the generator before it launches its graph, and moves the generator on. A graph in another order is launched without it, so
the same is done here. Where the two words lie, PyTorch does not tell: a replay with a seed and an offset that occur nowhere else does.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamscope.capturing.function import CapturedFunction
from streamscope.capturing.memory import AddressRange
from streamscope.capturing.nodes import WORD
from streamscope.capturing.state import LINE, bytes_at
from streamscope.errors import EngineError

_SEED, _OFFSET = 0x5EED_0F_57_2EA_5C09E, 0x0FF_5E7_0F_57_2EA4
"""A seed and an offset that no code has; offsets are multiples of 4."""


@dataclass(frozen=True)
class Philox:
    """Where captured code reads seed and offset."""

    generator: Any
    seed: Any
    offset: Any
    """The two words, as tensors of one int64 element."""
    increment: int
    """By how much a run moves the offset on."""

    def draw(self) -> None:
        """Fill the words from the generator, on PyTorch's current stream, and move the generator on, as a plain call does."""
        generator = self.generator
        begin = generator.get_offset()
        self.seed.fill_(_as_signed(generator.initial_seed()))
        self.offset.fill_(begin)
        generator.set_offset(begin + self.increment)


def drawing(captured: CapturedFunction) -> tuple[Philox, ...]:
    """Return where captured code reads seed and offset of each generator that it draws from: PyTorch's, and those of the user's.

    Calls the function once and, where it draws, runs the capture once, as it was. What that changes is put back.

    Raises
    ------
    EngineError
        The words cannot be found.
    """
    torch = sys.modules.get("torch")
    graph = None if torch is None else next((one for one in captured.kept if isinstance(one, torch.cuda.CUDAGraph)), None)
    if torch is None or graph is None:
        return ()
    generators = captured.generators
    before = [generator.get_state() for generator in generators]
    marks = {id(generator): (_SEED + number, _OFFSET + 64 * number) for number, generator in enumerate(generators)}
    try:
        for generator in generators:
            generator.manual_seed(marks[id(generator)][0])
        captured.plain_call_us(1)
        # A new seed sets the offset to 0: a generator whose offset has moved was drawn from.
        drawn = [generator for generator in generators if generator.get_offset()]
        if not drawn:
            return ()
        for generator in drawn:
            generator.set_offset(marks[id(generator)][1])
        graph.replay()
        torch.cuda.synchronize()
        places = {word: address for address, word in _words(captured.state_regions)}
        found = tuple(_philox(generator, marks[id(generator)], places) for generator in drawn)
    finally:
        for generator, state in zip(generators, before, strict=True):
            generator.set_state(state)
        captured.clear_outputs()
    if not all(found):
        raise EngineError(
            f"{captured.name} draws random numbers, and where it reads their seed was not found", hint="draw them before, and pass them in"
        )
    return tuple(one for one in found if one is not None)


def _philox(generator: Any, marks: tuple[int, int], places: Mapping[int, int]) -> Philox | None:
    """Return where the words of a generator lie, which a replay has filled with marks; None where they were not found."""
    if any(mark not in places for mark in marks):
        return None
    seed, offset = (_tensor_at(places[mark]) for mark in marks)
    return Philox(generator, seed, offset, int(generator.get_offset()) - marks[1])


def _as_signed(word: int) -> int:
    """Return the int64 that has the bits of a 64-bit word."""
    return word - 2**64 if word >= 2**63 else word


def _words(regions: Iterable[AddressRange]) -> Iterable[tuple[int, int]]:
    """Yield address and value of each word of memory that is no longer than a line."""
    for start, end in regions:
        if WORD <= end - start <= LINE:
            values = bytes_at(start, start + (end - start) // WORD * WORD).view(np.uint64).get()
            yield from ((start + WORD * number, int(value)) for number, value in enumerate(values))


def _tensor_at(address: int) -> Any:
    """Return a word of device memory as a tensor; PyTorch keeps that memory as long as the captured graph lives."""
    return sys.modules["torch"].as_tensor(bytes_at(address, address + WORD).view(np.int64), device="cuda")
