"""`ss.best`: the engine for a program, chosen by measurement."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from streamscope.advising.choice import Choice
from streamscope.advising.contest import Contest
from streamscope.advising.memory_limit import memory_bytes
from streamscope.advising.task import Task
from streamscope.calling import verb
from streamscope.capturing.function import CapturedFunction
from streamscope.devices import open_device
from streamscope.devices.protocol import Device
from streamscope.engines import engine_names
from streamscope.engines.plan import checked_streams
from streamscope.progress import Progress, showing
from streamscope.tracing import ProgramFunction


@verb
def best(
    program: Callable[..., Any] | ProgramFunction | CapturedFunction,
    /,
    *inputs: Any,
    engines: Sequence[str] | str | None = None,
    device: str | Device = "auto",
    streams: int = 2,
    progress: bool | Progress = True,
    memory_limit: int | str | None = None,
    **attributes: Any,
) -> Choice:
    """Choose the engine for a program by measurement, and hand it over ready to run.

    The engines run in paired rounds, in shuffled order. After each round those that are shown to be slower by more than 1 % drop out, with
    a wrong decision in at most 5 % of comparisons, until one is left, or 100 rounds are done. Of engines that are equally fast within 1 %,
    or that cannot be told apart, the simpler is chosen: sync, async, dual, graph, graph-dual, which is also the order of the memory
    that they need. Engines with wrong results, with more memory than allowed, or with a segment that could not be captured are ruled out.

    Parameters
    ----------
    program : callable, ProgramFunction or CapturedFunction
        A function over variables, or what ``ss.capture`` returned, which takes no inputs.
    *inputs : array
        Arguments of the program: NumPy or CuPy arrays.
    engines : sequence of str, optional
        Which engines; all by default. A string may name several, with commas.
    device : {"auto", "cuda", "simulated"} or Device
    streams : int
        Compute streams that ``dual`` and ``graph-dual`` may use.
    progress : bool or callable
        Show a progress bar, or call ``progress(what, step, steps)``.
    memory_limit : int or str, optional
        Device memory that an engine may hold for the program: bytes, or for example ``"512 MiB"``. The engines are all prepared at
        the same time, so that they can take turns; what they hold together may be more.
    **attributes : object
        Passed on to the function as they are, for example ``training=True``.

    Raises
    ------
    ProgramError
        The program or its inputs are wrong.
    EngineError
        An engine is unknown, ``streams`` is out of range, the limit is no size, or no engine is left to choose.
    DeviceError
        The device is missing, or failed.
    """
    names = engine_names(engines)
    limit = None if memory_limit is None else memory_bytes(memory_limit)
    allowed = checked_streams(streams)
    contest = Contest(Task.of(program, inputs, "ss.best", attributes), open_device(device), limit)
    with showing("choosing an engine", progress=progress) as shown:
        contest.prepare(names, allowed, shown)
        return contest.run(shown)
