"""Tuning: the variants of a program's element-wise kernels are timed on the GPU, and the fastest are kept: ``ss.tune``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from streamscope.calling import verb
from streamscope.compiling.warming import opened_cuda, traced_for
from streamscope.devices.cuda import CudaDevice
from streamscope.devices.protocol import Device
from streamscope.errors import DeviceError
from streamscope.kernels.compile.batch import compile_batch
from streamscope.kernels.compile.compilation_log import CompilationLog, compilations
from streamscope.kernels.elementwise.specialization import ElementwiseCall, specialized_fresh
from streamscope.kernels.form import DEFAULT, Variant
from streamscope.kernels.source import KernelSource
from streamscope.program.launch import Launch
from streamscope.program.operation import Program
from streamscope.program.variable import ArraySpec, MemoryPlace
from streamscope.progress import Progress, showing
from streamscope.results.result import Result
from streamscope.tracing import ProgramFunction
from streamscope.words import counted, time_text

if TYPE_CHECKING:
    from streamscope.calibrating.cost_probes import Probes

VARIANTS = (DEFAULT, *(Variant(vector_bytes, items) for vector_bytes in (16, 8, 4) for items in (1, 2, 4)))
_ROUNDS = 7
_TURN_NS = 200_000.0
"""Duration of one timing, about: enough launches of the same kernel, as a graph."""
_MOST_LAUNCHES = 100
LEAST_GAIN = 1.02
"""A variant that is less than so much faster than the default one may be so by chance, and is not chosen."""


@dataclass(frozen=True)
class TunedKernel:
    """One kernel for arrays of some shapes, and the times of its variants.

    Attributes
    ----------
    name : str
        Of the default variant's kernel.
    shapes : tuple of tuple of int
        Of the operands that are arrays, and of the result.
    medians_ns : mapping of Variant to float
        Median time of one launch among others of the same kernel in a graph, in ns; the default variant comes first. Variants that come
        out as the same kernel are there once.
    choice : Variant
    """

    name: str
    shapes: tuple[tuple[int, ...], ...]
    medians_ns: Mapping[Variant, float]
    choice: Variant

    @property
    def gain(self) -> float:
        """Time of the default variant over the chosen one's."""
        return self.medians_ns[DEFAULT] / self.medians_ns[self.choice]

    def to_dict(self) -> dict[str, Any]:
        """Return the kernel as JSON values."""
        return {
            "name": self.name,
            "shapes": [list(shape) for shape in self.shapes],
            "medians_ns": {described(variant): median_ns for variant, median_ns in self.medians_ns.items()},
            "choice": described(self.choice),
            "gain": self.gain,
        }


@dataclass(frozen=True, repr=False)
class Tuning(Result):
    """Result of tuning.

    Attributes
    ----------
    device : str
        Name of the GPU.
    kernels : tuple of TunedKernel
    log : CompilationLog
        How the variants were compiled.
    """

    view = "tuning"

    device: str
    kernels: tuple[TunedKernel, ...]
    log: CompilationLog

    def to_dict(self) -> dict[str, Any]:
        """Return each kernel with the times of its variants and the choice as JSON values; times in ns."""
        return {"device": self.device, "kernels": [kernel.to_dict() for kernel in self.kernels], "compilation": self.log.to_dict()}

    def __repr__(self) -> str:
        return f"<{self}>"  # Machine code is part of it, and notebooks keep what this returns.

    def __str__(self) -> str:
        if not self.kernels:
            return "no element-wise kernel to tune"
        lines = [f"{self.device}, {counted(len(self.kernels), 'kernel')}:"]
        for kernel in self.kernels:
            default, chosen = time_text(kernel.medians_ns[DEFAULT]), time_text(kernel.medians_ns[kernel.choice])
            faster = f"{chosen} with {described(kernel.choice)} ({kernel.gain:.2f}×)"
            kept = "the default stays" if kernel.choice == DEFAULT else faster
            lines.append(f"  {kernel.name} {list(kernel.shapes[-1])}: {default}; {kept}")
        return "\n".join(lines)


def described(variant: Variant) -> str:
    """Return a variant in words."""
    items = "as many vectors a thread as the size asks for" if variant.items is None else f"{variant.items} a thread"
    return f"vectors of {variant.vector_bytes} bytes, {items}"


@dataclass(frozen=True)
class _Problem:
    """A launch to be tuned: its kernel, and arrays like its own."""

    launch: Launch
    call: ElementwiseCall
    specs: tuple[ArraySpec, ...]

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        return tuple(spec.shape for spec in self.specs)

    @property
    def size(self) -> int:
        return self.specs[-1].size

    def candidates(self) -> dict[KernelSource, Variant]:
        """Return the kernels to choose from, the default one first, each once."""
        kernels: dict[KernelSource, Variant] = {}
        for variant in VARIANTS:
            kernels.setdefault(specialized_fresh(self.call.signature, self.shapes, variant).source, variant)
        return kernels


@verb
def tune(
    program: Callable[..., Any] | ProgramFunction | Program,
    /,
    *inputs: Any,
    device: str | Device = "auto",
    progress: bool | Progress = True,
    **attributes: Any,
) -> Tuning:
    """Time the variants of a program's element-wise kernels on this GPU, and use the fastest from now on, in later processes too.

    A variant differs in how many bytes a thread loads at once and how many vectors it has in flight; results stay the same to the bit. A
    choice counts for this kernel, this size and this GPU. Programs that are prepared already keep what they have.

    Parameters
    ----------
    {traceable}
    *inputs : array
        Arguments of the program: NumPy or CuPy arrays; only their shapes and dtypes count.
    device : {"auto", "cuda"} or Device
    {progress}
    {attributes}

    Returns
    -------
    Tuning
        Each kernel with the times of its variants and the choice; a notebook shows it as a table.

    Raises
    ------
    ProgramError
        It is not a program, or the inputs do not fit.
    DeviceError
        The device is simulated, or failed.
    CompilationError
        A variant does not compile.
    """
    problems = list(_problems(traced_for("ss.tune", program, inputs, attributes)))
    opened = opened_cuda(device)
    if opened is None:
        raise DeviceError("tuning times kernels on a GPU, and this device is simulated", hint="run ss.tune where there is a GPU")
    log = CompilationLog(copy_to=compilations())
    with showing("tuning", progress=progress) as shown:
        sources = {source: None for problem in problems for source in problem.candidates()}
        compiled = compile_batch(
            sources, opened.architecture, log=log, progress=lambda done, kernels: shown("compiling variants", done, kernels)
        )
        compiled.check()
        opened.load(compiled.cubins, log)
        kernels = []
        for number, problem in enumerate(problems):
            kernels.append(_tuned(problem, opened))
            shown(f"timing {kernels[-1].name}", number + 1, len(problems))
    return Tuning(opened.info.name, tuple(kernels), log)


def _problems(program: Program) -> Iterator[_Problem]:
    """Yield the launches to be tuned, those that are alike once."""
    seen = set()
    for launch in program.launches():
        # Candidates are timed on arrays without gaps.
        if isinstance(launch.cuda, ElementwiseCall) and not launch.views and not launch.written:
            signature = launch.cuda.signature
            operands = launch.reads[: len(signature.arrays)]
            specs = tuple(program.variables[variable].spec for variable in (*operands, launch.writes[-1]))
            key = signature, specs
            if specs[-1].size and key not in seen:
                seen.add(key)
                yield _Problem(launch, launch.cuda, specs)


def _tuned(problem: _Problem, device: CudaDevice) -> TunedKernel:
    from streamscope.calibrating.cost_probes import Probes

    probes = Probes(device)
    *reads, write = [_filled(device, spec) for spec in problem.specs]
    candidates = problem.candidates()
    launches = int(min(_MOST_LAUNCHES, max(1, _TURN_NS // device.estimate_ns(problem.launch))))
    graphs = {}
    for variant in candidates.values():
        graphs[variant], _ = probes.graph(problem.call(probes.bench, reads, [write], variant), launches)
    times: dict[Variant, list[float]] = {variant: [] for variant in graphs}
    for _ in range(_ROUNDS):
        for variant, graph in graphs.items():
            times[variant].append(_graph_ns(probes, graph) / launches)
    medians = {variant: float(np.median(values)) for variant, values in times.items()}
    choice = fastest(medians)
    default = next(iter(candidates))
    device.tuned.keep(default, problem.size, choice, medians)
    return TunedKernel(default.name, problem.shapes, medians, choice)


def fastest(medians_ns: Mapping[Variant, float]) -> Variant:
    """Return the variant with the least time; the default one, unless another is faster by more than chance."""
    best = min(medians_ns, key=lambda variant: medians_ns[variant])
    return best if medians_ns[best] * LEAST_GAIN < medians_ns[DEFAULT] else DEFAULT


def _graph_ns(probes: Probes, graph: Any) -> float:
    return probes.gated_ns(partial(graph.launch, probes.stream), repeats=1)


def _filled(device: CudaDevice, spec: ArraySpec) -> Any:
    """Return a device array of small positive values, which no operator takes for a special case."""
    array = device.allocate(spec, MemoryPlace.DEVICE).array
    array.fill(0.5 if spec.dtype.kind == "f" else 3)
    return array
