"""`ss.explore`: a dashboard in the notebook, with knobs for everything that decides on overlap."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from streamscope.arguments import whole_number
from streamscope.calling import no_program, verb
from streamscope.devices import check_device, open_device
from streamscope.devices.protocol import Device
from streamscope.engines import engine_names
from streamscope.engines.plan import checked_streams
from streamscope.errors import ProgramError
from streamscope.program.foreign import ForeignProgram
from streamscope.recording.recorders import checked_recorder
from streamscope.results import widgets
from streamscope.trace.file_checks import MOST_REPEATS
from streamscope.tracing import ProgramFunction


@verb
def explore(
    program: Callable[..., Any] | ProgramFunction | ForeignProgram | None = None,
    /,
    *inputs: Any,
    engines: Sequence[str] | str | None = None,
    device: str | Device = "auto",
    gpus: int | Sequence[int] | None = None,
    streams: int | None = None,
    repeats: int = 30,
    recorder: str = "auto",
    **attributes: Any,
) -> widgets.Explorer:
    """Open the explorer in a notebook: knobs, and timelines that follow them.

    While you move a knob, the times are a forecast on the simulated device, and say so. The button Run runs the program on the device
    that you choose, checks its results, and keeps the run, so that you can look at two runs on one axis.

    Parameters
    ----------
    program : callable, ProgramFunction or CapturedProgram, optional
        What to explore first; by default a workload of independent chains, and the question whether a second stream pays there. Other
        workloads, and programs that the notebook defines with ``@ss.program``, can be chosen in the explorer.
    *inputs : array
        Arguments of the program: NumPy or CuPy arrays. Where there are none, the notebook's arrays with the names of its parameters.
    engines : sequence of str, optional
        Which engines are compared at first; all but ``sync`` by default. A string may name several, with commas.
    device : {"auto", "cuda", "simulated"} or Device
        Where Run runs.
    {gpus}
    streams : int, optional
        Compute streams that ``dual`` and ``graph-dual`` may use at first, 1 to 128; by default 2, and of captured code up to 12.
    {repeats}
    recorder : {"auto", "events", "stamps", "cupti"}
        What records the runs on a GPU at first, as for `compare`.
    {attributes}

    Returns
    -------
    Explorer
        A notebook widget. ``past`` holds the runs, each with its ``comparison``.

    Raises
    ------
    ProgramError
        What was given is not a program.
    EngineError
        An engine is unknown, or ``repeats`` or ``streams`` is out of its range.
    RecordingError
        There is no such recorder.
    DeviceError
        The device is unknown.

    Examples
    --------
    >>> explorer = ss.explore(lambda x, w: x @ w + x, *np.ones((2, 64, 64), np.float32), device="simulated")
    >>> explorer.run()
    >>> explorer.wait()
    True
    >>> explorer.past[0].comparison["graph"].correct
    True
    """
    if program is None and (inputs or attributes):
        raise ProgramError("ss.explore got inputs without a program", hint="ss.explore(function, *inputs), or ss.explore()")
    if not isinstance(program, ProgramFunction | ForeignProgram | None):
        raise no_program("ss.explore", program)
    check_device(device, gpus)
    opened = device if gpus is None else open_device(device, gpus=gpus)
    explorer: widgets.Explorer = widgets.load("exploring.explorer:explorer")(
        program,
        inputs,
        attributes,
        engines=None if engines is None else engine_names(engines),
        device=opened,
        streams=checked_streams(streams),
        repeats=whole_number("repeats", repeats, least=1, most=MOST_REPEATS),
        recorder=checked_recorder(recorder),
    )
    return explorer
