"""Collectives without NCCL: each GPU fetches what its result is made of, and reduces it by itself. Right, and slow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from streamscope.devices.cuda.gpus import BY_ADDRESS
from streamscope.kernels.library.libraries import libraries

if TYPE_CHECKING:
    from streamscope.devices.cuda.memory import CudaBuffer
    from streamscope.program.collective import Collective

Call = Callable[[], None]
Piece = tuple[int, int, int]
"""Part whose operand it is cut from, where it begins there, and its bytes."""


def pieces_of(collective: Collective, part: int, nbytes: int) -> list[Piece]:
    """Return the pieces of operands, of ``nbytes`` each, that make up a part's result: one after the other, or reduced."""
    parts = range(len(collective.gpus))
    match collective.kind:
        case "all_reduce" | "all_gather":
            return [(source, 0, nbytes) for source in parts]
        case "reduce_scatter" | "all_to_all":
            share = nbytes // len(parts)
            return [(source, part * share, share) for source in parts]
        case _:  # "broadcast" or "send"
            return [(collective.root, 0, nbytes)]


def bind_copies(
    collective: Collective, operands: Sequence[CudaBuffer | None], results: Sequence[CudaBuffer | None], streams: Sequence[Any]
) -> Call:
    """Prepare a collective by copies between GPUs; of each part its operand, its result and its stream."""
    nbytes = next(buffer.spec.nbytes for buffer in operands if buffer is not None)
    parts = [
        _Part(pieces_of(collective, part, nbytes), operands, result, stream, collective.op)
        for part, (result, stream) in enumerate(zip(results, streams, strict=True))
        if result is not None
    ]
    meet = _meeting(streams)

    def call() -> None:
        meet()
        for part in parts:
            part.fetch()
        meet()  # A result may lie where an operand does: it is written when all have been read.
        for part in parts:
            part.store()

    return call


def _meeting(streams: Sequence[Any]) -> Call:
    """Return a call that lets all streams wait for each other."""
    events = [stream.device.event(gpu=stream.gpu) for stream in streams]

    def meet() -> None:
        for stream, event in zip(streams, events, strict=True):
            stream.record(event)
        for stream in streams:
            for other, event in zip(streams, events, strict=True):
                if other is not stream:
                    stream.wait(event)

    return meet


class _Part:
    """One GPU's share of the work: its result is put together in scratch memory first."""

    def __init__(self, pieces: Sequence[Piece], operands: Sequence[CudaBuffer | None], result: CudaBuffer, stream: Any, op: str) -> None:
        self._stream, self._result, self._op = stream, result, op
        self._fetched: list[tuple[Any, tuple[int, ...]]] = []
        dtype, device = result.spec.dtype, stream.device
        # Half-precision sums are rounded once.
        number = np.promote_types(dtype, np.float32) if op and dtype.kind == "f" else dtype
        total = result.spec.size * number.itemsize
        scratch = device.empty_bytes(total + (result.spec.nbytes if op else 0), stream.gpu)
        self._whole = scratch[:total].view(number)
        self._next = scratch[total:].view(dtype)
        place = 0
        for source, start, nbytes in pieces:
            operand = operands[source]
            assert operand is not None
            target = (self._next if op else self._whole).data.ptr + (0 if op else place)
            place += nbytes
            self._fetched.append((operand, (target, operand.pointer + start, nbytes, BY_ADDRESS, stream.pointer)))

    def fetch(self) -> None:
        copy, cupy = libraries().runtime.memcpyAsync, libraries().cupy
        reduce = {"sum": cupy.add, "mean": cupy.add, "min": cupy.minimum, "max": cupy.maximum}.get(self._op)
        with self._stream.device.on(self._stream.gpu), self._stream.current():
            for number, (_, arguments) in enumerate(self._fetched):
                copy(*arguments)
                if reduce is not None and number:
                    reduce(self._whole, self._next, out=self._whole)
                elif reduce is not None:
                    cupy.copyto(self._whole, self._next)
            if self._op == "mean":
                cupy.divide(self._whole, len(self._fetched), out=self._whole)

    def store(self) -> None:
        with self._stream.device.on(self._stream.gpu), self._stream.current():
            libraries().cupy.copyto(self._result.array.reshape(-1), self._whole, casting="unsafe")
