"""`Parallelised`: the callable that `ss.parallelise` returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from threading import RLock
from typing import Any

from streamscope.capturing.function import CapturedFunction
from streamscope.comparing.compare import compare
from streamscope.comparing.comparison import Comparison
from streamscope.engines.graphs import GraphView
from streamscope.engines.prepared import Prepared
from streamscope.errors import ProgramError
from streamscope.parallelising.calls import Arguments, Calls, Mode
from streamscope.parallelising.captured_call import CapturedCall
from streamscope.parallelising.gain import CAPTURED, PARALLEL, Gain
from streamscope.parallelising.trees import put_together
from streamscope.results.result import Result
from streamscope.results.widgets import Timeline
from streamscope.tracebacks import users_lines_shown

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
    ) -> None:
        self.function = function
        self.name = name
        self._calls = calls
        self._make = make
        self._recaptures = recaptures
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
        captures = self._captures  # Read once: other threads may put another one first.
        mode = self._calls.mode()
        if not keywords and captures[0].call.is_as_captured(mode) and (bare := captures[0].call.bare(inputs)) is not None:
            return captures[0].call.run(bare)
        arguments = self._calls.arguments(inputs, keywords)
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
        """The graph that a call launches: its nodes and edges, as a picture in a notebook."""
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
