"""Random programs over 1 to 4 GPUs: kernels, copies of all kinds, host functions and collectives; results are right to the bit or wrong.

As in `random_programs`, every variable is input and output. A variable is read before it is written, so a wrong value goes on. Integers
are computed modulo their size; floats stay small whole numbers, which float16 holds exactly, but for means.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import streamscope as ss
from streamscope.program.operation import Program

LENGTH = 12
"""Elements of a variable: 2, 3 and 4 GPUs can divide them."""
DTYPES = ("int32", "int32", "int8", "uint8", "int64", "uint64", "float16", "float32", "float64")

weigh = ss.elementwise("weigh = (3 * a) ^ (5 * b)")
fold = ss.elementwise("fold = fmod(fmod(3 * a, 97) + fmod(5 * b, 97), 97)")
other_weigh = ss.elementwise("weigh = (7 * a) ^ (9 * b)")
other_fold = ss.elementwise("fold = fmod(fmod(4 * a, 97) + fmod(7 * b, 97), 97)")


@ss.host_function(duration_us=2.0)
def mix(first: Any, second: Any) -> Any:
    """Compute something on the host in which the order of the operands shows."""
    if first.dtype.kind == "f":
        return np.fmod(np.fmod(3 * first, 97) + np.fmod(5 * second, 97), 97)
    return (3 * first) ^ (5 * second)


@dataclass(frozen=True)
class HostProgram:
    """A traced program, its inputs, and the number of GPUs."""

    program: Program
    inputs: tuple[Any, ...]
    gpus: int


@dataclass
class _Shelf:
    """The variables of a GPU, or of the host, and which of them hold values that nobody has read yet."""

    variables: list[Any]
    unread: set[int] = field(init=False)

    def __post_init__(self) -> None:
        self.unread = {len(self.variables) - 1}  # At first, each is read for the next one.


class _Writing:
    """Writes the operations of one program."""

    def __init__(self, chance: random.Random, shelves: Sequence[_Shelf], host: _Shelf, combine: Any) -> None:
        self.chance = chance
        self.shelves = shelves
        self.host = host
        self.combine = combine

    def read(self, shelf: _Shelf) -> Any:
        """Choose an operand, one that is unread rather than another."""
        numbers = sorted(shelf.unread) if shelf.unread and self.chance.random() < 0.6 else range(len(shelf.variables))
        number = self.chance.choice(numbers)
        shelf.unread.discard(number)
        return shelf.variables[number]

    def seen(self, shelf: _Shelf) -> Any:
        """Choose an operand of a collective: a variable, now and then reversed, which is copied first."""
        found = self.read(shelf)
        return found[::-1] if self.chance.random() < 0.1 else found

    def target(self, shelf: _Shelf) -> Any:
        """Choose a variable that may be overwritten; None if there is none."""
        free = [number for number in range(len(shelf.variables)) if number not in shelf.unread]
        if not free or self.chance.random() < 0.3:
            return None
        number = self.chance.choice(free)
        shelf.unread.add(number)
        return shelf.variables[number]

    def keep(self, shelf: _Shelf, value: Any) -> None:
        """Let a variable depend on a value, which is read so."""
        number = self.chance.randrange(len(shelf.variables))
        variable = shelf.variables[number]
        (mix if shelf is self.host else self.combine)(variable, value, out=variable)
        shelf.unread.add(number)

    def keep_moved(self, shelf: _Shelf, target: Any, value: Any) -> None:
        """Keep a value that was moved: where it lies in a variable, it changes there, or it would hide who wrote it."""
        if target is None:
            self.keep(shelf, value)
        else:
            self.combine(target, self.chance.randrange(1, 20), out=target)

    def kernel(self) -> None:
        """Compute on one GPU."""
        shelf = self.chance.choice(self.shelves)
        self.keep(shelf, self.combine(self.read(shelf), self.read(shelf)) if self.chance.random() < 0.3 else self.read(shelf))

    def on_host(self) -> None:
        """Copy from a GPU to the host, compute, and copy to a GPU, or some of that."""
        kind = self.chance.random()
        if kind < 0.4:
            self.keep(self.host, ss.ops.to_host(self.read(self.chance.choice(self.shelves))))
        elif kind < 0.6:
            self.keep(self.host, self.read(self.host))
        else:
            gpu = self.chance.randrange(len(self.shelves))
            with ss.gpu(gpu):
                out = self.target(self.shelves[gpu])
                copied = ss.ops.to_device(self.read(self.host), out=out)
            self.keep_moved(self.shelves[gpu], out, copied)

    def peer(self) -> None:
        """Copy or send from one GPU to another."""
        source, target = self.chance.sample(range(len(self.shelves)), 2)
        out = self.target(self.shelves[target])
        if self.chance.random() < 0.6:
            copied = ss.ops.to_gpu(self.seen(self.shelves[source]), target, out=out)
        else:
            copied = ss.ops.send(self.seen(self.shelves[source]), target, out=out)
        self.keep_moved(self.shelves[target], out, copied)

    def collective(self) -> None:
        """Apply a collective to some of the GPUs, in any order of them."""
        count = self.chance.randint(2, len(self.shelves))
        gpus = self.chance.sample(range(len(self.shelves)), count)
        shelves = [self.shelves[gpu] for gpu in gpus]
        self.chance.choice((self.all_reduce, self.all_reduce, self.all_gather, self.reduce_scatter, self.broadcast, self.all_to_all))(
            gpus, shelves
        )

    def reduction(self, dtype: np.dtype[Any]) -> Any:
        """Choose how elements become one."""
        return self.chance.choice(("sum", "sum", "min", "max", *(("mean",) if dtype.kind == "f" else ())))

    def all_reduce(self, gpus: Sequence[int], shelves: Sequence[_Shelf]) -> None:
        operands = [self.seen(shelf) for shelf in shelves]
        options = {"op": self.reduction(operands[0].dtype), "priority": self.chance.randrange(3)}
        if self.chance.random() < 0.4:
            bucket = self.chance.choice((3, 5, 11, 12)) * operands[0].dtype.itemsize
            for shelf, result in zip(shelves, ss.ops.all_reduce(operands, bucket=bucket, **options), strict=True):
                self.keep(shelf, result)
            return
        self.with_out(shelves, operands, lambda out: ss.ops.all_reduce(operands, out=out, **options))

    def all_to_all(self, gpus: Sequence[int], shelves: Sequence[_Shelf]) -> None:
        operands = [self.seen(shelf) for shelf in shelves]
        self.with_out(shelves, operands, lambda out: ss.ops.all_to_all(operands, out=out))

    def broadcast(self, gpus: Sequence[int], shelves: Sequence[_Shelf]) -> None:
        source = self.seen(shelves[0])
        order = self.chance.sample(range(len(gpus)), len(gpus))
        self.with_out(
            [shelves[one] for one in order], [source], lambda out: ss.ops.broadcast(source, [gpus[one] for one in order], out=out)
        )

    def with_out(self, shelves: Sequence[_Shelf], operands: Sequence[Any], apply: Callable[[Any], Any]) -> None:
        """Apply a collective, with variables of the program for some of its results."""
        read = {each.id for each in operands}
        out = [self.target(shelf) for shelf in shelves]
        out = [None if each is not None and each.id in read else each for each in out]
        results = apply(out if any(each is not None for each in out) else None)
        for shelf, target, result in zip(shelves, out, results, strict=True):
            self.keep_moved(shelf, target, result)

    def all_gather(self, gpus: Sequence[int], shelves: Sequence[_Shelf]) -> None:
        results = ss.ops.all_gather([self.read(shelf) for shelf in shelves])
        for shelf, result in zip(shelves, results, strict=True):
            value = result[:LENGTH]
            for part in range(1, len(gpus)):
                value = self.combine(value, result[part * LENGTH : (part + 1) * LENGTH])
            self.keep(shelf, value)

    def reduce_scatter(self, gpus: Sequence[int], shelves: Sequence[_Shelf]) -> None:
        operands = [self.seen(shelf) for shelf in shelves]
        share = LENGTH // len(gpus)
        for shelf, result in zip(shelves, ss.ops.reduce_scatter(operands, self.reduction(operands[0].dtype)), strict=True):
            variable = self.read(shelf)
            self.keep(shelf, ss.ops.concatenate([result, variable[share:]]))


def random_host_program(seed: int, gpus: int, operations: int, *, variables: int = 3, other: bool = False) -> HostProgram:
    """Make a program of about so many operations over ``variables`` variables a GPU and two of the host, written again and again.

    ``other``: its kernels weigh operands otherwise. `fold` does not show a difference that is a multiple of 97.
    """
    chance = random.Random(seed)
    dtype = np.dtype(chance.choice(DTYPES))
    combine = ((fold, other_fold) if dtype.kind == "f" else (weigh, other_weigh))[other]

    @ss.program
    def many(*given: Any) -> Any:
        shelves = [_Shelf(list(given[gpu * variables : (gpu + 1) * variables])) for gpu in range(gpus)]
        writing = _Writing(chance, shelves, _Shelf(list(given[gpus * variables :])), combine)
        for gpu, shelf in enumerate(shelves):
            with ss.gpu(gpu):  # So each comes to lie there.
                for index, variable in enumerate(shelf.variables):
                    writing.combine(shelf.variables[index - 1], variable, out=variable)
        first, second = writing.host.variables
        mix(first, second, out=second)
        kinds = [writing.kernel] * 5 + [writing.on_host] * 2 + ([writing.collective] * 4 + [writing.peer] * 3) * (gpus > 1)
        for _ in range(operations):
            chance.choice(kinds)()
        return given

    random_values = np.random.default_rng(seed)
    if dtype.kind == "f":
        values = random_values.integers(0, 97, (gpus * variables + 2, LENGTH)).astype(dtype)
    else:
        values = random_values.integers(0, 256, (gpus * variables + 2, LENGTH * dtype.itemsize)).astype(np.uint8).view(dtype)
    inputs = tuple(values)
    return HostProgram(many.trace(*inputs), inputs, gpus)
