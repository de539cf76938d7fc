"""Programs with state, so that running them several times in a row shows every order that matters."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from streamscope.ops import add, multiply, relu
from streamscope.ops.host import host_function, to_device, to_host
from streamscope.program.operation import Program
from streamscope.program.reference import run_reference
from streamscope.program.symbol import Symbol
from streamscope.tracing import program

RUNS = 3


def in_threads(work: Callable[[int], Any], count: int = 4) -> list[Any]:
    """Run ``work(number)`` in several threads that start together; raises what one of them raises."""
    barrier = threading.Barrier(count)

    def start(number: int) -> Any:
        barrier.wait()
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(start, range(count)))


@dataclass(frozen=True)
class Stateful:
    """A program whose outputs are its new inputs."""

    program: Program
    inputs: tuple[np.ndarray[Any, Any], ...]

    def expected(self) -> list[np.ndarray[Any, Any]]:
        """Return the state after `RUNS` serial runs."""
        state: Sequence[Any] = self.inputs
        for _ in range(RUNS):
            state = run_reference(self.program, state)
        return list(state)


def diamond(x: Symbol, total: Symbol) -> tuple[Symbol, Symbol]:
    """Two branches over one variable that changes from run to run; the result is added up."""
    x = add(x, x, out=x)
    left = relu(multiply(x, x))
    right = add(x, x)
    right = multiply(right, right)
    return x, add(total, add(left, right), out=total)


def in_place(x: Symbol, y: Symbol, total: Symbol) -> tuple[Symbol, Symbol, Symbol]:
    """Readers that must be done before their variable is written again, on another stream."""
    first = multiply(x, y)
    second = add(x, y)
    y = add(y, x, out=y)
    x = multiply(x, y, out=x)
    return x, y, add(total, add(first, second), out=total)


def pipeline(raw: Symbol, total: Symbol) -> tuple[Symbol, Symbol]:
    """A host step, a copy in, compute, a copy out and a host step again."""
    raw = count(raw, out=raw)
    x = to_device(raw)
    y = relu(add(x, x))
    back = to_host(y)
    return raw, accumulate(total, back, out=total)


@host_function(duration_us=3.0)
def count(values):
    """Change the input from run to run."""
    return values + 1


@host_function(duration_us=3.0)
def accumulate(total, values):
    """Add up on the host."""
    return total + values


def chunks(raw: Symbol, total: Symbol) -> tuple[Symbol, Symbol]:
    """Two chunks through the same buffers."""
    for _ in range(2):
        raw = count(raw, out=raw)
        x = to_device(raw)
        left, right = multiply(x, x), add(x, x)
        total = add(total, add(left, right), out=total)
    return raw, total


def braid(a: Symbol, b: Symbol, c: Symbol) -> tuple[Symbol, Symbol, Symbol]:
    """Two strands that cross."""
    for _ in range(3):
        a = add(a, c, out=a)
        b = multiply(b, c, out=b)
        c = add(a, b, out=c)
    return a, b, c


def fan(x: Symbol, total: Symbol) -> tuple[Symbol, Symbol]:
    """Four branches of different length over one variable that changes from run to run."""
    x = add(x, x, out=x)
    ends = []
    for length in range(4):
        end = multiply(x, x)
        for _ in range(length):
            end = relu(add(end, x))
        ends.append(end)
    for end in ends:  # By turns, so that any other order shows.
        total = add(multiply(total, end, out=total), end, out=total)
    return x, total


def views(x: Symbol, total: Symbol) -> tuple[Symbol, Symbol]:
    """Readers that see a variable as another array, before it is written again and after."""
    turned = x.T
    first = multiply(turned, turned)
    second = add(x[::-1], turned)
    x = multiply(x, first, out=x)
    third = multiply(turned.reshape(-1), 2.0)  # takes a copy
    total = add(total, add(first, second), out=total)
    return x, multiply(total, third.reshape(2, 2), out=total)


def parts(x: Symbol, total: Symbol) -> tuple[Symbol, Symbol]:
    """Readers of a whole variable before and after a part of it is written."""
    head, tail = x[:2], x[2:]
    first = multiply(x, x)
    second = add(x, 1.0)
    head += tail
    third = multiply(x, 2.0)
    tail *= 0.5
    total += add(first, second)
    total *= third
    return x, total


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "diamond": (diamond, (np.full(4, 1.5, np.float64), np.zeros(4))),
    "in-place": (in_place, (np.full(4, 1.1), np.full(4, 0.7), np.zeros(4))),
    "pipeline": (pipeline, (np.arange(4.0), np.zeros(4))),
    "chunks": (chunks, (np.arange(4.0), np.zeros(4))),
    "fan": (fan, (np.full(4, 0.1), np.ones(4))),
    "parts": (parts, (np.array([0.7, 1.1, 1.3, 0.9]), np.ones(4))),
    "views": (views, (np.array([[0.7, 1.1], [1.3, 0.9]]), np.ones((2, 2)))),
    "braid": (braid, (np.full(4, 1.5), np.full(4, 0.5), np.full(4, 1.25))),
}


@pytest.fixture(params=list(PROGRAMS))
def stateful(request: pytest.FixtureRequest) -> Stateful:
    """Return each program with state, traced."""
    function, inputs = PROGRAMS[request.param]
    return Stateful(program(function).trace(*inputs), inputs)
