"""Comparing engines: one program under each of them, interleaved, checked, timed and recorded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from streamscope.arguments import shown as in_short
from streamscope.arguments import whole_number
from streamscope.calling import verb
from streamscope.comparing.comparison import Comparison, Run
from streamscope.devices import device_for
from streamscope.devices.protocol import Device
from streamscope.engines import engine_names
from streamscope.engines.plan import checked_streams
from streamscope.errors import ProgramError, WorkloadError
from streamscope.measuring.case import Case, Checked
from streamscope.measuring.recordings import Recorded, recorded_traces
from streamscope.program.foreign import ForeignProgram
from streamscope.progress import Progress, Steps, showing
from streamscope.trace.file_checks import MOST_REPEATS
from streamscope.tracing import ProgramFunction


@verb
def compare(
    program: Callable[..., Any] | ProgramFunction | ForeignProgram,
    /,
    *inputs: Any,
    engines: Sequence[str] | str | None = None,
    device: str | Device = "auto",
    gpus: int | Sequence[int] | None = None,
    streams: int | None = None,
    repeats: int = 30,
    progress: bool | Progress = True,
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
        Which engines; all by default, but those of other packages that fail. A string may name several, with commas.
    {device}
    {gpus}
    streams : int, optional
        Compute streams that ``dual`` and ``graph-dual`` may use, 1 to 128; by default 2, and of captured code up to 12, as many as
        are the fastest. Where you give none, ``graph-dual`` of captured code also tries the graph with the fewest edges, whose branches
        CUDA places by itself; where you do, it tries that one only if it has no more branches.
    {repeats}
    {progress}
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
        An engine is unknown, or one of another package that you named failed; or ``repeats`` or ``streams`` is out of its range.
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
    names = engine_names(engines)
    kept, recording = _checked_settings(settings), Recorded(recorder, ledger)
    if not isinstance(name, str | None):
        raise ProgramError(f"name={in_short(name)} must be a string", hint='for example name="first layer"')
    case = Case.of(program, inputs, "ss.compare", attributes)
    opened = device_for(case.program, device, gpus=gpus, inputs=inputs)
    case.warn_if_short_of_memory(opened, len(names))
    told = partial(comparison_of, progress=progress, title=str(name or ""), settings=kept)
    return told(case, opened, names, allowed, wanted, named=engines is not None, recording=recording)


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
    names: Sequence[str],
    streams: int | None,
    repeats: int,
    *,
    named: bool = True,
    progress: bool | Progress = True,
    title: str = "",
    settings: Mapping[str, int] | None = None,
    recorded: Callable[[Run], None] = _unseen,
    recording: Recorded | None = None,
) -> Comparison:
    """Compare engines as `compare` does, with arguments that are checked.

    Each engine's run is given to ``recorded`` as soon as there is one; its exception ends the comparison. ``named`` tells whether the
    user named the engines: one of another package that fails is then an error, else it is left out.
    """
    count = 1 if device.repeats_exactly else repeats
    engines, recording = len(names), recording or Recorded()
    with showing("comparing engines", progress=progress) as said:
        steps = Steps(
            said, case.reference_steps + case.measuring_steps(device, engines, rounds=count, recorded=engines * recording.runs(device))
        )
        case = case.with_reference(steps)
        with case.keeping(), device.watched(lambda launch: steps.part(launch.name)):
            recording.check(device)
            checked = case.prepare_each(names, device, streams, steps, named=named)
            runs = _measured(case, device, checked, count, steps, recording, recorded)
    return Comparison(
        title or case.program.name,
        device.info,
        runs,
        settings=settings or {},
        checked_against=case.checked_against,
        why_not_function=case.why_not_function,
        not_checked=case.unchecked,
        capture=None if case.facts is None else case.facts(),
    )


def _measured(
    case: Case,
    device: Device,
    checked: Mapping[str, Checked],
    count: int,
    steps: Steps,
    recording: Recorded,
    shown: Callable[[Run], None],
) -> list[Run]:
    """Time the engines in turns, and record each; ``shown`` gets each engine's run as soon as there is one."""
    parts, random = case.parts(device), np.random.default_rng(0)
    rounds: list[dict[str, int]] = []
    for _ in range(count):
        steps.begin("timing", parts * len(checked))
        rounds.append(case.round_ns(checked, random))
    runs = []
    begin = partial(steps.begin, parts=parts)
    for engine, trace in recorded_traces(case, device, checked, recording, lambda engine: begin(f"recording {engine}")):
        each, makespans_ns = checked[engine], np.asarray([times_ns[engine] for times_ns in rounds], dtype=np.float64)
        runs.append(Run(engine, makespans_ns, each.max_abs_error, each.tolerance, trace))
        shown(runs[-1])
    return runs
