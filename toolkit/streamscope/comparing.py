"""Comparing engines: one program under each of them, interleaved, checked, timed and recorded."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from streamscope.capturing.function import CapturedFunction
from streamscope.choosing.choice import Choice
from streamscope.choosing.contest import MOST_ROUNDS, Contest, simplest_first
from streamscope.choosing.memory_limit import memory_bytes
from streamscope.choosing.task import Entrant, Task, recorder_of
from streamscope.comparison import Comparison, Run
from streamscope.devices import open_device
from streamscope.devices.protocol import Device
from streamscope.engines import engine_names
from streamscope.engines.lanes import checked_streams
from streamscope.errors import EngineError
from streamscope.program.tracing import ProgramFunction

AUTO = "auto"
"""What ``engines`` says when one of them is to be chosen."""
SIMULATED_REPEATS = 3
"""A simulated device repeats itself to the nanosecond, so more would show nothing."""

Progress = Callable[[str, int, int], None]
"""``progress(what, step, steps)``"""


def compare(
    program: ProgramFunction | CapturedFunction,
    *inputs: Any,
    engines: Sequence[str] | str | None = None,
    repeats: int = 30,
    streams: int = 2,
    device: str | Device = "auto",
    progress: bool | Progress = True,
    name: str | None = None,
    memory_limit: int | str | None = None,
    settings: Mapping[str, int] | None = None,
) -> Comparison:
    """Run one program under several engines and compare them.

    All engines are prepared first (memory, packed arguments, captured graphs); then they take turns, in an order that is shuffled for
    each repeat, so that drifts meet all alike. The repeats run without recording; one more set of runs is recorded.

    Parameters
    ----------
    program : ProgramFunction or CapturedFunction
        Made by ``@ss.program``, or by ``ss.capture``, which takes no inputs.
    *inputs : array
        Arguments of the program: NumPy or CuPy arrays.
    engines : sequence of str, optional
        Which engines; all by default. A string may name several, with commas. ``"auto"`` compares all and chooses one as `ss.best` does,
        on the same repeats and, where they do not decide it, up to 100 of them; see `Comparison.choice`.
    repeats : int
        Timed runs of each engine; a simulated device, which repeats itself exactly, is run three times at most.
    streams : int
        Compute streams that ``dual`` and ``graph-dual`` may use; they use fewer where more are not expected to pay.
    device : {"auto", "cuda", "simulated"} or Device
    progress : bool or callable
        Show a progress bar, or call ``progress(what, step, steps)``.
    name : str, optional
        What the comparison is called; the program's name by default.
    memory_limit : int or str, optional
        With ``engines="auto"``: device memory that the chosen engine may hold, in bytes or for example as ``"512 MiB"``.
    settings : mapping of str to int, optional
        What the program was made with; kept with the comparison, and shown.

    Raises
    ------
    ProgramError
        The program or its inputs are wrong.
    EngineError
        An engine is unknown, ``repeats`` is not positive, ``streams`` is out of range, or ``memory_limit`` is no size, stands without
        ``engines="auto"``, or leaves no engine to choose.
    DeviceError
        The device is missing, or failed.
    """
    if not isinstance(repeats, int):
        raise EngineError(f"repeats={repeats!r} is not a whole number")
    if repeats < 1:
        raise EngineError(f"repeats={repeats} is not positive")
    checked_streams(streams)
    names, limit = compared_engines(engines, memory_limit)
    task = Task.of(program, inputs, "compare")
    opened = open_device(device)
    count = min(repeats, SIMULATED_REPEATS) if opened.info.kind == "simulated" else repeats
    with _reporting(2 * len(names) + count, progress=progress) as step:
        entrants = {}
        for engine in names:
            step(f"preparing {engine}")
            entrants[engine] = task.enter(engine, opened, streams)
        contest = _contest(task, opened, entrants, limit) if engines == AUTO else None
        rounds, choice = _rounds(task, entrants, contest, count, step)
        recorder = recorder_of(opened)
        runs = []
        for engine, entrant in entrants.items():
            step(f"recording {engine}")
            reload = partial(task.reload, entrant.prepared)
            reload()
            makespans_ns = np.asarray([times_ns[engine] for times_ns in rounds], dtype=np.float64)
            trace = recorder.record(entrant.prepared, reload)
            runs.append(Run(engine, makespans_ns, entrant.max_abs_error, entrant.tolerance, trace))
    return Comparison(name or task.program.name, opened.info, runs, choice=choice, settings=settings)


def compared_engines(engines: Sequence[str] | str | None, memory_limit: int | str | None) -> tuple[tuple[str, ...], int | None]:
    """Return the engines that ``engines`` names, all of them for ``"auto"``, and the memory limit in bytes.

    Raises
    ------
    EngineError
        An engine is unknown, or the limit is no size or stands without ``"auto"``.
    """
    if memory_limit is None:
        return engine_names(None if engines == AUTO else engines), None
    if engines != AUTO:
        raise EngineError(f"memory_limit={memory_limit!r} is for choosing an engine", hint='give it with engines="auto"')
    return engine_names(), memory_bytes(memory_limit)


def _contest(task: Task, device: Device, entrants: Mapping[str, Entrant], limit: int | None) -> Contest:
    contest = Contest(task, device, limit)
    for engine in simplest_first(entrants):
        contest.admit(engine, entrants[engine])
    return contest


def _rounds(
    task: Task, entrants: Mapping[str, Entrant], contest: Contest | None, count: int, step: Callable[[str], None]
) -> tuple[list[dict[str, int]], Choice | None]:
    """Let the engines take turns; return the makespans of each round, in ns, and the choice that they lead to, if one is asked for."""
    random = np.random.default_rng(0)
    prepared = {engine: entrant.prepared for engine, entrant in entrants.items()}
    elimination = None if contest is None else contest.elimination()
    rounds: list[dict[str, int]] = []
    # A choice may take more rounds than were asked for; they count for all engines.
    while len(rounds) < count or (elimination is not None and not elimination.decided and len(rounds) < MOST_ROUNDS):
        if len(rounds) < count:
            step("timing")
        rounds.append(task.round_ns(prepared, random))
        if elimination is not None:
            elimination.add({engine: float(rounds[-1][engine]) for engine in elimination.names})
    return rounds, None if contest is None or elimination is None else contest.choice(elimination)


@contextmanager
def _reporting(steps: int, *, progress: bool | Progress) -> Iterator[Callable[[str], None]]:
    """Give a function that says what happens next, to the user's function or to a bar that goes away at the end."""
    done = iter(range(1, steps + 1))
    if progress is False:
        yield lambda what: None
    elif callable(progress):
        yield lambda what: progress(what, next(done), steps)
    elif _in_notebook():
        from streamscope_widgets.progress import notebook_progress

        with notebook_progress() as shown:
            yield lambda what: shown(what, next(done), steps)
    else:
        from rich.console import Console
        from rich.progress import Progress as Bar

        with Bar(console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("comparing engines", total=steps)
            yield lambda what: bar.update(task, advance=1, description=what)


def _in_notebook() -> bool:
    """Tell whether a Jupyter kernel runs this; Rich's bar would leave a widget there that a reopened notebook cannot show."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")
