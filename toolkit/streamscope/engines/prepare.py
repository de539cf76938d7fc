"""`ss.prepare`: a program for one engine on one device, ready to run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from streamscope.calling import traced, verb
from streamscope.devices.protocol import Device
from streamscope.engine_entry import DEFAULT_ENGINE
from streamscope.engines.prepared import Prepared, prepare_traced
from streamscope.program.foreign import ForeignFunction
from streamscope.program.operation import Program
from streamscope.program.variable import ArraySpec
from streamscope.progress import Progress, showing


@verb
def prepare(
    program: Callable[..., Any] | ForeignFunction | Program,
    /,
    *inputs: Any,
    engine: str = DEFAULT_ENGINE,
    device: str | Device = "auto",
    gpus: int | Sequence[int] | None = None,
    streams: int | None = None,
    progress: bool | Progress = True,
    **attributes: Any,
) -> Prepared:
    """Prepare a program for one engine on one device: plan it, allocate its memory, pack its arguments, load its inputs.

    Parameters
    ----------
    program : callable, ProgramFunction, CapturedFunction or Program
        A function over variables, what `capture` returned, or what ``trace`` of a program function returned.
    *inputs : array
        Arguments of the program: NumPy or CuPy arrays, or an `ArraySpec` each, which loads nothing. Captured code takes none. A traced
        program takes its inputs or none.
    engine : str
        Its name: ``"sync"``, ``"async"``, ``"dual"``, ``"graph"``, ``"graph-dual"``, or one that a package added.
    {device}
    {gpus}
    streams : int, optional
        Compute streams that ``dual`` and ``graph-dual`` may use, 1 to 128; by default 2, and of captured code up to 12.
        Where you give none, ``graph-dual`` of captured code also tries the graph with the fewest edges, whose branches CUDA places by
        itself; where you do, it tries that one only if it has no more branches.
    {progress}
    {attributes}

    Returns
    -------
    Prepared
        Call its ``run()``, then ``outputs()``. ``load()`` gives it other inputs of the same shapes.

    Raises
    ------
    ProgramError
        The program or its inputs are wrong, or ``progress`` is neither a truth value nor a function.
    EngineError
        The engine is unknown, or ``streams`` is out of range.
    DeviceError
        The device is missing, an operation cannot run on it, or its memory is too small.

    Examples
    --------
    >>> x = np.arange(4, dtype=np.float32)
    >>> prepared = ss.prepare(lambda x: x * x + x, x, engine="graph", device="simulated", progress=False)
    >>> prepared.run()
    >>> prepared.outputs()
    [array([ 0.,  2.,  6., 12.], dtype=float32)]
    """
    wanted = traced("ss.prepare", program, inputs, attributes)
    with showing("preparing", progress=progress) as said:
        made = prepare_traced(wanted, engine, device, gpus=gpus, inputs=inputs, streams=streams, progress=said)
    if inputs and not any(isinstance(value, ArraySpec) for value in inputs):
        made.load(inputs)
    return made
