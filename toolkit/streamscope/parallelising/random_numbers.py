"""Random numbers of captured PyTorch code: fresh ones in each run, and those that a plain call would draw.

Kernels that PyTorch captures read seed and offset of their random numbers from two words of device memory. `torch.cuda.CUDAGraph.replay`
fills them from the generator before it launches its graph, and moves the generator on. A graph in another order is launched without it, so
the same is done here. Where the two words lie, PyTorch does not tell: a replay with a seed and an offset that occur nowhere else does.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamscope.capturing.function import CapturedFunction
from streamscope.capturing.memory import Region
from streamscope.capturing.state import LINE
from streamscope.errors import EngineError
from streamscope.kernels.library.libraries import libraries

SEED, OFFSET = 0x5EED_0F_57_2EA_5C09E, 0x0FF_5E7_0F_57_2EA4
"""A seed and an offset that no code has; offsets are multiples of 4."""
_WORD = 8


@dataclass(frozen=True)
class Philox:
    """Where captured code reads seed and offset.

    Attributes
    ----------
    generator : torch.Generator
    seed, offset : torch.Tensor
        The two words, as tensors of one int64 element.
    increment : int
        By how much a run moves the offset on.
    """

    generator: Any
    seed: Any
    offset: Any
    increment: int

    def draw(self) -> None:
        """Fill the words from the generator, on PyTorch's current stream, and move the generator on, as a plain call does."""
        generator = self.generator
        begin = generator.get_offset()
        self.seed.fill_(as_signed(generator.initial_seed()))
        self.offset.fill_(begin)
        generator.set_offset(begin + self.increment)


def philox(captured: CapturedFunction) -> Philox | None:
    """Return where captured code reads seed and offset; None where it draws nothing from PyTorch's generator of the current GPU.

    Calls the function once and, where it draws, runs the capture once, as it was. What that changes is put back.

    Raises
    ------
    EngineError
        The words cannot be found.
    """
    torch = sys.modules.get("torch")
    graph = None if torch is None else next((one for one in _kept(captured) if isinstance(one, torch.cuda.CUDAGraph)), None)
    if torch is None or graph is None:
        return None
    generator = torch.cuda.default_generators[torch.cuda.current_device()]
    before = generator.get_state()
    try:
        generator.manual_seed(SEED)
        captured.plain_call_us(1)
        if not generator.get_offset():
            return None
        generator.set_offset(OFFSET)
        graph.replay()
        torch.cuda.synchronize()
        increment = int(generator.get_offset()) - OFFSET
        places = {SEED: 0, OFFSET: 0}
        for address, word in _words(region for region, _ in captured._state.saved):  # noqa: SLF001 — all scalars that nodes touch
            if word in places:
                places[word] = address
    finally:
        generator.set_state(before)
        captured.clear_outputs()
    if not all(places.values()):
        raise EngineError(
            f"{captured.name} draws random numbers, and where it reads their seed was not found", hint="draw them before, and pass them in"
        )
    return Philox(generator, _tensor_at(places[SEED]), _tensor_at(places[OFFSET]), increment)


def as_signed(word: int) -> int:
    """Return the int64 that has the bits of a 64-bit word."""
    return word - 2**64 if word >= 2**63 else word


def _kept(captured: CapturedFunction) -> Iterable[Any]:
    found: Iterable[Any] = getattr(captured.program.raw, "kept", ())
    return found


def _words(regions: Iterable[Region]) -> Iterable[tuple[int, int]]:
    """Yield address and value of each word of memory that is no longer than a line."""
    runtime = libraries().runtime
    for start, end in regions:
        if end - start > LINE:
            continue
        values = np.empty((end - start) // _WORD, np.uint64)
        runtime.memcpy(values.ctypes.data, start, values.nbytes, runtime.memcpyDeviceToHost)
        yield from ((start + _WORD * number, int(value)) for number, value in enumerate(values))


def _tensor_at(address: int) -> Any:
    """Return a word of device memory as a tensor; PyTorch keeps that memory as long as the captured graph lives."""
    cupy = libraries().cupy
    memory = cupy.cuda.UnownedMemory(address, _WORD, None)
    return sys.modules["torch"].as_tensor(cupy.ndarray((1,), np.int64, cupy.cuda.MemoryPointer(memory, 0)), device="cuda")
