"""Find the kernels of a program without a GPU: prepare its launches once on a bench that only notes its calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from streamscope.kernels.source import KernelSource
from streamscope.program.launch import CudaBench, Launch
from streamscope.program.operation import Program
from streamscope.program.variable import ArraySpec
from streamscope.program.view import View, whole

if TYPE_CHECKING:
    from streamscope.kernels.compile.tuned_variants import TunedVariants

_ALIGNED = 4096
"""An address as good as that of any allocation of its own."""


def _array(spec: ArraySpec, view: View | None = None) -> Any:
    """Describe an array for a builder of launches: one in memory of its own, or a view of one."""
    seen = view or whole(spec)
    return SimpleNamespace(
        shape=seen.spec.shape,
        dtype=spec.dtype,
        size=seen.spec.size,
        nbytes=seen.spec.nbytes,
        ndim=len(seen.spec.shape),
        itemsize=spec.dtype.itemsize,
        strides=tuple(spec.dtype.itemsize * stride for stride in seen.strides),
        data=SimpleNamespace(ptr=_ALIGNED + spec.dtype.itemsize * seen.offset),
        reshape=lambda shape: _array(spec, seen.through(lambda array: np.reshape(array, shape, copy=False), "")),
    )


@dataclass
class _NotingBench:
    """Takes kernels as the bench of the CUDA device does, and notes them."""

    tuned: TunedVariants | None = None
    sources: dict[KernelSource, None] = field(default_factory=dict)

    @property
    def stream(self) -> _NotingBench:
        return self

    def workspace(self, nbytes: int) -> Any:
        return _array(ArraySpec((nbytes,), np.dtype(np.uint8)))

    def kernel(self, source: KernelSource, blocks: int, threads: int, arguments: Sequence[Any]) -> Callable[[], None]:
        if blocks:
            self.sources[source] = None
        return lambda: None


def program_kernels(program: Program, tuned: TunedVariants | None = None) -> tuple[KernelSource, ...]:
    """Return the generated kernels of a program, each once, in program order; ``tuned`` holds the choices of tuning.

    They are those for memory as it is allocated; an array of the user's that is aligned worse may need another form, which is then compiled
    when it is bound. Libraries, functions of the user's and captured code bring their own.
    """
    if program.captured:
        return ()
    return kernels_of_launches(program.launches(), [variable.spec for variable in program.variables], tuned)


def program_source(program: Program) -> str:
    """Return the sources of a program's generated kernels, each once, below a line that says which operations it is of."""
    specs = [variable.spec for variable in program.variables]
    users: dict[KernelSource, list[str]] = {}
    for operation in program.operations if not program.captured else ():
        for kernel in kernels_of_launches(operation.launches, specs):
            users.setdefault(kernel, []).append(str(operation))
    return "\n".join(f"// {', '.join(names)}\n{kernel.code}" for kernel, names in users.items())


def kernels_of_launches(
    launches: Iterable[Launch], specs: Sequence[ArraySpec], tuned: TunedVariants | None = None
) -> tuple[KernelSource, ...]:
    """Return the generated kernels that launches need; ``specs`` are those of the variables by id."""
    bench = _NotingBench(tuned)
    for launch in launches:
        if launch.cuda is not None and not launch.library:
            reads = [_array(specs[variable], view) for variable, view in launch.operands]
            writes = [_array(specs[variable], part) for variable, part in launch.results]
            launch.cuda(cast("CudaBench", bench), reads, writes)
    return tuple(bench.sources)
