"""`ss.sweep`: engines compared over a grid of settings, one point at a time, or on an executor; what is done is kept and not done again."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import prod
from pathlib import Path
from types import CodeType
from typing import Any, Protocol

import numpy as np

from streamscope.arguments import given_path, whole_number
from streamscope.arguments import shown as in_short
from streamscope.calling import as_program, check_keywords, no_program, traced
from streamscope.comparing.compare import compare
from streamscope.comparing.swept import Failure, Point, PointFile, Sweep
from streamscope.devices import check_device, device_for, open_device
from streamscope.devices.protocol import Device
from streamscope.docstrings import with_shared_parts
from streamscope.engines import engine_names
from streamscope.engines.plan import checked_streams
from streamscope.errors import EngineError, HungError, OutputError, ProgramError, WorkloadError, described
from streamscope.files import suffix_of, writable_file
from streamscope.interrupts import is_interruption
from streamscope.program.foreign import ForeignProgram
from streamscope.program.launch import HostCall, Launch
from streamscope.program.operation import Program
from streamscope.progress import Progress, showing
from streamscope.recording.recorders import checked_recorder
from streamscope.signatures import signature_of
from streamscope.trace.file_checks import MOST_REPEATS, plain
from streamscope.trace.info import library_versions
from streamscope.tracebacks import is_ours
from streamscope.tracing import ProgramFunction
from streamscope.words import a_kind, counted, listed
from streamscope.workers import PROCESSES, Dead, NotLoadedError, UndoneError, in_processes, on_executor
from streamscope.workloads import Workload, workload

OPTIONS = ("engines", "device", "gpus", "streams", "repeats", "recorder")
"""Keywords of `compare` that may be settings of a grid."""
MOST_POINTS = 100_000


@with_shared_parts
def sweep(
    program: Callable[..., Any] | ProgramFunction | ForeignProgram | Workload | str,
    grid: Mapping[str, Iterable[Any]] | Sequence[Mapping[str, Any]],
    /,
    *inputs: Any,
    engines: Sequence[str] | str | None = None,
    device: str | Device = "auto",
    gpus: int | Sequence[int] | None = None,
    streams: int | None = None,
    repeats: int = 30,
    progress: bool | Progress = True,
    recorder: str = "auto",
    name: str | None = None,
    executor: Executor | str | None = None,
    alone: bool = True,
    path: str | Path | None = None,
    **attributes: Any,
) -> Sweep:
    """Compare engines at each point of a grid of settings.

    A point that fails is a row that says why. With ``path``, points that are done are kept there: after Ctrl-C, or with a larger grid,
    the same call does the rest. A point whose program, options, device or libraries have changed since is done again, and so is one that
    failed.

    Parameters
    ----------
    program : str, Workload, callable, ProgramFunction or CapturedProgram
        A ready workload by its name; or a function over variables, or captured code, as for `compare`.
    grid : mapping of str to sequence, or sequence of mapping
        Values of each setting, all of which meet all others, the last setting's first; or the points themselves. Values are numbers,
        texts, truth values, None, or lists of these. A setting is one of the workload, a parameter of the function, or one of the keywords
        ``engines``, ``device``, ``gpus``, ``streams``, ``repeats`` and ``recorder``.
    *inputs : array or callable
        Arguments of the function: arrays; or one function that makes them, ``make(n) -> (x, w)``, whose parameters are settings.
    engines : sequence of str, optional
        Which engines; all by default. A string may name several, with commas.
    {device}
    {gpus}
    {streams}
    {repeats}
    {progress}
    recorder : str
        What records the runs, as for `compare`.
    name : str, optional
        What the sweep is called; the name of the workload or program by default. Points in a file are found by it.
    executor : Executor or "processes", optional
        By default, points are done one after another in this process. ``"processes"`` is two processes, for simulated devices only.
        Any `concurrent.futures.Executor` does the points on its workers, Dask's ``client.get_executor()`` for example.
    alone : bool
        Whether a point that is measured on a GPU has its host to itself, since neighbours disturb each other's times. Points on one host
        then wait for each other, whichever workers do them.
    path : str or Path, optional
        File of JSON lines, ``.jsonl``, for points that are done. It is always whole.
    **attributes : object
        The same at each point: settings of the workload, or keywords of the function or of the one that makes its inputs.

    Returns
    -------
    Sweep
        A `Point` for each point of the grid: the numbers of `Comparison.to_dict` in µs, or the failure.

    Raises
    ------
    ProgramError
        The grid is not one, or the program or its inputs cannot be.
    KeywordError
        A setting is neither a keyword nor a parameter.
    WorkloadError
        There is no such workload, or it has no such setting.
    EngineError
        An engine is unknown, a number is out of range, ``"processes"`` were asked for on a GPU, or the executor failed.
    RecordingError
        There is no such recorder.
    DeviceError
        The device is unknown, or a run on it does not end.
    OutputError
        The file cannot be written, or has something else than points in it.

    Examples
    --------
    >>> found = ss.sweep("branches", {"size": [256, 65536], "branches": [2, 4]}, engines="async,graph", device="simulated", progress=False)
    >>> print(found)
    branches · simulated NVIDIA H200: all times are simulated
    graph is the fastest at 4 of 4 points.
    <BLANKLINE>
    size   branches  async, µs  graph, µs  fastest
    -----  --------  ---------  ---------  -------
    256           2       ...       ...    graph
    256           4       ...       ...    graph
    65536         2       ...       ...    graph
    65536         4       ...       ...    graph

    Inputs of a function are made for each point:

    >>> def arrays(n):
    ...     return np.ones((n, n), np.float32), np.ones((n, n), np.float32)
    >>> found = ss.sweep(lambda x, w: np.tanh(x @ w), {"n": [64, 128]}, arrays, engines="sync,graph", device="simulated", progress=False)
    >>> [point.settings["n"] for point in found.points if point.fastest == ("graph",)]
    [64, 128]
    """
    points = grid_points(grid)
    names = tuple(dict.fromkeys(setting for point in points for setting in point))
    subject = _subject(program, inputs, attributes, names)
    options = {"engines": engines, "device": device, "gpus": gpus, "streams": streams, "repeats": repeats, "recorder": recorder}
    _check_options({option: value for option, value in options.items() if option not in names})
    if not isinstance(name, str | None):
        raise ProgramError(f"name={in_short(name)} must be a string", hint='for example name="first layer"')
    called = name or subject.name
    kept = PointFile(None if path is None else _checked_path(path), called)
    before = kept.read()
    kept.in_order(points)
    versions = [before[key].version if (key := kept.key(point)) in before and before[key].failure is None else "" for point in points]
    tasks = [Task(subject, called, point, options, known, alone) for point, known in zip(points, versions, strict=True)]
    done: dict[int, Point] = {}
    with showing("sweep", progress=progress) as said:
        spread = _in_turns(tasks, said) if executor is None else _on_workers(tasks, executor, said)
        try:
            with closing(spread):
                for number, point in spread:
                    if point is None:
                        done[number] = before[kept.key(points[number])]
                    else:
                        done[number] = point
                        kept.add(point)
        finally:
            kept.save()  # after Ctrl-C, too
    return Sweep(called, tuple(done[number] for number in range(len(points))))


def grid_points(grid: object) -> list[dict[str, Any]]:
    """Return the points of a grid, each once, in order: of values by setting all that meet, the last setting's values first.

    Raises
    ------
    ProgramError
        It is neither values by setting nor a list of points, a value is of another kind, or there are no points, or too many.

    Examples
    --------
    >>> from streamscope.comparing.sweep import grid_points
    >>> grid_points({"size": [1, 2], "copies": [0, 1]})
    [{'size': 1, 'copies': 0}, {'size': 1, 'copies': 1}, {'size': 2, 'copies': 0}, {'size': 2, 'copies': 1}]
    """
    hint = 'for example {"size": [1024, 4096], "streams": [1, 2]}, or a list of points'
    points: Iterable[Mapping[Any, Any]]
    if isinstance(grid, Mapping):
        values = {name: _values(name, given) for name, given in grid.items()}
        if prod(map(len, values.values())) > MOST_POINTS:
            raise ProgramError(f"the grid has more than {MOST_POINTS:,} points", hint="sweep a part of it at a time")
        points = [dict(zip(values, each, strict=True)) for each in product(*values.values())]
    elif isinstance(grid, list | tuple) and all(isinstance(point, Mapping) for point in grid):
        points = [{name: _value(name, value) for name, value in point.items()} for point in grid]
    else:
        raise ProgramError(f"grid={in_short(grid)} is neither values by setting nor a list of points", hint=hint)
    if not all(isinstance(name, str) for point in points for name in point):
        raise ProgramError(f"grid={in_short(grid)} has a setting whose name is no text", hint=hint)
    found = {json.dumps(point, sort_keys=True): dict(point) for point in points}
    if not any(found.values()):
        raise ProgramError("the grid has no points", hint=hint)
    return list(found.values())


def _values(name: object, given: Any) -> list[Any]:
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        hint = f"for example {{{name!r}: [{in_short(given)}]}}"
        raise ProgramError(f"the grid's {name}={in_short(given)} is not a list of values", hint=hint)
    return [_value(name, value) for value in given]


def _value(name: object, value: Any) -> Any:
    """Return a value as JSON has it, since points are kept as JSON."""
    found = plain(value)
    if found is None and value is not None:
        raise ProgramError(f"the grid's {name} has {value}", hint="use finite numbers")
    scalars = found if isinstance(found, list) else [found]
    if not all(isinstance(one, str | int | float | None) for one in scalars):
        hint = "use numbers, texts or lists of them; arrays are made of them by a function: ss.sweep(step, grid, make)"
        raise ProgramError(f"the grid's {name} has {a_kind(value)}, {in_short(value)}", hint=hint)
    return found


def _check_options(options: Mapping[str, Any]) -> None:
    """Check the options that are the same at each point: a wrong one would fail at each."""
    if "engines" in options:
        engine_names(options["engines"])
    if "device" in options:
        check_device(options["device"], options.get("gpus"))
    if "streams" in options:
        checked_streams(options["streams"])
    if "repeats" in options:
        whole_number("repeats", options["repeats"], least=1, most=MOST_REPEATS)
    if "recorder" in options:
        checked_recorder(options["recorder"])


def _checked_path(path: str | Path) -> Path:
    target = given_path(path, error=OutputError)
    suffix_of(target, ".jsonl")
    return writable_file(target)


@dataclass(frozen=True)
class Made:
    """A program at a point of a grid, as `compare` takes it."""

    program: Any
    outline: Program
    """The program, traced."""
    attributes: Mapping[str, Any]
    numbers: Mapping[str, int]
    """Numbers that it was made with, which its comparison keeps."""
    arrays: Sequence[Any]
    """Inputs that are there."""
    draw: Callable[[], Sequence[Any]]
    """Returns its inputs, some of which are drawn only then."""


class Subject(Protocol):
    """Subject of a sweep: a program for each point."""

    @property
    def name(self) -> str:
        """Its name."""

    def at(self, settings: Mapping[str, Any], gpus: Any) -> Made:
        """Return the program at a point."""


@dataclass(frozen=True)
class _OfWorkload:
    """A ready workload, with settings that are the same at each point."""

    workload: Workload
    fixed: Mapping[str, Any]

    @property
    def name(self) -> str:
        return self.workload.name

    def at(self, settings: Mapping[str, Any], gpus: Any) -> Made:
        own = {name: value for name, value in settings.items() if name in self.workload.settings}
        values = self.workload.on_gpus({**self.fixed, **own}, gpus)
        program, specs = self.workload.outline(**values)
        numbers = {name: int(values.get(name, one.default)) for name, one in self.workload.settings.items()}
        return Made(program, program.trace(*specs), {}, numbers, (), lambda: self.workload.build(**values)[1])


@dataclass(frozen=True)
class _OfFunction:
    """A function, program or captured code."""

    program: Any
    """As it was given: Dask can send a function that is defined anywhere, but no program of it."""
    inputs: tuple[Any, ...]
    fixed: Mapping[str, Any]

    @property
    def name(self) -> str:
        return str(as_program(self.program).name)  # type: ignore[attr-defined]

    @property
    def make(self) -> Callable[..., Any] | None:
        """The function that makes the inputs, if one does."""
        return self.inputs[0] if len(self.inputs) == 1 and callable(self.inputs[0]) and not hasattr(self.inputs[0], "shape") else None

    def at(self, settings: Mapping[str, Any], gpus: Any) -> Made:
        own = {name: value for name, value in settings.items() if name not in OPTIONS}
        inputs, attributes = self.inputs, {**self.fixed, **own}
        if self.make is not None:
            arrays = self.make(**{name: value for name, value in attributes.items() if _takes(self.make, name)})
            inputs = tuple(arrays) if isinstance(arrays, tuple | list) else (arrays,)
            function = getattr(self.program, "function", self.program)
            attributes = {name: value for name, value in attributes.items() if _takes(function, name)}
        numbers = {name: value for name, value in own.items() if isinstance(value, int) and not isinstance(value, bool)}
        outline = traced("ss.sweep", as_program(self.program), inputs, attributes)
        return Made(self.program, outline, attributes, numbers, inputs, lambda: inputs)


def _takes(function: Callable[..., Any], name: str) -> bool:
    """Tell whether a function has a parameter of that name, or takes any."""
    try:
        parameters = signature_of(function).parameters
    except (TypeError, ValueError):  # a built-in function without a signature
        return False
    return name in parameters or any(each.kind is each.VAR_KEYWORD for each in parameters.values())


def _subject(program: object, inputs: tuple[Any, ...], attributes: Mapping[str, Any], names: Sequence[str]) -> Subject:
    """Return the subject, if it has settings of these names."""
    found = workload(program) if isinstance(program, str) else program
    if isinstance(found, Workload):
        if inputs:
            raise ProgramError(f"workload {found.name!r} takes no inputs: it makes its own", hint=f"ss.sweep({found.name!r}, grid)")
        for name in (*attributes, *(name for name in names if name not in OPTIONS)):
            if name not in found.settings:
                what = listed([*found.settings, *OPTIONS])
                raise WorkloadError(f"workload {found.name!r} has no setting {name!r}", hint=f"it has {what}")
        return _OfWorkload(found, dict(attributes))
    given = as_program(found)
    if not isinstance(given, ProgramFunction | ForeignProgram):
        raise no_program("ss.sweep", given)
    subject = _OfFunction(given if isinstance(given, ForeignProgram) else found, inputs, dict(attributes))
    if subject.make is not None and not isinstance(given, ProgramFunction):
        raise ProgramError(f"captured {given.name!r} takes no inputs: the capture holds its own", hint="ss.sweep(captured, grid)")
    asked = [name for name in (*attributes, *names) if subject.make is None or not _takes(subject.make, name)]
    own = [*OPTIONS, "progress", "name", "executor", "alone", "path"]
    check_keywords("ss.sweep", own, given, () if subject.make else inputs, dict.fromkeys(asked))
    return subject


@dataclass(frozen=True)
class Task:
    """One point to be compared, in this process or in another."""

    subject: Subject
    name: str
    settings: Mapping[str, Any]
    options: Mapping[str, Any]
    known: str
    """Version of the point that is there already; empty where there is none."""
    alone: bool

    @property
    def label(self) -> str:
        """Its settings in words."""
        return Point(self.settings).label


def attempt(task: Task) -> Point | None:
    """Compare the engines at a point; None where it is known in this version.

    Workers find this function by its name, so it stands at the top of the module.
    """
    version = ""
    try:
        options = {option: task.settings.get(option, value) for option, value in task.options.items()}
        if isinstance(task.subject, _OfWorkload) and "gpus" in task.subject.workload.settings:
            options["gpus"] = task.options["gpus"]  # Those of the grid are the workload's, which then needs as many.
        made = task.subject.at(task.settings, options["gpus"])
        opened = device_for(made.outline, options.pop("device"), gpus=options.pop("gpus"), inputs=made.arrays)
        version = version_of(made.outline, opened, {**options, "engines": engine_names(options["engines"])})
        if version == task.known:
            return None
        inputs, given = made.draw(), {"device": opened, "progress": False, "name": task.name, "settings": made.numbers, **options}
        with _host_to_itself(wanted=task.alone and not opened.info.simulated):
            runs = compare(made.program, *inputs, **given, **made.attributes)
        return Point.of(task.settings, version, runs)
    except HungError:  # The device is lost to this process, so all further points would fail.
        raise
    except Exception as error:
        if is_interruption(error):
            raise
        return Point(task.settings, version, failure=Failure.of(error))


@contextmanager
def _host_to_itself(*, wanted: bool) -> Iterator[None]:
    """Let nobody else measure a point on this host meanwhile, in whichever process or thread."""
    if not wanted:
        yield
        return
    path = Path(tempfile.gettempdir()) / f"streamscope-{os.getuid()}.measuring"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def version_of(program: Program, device: Device, options: Mapping[str, Any]) -> str:
    """Return a digest of what a comparison depends on: operations with their shapes and kernels, options, device, versions of libraries.

    Lines of the user's do not count, but the code of functions that operators of the user's call does, without what they call in turn.
    """
    from streamscope.kernels.compile.program_kernels import program_kernels  # Most of what leads here has no kernels.

    parts = [
        *(f"{variable.spec} {variable.place} {variable.gpu}" for variable in program.variables),
        *(part for operation in program.operations for part in (
            f"{operation.name} {operation.operands} {operation.results} {_canonical(operation.attributes)}",
            *(_work(work) for work in operation.works),
        )),
        *(kernel.code for kernel in program_kernels(program)),
        f"{program.inputs} {program.outputs} {program.captured}",
        _canonical(options),
        _canonical({"kind": device.info.kind, "name": device.info.name, "gpus": device.gpus, **device.info.details}),
        _canonical(library_versions()),
    ]  # fmt: skip
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _work(work: Launch | HostCall) -> str:
    if isinstance(work, HostCall):
        return " ".join([work.name, str(work.duration_ns), *_users_code(work.function)])
    code = (part for function in (work.reference, work.cuda) for part in _users_code(function))
    return " ".join([work.name, str(work.kind), _canonical(work.cost), f"{work.gpu} {work.to_gpu}", _canonical(work.collective), *code])


def _users_code(function: Any, depth: int = 5) -> Iterator[str]:
    """Yield the code of a function of the user's, or of those that a function of ours was made of."""
    function = function.func if isinstance(function, partial) else function
    code = getattr(function, "__code__", None)
    if code is None or not depth:
        return
    if not is_ours(str(function.__module__)):
        yield _canonical(code)
        yield _canonical([function.__defaults__, function.__kwdefaults__])
    for cell in function.__closure__ or ():
        try:
            content = cell.cell_contents
        except ValueError:  # It is empty.
            continue
        yield from _users_code(content, depth - 1)


def _canonical(value: Any) -> str:
    """Return a value as text that is the same in each process."""
    if isinstance(value, CodeType):
        return f"{value.co_code.hex()} {value.co_names} {[_canonical(each) for each in value.co_consts]}"
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {_canonical(each)}' for key, each in sorted(value.items(), key=str))}}}"
    if isinstance(value, list | tuple):
        return f"({', '.join(map(_canonical, value))})"
    if isinstance(value, set | frozenset):  # Texts in it stand in another order in each process.
        return f"{{{', '.join(sorted(map(_canonical, value)))}}}"
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


_Done = Generator[tuple[int, Point | None], None, None]
"""Points that were done, in any order, by their number in the grid; None for one that is known."""


def _in_turns(tasks: Sequence[Task], said: Progress) -> _Done:
    """Do one point after another in this process."""
    for number, task in enumerate(tasks):
        said(task.label, number, len(tasks))
        yield number, attempt(task)


def _on_workers(tasks: Sequence[Task], executor: Executor | str, said: Progress) -> _Done:
    """Do points on the workers of an executor, or in processes of our own."""
    if executor == PROCESSES:
        _check_simulated(tasks)
        spread = _in_processes(tasks)
    elif isinstance(executor, Executor):
        spread = _elsewhere(tasks, executor)
    else:
        raise EngineError(f"executor={in_short(executor)} is not one", hint=f'give a concurrent.futures.Executor, or "{PROCESSES}"')
    said("begin", 0, len(tasks))
    with closing(spread):  # A notebook keeps the error of Ctrl-C, and with it this frame; the processes end all the same.
        for step, (number, point) in enumerate(spread, 1):
            yield number, point  # before it is said, which may end the work
            said(tasks[number].label, step, len(tasks))


def _elsewhere(tasks: Sequence[Task], executor: Executor) -> _Done:
    """Do points on somebody else's executor."""
    try:
        yield from on_executor(executor, attempt, tasks)
    except UndoneError as error:
        labels = [tasks[number].label for number in error.left[:5]]
        more = [f"{len(error.left) - len(labels):,} more"] if len(error.left) > len(labels) else []
        raise EngineError(
            f"the executor failed ({described(error.reason)}), and left {counted(len(error.left), 'point')} undone: "
            f"{'; '.join([*labels, *more])}",
            hint="with path=, the same call goes on where it ended",
        ) from error.reason


def _check_simulated(tasks: Sequence[Task]) -> None:
    """Refuse processes side by side for devices that measure."""
    for choice in {in_short(device): device for task in tasks for device in [task.settings.get("device", task.options["device"])]}.values():
        check_device(choice)
        info = open_device(choice).info
        if not info.simulated:
            raise EngineError(
                f"points on {info.name} are not done in processes side by side, which would disturb each other's times",
                hint="leave executor= out, or give device='simulated'",
            )


def _in_processes(tasks: Sequence[Task]) -> _Done:
    """Do points in processes of our own. If one dies, each point that was being done is done once more, alone."""
    try:
        with closing(in_processes(attempt, tasks)) as done:
            for number, point in done:
                yield number, Point(tasks[number].settings, failure=_DEAD) if isinstance(point, Dead) else point
    except NotLoadedError as error:
        hint = "define it at the top of a module, and call ss.sweep under if __name__ == '__main__':; or leave executor= out"
        raise EngineError(f"{tasks[0].subject.name!r} {error}", hint=hint) from error


_DEAD = Failure(
    "DeadWorker",
    "the process that did it ended twice, the second time with nothing beside it",
    "did it crash, or take more memory than there is? Run it in this process: leave executor= out",
)
