"""Runs of the explorer: one at a time, in a thread of its own, so that the kernel hears when it is to stop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from threading import Event, Thread
from time import monotonic
from typing import TYPE_CHECKING

from streamscope.comparing.compare import comparison_of
from streamscope.comparing.comparison import Comparison, Run
from streamscope.comparing.preview import linked
from streamscope.devices import device_for
from streamscope.devices.protocol import Device
from streamscope.devices.simulated import SimulatedDevice
from streamscope.measuring.case import Case
from streamscope.measuring.recordings import Recorded
from streamscope.words import counted
from streamscope_widgets.exploring.subjects import PIECES, SWITCHES, Subject
from streamscope_widgets.exploring.words import runs_in_a_row

if TYPE_CHECKING:
    from streamscope_widgets.exploring.explorer import Explorer

BETWEEN_REPORTS_S = 0.1
"""A report crosses to the browser, which costs a millisecond of the time that is measured."""


class StoppedError(Exception):
    """The user stopped the run."""


def setting_words(name: str, value: int) -> str:
    """Return a knob's value, in words."""
    if name in SWITCHES:
        return ("off", "on")[bool(value)]
    return f"{value:,}" if name != PIECES else f"{value:,} KiB" if value else "whole layers"


@dataclass(frozen=True)
class Link:
    """Links between the GPUs of a simulated host; those of the host itself have no name."""

    name: str = ""
    speed: float = 1.0
    """As a multiple of the measured one."""

    @property
    def changed(self) -> bool:
        """Whether they are not those that were measured."""
        return self.speed != 1


@dataclass(frozen=True)
class Asked:
    """Settings of a run."""

    subject: Subject
    values: Mapping[str, int]
    """Of its knobs."""
    dtype: str | None
    """Of floating-point inputs; as they are by default."""
    engines: tuple[str, ...]
    streams: int | None
    """None lets the engines choose."""
    repeats: int
    device: str | Device
    recorder: str
    """Recorder on a GPU."""
    link: Link = Link()

    @property
    def settings(self) -> dict[str, str]:
        """All that another run may have otherwise, in words."""
        values = {name: setting_words(name, value) for name, value in self.values.items()}
        links = {"links": self.link.name or "the host's own"}
        return {
            "program": self.subject.name,
            **values,
            **links,
            "dtype": self.dtype or "as written",
            "streams": str(self.streams or "auto"),
        }


@dataclass(frozen=True, repr=False)
class Past:
    """A run that is over."""

    number: int
    """From 1."""
    asked: Asked
    comparison: Comparison
    in_a_row: bool
    """Whether each operation of the program needs the one before."""

    @property
    def name(self) -> str:
        """``"run 3"``."""
        return f"run {self.number}"

    @property
    def title(self) -> str:
        """Name in the list of runs: the settings that are not the defaults."""
        usual = {knob.name: knob.value for knob in self.asked.subject.knobs}
        values = [f"{name} {setting_words(name, value)}" for name, value in self.asked.values.items() if value != usual[name]]
        device = "simulated" if self.comparison.device.simulated else self.comparison.device.name
        streams = counted(self.asked.streams, "stream") if self.asked.streams else None
        link = self.asked.link.name if self.asked.link.changed else None
        parts = [*values, *filter(None, [link, streams, self.asked.dtype]), device]
        return f"{self.number} · {self.asked.subject.name}: {', '.join(parts)}"

    def __repr__(self) -> str:
        return f"<run {self.title}>"


class BackgroundRun:
    """A comparison that runs in a thread, in which it tells the explorer its progress, its results, and its end.

    Times are measured there as in the main thread, as long as no cell runs meanwhile.
    """

    def __init__(self, asked: Asked, screen: Explorer) -> None:
        self._asked, self._screen = asked, screen
        self._stop = Event()
        self._reported_s = 0.0
        self._runs: list[Run] = []
        self._thread = Thread(target=self._work, name="streamscope explorer", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop it at its next step."""
        self._stop.set()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for its end, and tell whether it came."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def __call__(self, what: str, step: int, steps: int, /) -> None:
        """Stop here if that is asked for, else report: it is the comparison's progress."""
        if self._stop.is_set():
            raise StoppedError
        if monotonic() - self._reported_s >= BETWEEN_REPORTS_S:
            self._screen.progressed(what, step, steps)
            self._reported_s = monotonic()

    def recorded(self, run: Run) -> None:
        """Show one more engine."""
        self._runs.append(run)
        self._screen.found(self._runs)

    def _work(self) -> None:
        try:
            comparison, in_a_row = self._compared()
        except StoppedError:
            self._screen.stopped()
        except BaseException as error:  # noqa: BLE001 — the user's program may raise anything, and the explorer shows it
            self._screen.failed(error)
        else:
            self._screen.done(self._asked, comparison, in_a_row=in_a_row)

    def _compared(self) -> tuple[Comparison, bool]:
        """Compare; tell, too, whether each operation needs the one before."""
        asked = self._asked
        function, inputs = asked.subject.built(asked.values, asked.dtype)
        self("starting", 0, 1)
        case = Case.of(function, inputs, "ss.compare", asked.subject.attributes)
        device = device_for(case.program, asked.device, inputs=inputs)
        if case.program.gpus == 1 or not device.info.simulated or not isinstance(asked.device, str):
            self._asked = replace(asked, link=Link())  # There are none, or they are not ours to choose.
        elif asked.link.changed:
            device = SimulatedDevice(gpus=case.program.gpus, links=linked(asked.link.speed))
        device.use()
        case.warn_if_short_of_memory(device, len(asked.engines))
        told = partial(comparison_of, progress=self, recorded=self.recorded, recording=Recorded(asked.recorder))
        comparison = told(case, device, asked.engines, asked.streams, asked.repeats, settings=dict(asked.values))
        return comparison, runs_in_a_row(case.program)
