"""Compile a program's kernels one by one and together, to show the gain of batches: ``ss.compare_compilation``."""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamscope.analysis.statistics import FEWEST_FOR_INTERVAL, Ranking
from streamscope.arguments import whole_number
from streamscope.calling import verb
from streamscope.compiling.warming import target_of, traced_for
from streamscope.devices.protocol import Device
from streamscope.errors import CompilationError, ProgramError
from streamscope.kernels.compile.batch import compile_batch, worker_count
from streamscope.kernels.compile.compilation_log import CompilationLog
from streamscope.kernels.compile.kernel_cache import KernelCache
from streamscope.kernels.compile.nvrtc import nvrtc_version
from streamscope.kernels.compile.program_kernels import program_kernels
from streamscope.kernels.source import KernelSource
from streamscope.program.operation import Program
from streamscope.progress import Progress, showing
from streamscope.results import views
from streamscope.results.result import Result
from streamscope.results.widgets import Timeline
from streamscope.trace.file_checks import MOST_REPEATS
from streamscope.tracing import ProgramFunction
from streamscope.words import time_text

_ONE_BY_ONE, _TOGETHER = "one by one", "together"
_NOISE = 0.05
"""Noise of compilation times, as a share: a smaller difference in one repeat is not called faster."""
_TURNS = itertools.count(time.time_ns())


@dataclass(frozen=True, repr=False)
class CompilationComparison(Result):
    """The same kernels, compiled one by one and together, both without anything in a cache.

    Attributes
    ----------
    program : str
    one_by_one, together : CompilationLog
        Of the repeat with the median time.
    ratios : tuple of float
        Time of one by one over that of together, of each repeat.
    """

    view = "compilation-comparison"

    program: str
    one_by_one: CompilationLog
    together: CompilationLog
    ratios: tuple[float, ...]

    @property
    def faster(self) -> float:
        """Median time of one by one over that of together."""
        return self.one_by_one.wall_ns / self.together.wall_ns

    @property
    def words(self) -> str:
        """How together compares with one by one: with every repeat beyond the noise, or not at all."""
        if len(self.together.kernels) == 1:
            return "alone, one by one and together are the same"
        if len(self.ratios) < FEWEST_FOR_INTERVAL:
            return Ranking.UNKNOWN.value
        if min(self.ratios) > 1 + _NOISE:
            return f"{self.faster:.1f}× faster"
        return "slower" if max(self.ratios) < 1 - _NOISE else "no clear difference"

    def timeline(self) -> Timeline:
        """Return both as live timelines on one time axis, a lane a thread (a notebook widget)."""
        return views.timeline(self)

    def to_dict(self) -> dict[str, Any]:
        """Return both logs and the ratios as JSON values; times in ns."""
        return {
            "program": self.program,
            "ratios": list(self.ratios),
            "words": self.words,
            "one_by_one": self.one_by_one.to_dict(),
            "together": self.together.to_dict(),
        }

    def __repr__(self) -> str:
        return f"<{self}>"  # Machine code is part of it, and notebooks keep what this returns.

    def __str__(self) -> str:
        times = [time_text(log.wall_ns) for log in (self.one_by_one, self.together)]
        kernels = len(self.together.kernels)
        compiled = "1 kernel compiles" if kernels == 1 else f"{kernels} kernels compile"
        least, most = min(self.ratios), max(self.ratios)
        if kernels == 1:
            return f"{self.program}: {compiled} in {times[0]} and in {times[1]}: {self.words}"
        spread = f" ({least:.1f}× to {most:.1f}× in {len(self.ratios)} repeats)" if len(self.ratios) > 1 else ""
        return f"{self.program}: {compiled} in {times[0]} one by one and in {times[1]} together, {self.words}{spread}"


@verb
def compare_compilation(
    program: Callable[..., Any] | ProgramFunction | Program,
    /,
    *inputs: Any,
    device: str | Device = "auto",
    repeats: int = FEWEST_FOR_INTERVAL,
    progress: bool | Progress = True,
    architecture: str | None = None,
    workers: int | None = None,
    **attributes: Any,
) -> CompilationComparison:
    """Compile all kernels that a program needs one by one and together, in turns, and show both. It needs no GPU, and no cache is used.

    NVRTC has a cache of its own where there is a driver, so each source differs from all before by a constant that nothing uses.

    Parameters
    ----------
    {traceable}
    {inputs}
    {device}
    repeats : int
        How often both are done; fewer than in `compare`, since one takes seconds. Below six, no difference is told.
    {progress}
    architecture : str, optional
        Compile for this, for example ``"sm_100"``, whatever the device, which is not opened.
    {workers}
    {attributes}

    Raises
    ------
    ProgramError
        It is not a program, the inputs do not fit, or it needs no kernel that is made at run time. Or ``progress`` is neither a truth
        value nor a function.
    CompilationError
        A kernel does not compile, NVRTC does not know the architecture, or a number is out of range.
    DeviceError
        It is not a device.
    NoDeviceError
        The device is missing, or NVRTC is.
    """
    traced = traced_for("ss.compare_compilation", program, inputs, attributes)
    _, target = target_of(device, architecture)
    kernels = program_kernels(traced)
    if not kernels:
        raise ProgramError(
            f"{traced.name!r} needs no kernel that is made at run time", hint="give it element-wise operations or reductions"
        )
    nvrtc_version()  # loads NVRTC, which belongs to neither
    whole_number("repeats", repeats, 1, most=MOST_REPEATS, error=CompilationError)
    threads = worker_count(workers)
    logs: dict[str, list[CompilationLog]] = {_ONE_BY_ONE: [], _TOGETHER: []}
    with showing("compiling", progress=progress) as shown:
        for repeat in range(repeats):
            # By turns which is first, so that drifts meet both alike.
            for way in list(logs) if repeat % 2 == 0 else list(reversed(logs)):
                shown(way, sum(map(len, logs.values())), 2 * repeats)
                logs[way].append(_compiled(kernels, target, 1 if way == _ONE_BY_ONE else threads, together=way == _TOGETHER))
    ratios = tuple(one.wall_ns / many.wall_ns for one, many in zip(*logs.values(), strict=True))
    return CompilationComparison(traced.name, _median(logs[_ONE_BY_ONE]), _median(logs[_TOGETHER]), ratios)


def _compiled(kernels: Sequence[KernelSource], architecture: str, workers: int, *, together: bool) -> CompilationLog:
    """Compile kernels as if for the first time."""
    log, unseen = CompilationLog(), never_compiled(kernels)
    with tempfile.TemporaryDirectory() as folder:
        cache = KernelCache(Path(folder))
        for batch in [unseen] if together else [[kernel] for kernel in unseen]:
            result = compile_batch(batch, architecture, workers=workers, cache=cache, log=log)
            if result.failures:
                # Once more, for an error that names all that fail, and shows their sources as their user knows them.
                compile_batch(kernels, architecture, workers=workers, cache=cache, log=log).check()
                result.check()
    return log


def _median(logs: Sequence[CompilationLog]) -> CompilationLog:
    return sorted(logs, key=lambda log: log.wall_ns)[len(logs) // 2]


def never_compiled(kernels: Iterable[KernelSource]) -> list[KernelSource]:
    """Return kernels whose sources differ from all before by a constant that nothing uses."""
    turn = next(_TURNS)
    return [KernelSource(kernel.name, f"{kernel.code}\n[[maybe_unused]] constexpr long long turn = {turn};\n") for kernel in kernels]
