"""Random programs: thousands of operations over a hundred variables, in whole numbers, so that results are right to the bit or wrong.

Nothing in them hides a mistake. Every operator is one-to-one in each operand while the other stays (in arithmetic modulo 2 to the 32), what
was written is read before it is overwritten, what is done in place shows the order in which it was done, and products and exclusive ors
together keep two wrong values from making a right one. So a value that is wrong anywhere goes on to the outputs.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy as np

import streamscope as ss
from streamscope.program.operation import Program

DEVICE_VARIABLES, HOST_VARIABLES = 75, 25
SHAPE = (7,)

weigh = ss.elementwise("weigh = (3 * a) ^ (5 * b)")
DEVICE_OPERATORS = (ss.ops.add, ss.ops.bitwise_xor, weigh)


@ss.host_function(duration_us=2.0)
def mix(first: Any, second: Any) -> Any:
    """Compute something on the host in which the order of the operands shows."""
    return (3 * first) ^ (5 * second)


@dataclass(frozen=True)
class RandomProgram:
    """A traced program with inputs; every variable is input and output, so that runs follow each other with state."""

    program: Program
    inputs: tuple[Any, ...]


@dataclass
class _Place:
    """The variables of one place, and which of them hold what nobody has read yet: at first all, from the run before."""

    variables: list[Any]
    chance: random.Random

    def __post_init__(self) -> None:
        self.unread = set(range(len(self.variables)))

    def near(self, progress: float) -> int:
        """Choose one of a few neighbours, which move on slowly: that makes long chains beside each other and conflicts of every kind."""
        count = len(self.variables)
        return int(progress * count + self.chance.gauss(0, count / 8)) % count

    def pair(self, progress: float) -> tuple[int, int, int]:
        """Choose two operands, which differ, and a variable for the result; one that is still unread is an operand, too."""
        first, result = self.near(progress), self.near(progress)
        if result in self.unread:
            first = result
        second = next(other for other in iter(lambda: self.near(progress), None) if other != first)
        return first, second, result

    def free(self, progress: float) -> int | None:
        """Choose a variable that may be overwritten without being read; None if that cannot be."""
        result = self.near(progress)
        return None if result in self.unread else result

    def write(self, result: int, *reads: int) -> None:
        """Note what was read, and then written."""
        self.unread.difference_update(reads)
        self.unread.add(result)


def random_program(seed: int, operations: int, *, host_share: float = 0.05) -> RandomProgram:
    """Make a program of so many operations over `DEVICE_VARIABLES` and `HOST_VARIABLES` variables, which are written again and again.

    ``host_share`` of them are host functions, as many are copies to the device, and as many are copies back.
    """
    chance = random.Random(seed)

    @ss.program
    def many(*variables: Any) -> Any:
        device = _Place(list(variables[:DEVICE_VARIABLES]), chance)
        host = _Place(list(variables[DEVICE_VARIABLES:]), chance)

        def combine(place: _Place, operator: Any, progress: float) -> None:
            first, second, result = place.pair(progress)
            if operator in DEVICE_OPERATORS and result in {first, second}:
                operator, first, second = weigh, first + second - result, result
            operator(place.variables[first], place.variables[second], out=place.variables[result])
            place.write(result, first, second)

        def copy(operator: Any, source: _Place, target: _Place, progress: float) -> None:
            result = target.free(progress)
            if result is None:
                combine(device, ss.ops.add, progress)
                return
            read = source.near(progress)
            operator(source.variables[read], out=target.variables[result])
            source.unread.discard(read)
            target.unread.add(result)

        for done in range(operations - len(variables)):
            progress, kind = done / operations, chance.random()
            if kind < host_share:
                combine(host, mix, progress)
            elif kind < 2 * host_share:
                copy(ss.ops.to_device, host, device, progress)
            elif kind < 3 * host_share:
                copy(ss.ops.to_host, device, host, progress)
            else:
                combine(device, chance.choice(DEVICE_OPERATORS), progress)
        # Every variable is used, so that each comes to lie in its memory.
        for place, operator in ((device, weigh), (host, mix)):
            for index, variable in enumerate(place.variables):
                operator(place.variables[index - 1], variable, out=variable)
        return tuple(variables)

    values = np.random.default_rng(seed).integers(-(2**31), 2**31, (DEVICE_VARIABLES + HOST_VARIABLES, *SHAPE)).astype(np.int32)
    inputs = tuple(values)
    return RandomProgram(many.trace(*inputs), inputs)
