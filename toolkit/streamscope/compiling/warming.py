"""Compiling all that a program needs before it is prepared: ``ss.warm``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from streamscope.calling import traced, verb
from streamscope.devices import check_device, open_device
from streamscope.devices.cuda import CudaDevice
from streamscope.devices.protocol import Device
from streamscope.errors import ProgramError
from streamscope.kernels.compile.batch import compile_batch
from streamscope.kernels.compile.compilation_log import CompilationLog, CompileStage, compilations
from streamscope.kernels.compile.nvrtc import checked_architecture
from streamscope.kernels.compile.program_kernels import program_kernels
from streamscope.program.foreign import ForeignProgram
from streamscope.program.operation import Program
from streamscope.progress import Progress, showing
from streamscope.tracing import ProgramFunction

_SIMULATED_ARCHITECTURE = "sm_90"
"""Architecture for the simulated device, a model of an H200."""


@verb
def warm(
    program: Callable[..., Any] | ProgramFunction | Program,
    /,
    *inputs: Any,
    device: str | Device = "auto",
    progress: bool | Progress = True,
    architecture: str | None = None,
    workers: int | None = None,
    **attributes: Any,
) -> CompilationLog:
    """Compile all kernels that a program needs, together, and keep them: preparing it then compiles nothing, in later processes too.

    It needs no GPU. On a CUDA device, the kernels are also loaded.

    Parameters
    ----------
    {traceable}
    {inputs}
    {device}
    {progress}
    architecture : str, optional
        Compile for this, for example ``"sm_100"``, whatever the device, which is not opened, and load nothing.
    {workers}
    {attributes}

    Returns
    -------
    CompilationLog
        Which kernels were compiled and which were there, and how long each stage took; a notebook shows it as a table.

    Raises
    ------
    ProgramError
        It is not a program, the inputs do not fit, or ``progress`` is neither a truth value nor a function.
    CompilationError
        A kernel does not compile; the others are kept. Or NVRTC does not know the architecture, or ``workers`` is out of range.
    DeviceError
        It is not a device.
    NoDeviceError
        The device is missing, or NVRTC is.
    """
    log = CompilationLog(copy_to=compilations())
    needs = traced_for("ss.warm", program, inputs, attributes)
    opened, target = target_of(device, architecture)
    with log.stage(CompileStage.GENERATE, needs.name):
        sources = program_kernels(needs, opened.tuned if opened is not None else None)
    what = f"compiling for {target}"
    with showing(what, progress=progress) as shown:
        result = compile_batch(sources, target, workers=workers, log=log, progress=lambda done, kernels: shown(what, done, kernels))
    result.check()
    if opened is not None:
        from streamscope.compiling.launch_cost import launch_cost

        opened.load(result.cubins, log)
        log.note_launch_cost(launch_cost(opened))
    return log


def target_of(device: Any, architecture: str | None) -> tuple[CudaDevice | None, str]:
    """Return the CUDA device and the architecture to compile for; no device where there is none or an architecture is given."""
    if architecture is None:
        opened = opened_cuda(device)
        return opened, _architecture_of(opened)
    check_device(device)
    return None, checked_architecture(architecture)


def opened_cuda(device: Any) -> CudaDevice | None:
    """Return the CUDA device that a user asked for; None for a simulated one."""
    opened = cast("object", open_device(device))  # The protocol of devices knows no classes.
    return opened if isinstance(opened, CudaDevice) else None


def _architecture_of(device: CudaDevice | None) -> str:
    """Return the architecture to compile for; without a GPU, that of the simulated device, a model of an H200."""
    return _SIMULATED_ARCHITECTURE if device is None else device.architecture


def traced_for(caller: str, program: object, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Program:
    """Return the traced program of a verb that compiles, traced or not."""
    if isinstance(program, Program) and inputs:
        raise ProgramError(f"the traced program {program.name!r} takes no inputs here, got {len(inputs)}", hint="leave them out")
    if isinstance(program, ForeignProgram):
        raise ProgramError(f"captured {program.name!r} has kernels that are compiled already", hint=f"{caller} is for programs of ours")
    return traced(caller, program, inputs, attributes)
