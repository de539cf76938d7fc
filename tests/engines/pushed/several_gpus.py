"""Random pushes over several GPUs, and what they mean in NumPy: used by the tests, and by `benchmarks/pushed_faults.py`."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

import streamscope as ss

LENGTH = 12
"""Elements of a variable: collectives cut it into as many parts as there are GPUs, 1, 2, 3 or 4."""
EACH, HOSTS = 3, 2
"""Variables on each GPU, and in host memory."""
KINDS = ("add", "multiply", "chain", "copy", "in", "out", "host", "all_reduce", "all_to_all", "broadcast", "send", "sliced", "rename")


def chain(x, y):
    """Two operators as one operation, with a temporary between them."""
    return ss.ops.multiply(ss.ops.add(x, y), y)


def sliced(*members):
    """Several collectives as one operation."""
    return ss.ops.all_reduce(list(members), bucket=5 * 8)


def on_host(x, y):
    """A plain function, which a worker runs."""
    return x * 3 + y


class Hosts:
    """Variables on all GPUs of an engine's device, and the values that they have in serial execution."""

    def __init__(self, engine: ss.Engine, gpus: int, dtype: str = "int64") -> None:
        self.engine, self.gpus = engine, gpus
        first = np.arange(LENGTH, dtype=dtype)
        self.values: dict[tuple[int, int], Any] = {(gpu, n): first + 10 * gpu + n for gpu in range(gpus) for n in range(EACH)}
        self.values |= {(-1, n): first - n for n in range(HOSTS)}
        self.variables = {key: self._made(key) for key in self.values}

    def _made(self, key: tuple[int, int]) -> Any:
        if key[0] < 0:
            return self.engine.variable(self.values[key], place="host")
        return self.engine.variable(self.values[key], gpu=key[0])

    def push(self, kind: str, chance: random.Random, priority: int = 0) -> None:
        """Push an operation over variables that are drawn, and do it in NumPy."""
        gpus = chance.sample(range(self.gpus), chance.randint(min(2, self.gpus), self.gpus))
        if len(gpus) < 2 and kind in ("copy", "all_reduce", "all_to_all", "broadcast", "send", "sliced"):
            kind = "add"
        gpu, (a, b, c) = gpus[0], chance.sample(range(EACH), 3)
        match kind:
            case "add" | "multiply":
                function = {"add": np.add, "multiply": np.multiply}[kind]
                self.apply(getattr(ss.ops, kind), [(gpu, a), (gpu, b)], [(gpu, a)], lambda x, y: [function(x, y)], priority)
            case "chain":
                self.apply(chain, [(gpu, a), (gpu, b)], [(gpu, c)], lambda x, y: [(x + y) * y], priority)
            case "copy":
                self.apply(ss.ops.to_gpu, [(gpu, a)], [(gpus[1], b)], lambda x: [x], priority, gpu=gpus[1])
            case "in" | "out":
                host, operator = (-1, chance.randrange(HOSTS)), ss.ops.to_device if kind == "in" else ss.ops.to_host
                reads, writes = ([host], [(gpu, a)]) if kind == "in" else ([(gpu, a)], [host])
                self.apply(operator, reads, writes, lambda x: [x], priority)
            case "host":
                self.apply(on_host, [(-1, 0), (-1, 1)], [(-1, a % HOSTS)], lambda x, y: [on_host(x, y)], priority)
            case "all_reduce" | "sliced":
                function = ss.ops.all_reduce if kind == "all_reduce" else sliced
                self._over(function, gpus, chance, lambda *each: [np.sum(each, axis=0, dtype=each[0].dtype)] * len(each), priority)
            case "all_to_all":
                self._over(ss.ops.all_to_all, gpus, chance, _exchanged, priority)
            case "broadcast":
                targets = [(each, b) for each in gpus]
                self.apply(ss.ops.broadcast, [(gpu, a)], targets, lambda x: [x] * len(gpus), priority, gpus=tuple(gpus))
            case "send":
                self.apply(ss.ops.send, [(gpu, a)], [(gpus[1], b)], lambda x: [x], priority, gpu=gpus[1])
            case "rename":  # Its memory is free for others while it is still in use.
                self.engine.delete(self.variables[gpu, a])
                self.values[gpu, a] = np.arange(LENGTH, dtype=self.values[gpu, a].dtype) + a
                self.variables[gpu, a] = self._made((gpu, a))

    def _over(self, function: Any, gpus: list[int], chance: random.Random, meaning: Any, priority: int) -> None:
        count = len(gpus)
        if function is ss.ops.all_to_all and LENGTH % count:
            return
        sources, targets = ([chance.randrange(EACH) for _ in gpus] for _ in range(2))
        reads = list(zip(gpus, sources, strict=True))
        writes = [(gpu, target if target != source else (target + 1) % EACH) for (gpu, source), target in zip(reads, targets, strict=True)]
        self.apply(function, reads, writes, meaning, priority)

    def apply(self, function: Any, reads: list[Any], writes: list[Any], meaning: Any, priority: int = 0, **attributes: Any) -> None:
        """Push an operation over variables, each a GPU and a number, and do it in NumPy."""
        given, taken = (tuple(self.variables[key] for key in keys) for keys in (reads, writes))
        self.engine.push(function, reads=given, writes=taken, priority=priority, **attributes)
        results = meaning(*(self.values[key] for key in reads))
        self.values.update(zip(writes, results, strict=True))

    def check(self) -> None:
        """Compare all variables with their values in serial execution."""
        for key, variable in self.variables.items():
            np.testing.assert_array_equal(self.engine.read(variable), self.values[key], err_msg=str(key))


def _exchanged(*each: Any) -> list[Any]:
    pieces = [np.split(one, len(each)) for one in each]
    return [np.concatenate([pieces[source][part] for source in range(len(each))]) for part in range(len(each))]
