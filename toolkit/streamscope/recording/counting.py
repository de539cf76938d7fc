"""Counters and markers of the user's own code, which whatever records at the time puts into its trace."""

from __future__ import annotations

import sys
import threading
import time
import warnings
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from operator import itemgetter
from typing import Any

import numpy as np

from streamscope.arguments import shown
from streamscope.arrays import IntArray
from streamscope.errors import RecordingError, RecordingWarning
from streamscope.program.tracer import is_tracing
from streamscope.trace.counters import LONGEST_COUNTER, Noted, Series
from streamscope.trace.trace import Trace
from streamscope.words import a_kind

_LARGEST = sys.float_info.max
_SCALARS = (np.floating, np.integer)
_ARRAYS = (np.ndarray, np.generic)
_TIES = 10
_FEW = 1 << 16
"""Values of which none is dropped, however old: they take 10 MB."""
_MOST_KEPT = 4096
"""Counters that are kept by their names, so that asking for one again costs nothing; programs that make up more get new ones each time."""


Number = float | np.floating[Any] | np.integer[Any]
Said = tuple[int, "Counter", Number, bool]
"""A value: its time, its counter, the number, and whether it is added to the one before."""
Moment = tuple[int, str, int]
"""A marker: its time, its name, and the system's number of its thread."""


class Heard:
    """What counters and markers said while something recorded, on its clock; with ``last_ns``, not much more than the last so many ns."""

    def __init__(self, now_ns: Callable[[], int], last_ns: int | None = None) -> None:
        self.now_ns = now_ns
        self.thread = threading.get_native_id()
        self.values: list[Said] = []
        self.moments: list[Moment] = []
        self.last_ns = last_ns
        self.most = sys.maxsize if last_ns is None else _FEW
        """So many values or markers are kept before older ones are looked for."""

    def forget(self) -> None:
        """Drop what is older than the last ``last_ns``; of each counter, its value at that time stays."""
        assert self.last_ns is not None
        with _changing:
            edge_ns = self.now_ns() - self.last_ns
            # Other threads append meanwhile: each line changes the front of a list at once.
            old = bisect_left(self.values, edge_ns, key=itemgetter(0))
            self.values[:old] = folded(self.values[:old])
            del self.moments[: bisect_left(self.moments, edge_ns, key=itemgetter(0))]
            self.most = max(_FEW, 2 * len(self.values), 2 * len(self.moments))

    def at(self, moved: Callable[[int], int]) -> Heard:
        """Return the same at other times."""
        found = Heard(self.now_ns)
        found.values = [(moved(at), counter, value, added) for at, counter, value, added in self.values]
        found.moments = [(moved(at), name, thread) for at, name, thread in self.moments]
        return found

    def within(self, start_ns: int, end_ns: int) -> Heard:
        """Return what was said in a stretch of time."""
        found = Heard(self.now_ns)
        found.values = [each for each in self.values if start_ns <= each[0] <= end_ns]
        found.moments = [each for each in self.moments if start_ns <= each[0] <= end_ns]
        return found

    def onto(self, trace: Trace, start_ns: int, end_ns: int) -> Trace:
        """Return the trace of a program's run with all that was said during it; ``start_ns`` is the trace's zero.

        Moments of the thread that ran the program lie on its lane ``"host"``.
        """
        if not self.values and not self.moments:
            return trace
        noted, said = Noted(), list[str]()
        inside = self.within(start_ns, end_ns)
        note(noted, inside.values, inside.moments, lambda thread: "host" if thread == self.thread else f"thread {thread}")
        counters, markers = noted.tables(start_ns, said)
        info = replace(trace.info, notes=(*trace.info.notes, *said)) if said else trace.info
        return replace(trace, info=info, counters=counters, markers=markers)


class HostTimes:
    """Hears on the host's clock, which is read quicker than a profiler's, and ties both clocks at the beginning and at the end."""

    def __init__(self, profiler_ns: Callable[[], int], last_ns: int | None = None) -> None:
        self._profiler_ns = profiler_ns
        self._heard = Heard(time.perf_counter_ns, last_ns)
        self._began = self._ended = self._tie()
        listen(self._heard)

    def stop(self) -> None:
        """Hear no more."""
        leave(self._heard)

    def end(self) -> Heard:
        """Hear no more, and return what was said, at times on the profiler's clock."""
        self.stop()
        self._ended = self._tie()
        (here, there), rate = self._began, self._rate
        return self._heard.at(lambda at: there + round((at - here) * rate))

    def moved(self, at_ns: IntArray) -> IntArray:
        """Return times of the host's clock on the profiler's, after `end`."""
        here, there = self._began
        found: IntArray = there + np.rint((at_ns - here) * self._rate).astype(np.int64)
        return found

    @property
    def _rate(self) -> float:
        (here, there), (here_end, there_end) = self._began, self._ended
        return (there_end - there) / max(1, here_end - here)

    def _tie(self) -> tuple[int, int]:
        """Return one moment on both clocks, from the tightest of some samples."""
        samples = []
        for _ in range(_TIES):
            before = time.perf_counter_ns()
            there = self._profiler_ns()
            after = time.perf_counter_ns()
            samples.append((after - before, (before + after) // 2, there))
        return min(samples)[1:]


def note(noted: Noted, values: Iterable[Said], moments: Iterable[Moment], thread_name: Callable[[int], str]) -> None:
    """Add what was said to a reader's collection: what was added to a counter becomes its sum, which begins with 0."""
    rows = [(noted.number(counter.series), time_ns, total) for time_ns, counter, total in _summed(values)]
    if rows:
        series, times_ns, numbers = zip(*rows, strict=True)
        noted.add_values(series, times_ns, numbers)
    noted.add_markers([(time_ns, name, thread_name(thread)) for time_ns, name, thread in moments])


def folded(values: Iterable[Said]) -> list[Said]:
    """Return the last value of each counter, at its time; sums are whole."""
    last: dict[Series, Said] = {counter.series: (time_ns, counter, total, False) for time_ns, counter, total in _summed(values)}
    return sorted(last.values(), key=itemgetter(0))


def said_since(values: Sequence[Said], edge_ns: int) -> list[Said]:
    """Return the values from a time on, and before them, at that time, the last one of each counter that spoke earlier."""
    old = folded(each for each in values if each[0] < edge_ns)
    return [*((edge_ns, *each[1:]) for each in old), *(each for each in values if each[0] >= edge_ns)]


def _summed(values: Iterable[Said]) -> Iterator[tuple[int, Counter, float]]:
    total: dict[Series, float] = {}
    for time_ns, counter, value, added in sorted(values, key=itemgetter(0)):
        total[counter.series] = total.get(counter.series, 0.0) + float(value) if added else float(value)
        yield time_ns, counter, total[counter.series]


_changing = threading.RLock()  # A signal handler may count in the middle of it.
_hearing: tuple[Heard, ...] = ()
"""Replaced as a whole, so that other threads need no lock to go through it."""


@contextmanager
def heard(now_ns: Callable[[], int]) -> Iterator[Heard]:
    """Hear what all threads say in a block, at times of this clock."""
    found = Heard(now_ns)
    listen(found)
    try:
        yield found
    finally:
        leave(found)


def listen(found: Heard) -> None:
    """Hear what is said from now on."""
    global _hearing  # noqa: PLW0603 — a call that finds nobody listening costs one look at a name
    with _changing:
        _hearing = (*_hearing, found)


def leave(found: Heard) -> None:
    """Hear no more."""
    global _hearing  # noqa: PLW0603 — a call that finds nobody listening costs one look at a name
    with _changing:
        _hearing = tuple(each for each in _hearing if each is not found)


def _warn_in_a_body(what: str, name: str) -> None:
    """Warn that nothing hears a call in the body of a program, which runs once, when it is traced, and not in its runs."""
    if is_tracing():
        said = f"{what} {shown(name)} in the body of a program is not in its runs: the body is called once, when it is traced"
        warnings.warn(f"{said}. Call it in a host function of the program: ss.host_function", RecordingWarning, stacklevel=4)


def _say(counter: Counter, value: Number, *, added: bool) -> None:
    if not _hearing:
        _warn_in_a_body("counter", counter.series.name)
    for each in _hearing:
        each.values.append((each.now_ns(), counter, value, added))
        if len(each.values) > each.most:
            each.forget()


class Counter:
    """A number of yours over time; `counter` makes it.

    Attributes
    ----------
    series : Series
        Name and unit.
    """

    __slots__ = ("series",)

    def __init__(self, series: Series) -> None:
        self.series = series

    def set(self, value: Number) -> None:
        """Say what the number is from now on.

        Parameters
        ----------
        value : int, float or NumPy number
            An array of NumPy's with one element counts, too.

        Raises
        ------
        RecordingError
            It is something else: a truth value, NaN, infinite, an array on a GPU, a symbol of a program that is being traced.
        """
        kind = type(value)
        if not ((kind is float or kind is int) and -_LARGEST <= value <= _LARGEST):
            value = _number(self.series.name, value)
        _say(self, value, added=False)

    def add(self, value: Number = 1) -> None:
        """Add to the number. In each recording, it begins with 0.

        Parameters
        ----------
        value : int, float or NumPy number
            As of `set`; it may be negative.

        Raises
        ------
        RecordingError
            As `set`.
        """
        kind = type(value)
        if not ((kind is float or kind is int) and -_LARGEST <= value <= _LARGEST):
            value = _number(self.series.name, value)
        _say(self, value, added=True)

    def __repr__(self) -> str:
        return f"<counter {self.series.label!r:.80}>"


_counters: dict[tuple[str, str], Counter] = {}


def counter(name: str, unit: str = "") -> Counter:
    """Return a counter: a number of yours that the timeline shows over time, beside the streams.

    Call it where you have the number: in a step of a training loop inside `record`, or in a host function of a program. Each value is kept
    with its time by whatever records then, on its clock: on a simulated device, at the virtual time. It costs less than a microsecond,
    and next to nothing where nothing records. Any thread may call it.

    Parameters
    ----------
    name : str
        Counters of one name and unit are the same one.
    unit : str
        For example ``"samples/s"``.

    Returns
    -------
    Counter
        ``set(x)`` says what the number is, ``add(x)`` adds to it. Numbers on the host are taken: of Python and of NumPy. Nothing is ever
        waited for, so arrays on a GPU are refused; so are truth values, NaN and infinite numbers.

    Raises
    ------
    RecordingError
        Name or unit are not text.

    Examples
    --------
    >>> @ss.host_function
    ... def log(loss):
    ...     ss.counter("loss").set(loss.mean())
    ...     ss.marker("logged")
    ...     return loss
    >>> def step(x):
    ...     return log(ss.ops.to_host(x * 2))
    >>> import numpy as np
    >>> runs = ss.compare(step, np.ones(1000, np.float32), engines=["async"], device="simulated", progress=False)
    >>> trace = runs["async"].trace
    >>> trace.counters.summary(), trace.markers.names
    ([{'name': 'loss', 'count': 1, 'min': 2.0, 'max': 2.0, 'last': 2.0}], ['logged'])
    """
    try:
        return _counters[name, unit]
    except (KeyError, TypeError):  # Something that cannot be hashed is no text.
        pass
    for what, text in (("name", name), ("unit", unit)):
        _check_text(f"the {what} of a counter", text, empty=what == "unit")
    made = Counter(Series(name, unit))
    return _counters.setdefault((name, unit), made) if len(_counters) < _MOST_KEPT else made


def marker(name: str) -> None:
    """Mark this moment in whatever records now: the timeline shows a line with this name.

    Any thread may call it. Where nothing records, it does nothing. Of a program, call it in a host function.

    Parameters
    ----------
    name : str
        For example ``"epoch 3"``.

    Raises
    ------
    RecordingError
        It is not text, or empty.

    Examples
    --------
    >>> ss.marker("epoch 3")
    """
    _check_text("a marker", name)
    if not _hearing:
        _warn_in_a_body("marker", name)
    for each in _hearing:
        each.moments.append((each.now_ns(), name, threading.get_native_id()))
        if len(each.moments) > each.most:
            each.forget()


def _check_text(what: str, text: object, *, empty: bool = False) -> None:
    if not isinstance(text, str):
        raise RecordingError(f"{what} must be a string, not {a_kind(text)}", hint='for example "epoch 3"')
    if len(text) > LONGEST_COUNTER or not (text or empty):
        raise RecordingError(f"{what} must have 1 to {LONGEST_COUNTER:,} characters, not {len(text):,}", hint='for example "epoch 3"')
    try:
        text.encode()
    except UnicodeEncodeError:
        raise RecordingError(f"{what} has half of a character: {shown(text)}", hint="take text that can be written as UTF-8") from None


def _number(name: str, value: Any) -> float:
    """Return a number of another type than Python's own; refuse all else by its name, without waiting for it."""
    if isinstance(value, _SCALARS) and not isinstance(value, np.timedelta64):  # NumPy counts a time among the integers.
        pass
    elif isinstance(value, _ARRAYS):
        kind = value.dtype.kind
        if kind not in "iuf" or value.size != 1:
            what = f"an array of {value.size:,} elements" if value.size != 1 else f"a value of dtype {value.dtype}"
            raise _refused(name, what, "give one number, for example its mean: counter.set(x.mean())")
        value = value.item()
    elif isinstance(value, bool) or not isinstance(value, int | float):
        raise _refused(name, *_unfit(value))
    try:
        number = float(value)
    except OverflowError:
        raise _refused(name, "a whole number too large for a float", "give its logarithm, or another unit") from None
    if not -_LARGEST <= number <= _LARGEST:
        text = "NaN" if number != number else "infinite"  # noqa: PLR0124 — NaN
        raise _refused(name, text, "leave such values out: if math.isfinite(x): counter.set(x); ss.marker says that it happened")
    return number


def _unfit(value: Any) -> tuple[str, str]:
    """Say what a value is that is no number on the host, and what to do instead."""
    from streamscope.program.symbol import Symbol

    if isinstance(value, bool):
        return f"the truth value {value}", "int(x) counts it as 0 or 1"
    if isinstance(value, Symbol):
        return (
            "a symbol of a program that is being traced, and has no value yet",
            "call the counter in a host function of the program: ss.host_function",
        )
    home = type(value).__module__.partition(".")[0]
    if hasattr(type(value), "__cuda_array_interface__") and getattr(value, "is_cuda", True):
        return (
            f"an array on a GPU ({home}'s {type(value).__name__}), which would have to be waited for",
            "count it where your code waits anyway: counter.set(x.item()); in a program, in a host function",
        )
    if type(value).__name__ == "PushedVariable":
        return "a variable of an engine, which would have to be waited for", "push a host function that reads it and counts"
    if hasattr(value, "item"):
        return f"{a_kind(value)} of {home}", "give the number in it: counter.set(x.item())"
    return a_kind(value), "give an int or a float: counter.set(float(x))"


def _refused(name: str, what: str, hint: str) -> RecordingError:
    return RecordingError(f"counter {shown(name)} takes a number on the host, not {what}", hint=hint)
