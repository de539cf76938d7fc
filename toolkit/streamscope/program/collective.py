"""Collectives: one operation over variables on several GPUs, with a part on each; their meaning in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from streamscope.arrays import Array

CollectiveKind = Literal["all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "send"]
Reduction = Literal["sum", "mean", "min", "max"]
REDUCTIONS: tuple[Reduction, ...] = get_args(Reduction)
DTYPES = ("float16", "float32", "float64", "int8", "uint8", "int32", "int64", "uint64")
"""Those of our dtypes that NCCL has."""


@dataclass(frozen=True)
class Collective:
    """An operation that several GPUs carry out together: each begins its part, and waits for the parts that it needs (see `awaits`).

    Attributes
    ----------
    kind : {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "send"}
    gpus : tuple of int
        The GPU of each part.
    nbytes : int
        Size of the operation as NCCL's tests count it: of the whole array that is reduced, gathered or scattered.
    op : {"sum", "mean", "min", "max"}, optional
        How elements become one; empty where nothing is reduced.
    root : int
        The part that sends, of a broadcast or a send.
    priority : int
        Of those that wait for the links, the one with the highest goes first; 0 is the ordinary one.
    """

    kind: CollectiveKind
    gpus: tuple[int, ...]
    nbytes: int
    op: Reduction | Literal[""] = ""
    root: int = 0
    priority: int = 0

    def reads(self, part: int) -> bool:
        """Tell whether a part has an operand."""
        return self.kind not in ("broadcast", "send") or part == self.root

    def writes(self, part: int) -> bool:
        """Tell whether a part has a result."""
        return self.kind != "send" or part != self.root

    @property
    def communicator(self) -> tuple[tuple[int, ...], int]:
        """What carries it out: GPUs and priority. All GPUs of a communicator need one order of its collectives."""
        return self.gpus, self.priority

    def awaits(self, part: int) -> tuple[int, ...]:
        """Return the parts that have begun, itself among them, when a part ends: those whose operands its result comes from.

        One that only sends may be done before the others begin: NCCL puts a small operand into a buffer of theirs.
        """
        return tuple(sorted({part, self.root})) if self.kind in ("broadcast", "send") else tuple(range(len(self.gpus)))

    def results(self, operands: Sequence[Array]) -> list[Array]:
        """Return the results of the parts that have one, from the operands of those that have one, in NumPy."""
        count = len(self.gpus)
        match self.kind:
            case "all_reduce":
                return [self._reduced(operands)] * count
            case "reduce_scatter":
                return np.split(self._reduced(operands), count)
            case "all_gather":
                return [np.concatenate(operands)] * count
            case "all_to_all":
                pieces = [np.split(operand, count) for operand in operands]
                return [np.concatenate([pieces[source][part] for source in range(count)]) for part in range(count)]
            case "broadcast":
                return [operands[0]] * count
            case "send":
                return [operands[0]]

    def _reduced(self, operands: Sequence[Array]) -> Array:
        """Reduce in double precision, or in the dtype itself where numbers are whole."""
        dtype = operands[0].dtype
        stacked = np.stack(operands).astype(np.float64 if dtype.kind == "f" else dtype)
        functions: dict[str, Callable[..., Array]] = {"sum": np.sum, "mean": np.mean, "min": np.min, "max": np.max}
        options = {"dtype": stacked.dtype} if self.op in ("sum", "mean") else {}
        with np.errstate(all="ignore"):  # Like a GPU, it goes on after an overflow without a word.
            result: Array = functions[self.op](stacked, axis=0, **options).astype(dtype)
        return result
