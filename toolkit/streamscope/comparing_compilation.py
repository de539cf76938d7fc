"""Compiling a program's kernels one by one and together, to see what batches bring: ``ss.compare_compilation``."""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamscope.errors import ProgramError
from streamscope.program.operation import Program
from streamscope.program.tracing import ProgramFunction
from streamscope.progress import Progress, showing
from streamscope.rtc.batch import compile_batch
from streamscope.rtc.compilation_log import CompilationLog
from streamscope.rtc.kernel_cache import KernelCache
from streamscope.rtc.needed import needed_kernels
from streamscope.rtc.nvrtc import nvrtc_version
from streamscope.rtc.source import KernelSource
from streamscope.warming import architecture_of, opened_cuda, traced_for

if TYPE_CHECKING:
    from streamscope_widgets.timeline import TimelineWidget

_TURNS = itertools.count(time.time_ns())


@dataclass(frozen=True, repr=False)
class CompilationComparison:
    """The same kernels, compiled one by one and together, both without anything in a cache.

    Attributes
    ----------
    program : str
    one_by_one, together : CompilationLog
    """

    program: str
    one_by_one: CompilationLog
    together: CompilationLog

    @property
    def faster(self) -> float:
        """Time of one by one over that of together."""
        return self.one_by_one.wall_ns / self.together.wall_ns

    def timeline(self) -> TimelineWidget:
        """Return both as live timelines on one time axis, a lane a thread (a notebook widget)."""
        from streamscope_widgets.timeline import timeline

        return timeline([self.one_by_one.trace("one by one", self.program), self.together.trace("together", self.program)])

    def _repr_html_(self) -> str:
        from streamscope_widgets.compilation_comparison_view import compilation_comparison_html

        return compilation_comparison_html(self)

    def __repr__(self) -> str:
        return f"<{self}>"  # Machine code is part of it, and notebooks keep what this returns.

    def __str__(self) -> str:
        times = [f"{log.wall_ns / 1e6:,.0f} ms" for log in (self.one_by_one, self.together)]
        kernels = len(self.together.kernels)
        compiled = "1 kernel compiles" if kernels == 1 else f"{kernels} kernels compile"
        return f"{self.program}: {compiled} in {times[0]} one by one and in {times[1]} together, {self.faster:.1f}× faster"


def compare_compilation(
    program: ProgramFunction | Program,
    *inputs: Any,
    device: Any = "auto",
    architecture: str | None = None,
    workers: int | None = None,
    progress: bool | Progress = True,
) -> CompilationComparison:
    """Compile all kernels that a program needs twice, one by one and together, and show both. It needs no GPU, and no cache is used.

    NVRTC has a cache of its own where there is a driver, so each source differs from all before by a constant that nothing uses.

    Parameters
    ----------
    program : ProgramFunction or Program
        Made by ``@ss.program``, or what its ``trace`` returns, which takes no inputs.
    *inputs : array
        Arguments of the program: NumPy or CuPy arrays.
    device : {"auto", "cuda", "simulated"} or Device
        For which device.
    architecture : str, optional
        Compile for this instead, for example ``"sm_100"``.
    workers : int, optional
        Threads that compile together; by default as many as cores and free memory allow.
    progress : bool or callable
        Show a progress bar, or call ``progress(what, step, steps)``.

    Raises
    ------
    ProgramError
        It is no program, the inputs do not fit, or it needs no kernel that is made at run time.
    CompilationError
        A kernel does not compile.
    NoDeviceError
        The device is missing, or NVRTC is.
    """
    traced = traced_for("ss.compare_compilation", program, inputs)
    kernels = needed_kernels(traced)
    if not kernels:
        raise ProgramError(
            f"{traced.name!r} needs no kernel that is made at run time", hint="give it element-wise operations or reductions"
        )
    nvrtc_version()  # loads NVRTC, which belongs to neither
    target = architecture or architecture_of(opened_cuda(device))
    with tempfile.TemporaryDirectory() as folder, showing("compiling", progress=progress) as shown:
        one_by_one, together = CompilationLog(), CompilationLog()
        cache = KernelCache(Path(folder) / "one by one")
        for number, source in enumerate(never_compiled(kernels)):
            compile_batch([source], target, workers=1, cache=cache, log=one_by_one).check()
            shown("one by one", number + 1, 2 * len(kernels))
        compile_batch(
            never_compiled(kernels),
            target,
            workers=workers,
            cache=KernelCache(Path(folder) / "together"),
            log=together,
            progress=lambda done, count: shown("together", count + done, 2 * count),
        ).check()
    return CompilationComparison(traced.name, one_by_one, together)


def never_compiled(kernels: Iterable[KernelSource]) -> list[KernelSource]:
    """Return kernels whose sources differ from all before by a constant that nothing uses."""
    turn = next(_TURNS)
    return [KernelSource(kernel.name, f"{kernel.code}\nconstexpr long long turn = {turn};\n") for kernel in kernels]
