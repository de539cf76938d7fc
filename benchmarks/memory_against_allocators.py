"""Memory of `ss.record(memory=True)` against the allocators' own numbers, byte for byte: of 22 functions of PyTorch and CuPy.

After each operation, a function lets a probe ask ``torch.cuda.memory_stats`` and CuPy's pool, whose numbers go into the recording as
counters. Behind the recording, its memory is summed at the time of each counter. Peaks are those of PyTorch's statistics, and of a hook
of CuPy's that asks the pool after each allocation.

Also: what it costs, on a step of 300 additions that each allocate, in turns with `ss.record()` and without.

    python benchmarks/memory_against_allocators.py [RESULT.json]
    PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True python benchmarks/memory_against_allocators.py RESULT.json
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

import cupy
import numpy as np
import torch
from provenance import keep, provenance
from torch.nn import functional

import streamscope as ss
from streamscope.recording.record import Recording
from streamscope.trace.memory import BEFORE, BEFORE_THE_RECORDING, Allocations, Level
from streamscope.trace.memory_events import held_bytes
from streamscope.trace.trace import Trace

APART_S = 3e-4
"""Between an operation and the probe: PyTorch's history has whole microseconds, and the clocks are tied to about one."""
MIB = 1 << 20
ROUNDS, ADDITIONS = 30, 300
POOLS = ("PyTorch", "CuPy", BEFORE_THE_RECORDING)
_ALLOCATED, _RESERVED = ss.counter("allocated", "B"), ss.counter("reserved", "B")
_LEVELS = {"allocated": Level.ALLOCATED, "reserved": Level.RESERVED}


class Probe:
    """Asks both allocators for their numbers; called after each operation."""

    def __init__(self, recording: Recording | None = None) -> None:
        self._recording = recording

    def __call__(self) -> None:
        """Count the memory that is held now."""
        if self._recording is None:
            return
        time.sleep(APART_S)
        own, pool = torch.cuda.memory_stats(), cupy.get_default_memory_pool()
        _ALLOCATED.set(own["allocated_bytes.all.current"] + pool.used_bytes())
        _RESERVED.set(own["reserved_bytes.all.current"] + pool.total_bytes())
        time.sleep(APART_S)

    def pause(self) -> None:
        """Pause the recording."""
        if self._recording is not None:
            self._recording.pause()

    def resume(self) -> None:
        """Resume the recording."""
        if self._recording is not None:
            self._recording.resume()


class PoolPeak(cupy.cuda.MemoryHook):  # type: ignore[misc]
    """The peak of CuPy's pool, as the pool says it after each allocation."""

    name = "peak"

    def __init__(self) -> None:
        self.most = 0

    def malloc_postprocess(self, **_: Any) -> None:
        """Ask the pool."""
        self.most = max(self.most, cupy.get_default_memory_pool().used_bytes())


Function = Callable[[Probe], object]


def of_torch() -> dict[str, Function]:
    """Return functions of PyTorch, with their arrays, which are held before."""
    x, y = torch.randn(1000, 1003, device="cuda"), torch.randn(1000, 1003, device="cuda")
    square = torch.randn(777, 777, device="cuda")
    images = torch.randn(8, 16, 57, 57, device="cuda", requires_grad=True)
    convolution = torch.nn.Conv2d(16, 33, 3, padding=1).cuda()
    block = torch.nn.TransformerEncoderLayer(256, 8, 700, batch_first=True).cuda()
    tokens = torch.randn(4, 129, 256, device="cuda")
    optimizer = torch.optim.Adam(block.parameters())
    side = torch.cuda.Stream()
    sizes = np.random.default_rng(0).integers(1, 30 * MIB, 60).tolist() + np.random.default_rng(1).integers(1, 4000, 60).tolist()

    def chain(probe: Probe) -> None:
        found = x
        for operation in (torch.relu, torch.exp, torch.sigmoid, lambda each: each + y, lambda each: each * 2):
            found = operation(found)
            probe()

    def products(probe: Probe) -> None:
        found = square
        for _ in range(4):
            found = found @ square
            probe()

    def convolution_and_back(probe: Probe) -> None:
        loss = functional.relu(convolution(images)).square().mean()
        probe()
        loss.backward()
        probe()
        images.grad = None
        convolution.zero_grad(set_to_none=True)
        probe()

    def transformer(probe: Probe) -> None:
        with torch.no_grad():
            block(tokens)
        probe()

    def training(probe: Probe) -> None:
        for _ in range(2):
            loss = block(tokens).square().mean()
            probe()
            loss.backward()
            probe()
            optimizer.step()
            probe()
            optimizer.zero_grad()
            probe()

    def in_place(probe: Probe) -> None:
        found = x.clone()
        for operation in (found.relu_, found.exp_, lambda: found.add_(y), lambda: torch.mul(found, 2, out=found)):
            operation()
            probe()

    def views(probe: Probe) -> None:
        for view in (x.T, x[::2], x.reshape(-1), x.expand(3, 1000, 1003), x.T.contiguous()):
            probe()
            del view
        probe()

    def empty_cache(probe: Probe) -> None:
        kept = []
        for size in (3 * MIB, 30 * MIB, 700, 11 * MIB):
            kept.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
            torch.zeros(2 * size, dtype=torch.uint8, device="cuda")
            probe()
            torch.cuda.empty_cache()
            probe()
            kept = kept[-2:]
            probe()

    def streams(probe: Probe) -> None:
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            found = x * 2
            probe()
        found.record_stream(torch.cuda.current_stream())
        torch.cuda.current_stream().wait_stream(side)
        other = found + 1
        probe()
        del found
        probe()
        torch.cuda.synchronize()
        other = other * 2
        probe()

    def exception(probe: Probe) -> None:
        found = x * 2
        probe()
        raise KeyError(found.shape)

    def too_much(probe: Probe) -> None:
        found = x * 2
        with suppress(RuntimeError):
            torch.empty(1 << 50, dtype=torch.uint8, device="cuda")
        probe()
        found = found * 2
        probe()

    def many_sizes(probe: Probe) -> None:
        kept: list[Any] = []
        for number, size in enumerate(sizes):
            kept.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
            if number % 3 == 0:
                kept.pop(len(kept) // 2)
            if number % 4 == 0:
                probe()
        x.relu()
        probe()

    def graph(probe: Probe) -> None:
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            found = (x * 2 + y).relu()
        probe()
        captured.replay()
        probe()
        del captured, found
        probe()

    def pause(probe: Probe) -> None:
        first, found = x * 2, x * 3
        probe()
        probe.pause()
        kept = (x + y) @ y.T
        del first
        probe.resume()
        probe()
        found = kept * 2
        probe()
        del found
        probe()

    named = (chain, products, convolution_and_back, transformer, training, in_place, views, empty_cache, streams, exception)
    return {f"PyTorch: {each.__name__}": each for each in (*named, too_much, many_sizes, graph, pause)}


def of_cupy() -> dict[str, Function]:
    """Return functions of CuPy, with their arrays, which are held before."""
    x, y = cupy.random.rand(1000, 1003), cupy.random.rand(1000, 1003)
    square = cupy.random.rand(777, 777).astype(cupy.float32)
    side = cupy.cuda.Stream(non_blocking=True)

    def chain(probe: Probe) -> None:
        found = x
        for operation in (cupy.exp, cupy.sqrt, cupy.tanh, lambda each: each + y):
            found = operation(found)
            probe()

    def products(probe: Probe) -> None:
        found = square
        for _ in range(3):
            found = found @ square
            probe()

    def reductions(probe: Probe) -> None:
        for operation in (cupy.sum, cupy.argmax, cupy.sort, cupy.unique, cupy.cumsum):
            found = operation(x)
            probe()
            del found
        probe()

    def in_place(probe: Probe) -> None:
        found = x.copy()
        found += y
        probe()
        cupy.multiply(found, 2, out=found)
        probe()
        views = found.T, found[::2], found.ravel()
        probe()
        del found
        probe()
        del views
        probe()

    def free_all_blocks(probe: Probe) -> None:
        kept = []
        for size in (3 * MIB, 30 * MIB, 700):
            kept.append(cupy.zeros(size, cupy.uint8))
            cupy.zeros(2 * size, cupy.uint8)
            probe()
            cupy.get_default_memory_pool().free_all_blocks()
            probe()

    def streams(probe: Probe) -> None:
        with side:
            found = x * 2
            probe()
        side.synchronize()
        other = found + 1
        del found
        probe()
        del other
        probe()

    def exception(probe: Probe) -> None:
        found = x * 2
        probe()
        raise KeyError(found.shape)

    def with_pytorch(probe: Probe) -> None:
        found = torch.as_tensor(x * 2, device="cuda")
        probe()
        found = found + 1
        probe()
        back = cupy.asarray(found) * 2
        del found
        probe()
        del back
        probe()

    named = (chain, products, reductions, in_place, free_all_blocks, streams, exception, with_pytorch)
    return {f"CuPy: {each.__name__}": each for each in named}


def recorded(function: Function) -> tuple[Trace, dict[str, int]]:
    """Return the trace of a function, and the rise of each allocator above its bytes before."""
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    cupy.get_default_memory_pool().free_all_blocks()
    torch.cuda.reset_peak_memory_stats()
    own_bytes, pool_bytes = torch.cuda.memory_allocated(), cupy.get_default_memory_pool().used_bytes()
    with PoolPeak() as peak, suppress(KeyError), ss.record(function.__name__, memory=True) as recording:
        probe = Probe(recording)
        probe()
        function(probe)
    return recording.trace, {"PyTorch": torch.cuda.max_memory_allocated() - own_bytes, "CuPy": max(0, peak.most - pool_bytes)}


def compared(function: Function) -> dict[str, Any]:
    """Record a function, and compare its memory with the allocators at each operation."""
    trace, own_rise_bytes = recorded(function)
    memory, counters = trace.memory, trace.counters
    found: dict[str, Any] = {}
    for number, series in enumerate(counters.described):
        rows = counters.rows_of(number)
        held = _of_pools(memory, _LEVELS[series.name])
        off = held_bytes(held.start_ns, held.end_ns, held.bytes, counters.time_ns[rows]) - counters.value[rows].astype(np.int64)
        found[series.name] = {"operations": len(rows), "equal": int((off == 0).sum()), "most_off_bytes": int(np.abs(off).max())}
    lent = _of_pools(memory, Level.ALLOCATED)
    taken = lent.rows(lent.start_ns > BEFORE)
    rise_bytes = {kind: _most_bytes(taken.rows(np.isin(taken.kinds, [kind]))) for kind in own_rise_bytes}
    return found | {
        "rise_bytes": rise_bytes,
        "own_rise_bytes": own_rise_bytes,
        "equal": rise_bytes == own_rise_bytes and all(found[level]["most_off_bytes"] == 0 for level in _LEVELS),
        "allocations": len(taken),
        "with_line": int((taken.site >= 0).sum()),
        "in_this_file": sum(taken.sites[code].file == __file__ for code in taken.site.tolist() if code >= 0),
        "other_kinds": sorted({kind for kind in memory.kinds if kind not in POOLS}),
        "notes": [note for note in trace.info.notes if "emory" in note or "PyTorch" in note],
    }


def _of_pools(memory: Allocations, level: Level) -> Allocations:
    return memory.rows((memory.level == level) & (memory.gpu == torch.cuda.current_device()) & np.isin(memory.kinds, POOLS))


def _most_bytes(rows: Allocations) -> int:
    return int(held_bytes(rows.start_ns, rows.end_ns, rows.bytes, rows.start_ns).max(initial=0))


def costs_us() -> dict[str, float]:
    """Return the median time of a step of additions that each allocate, in us: not recorded, recorded, and with its memory."""
    a, b = torch.ones(2, 1024, device="cuda")

    def step_us() -> float:
        torch.cuda.synchronize()
        begin = time.perf_counter_ns()
        kept = [a + b for _ in range(ADDITIONS)]
        torch.cuda.synchronize()
        took_us = (time.perf_counter_ns() - begin) / 1e3
        del kept
        return took_us

    ways: dict[str, Callable[[], AbstractContextManager[Any]]] = {
        "plain": nullcontext, "ss.record": ss.record, "memory=True": lambda: ss.record(memory=True),
    }  # fmt: skip
    taken: dict[str, list[float]] = {way: [] for way in ways}
    for index in range(ROUNDS + 1):
        for way, block in ways.items():
            with block():
                step_us()
                took_us = step_us()
            if index:  # The first round loads CUPTI.
                taken[way].append(took_us)
    return {way: round(statistics.median(each), 1) for way, each in taken.items()}


def main() -> None:
    """Compare, print and keep the result."""
    device: Any = ss.open_device("cuda")
    functions = of_torch() | of_cupy()
    for function in functions.values():  # Compiles, and loads libraries.
        with suppress(KeyError):
            function(Probe())
    results = {}
    for name, function in functions.items():
        try:
            results[name] = compared(function)
        except Exception as error:  # noqa: BLE001 — one function's failure is a row that says why
            results[name] = {"equal": False, "failed": f"{type(error).__name__}: {error}"}
        print("equal" if results[name]["equal"] else "DIFFERS", name, results[name], flush=True)
    equal = sum(each["equal"] for each in results.values())
    costs = costs_us()
    print(
        f"{equal} of {len(results)} functions equal to the byte, at each operation and at the peak; a step of {ADDITIONS} additions, us:",
        costs,
    )
    content = {
        "what": "memory of ss.record(memory=True) against PyTorch's statistics and CuPy's pool at each operation, in bytes",
        **provenance(device, torch=torch.__version__, cupy=cupy.__version__),
        "allocator": os.environ.get("PYTORCH_CUDA_ALLOC_CONF", ""),
        "equal": equal,
        "of": len(results),
        "step_us": costs,
        "functions": results,
    }
    keep("memory_against_allocators.json", content)


if __name__ == "__main__":
    main()
