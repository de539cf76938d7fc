"""Random programs: thousands of operations over a hundred variables, in whole numbers, so that results are right to the bit or wrong."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy as np

import streamscope as ss
from streamscope.program.operation import Program

DEVICE_VARIABLES, HOST_VARIABLES = 75, 25
SHAPE = (7,)


@ss.host_function(duration_us=2.0)
def mix(first: Any, second: Any) -> Any:
    """Compute something on the host in which the order of the operands shows."""
    return first * 3 - second


@dataclass(frozen=True)
class RandomProgram:
    """A traced program with inputs; every variable is input and output, so that runs follow each other with state."""

    program: Program
    inputs: tuple[Any, ...]


def random_program(seed: int, operations: int, *, host_share: float = 0.05) -> RandomProgram:
    """Make a program of so many operations over `DEVICE_VARIABLES` and `HOST_VARIABLES` variables, most of them written again and again.

    Operands are mostly variables that were touched lately, which makes long chains beside each other and conflicts of every kind.
    """
    chance = random.Random(seed)
    device_operators = (ss.add, ss.subtract, ss.multiply, ss.maximum, ss.bitwise_xor)

    @ss.program
    def many(*variables: Any) -> Any:
        on_device, on_host = list(variables[:DEVICE_VARIABLES]), list(variables[DEVICE_VARIABLES:])

        def some(place: list[Any]) -> Any:
            # A few neighbours that move on slowly.
            middle = done * len(place) // operations
            return place[(middle + int(chance.gauss(0, len(place) / 8))) % len(place)]

        for done in range(operations):
            kind = chance.random()
            if kind < host_share:
                mix(some(on_host), some(on_host), out=some(on_host))
            elif kind < 2 * host_share:
                ss.to_device(some(on_host), out=some(on_device))
            elif kind < 3 * host_share:
                ss.to_host(some(on_device), out=some(on_host))
            else:
                chance.choice(device_operators)(some(on_device), some(on_device), out=some(on_device))
        # Every variable is used, so that each comes to lie in its memory.
        for variable in on_device:
            ss.add(variable, variable, out=variable)
        for variable in on_host:
            mix(variable, variable, out=variable)
        return tuple(variables)

    values = np.random.default_rng(seed).integers(-50, 50, (DEVICE_VARIABLES + HOST_VARIABLES, *SHAPE)).astype(np.int32)
    inputs = tuple(values)
    return RandomProgram(many.trace(*inputs), inputs)
