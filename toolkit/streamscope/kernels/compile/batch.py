"""Compile kernels together: those that are not cached, in groups, on several threads. One that fails takes no other down.

A translation unit costs NVRTC 20 to 40 ms besides its kernels, so the kernels of a group share one, each in a namespace of its own.

Threads, not processes: NVRTC leaves the interpreter's lock alone, though it does a part of its work for one thread at a time. New processes
took about as long (see ``benchmarks/batched_compilation.py``), and would import the user's main module once more.
"""

from __future__ import annotations

import heapq
import itertools
import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from streamscope.arguments import whole_number
from streamscope.errors import CompilationError
from streamscope.host_memory import free_bytes
from streamscope.interrupts import deferred
from streamscope.kernels.compile.compilation_log import CompilationLog, CompileStage, KernelRecord, compilations, several
from streamscope.kernels.compile.cubin import Cubin
from streamscope.kernels.compile.kernel_cache import KernelCache, Origin, kernel_cache, kernel_key
from streamscope.kernels.compile.nvrtc import compile_unit, nvrtc_version, rejected
from streamscope.kernels.source import HALF_CONVERSIONS, STAMPS, VECTORS, WRAPPING, KernelSource

Group = tuple[KernelSource, ...]

SHARED = (STAMPS, WRAPPING, HALF_CONVERSIONS, VECTORS)
WORKER_BYTES = 256 * 2**20
"""Memory that NVRTC takes for one translation unit: up to 160 MiB were measured."""


def unique_sources(sources: Iterable[KernelSource]) -> Group:
    """Return each kernel once, in order."""
    by_name: dict[str, KernelSource] = {}
    for source in sources:
        if by_name.setdefault(source.name, source) != source:
            raise CompilationError(
                f"two different kernels are called {source.name!r}", hint="make the name from the source, as named_source does"
            )
    return tuple(by_name.values())


def worker_count(asked: int | None = None) -> int:
    """Return how many translation units are compiled side by side: as asked for, else one a core, as far as memory is free."""
    if asked is not None:
        return whole_number("workers", asked, 1, error=CompilationError)
    return max(1, min(len(os.sched_getaffinity(0)), free_bytes() // WORKER_BYTES))


def grouped(sources: Sequence[KernelSource], count: int) -> list[Group]:
    """Return at most ``count`` groups of about equal expected cost, the costliest first.

    The expected cost of a kernel is the length of its source. True times would gain little, since groups wait for each
    other in NVRTC.
    """
    costs = {source: len(source.code) for source in sources}
    loads = [(0, number) for number in range(min(count, len(costs)))]
    groups: list[list[KernelSource]] = [[] for _ in loads]
    for source in sorted(costs, key=lambda source: (-costs[source], source.name)):
        load, number = loads[0]
        groups[number].append(source)
        heapq.heapreplace(loads, (load + costs[source], number))
    return sorted(map(tuple, groups), key=lambda group: sum(costs[source] for source in group), reverse=True)


def unit_code(group: Group) -> str:
    """Return the translation unit of a group; its errors name each kernel, and lines of its own source.

    The pieces that many generated kernels begin with come once, before all of them.
    """
    begun = [_begun(source.code) for source in group]
    shared = dict.fromkeys(piece for pieces, _, _ in begun for piece in pieces)
    spaces = [
        f'namespace kernel_{number} {{\n#line {line} "{source.name}.cu"\n{rest}\n}}'
        for number, (source, (_, rest, line)) in enumerate(zip(group, begun, strict=True))
    ]
    return "\n".join([*shared, *spaces])


def _begun(code: str) -> tuple[list[str], str, int]:
    """Return the shared pieces that a source begins with, the rest, and the number of the rest's first line."""
    pieces, rest = [], code
    while (piece := next((each for each in SHARED if rest.startswith(each)), None)) is not None:
        pieces.append(piece)
        rest = rest[len(piece) :].lstrip("\n")
    return pieces, rest, 1 + code[: len(code) - len(rest)].count("\n")


_POLL_S = 0.005
_NOTICE_S = 0.1
PATIENCE_S = 120.0
"""How long nothing may come of somebody else's claims; then the kernels are compiled here, too."""
MOST_IN_GROUP = 64
"""So that the progress shows, and Ctrl-C, which no group notices, need not wait long."""

_Progress = Callable[[int, int], None]
"""``progress(kernels done, kernels)``, called in the thread that asks for the batch."""


@dataclass(frozen=True)
class BatchResult:
    """Outcome of a batch."""

    cubins: Mapping[KernelSource, Cubin]
    """The machine code with each kernel that compiled."""
    failures: Mapping[KernelSource, CompilationError]
    """Why others did not; each error shows the line of `elementwise` that is wrong, or NVRTC's log and the kernel's source."""
    log: CompilationLog

    def check(self) -> None:
        """Raise the error of the kernel that failed; of several, one with their names and the error of the first."""
        errors = list(self.failures.values())
        if len(errors) > 1:
            names = ", ".join(source.name for source in self.failures)
            raise CompilationError(f"{len(errors)} kernels did not compile ({names}); the first:\n{errors[0].message}", hint=errors[0].hint)
        if errors:
            raise errors[0]


def compile_batch(
    sources: Iterable[KernelSource],
    architecture: str,
    *,
    workers: int | None = None,
    cache: KernelCache | None = None,
    log: CompilationLog | None = None,
    progress: _Progress | None = None,
) -> BatchResult:
    """Compile kernels together; those that the cache has are taken from there.

    The same kernel may come several times. ``workers`` are threads, by default as many as cores and free memory allow. The ``log`` takes
    the place of `compilations`; one made with ``copy_to=compilations()`` passes on its records.
    """
    unique = unique_sources(sources)
    noted = log if log is not None else CompilationLog(copy_to=compilations())
    batch = _Batch(architecture, worker_count(workers), cache or kernel_cache(), noted, progress)
    with noted.stage(CompileStage.LOOK_UP, "NVRTC's version"):
        batch.sources = {kernel_key(source, architecture): source for source in unique}
    batch.run()
    # In the order that was asked for, not in that of the threads.
    failures = {source: batch.failures[source] for source in batch.sources.values() if source in batch.failures}
    return BatchResult(batch.cubins, failures, noted)


def compile_kernel(source: KernelSource, architecture: str, *, cache: KernelCache | None = None) -> Cubin:
    """Return the machine code of one kernel, from the cache or compiled."""
    result = compile_batch([source], architecture, workers=1, cache=cache)
    result.check()
    return result.cubins[source]


@dataclass
class _Batch:
    """The kernels of one batch on their way."""

    architecture: str
    workers: int
    cache: KernelCache
    log: CompilationLog
    progress: _Progress | None
    sources: dict[str, KernelSource] = field(default_factory=dict)
    cubins: dict[KernelSource, Cubin] = field(default_factory=dict)
    failures: dict[KernelSource, CompilationError] = field(default_factory=dict)
    claimed: list[str] = field(default_factory=list)
    stopped: bool = False

    def run(self) -> None:
        stage = CompileStage.LOOK_UP
        while waiting := [key for key, source in self.sources.items() if source not in self.cubins and source not in self.failures]:
            try:
                with self.log.stage(stage, several([self.sources[key].name for key in waiting])):
                    found, mine = self._looked_up(waiting, PATIENCE_S if stage is CompileStage.WAIT else 0)
                for key, (cubin, origin) in found.items():
                    self._deliver(self.sources[key], cubin, origin)
                self._report()
                if mine:
                    self._compile(mine)
            finally:
                with deferred():
                    self.cache.give_up(self.claimed)
                    self.claimed = []
            stage = CompileStage.WAIT

    def _looked_up(self, keys: Sequence[str], patience_s: float) -> tuple[dict[str, tuple[Cubin, Origin]], list[str]]:
        """Return the cached kernels, and those to compile here; look again for a time while both are empty."""
        until_s = time.monotonic() + patience_s
        while True:
            with deferred():  # so that Ctrl-C leaves no claim that nobody knows of
                found, self.claimed = self.cache.find_or_claim(keys)
            if found or self.claimed or not patience_s:
                return found, self.claimed
            if time.monotonic() > until_s:
                return found, list(keys)
            time.sleep(_POLL_S)

    def _compile(self, keys: Sequence[str]) -> None:
        keys_of = {self.sources[key]: key for key in keys}
        groups = grouped(list(keys_of), group_count(len(keys), self.workers))
        names = itertools.count(1)

        def name_worker() -> None:
            threading.current_thread().name = f"worker {next(names)}"

        pool = ThreadPoolExecutor(min(self.workers, len(groups)), initializer=name_worker)
        try:
            pending = {pool.submit(self._compile_group, group, keys_of) for group in groups}
            while pending:
                # For a while only: Ctrl-C may reach another thread, and this one would notice when something is done.
                done, pending = wait(pending, timeout=_NOTICE_S, return_when=FIRST_COMPLETED)
                for future in done:
                    future.result()
                self._report()
        finally:
            self.stopped = True  # after an error, or Ctrl-C: groups that are under way are finished and kept, no other is begun
            pool.shutdown(cancel_futures=True)
            self.stopped = False

    def _compile_group(self, group: Group, keys_of: Mapping[KernelSource, str]) -> None:
        if self.stopped:
            return
        start_ns = time.perf_counter_ns()
        with self.log.stage(CompileStage.COMPILE, several([source.name for source in group])):
            image, log = compile_unit(unit_code(group), several([source.name for source in group]).replace(" ", "_"), self.architecture)
        compile_ns = time.perf_counter_ns() - start_ns
        if image is None:
            self._isolate(group, log, keys_of)
            return
        cubin = Cubin(image, self.architecture, nvrtc_version(), compile_ns, len(group))
        with self.log.stage(CompileStage.STORE, several([source.name for source in group]), len(image)):
            self.cache.keep([keys_of[source] for source in group], cubin)
        for source in group:
            self._deliver(source, cubin, Origin.COMPILED)

    def _isolate(self, group: Group, log: str, keys_of: Mapping[KernelSource, str]) -> None:
        """Find the kernels that broke a group by halving it, and compile the others without them."""
        if len(group) == 1:
            self._fail(group[0], rejected(group[0], self.architecture, log))
            return
        half = len(group) // 2
        for part in (group[:half], group[half:]):
            self._compile_group(part, keys_of)

    def _deliver(self, source: KernelSource, cubin: Cubin, origin: Origin) -> None:
        self.cubins[source] = cubin
        self.log.add_kernel(KernelRecord(source.name, self.architecture, origin, cubin, source.code))

    def _fail(self, source: KernelSource, error: CompilationError) -> None:
        self.failures[source] = error
        self.log.add_kernel(KernelRecord(source.name, self.architecture, Origin.FAILED, source=source.code))

    def _report(self) -> None:
        if self.progress is not None:
            self.progress(len(self.cubins) + len(self.failures), len(self.sources))


def group_count(kernels: int, workers: int) -> int:
    """Return how many groups some kernels are compiled in.

    One more group makes the others smaller, but has a part that NVRTC does for one group at a time. With a kernel's own time about twice
    that part, the best count is the root of twice the kernels; measured on 16 cores for 8, 16, 32 and 128 kernels, it is. More groups than
    workers cost more than they balance.
    """
    return max(-(-kernels // MOST_IN_GROUP), min(round(math.sqrt(2 * kernels)), workers))
