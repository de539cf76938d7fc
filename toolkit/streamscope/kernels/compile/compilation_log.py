"""The log of compilations: kernels, their origin, and the time of each stage; shown as a table and as a timeline."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from streamscope.kernels.compile.cubin import Cubin, KernelResources
from streamscope.kernels.compile.kernel_cache import Origin
from streamscope.results import views
from streamscope.results.result import Result
from streamscope.results.widgets import Timeline
from streamscope.trace.info import DeviceInfo, TraceInfo
from streamscope.trace.spans import SpanBuilder, SpanKind
from streamscope.trace.trace import Trace
from streamscope.words import counted, time_text

HOST = "host"
MOST_KEPT = 4096
"""Records that a log keeps, of each sort; the oldest go first."""


class CompileStage(StrEnum):
    """Stages from a program to kernels that can be launched. NVRTC makes machine code at once, so nothing is linked."""

    GENERATE = "generate"
    """Source is generated from the operators."""
    LOOK_UP = "look up"
    """Kernels are looked up in the cache, in memory and on disk."""
    COMPILE = "compile"
    """NVRTC compiles a translation unit."""
    STORE = "store"
    """A cubin is written to the cache."""
    WAIT = "wait"
    """Another thread or process compiles the same kernel."""
    LOAD = "load"
    """The driver loads a cubin onto the device."""


@dataclass(frozen=True)
class StageTime:
    """One stage for one or several kernels.

    Attributes
    ----------
    stage : CompileStage
    what : str
        The kernel, or how many.
    lane : str
        The host thread: ``"host"``, or a worker.
    start_ns, end_ns : int
        By `time.perf_counter_ns`.
    code_bytes : int
        Size of the cubin that came of it; 0 for none.
    """

    stage: CompileStage
    what: str
    lane: str
    start_ns: int
    end_ns: int
    code_bytes: int = 0


@dataclass(frozen=True)
class KernelRecord:
    """One kernel that was asked for.

    Attributes
    ----------
    name, architecture : str
    origin : Origin
        Where it came from.
    cubin : Cubin, optional
        The machine code; None where it failed.
    source : str
        The CUDA source that was asked for.
    """

    name: str
    architecture: str
    origin: Origin
    cubin: Cubin | None = field(default=None, repr=False)
    source: str = field(default="", repr=False)

    @property
    def compile_ns(self) -> float:
        """Its equal share of the time that its translation unit took, whenever that was compiled; 0 where it failed."""
        return self.cubin.compile_ns / self.cubin.kernels if self.cubin is not None else 0.0

    @property
    def resources(self) -> KernelResources | None:
        """Registers, shared and local memory; None where unknown."""
        return self.cubin.resources.get(self.name) if self.cubin is not None else None

    def to_dict(self) -> dict[str, Any]:
        """Return the kernel as JSON values, without source and machine code."""
        resources = None if self.resources is None else asdict(self.resources)
        return {
            "name": self.name,
            "architecture": self.architecture,
            "origin": self.origin.value,
            "compile_ns": self.compile_ns,
            "resources": resources,
        }


@dataclass(frozen=True)
class LaunchCost:
    """Host time to launch one small generated kernel, in ns."""

    device: str
    """Name of the GPU."""
    plain_ns: float
    """The driver's own launch, arguments packed."""
    prepared_ns: float
    """From a prepared program, under ``async``."""
    pushed_ns: float
    """By ``Engine.push``, which looks the kernel up; an event is recorded too."""


@dataclass(repr=False)
class CompilationLog(Result):
    """Kernels that were asked for, and the stages that this took. Several threads may write to it.

    Attributes
    ----------
    kernels : deque of KernelRecord
    stages : deque of StageTime
    copy_to : CompilationLog, optional
        Another log that gets every record, too.
    launch_cost : LaunchCost, optional
        Cost of launching such kernels, where that was measured.
    """

    view = "compilation"

    copy_to: CompilationLog | None = None
    kernels: deque[KernelRecord] = field(default_factory=lambda: deque(maxlen=MOST_KEPT))
    stages: deque[StageTime] = field(default_factory=lambda: deque(maxlen=MOST_KEPT))
    launch_cost: LaunchCost | None = None

    def note_launch_cost(self, cost: LaunchCost) -> None:
        """Note the cost of a launch."""
        for log in self._logs():
            log.launch_cost = cost

    def add_kernel(self, record: KernelRecord) -> None:
        """Note a kernel."""
        for log in self._logs():
            log.kernels.append(record)

    def add_stage(self, record: StageTime) -> None:
        """Note a stage."""
        for log in self._logs():
            log.stages.append(record)

    @contextmanager
    def stage(self, stage: CompileStage, what: str, code_bytes: int = 0) -> Iterator[None]:
        """Note the block as a stage, whether it succeeds or not."""
        start_ns = time.perf_counter_ns()
        try:
            yield
        finally:
            self.add_stage(StageTime(stage, what, _lane(), start_ns, time.perf_counter_ns(), code_bytes))

    def _logs(self) -> Iterator[CompilationLog]:
        """Yield this log, and those that get every record, too."""
        log: CompilationLog | None = self
        while log is not None:
            yield log
            log = log.copy_to

    @property
    def counts(self) -> dict[Origin, int]:
        """How many kernels came from where."""
        origins = Counter(record.origin for record in list(self.kernels))
        return {origin: origins[origin] for origin in Origin if origins[origin]}

    @property
    def stage_ns(self) -> dict[CompileStage, int]:
        """Time of each stage, added up over all threads, in ns."""
        totals: Counter[CompileStage] = Counter()
        for record in list(self.stages):
            totals[record.stage] += record.end_ns - record.start_ns
        return {stage: totals[stage] for stage in CompileStage if stage in totals}

    @property
    def wall_ns(self) -> int:
        """Time in which at least one thread was at a stage, in ns."""
        busy, until = 0, 0
        for start, end in sorted((record.start_ns, record.end_ns) for record in list(self.stages)):
            busy += max(0, end - max(start, until))
            until = max(until, end)
        return busy

    @property
    def code_bytes(self) -> int:
        """Machine code of all kernels, each once, in bytes."""
        resources = {(record.name, record.architecture): record.resources for record in list(self.kernels)}
        return sum(each.code_bytes for each in resources.values() if each is not None)

    def trace(self, label: str = "compilation", program: str = "kernels") -> Trace:
        """Return the stages as a trace, a lane a thread, from the first one's start: so that a timeline can show them.

        Parameters
        ----------
        label : str
            Name in the timeline, in the place of an engine.
        program : str
        """
        stages = list(self.stages)
        spans = SpanBuilder(lane_order(stages))
        zero_ns = min((record.start_ns for record in stages), default=0)
        for record in stages:
            name = f"{record.stage}: {record.what}"
            start_ns, end_ns = record.start_ns - zero_ns, record.end_ns - zero_ns
            spans.add(SpanKind.COMPILE, name, record.lane, start_ns, end_ns, nbytes=record.code_bytes)
        architectures = sorted({record.architecture for record in list(self.kernels)})
        device = DeviceInfo("cuda", f"NVRTC for {', '.join(architectures) or 'no architecture'}, on this machine's processor")
        return Trace(spans.build(), TraceInfo(label, program, device, recorder="host clock"))

    def timeline(self, label: str = "compilation") -> Timeline:
        """Return the stages as a live timeline, a lane a thread (a notebook widget)."""
        return views.timeline(self, label)

    def to_dict(self) -> dict[str, Any]:
        """Return the kernels and the times of the stages as JSON values; times in ns."""
        return {
            "kernels": [record.to_dict() for record in list(self.kernels)],
            "stages_ns": {str(stage): time_ns for stage, time_ns in self.stage_ns.items()},
            "wall_ns": self.wall_ns,
            "code_bytes": self.code_bytes,
            "launch_cost": None if self.launch_cost is None else asdict(self.launch_cost),
        }

    def __repr__(self) -> str:
        return f"<{self}>"  # Machine code is part of it, and notebooks keep what this returns.

    def __str__(self) -> str:
        counts = ", ".join(f"{count} {_WORDS[origin]}" for origin, count in self.counts.items())
        times = ", ".join(f"{stage} {time_text(ns)}" for stage, ns in self.stage_ns.items())
        return f"{counted(len(self.kernels), 'kernel')}: {counts or 'none'}; {self.code_bytes:,} bytes of device code; {times or 'no time'}"


_WORDS = {Origin.MEMORY: "from memory", Origin.DISK: "from disk", Origin.COMPILED: "compiled", Origin.FAILED: "failed"}
_SESSION = CompilationLog()


def compilations() -> CompilationLog:
    """Return the kernels that this process has compiled or taken from the cache; a notebook shows them as a table.

    Returns
    -------
    CompilationLog
        Its newest 4096 kernels, each with its source, registers and share of the compile time, and as many stages.

    Examples
    --------
    >>> @ss.program
    ... def twice(x):
    ...     return x + x
    >>> warmed = ss.warm(twice, np.ones(1024, np.float32), device="simulated", progress=False)  # compiles what no cache has
    >>> kernel = ss.compilations().kernels[-1]
    >>> kernel.name, kernel.architecture
    ('add_float32_x4_...', 'sm_90')
    >>> kernel.resources.registers <= 32
    True
    """
    return _SESSION


def lane_order(stages: Sequence[StageTime]) -> list[str]:
    """Return the lanes of stages, the host first, then the workers by number."""
    return sorted({record.lane for record in stages}, key=lambda lane: (lane != HOST, len(lane), lane))


def _lane() -> str:
    thread = threading.current_thread()
    return thread.name if thread.name.startswith("worker ") else HOST


def several(names: Sequence[str]) -> str:
    """Name a stage for these kernels."""
    return names[0] if len(names) == 1 else f"{len(names)} kernels"
