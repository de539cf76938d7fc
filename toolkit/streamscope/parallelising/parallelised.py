"""`Parallelised`: the callable that `ss.parallelise` returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from threading import RLock
from typing import Any

from streamscope.analysis.statistics import MedianInterval
from streamscope.analysis.table import device_words
from streamscope.capturing.as_called import AsCalled
from streamscope.capturing.captured import UpperBound
from streamscope.capturing.certificate import Certificate
from streamscope.capturing.function import CapturedFunction
from streamscope.capturing.memory import MemoryHeld
from streamscope.comparing.compare import compare
from streamscope.comparing.comparison import Comparison
from streamscope.engine_entry import GRAPH, STREAM, engine_with
from streamscope.engines.graphs import GraphView
from streamscope.engines.prepared import Prepared
from streamscope.errors import EngineError, ProgramError
from streamscope.job import gathered, joined
from streamscope.measuring.choice import Choice, Standing
from streamscope.parallelising.calls import Arguments, Calls, Mode
from streamscope.parallelising.captured_call import MISSED, CapturedCall, QuickCall
from streamscope.parallelising.proving import Proof
from streamscope.parallelising.trees import put_together
from streamscope.results.result import Result
from streamscope.results.widgets import Timeline
from streamscope.trace.file_checks import plain
from streamscope.trace.info import DeviceInfo
from streamscope.tracebacks import users_lines_shown
from streamscope.words import aligned, binary_size, capitalised, counted, format_us, listed, time_text

CAPTURED, PARALLEL = engine_with(GRAPH), engine_with(GRAPH, STREAM)
"""Engines: the captured order, and the one that memory asks for."""

_FARED = {
    Standing.SLOWER: "is slower",
    Standing.NO_FASTER: "is no faster",
    Standing.UNDECIDED: "cannot be told apart from that",
}


@dataclass(frozen=True, repr=False)
class Gain:
    """Measurements when a function was parallelised.

    Attributes
    ----------
    name : str
    device : DeviceInfo
    nodes : int
        Kernels, copies and sets of a run.
    choice : Choice
        The rounds in which both orders took turns, in ns, with what was ruled out and why.
    plain_us : float
        Median time of a plain call of the function, in µs, with the framework's own work on the host.
    copied_bytes : int
        What a call copies at most: arguments into the capture's memory, and results out of it.
    memory : MemoryHeld
        Device memory of the capture, beside what a plain call uses.
    certificate : Certificate
        For each pair of nodes that touch the same memory, what orders them.
    bound : UpperBound, optional
        How fast the order that memory asks for can be at best.
    proof : Proof, optional
        The runs on other inputs, and what they showed; None where there were none.
    order : str
        How the chosen order is spread, in words.
    note : str
        What to know of the function's state; empty where it is as if it had never been called.
    as_called : AsCalled, optional
        Whether the capture does what a plain call does.
    call_us : (float, float), optional
        How much longer a call takes than the launch of its graph, in µs: until the device is done, and on the host.
    compared : (int, int, int)
        Parts that a call compares with the captured ones: arrays, other values, and numbers of optimisers.
    """

    name: str
    device: DeviceInfo
    nodes: int
    choice: Choice
    plain_us: float
    copied_bytes: int
    memory: MemoryHeld
    certificate: Certificate
    bound: UpperBound | None = None
    proof: Proof | None = None
    order: str = ""
    note: str = ""
    as_called: AsCalled | None = None
    call_us: tuple[float, float] | None = None
    compared: tuple[int, int, int] = (0, 0, 0)

    @property
    def engine(self) -> str:
        """``"graph"``: it runs as it was captured. ``"graph-dual"``: as its memory asks."""
        return self.choice.engine

    @property
    def parallel(self) -> bool:
        """Whether it runs in another order than the captured one."""
        return self.engine != CAPTURED

    @property
    def before_ns(self) -> MedianInterval:
        """One run in the captured order, in ns."""
        return self._makespan_ns(CAPTURED)

    @property
    def after_ns(self) -> MedianInterval:
        """One run as it is, in ns; the same as before where nothing is gained."""
        return self._makespan_ns(self.engine)

    @property
    def speedup(self) -> MedianInterval | None:
        """How many times as fast as the captured order, from runs in turns; None where it is that order."""
        return next((one.ratio for one in self.choice.candidates if self.parallel and one.engine == CAPTURED), None)

    @property
    def headline(self) -> str:
        """The gain, in one sentence."""
        speedup, after = self.speedup, time_text(self.after_ns.median)
        if self.proof is not None and not self.proof.holds:
            return (
                f"{self.name} runs in the order in which it was captured, {after} a run, since the other was not proven: {self.proof.text}."
            )
        if speedup is None:
            others = [
                f"{one.engine} {_FARED.get(one.standing, 'was ruled out: ' + one.why)}"
                for one in self.choice.candidates
                if one.engine != CAPTURED
            ]
            why = f" ({'; '.join(others)})" if others else ""
            return f"Nothing to gain: {self.name} runs in the order in which it was captured, {after} a run{why}."
        return (
            f"{self.name} takes {after} a run, and {time_text(self.before_ns.median)} in the order in which it was captured: "
            f"{speedup.median:.2f}× as fast ({speedup.low:.2f} to {speedup.high:.2f})."
        )

    @property
    def facts(self) -> list[str]:
        """The evidence, a sentence each."""
        proven = self.proof is not None and self.parallel
        return [
            *([str(self.as_called)] if self.as_called is not None else []),
            *([f"The order was {self.order}."] if self.order and self.parallel else []),
            *([f"{capitalised(self.proof.text)}."] if self.proof is not None and proven else []),
            f"{counted(self.nodes, 'node')}; {self.certificate.headline}.",
            *([] if self.bound is None else [f"By the durations of the nodes: {self.bound}."]),
            f"{capitalised(str(self.memory))}.",
            *self._call_facts,
            *([self.note] if self.note else []),
        ]

    @property
    def _call_facts(self) -> list[str]:
        found = [f"A call copies up to {binary_size(self.copied_bytes)} besides."] if self.copied_bytes else []
        if self.call_us is not None:
            until_done, on_host = (time_text(1e3 * max(0.0, us), digits=2) for us in self.call_us)
            kinds = (("array",), ("other value",), ("number of an optimiser", "numbers of an optimiser"))
            compared = listed([counted(count, *kind) for count, kind in zip(self.compared, kinds, strict=True) if count])
            looks = f": it compares {compared}" if compared else ""
            found.append(f"A call takes {until_done} more than the launch of its graph, and {on_host} more of the host{looks}.")
        return found

    @property
    def text(self) -> str:
        """The verdict in a few sentences: headline and evidence."""
        return " ".join([self.headline, *self.facts])

    def rows(self) -> list[tuple[str, str, str]]:
        """Return the rows of the table: order, time in µs, comparison with the captured order."""
        before = self.before_ns.median
        rows = [
            ("plain call", format_us(self.plain_us), f"{before / self.plain_us / 1e3:.2f}×"),
            ("captured order", format_us(before / 1e3), "1.00×"),
        ]
        if self.speedup is not None:
            rows.append(("chosen order", format_us(self.after_ns.median / 1e3), f"{self.speedup.median:.2f}×"))
        return rows

    def to_dict(self) -> dict[str, Any]:
        """Return the gain as JSON values; times in ns, in µs where the name says so."""
        content = {
            "name": self.name,
            "device": {"kind": self.device.kind, "name": self.device.name},
            "engine": self.engine,
            "headline": self.headline,
            "facts": self.facts,
            "plain_us": self.plain_us,
            "before_ns": asdict(self.before_ns),
            "after_ns": asdict(self.after_ns),
            "speedup": None if self.speedup is None else asdict(self.speedup),
            "choice": self.choice.to_dict(),
            "certificate": self.certificate.to_dict(),
            "as_called": None if self.as_called is None else {"verdict": self.as_called.verdict, **asdict(self.as_called)},
            "proof": None if self.proof is None else self.proof.to_dict(),
        }
        found: dict[str, Any] = plain(content)
        return found

    def __str__(self) -> str:
        heading = f"{self.name} · {device_words(self.device)}"
        return "\n".join([heading, self.headline, "", *aligned([("", "µs a run", "speed-up"), *self.rows()]), "", *self.facts])

    def _makespan_ns(self, engine: str) -> MedianInterval:
        found = next(one.makespan_ns for one in self.choice.candidates if one.engine == engine)
        assert found is not None
        return found


_MOST_CAPTURES = 8
"""Captures that a callable keeps with ``shapes="recapture"``; the one that was not used for the longest goes."""
_REPEATS = 30


@dataclass
class Capture:
    """A captured call with all that belongs to it."""

    call: CapturedCall
    captured: CapturedFunction
    gain: Gain
    prepared: Prepared
    quickly: QuickCall

    @cached_property
    def comparison(self) -> Comparison:
        """Both orders recorded; made when first asked for."""
        return compare(self.captured, engines=(CAPTURED, PARALLEL), repeats=_REPEATS, progress=False, name=self.gain.name)


class Parallelised(Result):
    """A function whose kernels run side by side wherever they may; see `ss.parallelise`, which makes it.

    Call it like the function. Arguments are copied into the memory of the capture, but for those that are that memory (see `inputs`);
    the kernels run on your current stream; and you get the results as the function returns them, without gradients. What the function
    changes in place, such as parameters or a cache, it changes in place here, too.

    Shown in a notebook, it is the verdict with times, both orders on one axis, which are recorded then, and the certificate.

    Attributes
    ----------
    function : callable
    name : str
    """

    view = "parallelised"

    def __init__(
        self,
        function: Callable[..., Any],
        calls: Calls,
        name: str,
        make: Callable[[Arguments], Capture],
        *,
        recaptures: bool,
        timeout_s: float | None = None,
    ) -> None:
        self.function = function
        self.name = name
        self._calls = calls
        self._make = make
        self._recaptures, self._timeout_s = recaptures, timeout_s
        self._together = False
        """Whether ranks agree before each call, since one may have to capture anew."""
        self._captures: tuple[Capture, ...] = ()
        self._lock = RLock()

    def __call__(self, *inputs: Any, **keywords: Any) -> Any:
        """Run on arguments like those that were captured, on your current stream.

        Raises
        ------
        ProgramError
            They differ from those that were captured, or a number of an optimiser does, and ``shapes="recapture"`` was not said.
        EngineError
            Your stream is being captured.
        """
        if self._together:
            return self._called_together(self._calls.arguments(inputs, keywords), self._calls.mode())
        captures = self._captures  # Read once: other threads may put another one first.
        for capture in captures:
            if (result := capture.quickly(inputs, keywords)) is not MISSED:
                if capture is not captures[0]:
                    self._used(capture)
                return result
        mode, arguments = self._calls.mode(), self._calls.arguments(inputs, keywords)
        for capture in captures:
            arrays = capture.call.arrays_of(arguments) if capture.call.is_as_captured(mode) else None
            if arrays is not None:
                if capture is not captures[0]:
                    self._used(capture)
                return capture.call.run(arrays)
        return self._for_others(arguments, mode)

    def add(self, arguments: Arguments) -> Capture:
        """Capture the function for arguments, as `ss.parallelise` does."""
        with self._lock:
            capture = self._make(arguments)
            self._together |= self._recaptures and capture.captured.communicates
            self._captures = (capture, *self._captures[: _MOST_CAPTURES - 1])
            return capture

    @property
    def captured(self) -> CapturedFunction:
        """The program of the capture that was used last, for `ss.compare`, `ss.audit` and the like."""
        return self._captures[0].captured

    @property
    def captures(self) -> int:
        """How many captures it holds: one, and with ``shapes="recapture"`` one for each kind of call, up to 8."""
        return len(self._captures)

    @property
    def inputs(self) -> Mapping[str, Any]:
        """The arguments in the memory of the capture, by name: fill them and pass them, and nothing is copied."""
        call = self._captures[0].call
        found: Mapping[str, Any] = put_together(call.tree, [slot.memory for slot in call.slots])
        return found

    @property
    def gain(self) -> Gain:
        """Measurements before and after, with their evidence."""
        return self._captures[0].gain

    @property
    def verdict(self) -> str:
        """The gain, in plain words."""
        return self.gain.text

    @property
    def graph(self) -> GraphView:
        """The graph that a call launches, without the copies before it: its nodes and edges, as a picture in a notebook."""
        return self._captures[0].prepared.graphs[0]

    @property
    def comparison(self) -> Comparison:
        """Both orders, as captured and as it runs, measured and recorded; takes a moment when you first ask for it."""
        with users_lines_shown():
            return self._captures[0].comparison

    def timeline(self) -> Timeline:
        """Return the live timelines of both orders on one time axis (a notebook widget)."""
        return self.comparison.timeline()

    def to_dict(self) -> dict[str, Any]:
        """Return the gain as JSON values: both times, the verdict, and the choice between both orders."""
        return self.gain.to_dict()

    def _markdown(self) -> str:
        return self.comparison.to_markdown()

    def __reduce__(self) -> str:
        raise ProgramError(f"parallelised {self.name!r} cannot be pickled: it is a graph of this process", hint="make it in each process")

    def __repr__(self) -> str:
        return f"<parallelised {self.name}: {self.gain.headline}>"

    def __str__(self) -> str:
        return str(self.gain)

    def _used(self, capture: Capture) -> None:
        with self._lock:
            self._captures = (capture, *(each for each in self._captures if each is not capture))

    def _called_together(self, arguments: Arguments, mode: Mode) -> Any:
        """Run a call on all ranks by captures that they made together, or capture anew on all of them."""
        with users_lines_shown(), joined(f"calling {self.name}", self._timeout_s):
            fits = [one.call.is_as_captured(mode) and one.call.arrays_of(arguments) is not None for one in self._captures]
            ranks = gathered("looking for a capture", fits.index(True) if True in fits else -1)
            if min(ranks) < 0:
                self._captures[0].call.free_stream()
                self.add(arguments)
            elif min(ranks) != max(ranks):
                raise EngineError(
                    f"ranks call {self.name} with arguments of different captures", hint="call it with arguments of one shape"
                )
            elif ranks[0]:
                self._used(self._captures[ranks[0]])
        call = self._captures[0].call
        arrays = call.arrays_of(arguments)
        assert arrays is not None
        return call.run(arrays)

    def _for_others(self, arguments: Arguments, mode: Mode) -> Any:
        """Capture a call that is like no other before, where that is wanted."""
        with users_lines_shown():
            if not self._recaptures:
                call = self._captures[0].call
                why, how = call.why_not(arguments, mode)
                hint = f"{how}, or call the plain function; ss.parallelise(..., shapes='recapture') captures anew for each kind of call"
                raise ProgramError(f"{self.name}: {why}", hint=hint)
            self._captures[0].call.free_stream()
            capture = self.add(arguments)
        arrays = capture.call.arrays_of(arguments)
        assert arrays is not None
        return capture.call.run(arrays)
