"""Comparing engines: one program under each of them, interleaved, checked, timed and recorded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from streamscope import options
from streamscope.arguments import memory_bytes, whole_number
from streamscope.arguments import shown as in_short
from streamscope.calling import verb
from streamscope.comparing.comparison import Comparison, Run
from streamscope.devices import device_for
from streamscope.devices.protocol import Device
from streamscope.engine_entry import simplest_first
from streamscope.engines import engine_names, listed_names
from streamscope.engines.plan import checked_streams
from streamscope.errors import EngineError, ProgramError, WorkloadError
from streamscope.measuring.best import MOST_ROUNDS, Selection
from streamscope.measuring.case import Case, Checked
from streamscope.measuring.choice import Choice
from streamscope.measuring.recordings import Recorded, recorded_traces
from streamscope.program.foreign import ForeignProgram
from streamscope.progress import Progress, Steps, showing
from streamscope.trace.file_checks import MOST_REPEATS
from streamscope.tracing import ProgramFunction

AUTO = "auto"
"""Value of ``engines`` that lets Streamscope choose."""

_SIMULATED_REPEATS = 3
"""A simulated device repeats itself to the nanosecond, so more would show nothing. Its one run counts for as many."""


@verb
def compare(
    program: Callable[..., Any] | ProgramFunction | ForeignProgram,
    /,
    *inputs: Any,
    engines: Sequence[str] | str | None = None,
    device: str | Device = "auto",
    streams: int | None = None,
    repeats: int = 30,
    progress: bool | Progress = True,
    memory_limit: int | str | None = None,
    recorder: str = "auto",
    ledger: bool = False,
    name: str | None = None,
    settings: Mapping[str, int] | None = None,
    **attributes: Any,
) -> Comparison:
    """Run one program under several engines and compare them.

    All engines are prepared first (memory, packed arguments, captured graphs); then they take turns, in an order that is shuffled for
    each repeat, so that drifts meet all alike. The repeats run without recording. Then each engine is recorded.

    Results are checked against the function itself, which is called once with copies of the inputs as NumPy arrays. Where that is not
    possible, since the function uses `ss.ops`, they are checked against the traced program in NumPy. The verdict says which.

    Parameters
    ----------
    {program}
    {inputs}
    engines : sequence of str, optional
        Which engines; all by default, but those of other packages that fail. A string may name several, with commas. ``"auto"``
        compares all and chooses one as `ss.best` does, on the same repeats and, where they do not decide it, up to 100 of them; see
        `Comparison.choice`.
    {device}
    streams : int, optional
        Compute streams that ``dual`` and ``graph-dual`` may use, 1 to 128; by default 2, and of captured code up to 12, as many as
        are the fastest. Where you give none, ``graph-dual`` of captured code also tries the graph with the fewest edges, whose branches
        CUDA places by itself; where you do, it tries that one only if it has no more branches.
    {repeats}
    {progress}
    memory_limit : int or str, optional
        With ``engines="auto"``: device memory that the chosen engine may hold, in bytes or for example as ``"512 MiB"``. Captured
        code holds the memory of its capture under every engine, so `capture` takes the limit instead.
    recorder : {"auto", "events", "stamps", "cupti"}
        What records the run that is shown. ``"events"``: CUDA events, which disturb nothing; ``"auto"`` chooses them. ``"stamps"``:
        generated kernels note their own times, also side by side. ``"cupti"``: NVIDIA's profiler, exact for every kernel; it
        delays the branches of a graph. A simulated device has a log of its own. See the page "How far can I trust the numbers?".
    ledger : bool
        Measure what every recorder costs, too; kept in ``trace.info.ledger``.
    name : str, optional
        What the comparison is called; the program's name by default.
    settings : mapping of str to int, optional
        What the program was made with; kept with the comparison, and shown.
    {attributes}

    Returns
    -------
    Comparison
        A `Run` for each engine, by name: times in ns, results checked, and the trace of one recorded run.

    Raises
    ------
    ProgramError
        The program or its inputs are wrong.
    EngineError
        An engine is unknown, or one of another package that you named failed; ``repeats`` or ``streams`` is out of its range; or
        ``memory_limit`` is not a size, stands without ``engines="auto"`` or with captured code, or leaves no engine to choose.
    WorkloadError
        ``settings`` are not whole numbers by name.
    RecordingError
        There is no such recorder, or it cannot serve here.
    DeviceError
        The device is missing, or failed.

    Examples
    --------
    >>> x, w = np.ones((2, 64, 64), np.float32)
    >>> runs = ss.compare(lambda x, w: x @ w + x, x, w, engines="async,graph", device="simulated", progress=False)
    >>> list(runs)
    ['async', 'graph']
    >>> all(run.correct for run in runs.values())
    True
    """
    wanted = whole_number("repeats", repeats, least=1, most=MOST_REPEATS)
    allowed = checked_streams(streams)
    compared = compared_engines(engines, memory_limit)
    kept, recording = _checked_settings(settings), Recorded(recorder, ledger)
    if not isinstance(name, str | None):
        raise ProgramError(f"name={in_short(name)} must be a string", hint='for example name="first layer"')
    case = Case.of(program, inputs, "ss.compare", attributes)
    opened = device_for(case.program, device)
    case.warn_if_short_of_memory(opened, len(compared.names))
    told = partial(comparison_of, progress=progress, title=str(name or ""), settings=kept)
    return told(case, opened, compared, allowed, wanted, recording=recording)


@dataclass(frozen=True)
class Compared:
    """Which engines are compared."""

    names: tuple[str, ...]
    choosing: bool
    """Whether one of them is to be chosen."""
    memory_limit: int | None
    """Device memory that the chosen one may hold, in bytes."""
    named: bool
    """Whether the user named them: one of another package that fails is then an error, else it is left out."""


def compared_engines(
    engines: Sequence[str] | str | None,
    memory_limit: int | str | None,
    spelled: Callable[[options.Option, object], str] = options.Option.in_python,
) -> Compared:
    """Return which engines ``engines`` names: all of them for ``"auto"``, which then chooses one of them.

    ``engines``: all by default. A string may name several, with commas.
    ``memory_limit``: in bytes, or a size.
    ``spelled``: how errors write an option where the user gave it: ``in_python`` or ``on_a_line``.
    """
    listed = None if engines is None else listed_names(engines)
    choosing = listed == (AUTO,)
    if listed is not None and AUTO in listed and not choosing:
        raise EngineError(
            f"{AUTO!r} cannot be combined with other engines: {', '.join(listed)}",
            hint=f"{spelled(options.ENGINES, AUTO)} alone compares all engines and chooses one",
        )
    names, named = engine_names(None if choosing else listed), not (choosing or listed is None)
    if memory_limit is None:
        return Compared(names, choosing, None, named)
    if not choosing:
        raise EngineError(
            f"{spelled(options.MEMORY_LIMIT, memory_limit)} only limits the choice of an engine",
            hint=f"give it with {spelled(options.ENGINES, AUTO)}",
        )
    return Compared(names, choosing, memory_bytes(memory_limit), named)


def _checked_settings(settings: object) -> dict[str, int]:
    """Return settings as they can be kept, found out before anything is measured."""
    if settings is None:
        return {}
    if not isinstance(settings, Mapping):
        raise WorkloadError(f"settings={in_short(settings)} must be a mapping", hint='for example settings={"length": 50}')
    return {str(name): whole_number(f"setting {name}", value, error=WorkloadError) for name, value in settings.items()}


def _unseen(run: Run) -> None:
    """Show a run to nobody."""


def comparison_of(
    case: Case,
    device: Device,
    compared: Compared,
    streams: int | None,
    repeats: int,
    *,
    progress: bool | Progress = True,
    title: str = "",
    settings: Mapping[str, int] | None = None,
    recorded: Callable[[Run], None] = _unseen,
    recording: Recorded | None = None,
) -> Comparison:
    """Compare engines as `compare` does, with arguments that are checked.

    Each engine's run is given to ``recorded`` as soon as there is one; its exception ends the comparison.
    """
    count = min(repeats, _SIMULATED_REPEATS) if device.info.exact else repeats
    engines, recording = len(compared.names), recording or Recorded()
    with showing("comparing engines", progress=progress) as said:
        steps = Steps(
            said, case.reference_steps + case.measuring_steps(device, engines, rounds=count, recorded=engines * recording.runs(device))
        )
        case = case.with_reference(steps)
        with case.keeping(), device.watched(lambda launch: steps.part(launch.name)):
            runs, choice = _measured(case, device, compared, streams, count, steps, recording, recorded)
    return Comparison(
        title or case.program.name,
        device.info,
        runs,
        choice=choice,
        settings=settings or {},
        checked_against=case.checked_against,
        why_not_function=case.why_not_function,
        not_checked=case.unchecked,
        capture=None if case.facts is None else case.facts(),
    )


def _measured(
    case: Case,
    device: Device,
    compared: Compared,
    streams: int | None,
    count: int,
    steps: Steps,
    recording: Recorded,
    shown: Callable[[Run], None],
) -> tuple[list[Run], Choice | None]:
    """Prepare and check the engines, time them, and record each; ``shown`` gets each engine's run as soon as there is one."""
    recording.check(device)
    parts = case.parts(device)
    checked: dict[str, Checked] = {}
    for engine in compared.names:
        steps.begin(f"preparing {engine}", case.checking_parts(device))
        each = case.prepare_or_leave_out(engine, device, streams, named=compared.named)
        if each is not None:
            checked[engine] = each
    selection = _selection(case, device, checked, compared.memory_limit) if compared.choosing else None
    rounds, choice = _rounds(case, checked, selection, count, partial(steps.begin, "timing", parts * len(checked)))
    runs = []
    begin = partial(steps.begin, parts=parts)
    for engine, trace in recorded_traces(case, device, checked, recording, lambda engine: begin(f"recording {engine}")):
        each, makespans_ns = checked[engine], np.asarray([times_ns[engine] for times_ns in rounds], dtype=np.float64)
        runs.append(Run(engine, makespans_ns, each.max_abs_error, each.tolerance, trace))
        shown(runs[-1])
    return runs, choice


def _selection(case: Case, device: Device, checked: Mapping[str, Checked], limit: int | None) -> Selection:
    selection = Selection(case, device, limit)
    for engine in simplest_first(checked):
        selection.admit(engine, checked[engine])
    return selection


def _rounds(
    case: Case, checked: Mapping[str, Checked], selection: Selection | None, count: int, step: Callable[[], None]
) -> tuple[list[dict[str, int]], Choice | None]:
    """Let the engines take turns; return the makespans of each round, in ns, and the choice that they lead to, if one is asked for."""
    random = np.random.default_rng(0)
    elimination = None if selection is None else selection.elimination()
    rounds: list[dict[str, int]] = []
    # A choice may take more rounds than were asked for; they count for all engines.
    while len(rounds) < count or (elimination is not None and not elimination.decided and len(rounds) < MOST_ROUNDS):
        if len(rounds) < count:
            step()
        rounds.append(case.round_ns(checked, random))
        if elimination is not None:
            elimination.add({engine: float(rounds[-1][engine]) for engine in elimination.names})
    return rounds, None if selection is None or elimination is None else selection.choice(elimination)
