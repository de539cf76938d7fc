"""Which line, module or range of the user's code costs most time on the GPU."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, get_args

import numpy as np
import numpy.typing as npt

from streamscope.analysis.gpus import busiest, several_gpus
from streamscope.analysis.intervals import Intervals, union
from streamscope.analysis.table import LONGEST_NAME, device_words, page_markdown, page_text
from streamscope.analysis.work import Work, work_of
from streamscope.arguments import shown
from streamscope.arrays import IntArray
from streamscope.errors import TraceError
from streamscope.results.result import Result
from streamscope.trace.info import TraceInfo
from streamscope.trace.joins import call_rows
from streamscope.trace.launch_sites import Site
from streamscope.trace.nesting import innermost_on
from streamscope.trace.one_gpu import rows_of_gpu, with_received
from streamscope.trace.origins import site_of
from streamscope.trace.spans import DEVICE_KINDS, SpanKind, SpanTable
from streamscope.trace.trace import Trace
from streamscope.words import a_kind, counted, format_us, percent, shortened_inside, time_text

if TYPE_CHECKING:
    import pandas as pd

By = Literal["line", "module", "range"]
_Row = TypeVar("_Row", bound="Placed")
UNKNOWN = "unknown"
"""Name of the row for launches of which the trace does not tell the line, module or range."""
NEARLY_ALL = 0.9
"""A row with a larger share of what is attributed tells little: of a model in a package, it is the line that calls the model."""
MOST_ROWS = 20
"""Rows of a table in text; `CodeTimes.to_dict` has all."""
_INSTANCE = re.compile(r"_\d+$")
_BACKWARD = "autograd::engine::evaluate_function"
"""Ranges of PyTorch around operators of the backward pass begin so."""
_NUMBERS = re.compile(r"(?<![^.])\d+(?![^.])")
_NEEDED = {
    "line": "ss.record(stacks=True) and PyTorch's profiler with with_stack=True tell lines; programs and captures know theirs",
    "module": "ss.record(stacks=True) and PyTorch's profiler with with_stack=True tell modules; captures of PyTorch code know theirs",
    "range": "torch.profiler.record_function and NVTX make ranges, and ss.label does in programs",
}


def class_of(module: str) -> str:
    """Return the class of a module that the profiler numbers, or its path without the numbers of its copies.

    Examples
    --------
    >>> from streamscope.analysis.code import class_of
    >>> class_of("Linear_12"), class_of("encoder.layers.0.attention")
    ('Linear', 'encoder.layers.*.attention')
    """
    return _NUMBERS.sub("*", _INSTANCE.sub("", module))


class Key(NamedTuple):
    """Key of a row."""

    name: str
    file: str = ""
    line: int = 0
    defined: bool = False


@dataclass(frozen=True)
class Placed:
    """A row of a table with a place in the user's code."""

    name: str
    file: str
    line: int | None

    @property
    def place(self) -> str:
        """File and line, as an editor takes them: ``"model.py:12"``; empty where unknown."""
        return self.file if self.line is None else f"{self.file}:{self.line}"

    @property
    def called(self) -> str:
        """Name and place, for a sentence."""
        return f"{self.name} ({self.place})" if self.place not in ("", self.name) else self.name


def by_class(rows: Iterable[_Row]) -> dict[str, list[_Row]]:
    """Return rows of modules by their class, in their order."""
    found: dict[str, list[_Row]] = {}
    for row in rows:
        found.setdefault(class_of(row.name), []).append(row)
    return found


def in_modules(row: Placed) -> str:
    """Say in how many modules a row is, where these are several of one class."""
    modules = getattr(row, "modules", 1)
    return f", in {modules:,} modules" if modules > 1 else ""


@dataclass(frozen=True)
class CodeRow(Placed):
    """One line, module or range.

    Attributes
    ----------
    name : str
        Name of the function, text of the line, name of the module or of the range. `UNKNOWN` where the trace does not tell.
    file : str
        Empty where unknown.
    line : int or None
        Number of the line in the file.
    kernels : int
    gpu_ns, exposed_ns, idle_ns : int
        As `by_code` defines them.
    share : float
        Of the GPU's time, 0 to 1.
    defined : bool
        Whether ``line`` is where the function is defined, and not the line that launched.
    """

    kernels: int
    gpu_ns: int
    exposed_ns: int
    idle_ns: int
    share: float
    defined: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values, times in µs."""
        return {
            "name": self.name, "file": self.file or None, "line": self.line, "kernels": self.kernels, "gpu_us": self.gpu_ns / 1000,
            "exposed_us": self.exposed_ns / 1000, "idle_us": self.idle_ns / 1000, "share": self.share,
        }  # fmt: skip


@dataclass(frozen=True)
class ModuleClass(CodeRow):
    """All modules of one class, such as ``Linear``, or at one place of a repeated block: ``layers.*.attention``.

    Attributes
    ----------
    name : str
        The class, or the name of its only module.
    modules : int
    with_inside_ns : int
        Time on the GPU with that of all modules that these call.
    """

    modules: int = 1
    with_inside_ns: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values, times in µs."""
        found = super().to_dict() | {"modules": self.modules, "with_inside_us": self.with_inside_ns / 1000}
        return {name: found[name] for name in found if name not in ("file", "line")}


@dataclass(frozen=True, repr=False)
class CodeTimes(Result):
    """Result of `by_code`. It is shown as a table, the row with most GPU time first.

    Attributes
    ----------
    info : TraceInfo
        Where the trace comes from.
    by : str
        ``"line"``, ``"module"`` or ``"range"``.
    rows : tuple of CodeRow
        The row with most GPU time first. One of them is `UNKNOWN`, if the trace tells of some launches only.
    gpu_ns, exposed_ns, idle_ns, kernels : int
        Totals of the GPU: those of the rows and of the unattributed rest together.
    unattributed : CodeRow
        Work without a launch call in the trace; all of it, where the trace tells nothing. Its idle time includes that after the last work.
    gpu : int or None
        Which GPU the numbers are of: the busiest, where the trace has several.
    classes : tuple of ModuleClass
        By module, the rows in sum by class, the one with most GPU time of its own first. Tables show them; ``rows`` are the single modules.
    beside : str
        The finding by module, range or line, where the rows tell little: nothing is known of most of them, or one has nearly all.
    backward : bool
        Whether rows by line or module have kernels of PyTorch's backward pass, each in the row of its forward operator.
    """

    view = "code"

    info: TraceInfo
    by: str
    rows: tuple[CodeRow, ...]
    gpu_ns: int
    exposed_ns: int
    idle_ns: int
    kernels: int
    unattributed: CodeRow
    gpu: int | None = None
    classes: tuple[ModuleClass, ...] = ()
    beside: str = ""
    backward: bool = False

    @property
    def title(self) -> str:
        """Program, device, and which GPU."""
        gpu = "" if self.gpu is None else f" · GPU {self.gpu}"
        return f"{self.info.program} · {device_words(self.info.device)}{gpu}"

    @property
    def defined(self) -> bool:
        """Whether a place of a row is where a function is defined."""
        return any(row.defined for row in self.rows)

    @property
    def shown_rows(self) -> Sequence[CodeRow]:
        """Rows of the table: `classes` where there are some."""
        return self.classes or self.rows

    @property
    def singles(self) -> CodeTimes:
        """The same, whose table has the single modules."""
        return replace(self, classes=())

    @property
    def known(self) -> Sequence[CodeRow]:
        """Rows but for `UNKNOWN`."""
        return [row for row in self.rows if row.name != UNKNOWN or row.place]

    @property
    def tells(self) -> bool:
        """Whether the rows answer what costs most: known ones have most of the time, and none has nearly all that is attributed."""
        attributed_ns = self.gpu_ns - self.unattributed.gpu_ns
        return sum(row.share for row in self.known) >= 1 / 2 and self.known[0].gpu_ns <= NEARLY_ALL * attributed_ns

    @property
    def answer(self) -> str:
        """The row that costs most, in a sentence; where that tells little, in another one what tells more."""
        return f"{self._answer} {self.beside}".rstrip()

    @property
    def _answer(self) -> str:
        known = [row for row in self.shown_rows if row.name != UNKNOWN or row.place]
        if not self.gpu_ns:
            return "The trace has no time of a GPU."
        if not known:
            return f"The trace names no {self.by} for any kernel: {_NEEDED[self.by]}."
        most, which = known[0], "" if known[0] is self.shown_rows[0] else f" of the known {self.by}s"
        called = shortened_inside(most.called, 2 * LONGEST_NAME)
        return f"{called} costs most{which}: {percent(most.share)} of {time_text(self.gpu_ns)} on the GPU{in_modules(most)}."

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes below the rows."""
        said = []
        if self.defined and self.by == "line":
            said.append("A file and line is where the function is defined: the profiler does not write the line that ran.")
        if self.backward:
            said.append(f"Backward kernels count for the {self.by} of their forward operator.")
        if unknown := [row for row in self.rows if row.name == UNKNOWN and not row.place]:
            said.append(f"{percent(unknown[0].share)} of the time is of an {UNKNOWN} {self.by}: the trace does not tell it.")
        if self.unattributed.gpu_ns and self.rows:
            said.append(f"{time_text(self.unattributed.gpu_ns)} have no launch call in the trace: they are not attributed.")
        return tuple(said)

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values, times in µs; ``gpu_us`` is the sum of the rows and ``unattributed_us``.

        Examples
        --------
        >>> function, inputs = ss.workload("branches").build()
        >>> runs = ss.compare(function, *inputs, engines="async", device="simulated", progress=False)
        >>> found = ss.analysis.by_code(runs["async"].trace).to_dict()
        >>> list(found)[:3], list(found["rows"][0])
        (['by', 'rows', 'unattributed_us'],
         ['name', 'file', 'line', 'kernels', 'gpu_us', 'exposed_us', 'idle_us', 'share'])
        """
        rest = self.unattributed
        return {
            "by": self.by,
            "rows": [row.to_dict() for row in self.rows],
            **({"classes": [row.to_dict() for row in self.classes]} if self.classes else {}),
            "unattributed_us": rest.gpu_ns / 1000,
            "unattributed_kernels": rest.kernels,
            "unattributed_exposed_us": rest.exposed_ns / 1000,
            "unattributed_idle_us": rest.idle_ns / 1000,
            "gpu": self.gpu,
            "kernels": self.kernels,
            "gpu_us": self.gpu_ns / 1000,
            "exposed_us": self.exposed_ns / 1000,
            "idle_us": self.idle_ns / 1000,
            **({"lines_are": "definitions" if self.defined else "lines"} if self.by == "line" else {}),
            "notes": list(self.notes),
        }

    def heads(self) -> tuple[str, ...]:
        """Return the headings of the table."""
        place = ("defined at" if self.defined else "file:line",) if self.by == "line" else ()
        name = "function" if self.defined else self.by
        of_class = ("modules", "with inside, µs") if self.classes else ()
        return (name, *place, *of_class[:1], "kernels", "GPU, µs", "share", *of_class[1:], "exposed, µs", "idle caused, µs")

    def table_rows(self, most: int | None = None) -> Iterator[tuple[str, ...]]:
        """Yield the rows as text, under `heads`; all, or at most so many. The rest comes last, if there is any."""
        for row in self.shown_rows[:most]:
            yield self._cells(row)
        if most is not None and (others := self.shown_rows[most:]):
            name = counted(len(others), f"more {'class' if self.classes else self.by}")
            yield self._cells(_summed(name, others))
        rest = self.unattributed
        if rest.gpu_ns or rest.idle_ns or rest.kernels:
            yield self._cells(rest)

    def _cells(self, row: CodeRow) -> tuple[str, ...]:
        place = (row.place,) if self.by == "line" else ()
        times = [format_us(value / 1000) for value in (row.gpu_ns, row.exposed_ns, row.idle_ns)]
        count, inside = (("",), ("",)) if self.classes else ((), ())
        if isinstance(row, ModuleClass):
            count, inside = (f"{row.modules:,}" if row.modules else "",), (format_us(row.with_inside_ns / 1000),)
        return (" ".join(row.name.split()), *place, *count, f"{row.kernels:,}", times[0], percent(row.share), *inside, *times[1:])

    def to_pandas(self) -> pd.DataFrame:
        """Return the rows as a DataFrame, times in µs."""
        import pandas as pd

        return pd.DataFrame([row.to_dict() for row in self.rows], columns=list(CodeRow("", "", None, 0, 0, 0, 0, 0.0).to_dict()))

    @property
    def _shown(self) -> Iterable[tuple[str, ...]]:
        return self.table_rows(MOST_ROWS) if self.rows else ()

    def _markdown(self) -> str:
        return page_markdown(self.title, self.answer, self.heads(), self._shown, self.notes)

    def _repr_markdown_(self) -> str:
        return self.to_markdown()

    def __repr__(self) -> str:
        return page_text(self.title, self.answer, self.heads(), self._shown, self.notes)


def by_code(trace: Trace, by: By = "line", communication: Iterable[str] = ()) -> CodeTimes:
    """Divide a GPU's time among the lines, modules or ranges of the code that launched its work.

    Formula, of each row: GPU time = sum of the durations of its kernels, copies and sets. Those side by side count each, so shares are of
    the sum. Exposed = its part of `exposed_communication_ns`: time of its communication with no kernel computing. Where two
    collectives run at once, the time belongs to the one that began first. Idle caused = gaps of the GPU that end with its work. Of several
    that begin at once, the gap belongs to the one that was launched first. Gaps are those of `device_idle`, from the first call on.
    Unit: ns. With the unattributed rest, rows add up to the GPU's sum of durations, exposed communication and idle time. Of several
    GPUs, it is the busiest; ``trace.of_gpu(n)`` gives another.

    The line is the user's own, of a program, a capture, or `record` with ``stacks=True``; or of the innermost frame of the thread at the
    time of the launch call, as PyTorch's profiler writes it: then the line is where the function is defined. The module is the innermost
    one; tables show modules in sum by class, and ``rows`` has each. The range is the label of the operation, or the innermost range around
    the launch call on its thread, operators of PyTorch among
    them; of captured code the operator. Backward kernels belong to the line and module of their forward operator.

    Parameters
    ----------
    trace : Trace
    by : {"line", "module", "range"}
    communication : iterable of str
        Patterns of yours for kernels that communicate, as `work_of` takes them.

    Raises
    ------
    TraceError
        ``by`` is something else, or ``trace`` is not a trace.

    Examples
    --------
    >>> function, inputs = ss.workload("branches").build()
    >>> runs = ss.compare(function, *inputs, engines="async", device="simulated", progress=False)
    >>> found = ss.analysis.by_code(runs["async"].trace, "line")
    >>> found.rows[0].place, found.rows[0].kernels
    ('programs.py:68', 32)
    >>> sum(row.gpu_ns for row in found.rows) + found.unattributed.gpu_ns == found.gpu_ns
    True
    """
    if not isinstance(trace, Trace):
        raise TraceError(f"by_code divides the time of a trace, not of {a_kind(trace)}", hint='a run has one: runs["graph"].trace')
    if by not in [*get_args(By)]:
        raise TraceError(f"time is divided by line, module or range, not by {shown(by)}", hint='by="line"')
    costs = costs_of(trace, communication)
    found = _times(trace, by, costs)
    if found.tells or not found.gpu_ns:
        return found
    others = (_times(trace, other, costs) for other in get_args(By) if other != by)
    return replace(found, beside=next((f"By {other.by}: {other.answer}" for other in others if other.tells), ""))


def most_telling(trace: Trace, communication: Iterable[str] = ()) -> CodeTimes:
    """Return `by_code` by line, module or range, the first that tells what costs most; else the first that tells anything, or by line."""
    costs, tried = costs_of(trace, communication), list[CodeTimes]()
    for by in get_args(By):
        found = _times(trace, by, costs)
        if found.tells:
            return found
        tried.append(found)
    return next((found for found in tried if found.known), tried[0])


def _times(trace: Trace, by: str, costs: Costs) -> CodeTimes:
    code, keys = _codes(costs.trace, by, costs.device, costs.call)
    backward = by != "range" and _has_backward(costs.trace.spans, costs.call[(code >= 0) & (costs.call >= 0)])
    if keys:
        code = np.where((code < 0) & (costs.call >= 0), len(keys), code)
        keys = [*keys, Key(UNKNOWN)]
    sums = costs.sums(code + 1, len(keys) + 1).T
    sums[0, 3] += costs.tail_ns
    total = sums.sum(axis=0).tolist()
    row = partial(_row, total_ns=total[1])
    rest, *each = sums.tolist()
    rows = [row(key, *numbers) for key, numbers in zip(keys, each, strict=True) if any(numbers)]
    rows.sort(key=lambda one: (-one.gpu_ns, one.name == UNKNOWN, -one.idle_ns, one.file, one.line or 0, one.name))
    unattributed = row(Key("not attributed"), *rest)
    classes = _classes(costs, rows) if by == "module" else ()
    totals = (total[1], total[2], total[3], total[0])
    return CodeTimes(trace.info, by, tuple(rows), *totals, unattributed, costs.gpu, classes, backward=backward)


def _has_backward(spans: SpanTable, call: IntArray) -> bool:
    """Whether any of these calls is on a thread of PyTorch's backward pass: a range of each backward operator is there."""
    names = [number for number, name in enumerate(spans.names) if name.startswith(_BACKWARD)]
    threads = spans.stream_lanes
    of_range, of_call = (np.unique(threads[spans.lane[rows]]) for rows in (np.isin(spans.name, names), call))
    known = {spans.lanes[lane].removesuffix(" ranges") for lane in of_range.tolist()}
    return any(spans.lanes[lane].removesuffix(" ranges") in known for lane in of_call.tolist())


def _classes(costs: Costs, rows: Sequence[CodeRow]) -> tuple[ModuleClass, ...]:
    """Return the rows of modules in sum by class; a class whose modules only call others is there, too."""
    from streamscope.analysis.call_tree import times_with_inside

    of_class, found = by_class(rows), []
    for name, (with_inside_ns, modules) in times_with_inside(costs).items():
        summed = _summed(name if len(modules) > 1 else min(modules), of_class.pop(name, ()))
        found.append(ModuleClass(**vars(summed), modules=len(modules), with_inside_ns=with_inside_ns))
    for name, rest in of_class.items():  # What is unknown.
        summed = _summed(name, rest)
        found.append(ModuleClass(**vars(summed), modules=0, with_inside_ns=summed.gpu_ns))
    return tuple(sorted(found, key=lambda row: (-row.gpu_ns, row.name == UNKNOWN, -row.with_inside_ns, row.name)))


@dataclass(frozen=True)
class Costs:
    """What each kernel, copy and set of a GPU costs.

    ``trace``: that of the GPU, which is ``gpu`` where there are several.
    ``device``, ``call``: rows of the work, and of the calls that launched it, -1 for none.
    ``span``: rows of the work in the trace of all GPUs.
    ``columns``: of the work whether it is a kernel, its duration, exposed communication, and the idle time that it ends.
    ``tail_ns``: idle time after the last work.
    """

    trace: Trace
    gpu: int | None
    device: IntArray
    call: IntArray
    span: IntArray
    columns: tuple[npt.NDArray[Any], ...]
    tail_ns: int

    def sums(self, code: IntArray, count: int) -> IntArray:
        """Return the sum of each column, in rows, over the work with each of so many codes."""
        # Up to 2**53 ns in all, so sums of floats are exact.
        return np.stack([np.bincount(code, column, count).astype(np.int64) for column in self.columns])


def costs_of(trace: Trace, communication: Iterable[str] = ()) -> Costs:
    """Return the costs of a GPU's work, of the busiest one of several."""
    gpu = None
    rows: IntArray = np.arange(len(trace.spans))
    if several_gpus(trace.spans):
        of_one = busiest(trace)
        gpu = of_one.gpus[0]
        rows, trace = rows_of_gpu(with_received(trace.spans, trace.peers, gpu), gpu), of_one
    spans = trace.spans
    device = np.flatnonzero(spans.is_kind(DEVICE_KINDS))
    call = call_rows(spans, device)
    begin_ns, end_ns = (int(spans.start_ns[0]), int(spans.end_ns.max())) if len(spans) else (0, 0)
    tail_ns = max(0, end_ns - int(spans.end_ns[device].max(initial=begin_ns)))
    exposed_ns = _exposed_ns(spans, device, work_of(trace, communication))
    idle_ns = _idle_before_ns(spans, device, call, begin_ns)
    columns = (spans.kind[device] == SpanKind.KERNEL, spans.duration_ns[device], exposed_ns, idle_ns)
    return Costs(trace, gpu, device, call, rows[device], columns, tail_ns)


def _row(key: Key, kernels: int, gpu_ns: int, exposed_ns: int, idle_ns: int, *, total_ns: int) -> CodeRow:
    share = gpu_ns / total_ns if total_ns else 0.0
    return CodeRow(key.name, key.file, key.line or None, kernels, gpu_ns, exposed_ns, idle_ns, share, key.defined)


def _summed(name: str, rows: Sequence[CodeRow]) -> CodeRow:
    names = ("kernels", "gpu_ns", "exposed_ns", "idle_ns", "share")
    return CodeRow(name, "", None, **{each: sum(getattr(row, each) for row in rows) for each in names})


def _codes(trace: Trace, by: str, device: IntArray, call: IntArray) -> tuple[IntArray, list[Key]]:
    """Return an index into the keys for each row of the device, -1 where it is not known, and the keys."""
    numbers: dict[Key, int] = {}
    spans, sites = trace.spans, trace.sites
    found = np.full(len(spans) + 1, -1, np.int64)  # The last is of no call.
    if by == "range":
        ranges = ranges_around(spans, call)
        used = np.unique(spans.name[ranges[ranges >= 0]])
        of_name = np.full(len(spans.names), -1, np.int64)
        of_name[used] = [numbered(Key(spans.names[name]), numbers) for name in used.tolist()]
        found[device] = np.where(ranges >= 0, of_name[spans.name[ranges]], -1)
    else:
        of_site = np.array([numbered(site_key(site, by), numbers) for site in sites.sites], np.int64)
        found[sites.span] = of_site[sites.site] if len(sites) else -1
    of_operation = np.array([*(numbered(key, numbers) for key in operation_keys(trace, by)), -1], np.int64)
    operation = spans.operation[device]
    own = of_operation[np.where((operation >= 0) & (operation < len(of_operation)), operation, -1)]
    return np.where(own >= 0, own, found[device]), list(numbers)


def numbered(key: Key | None, numbers: dict[Key, int]) -> int:
    """Return the number of a key, a new one where it is seen for the first time; -1 for None."""
    return -1 if key is None else numbers.setdefault(key, len(numbers))


def site_key(site: Site, by: str) -> Key | None:
    """Return the key of a site, by line or module; None where it is not known."""
    if by == "module":
        return Key(site.module) if site.module else None
    place = site.file if site.defined or not site.line else f"{site.file}:{site.line}"
    return Key(site.function or place, site.file, site.line, site.defined) if site.function or site.file else None


def operation_keys(trace: Trace, by: str) -> Iterator[Key | None]:
    """Yield the key of each operation of a program or a capture, by its id; None where it is not known."""
    words = trace.origins.words()
    captured = any("operator" in each for each in words)
    for each in words:
        label = each.get("label", "")
        if by == "line":
            yield line_key(each.get("line", ""))
        elif by == "module":
            name = each.get("module", label if captured else "")
            yield Key(name) if name else None
        else:
            name = each.get("operator", "") if captured else label
            yield Key(name) if name else None


def line_key(text: str) -> Key | None:
    """Read ``model.py:12: h = x @ w``."""
    site = site_of(text)
    return None if site is None else Key(site.function or f"{site.file}:{site.line}", site.file, site.line)


def ranges_around(spans: SpanTable, call: IntArray) -> IntArray:
    """Return the innermost range around each launch call, on its thread; -1 where there is none, or no call."""
    found = np.full(len(call), -1, np.int64)
    ranges = np.flatnonzero(spans.kind == SpanKind.RANGE)
    called = np.flatnonzero(call >= 0)
    if not len(ranges) or not len(called):
        return found
    threads = spans.stream_lanes
    number = {spans.lanes[lane].removesuffix(" ranges"): lane for lane in np.unique(threads[spans.lane[ranges]]).tolist()}
    lane_of = np.array([number.get(spans.lanes[lane].removesuffix(" ranges"), -1) for lane in threads.tolist()], np.int64)
    of_range, of_call = lane_of[spans.lane[ranges]], lane_of[spans.lane[call[called]]]
    inner = innermost_on(of_range, spans.start_ns[ranges], spans.end_ns[ranges], of_call, spans.start_ns[call[called]])
    found[called] = np.where(inner >= 0, ranges[inner], -1)
    return found


def _idle_before_ns(spans: SpanTable, device: IntArray, call: IntArray, begin_ns: int) -> IntArray:
    """Return for each row of the device the idle time of the GPU that ends with it."""
    idle_ns = np.zeros(len(device), np.int64)
    if not len(device):
        return idle_ns
    call_ns = np.where(call >= 0, spans.start_ns[call], np.iinfo(np.int64).max)
    order = np.lexsort((call_ns, spans.start_ns[device]))
    start_ns, end_ns = spans.start_ns[device][order], spans.end_ns[device][order]
    before_ns = np.maximum.accumulate(np.concatenate([[begin_ns], end_ns[:-1]]))
    # Work that begins at once with other work must find no gap, also if that took no time.
    before_ns[1:] = np.maximum(before_ns[1:], np.where(np.diff(start_ns) == 0, start_ns[1:], before_ns[1:]))
    idle_ns[order] = np.maximum(start_ns - before_ns, 0)
    return idle_ns


def _exposed_ns(spans: SpanTable, device: IntArray, work: npt.NDArray[Any]) -> IntArray:
    """Return for each row of the device the time of its communication without compute, and without communication that began earlier."""
    exposed_ns = np.zeros(len(device), np.int64)
    at = np.flatnonzero(work[device] == Work.COMMUNICATION)  # In the order of starts, as the table is.
    if not len(at):
        return exposed_ns
    computing = np.flatnonzero(work == Work.COMPUTE)
    busy = union(spans.start_ns[computing], spans.end_ns[computing])
    start_ns, end_ns = spans.start_ns[device[at]], spans.end_ns[device[at]]
    start_ns = np.maximum(start_ns, np.maximum.accumulate(np.concatenate([start_ns[:1], end_ns[:-1]])))
    end_ns = np.maximum(start_ns, end_ns)
    exposed_ns[at] = end_ns - start_ns - (_within_ns(busy, end_ns) - _within_ns(busy, start_ns))
    return exposed_ns


def _within_ns(some: Intervals, time_ns: IntArray) -> IntArray:
    """Return how much of some intervals lies before each time."""
    length_ns = np.concatenate([[0], np.cumsum(some.end_ns - some.start_ns)])
    begun = np.searchsorted(some.start_ns, time_ns, side="right")
    last_end_ns = np.concatenate([time_ns[:1], some.end_ns])[begun] if len(time_ns) else time_ns
    beyond_ns = np.where(begun > 0, np.maximum(last_end_ns - time_ns, 0), 0)
    found: IntArray = length_ns[begun] - beyond_ns
    return found
