"""The explorer as a widget: controls on the left, the answer and the picture on the right, runs to compare and exports below."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from weakref import ref

import anywidget
import ipywidgets as w
import numpy as np
from IPython.core.getipython import get_ipython
from IPython.core.interactiveshell import InteractiveShell
from IPython.display import HTML, DisplayHandle, display

from streamscope.analysis.verdict import WRONG_RESULTS, difference
from streamscope.comparing.comparison import Comparison, Run
from streamscope.comparing.preview import Preview
from streamscope.devices.protocol import Device
from streamscope.engine_entry import ENGINES
from streamscope.engines.makespan_estimate import reference_model
from streamscope.errors import EngineError, StreamscopeError
from streamscope.files import written_anew
from streamscope.program.launch import LaunchKind
from streamscope.program.operation import Program
from streamscope.program.user_line import line_of_error
from streamscope.trace import TimelineGroup
from streamscope.words import capitalised, counted, listed, time_text
from streamscope_widgets.exploring.controls import Controls
from streamscope_widgets.exploring.runs import Asked, BackgroundRun, Past
from streamscope_widgets.exploring.subjects import OwnProgram, ReadyProgram, Subject, subjects
from streamscope_widgets.exploring.words import Answer, answer, between, links_words, mistake, runs_in_a_row
from streamscope_widgets.exports import EXPORTS
from streamscope_widgets.payload import as_groups
from streamscope_widgets.show.html import EMPTY, Html, block, fill, lead, small, still
from streamscope_widgets.still_timeline import timeline_image
from streamscope_widgets.timeline import TimelineWidget, timeline

FORECAST, NOTHING = 0, -1
"""Choices beside runs, which count from 1."""
FIRST = "branches"
"""Default subject: chains that a second stream can run side by side."""
FASTER_LINKS = 2.0
"""Of the links that were measured, the answer tells the effect of such a speed."""
LONGEST_NAME = 180
"""Bytes of a program's name in the name of a file, which has 255 with all that is added."""


def compared_at_first() -> tuple[str, ...]:
    """Return all engines but those that wait after every operation: they take so long that the others would look short."""
    return tuple(engine for engine, entry in ENGINES.items() if not entry.waits)


IN_MARIMO = (
    "marimo does not draw ipywidgets, so there are no knobs. "
    "Give the value of mo.ui.slider to ss.workload(...).build, as docs/explore.md shows."
)


class _Frame(anywidget.AnyWidget):
    """Style and script of the explorer: its looks, and that keys pressed on its controls are not commands of the notebook."""

    _css = Path(__file__).with_name("explorer.css")
    _esm = Path(__file__).with_name("explorer.js")


class Explorer(w.VBox):  # type: ignore[misc] # ipywidgets has no types
    """A dashboard: a program, knobs, the picture that follows them, and runs to compare.

    While a knob moves, times are a forecast on the simulated device. A run computes and checks the results, on the device that is chosen;
    it goes on in a thread, so that the kernel hears when it is to stop.

    ``make_controls``: ``make_controls(changed=...)`` makes the `Controls`.
    """

    def __init__(self, make_controls: Callable[..., Controls]) -> None:
        self.past: list[Past] = []
        self.timeline: TimelineWidget | None = None
        self._running: BackgroundRun | None = None
        self._preview: tuple[object, Preview, bool] | None = None
        self._shown: Comparison | None = None
        self._finding = self._pictured = ""
        self._still: DisplayHandle | None = None
        self.controls = make_controls(changed=self._forecast)
        self.says = w.HTML()
        self.stage = w.Box().add_class("ss-x-stage")
        self.start = w.Button(description="Run", button_style="primary", tooltip="Run it, check its results, and keep it to compare")
        self.stop = w.Button(description="Cancel", tooltip="Stop at the next step")
        self.progress = w.IntProgress()
        self.note = w.HTML().add_class("ss-x-note")
        self.one = w.Dropdown(description="show")
        self.other = w.Dropdown(description="beside")
        self.kind = w.Dropdown(description="write", options=list(EXPORTS), tooltip="What to write of the run that is shown")
        self.write = w.Button(description="Write", tooltip="Write it into the folder of the notebook")
        self.written = w.HTML().add_class("ss-x-note")
        super().__init__(self._layout())
        self.add_class("ss-explorer")
        self._listen()
        self._offer_runs()
        self._rest()
        self._forecast()

    def __repr__(self) -> str:
        return f"<explorer of {self.controls.asked.subject.name}: {counted(len(self.past), 'run')}>"

    def _layout(self) -> list[w.Widget]:
        run = w.HBox([self.start, self.stop, self.progress]).add_class("ss-x-run")
        left = w.VBox([self.controls.box, run, self.note]).add_class("ss-x-controls")
        self.below = w.HBox([self.one, self.other, self.kind, self.write, self.written]).add_class("ss-x-below")
        right = w.VBox([self.says, self.stage, self.below]).add_class("ss-x-scene")
        return [_Frame(layout={"display": "none"}), w.Box([left, right]).add_class("ss-x-body")]

    def _listen(self) -> None:
        self.start.on_click(lambda _: self.run())
        self.stop.on_click(lambda _: self.cancel())
        for choice in (self.one, self.other):
            choice.observe(self._chosen, "value")
        self.write.on_click(self._write)

    def _ipython_display_(self) -> None:
        """Show a still picture with the answer, and after it the widget, which hides the picture as soon as it has drawn."""
        self._still = display(self._fallback(), raw=True, display_id=True)  # type: ignore[no-untyped-call]
        display({**self._repr_mimebundle_(), **EMPTY}, raw=True)  # type: ignore[no-untyped-call]

    def _display_(self) -> HTML:
        """Return what marimo shows, which draws no ipywidgets: what to do without knobs, and the first forecast."""
        picture = "" if self.timeline is None else timeline_image(self.timeline.groups, self._finding)
        return HTML(str(block(small(IN_MARIMO), lead(self._finding), picture)))  # type: ignore[no-untyped-call]

    def _keep_still(self) -> None:
        if self._still is not None:
            self._still.update(self._fallback(), raw=True)  # type: ignore[no-untyped-call]

    def _fallback(self) -> dict[str, str]:
        """Return the static content where no kernel answers: the run that was shown last, or the first forecast."""
        picture = "" if self.timeline is None else timeline_image(self.timeline.groups, self._finding)
        page = block(still(lead(self._finding), picture, pictured=bool(picture)))  # The explorer says it itself.
        return {"text/html": str(page), "text/plain": self._finding}

    # ---- the forecast

    def _forecast(self) -> None:
        """Show the forecast of the simulated device as the knobs stand."""
        asked = self.controls.asked
        try:
            _check_engines(asked.engines)
            preview, in_a_row = self._prepared(asked)
            comparison = preview.comparison(asked.engines, streams=asked.streams, link_speed=asked.link.speed)
            links = _links_words(preview, asked, comparison)
        except Exception as error:  # noqa: BLE001 — the user's program may raise anything
            self._fail(error)
            return
        self.controls.tell_kernel_length(_kernel_length(preview.program))
        self.controls.show_links(several=preview.program.gpus > 1)
        self._select(FORECAST, NOTHING)
        told = answer(comparison, asked.streams, in_a_row=in_a_row, links=links)
        self._show(comparison.groups(), told, "Forecast", _times(comparison))

    def _prepared(self, asked: Asked) -> tuple[Preview, bool]:
        """Return the preview of a program, traced once for as long as only streams and engines change, and no cell runs."""
        key = (asked.subject, asked.subject.stands_for(), dict(asked.values), asked.dtype)
        if self._preview is None or self._preview[0] != key:
            program = asked.subject.outline(asked.values, asked.dtype)
            self._preview = (key, Preview(program), runs_in_a_row(program))
        return self._preview[1:]

    def cell_ran(self, offered: Sequence[Subject]) -> None:
        """Offer the notebook's current programs. Where a cell changed the program or its inputs, forecast anew."""
        before = self._preview
        self.controls.offer(offered)
        asked = self.controls.asked
        if self._preview is not before or isinstance(asked.subject, ReadyProgram):
            return  # Another program was chosen, or one that no cell changes.
        self._preview = None
        if self._running is not None or self.one.value != FORECAST:
            return
        try:
            same = before is not None and str(self._prepared(asked)[0].program) == str(before[1].program)
        except Exception:  # noqa: BLE001 — the forecast says what is wrong
            same = False
        if not same:
            self._forecast()

    # ---- runs

    def run(self) -> None:
        """Run with the controls' settings, in the background."""
        if self._running is None and self.controls.asked.engines:
            self.controls.enable(enabled=False)
            self.start.layout.display, self.stop.layout.display, self.progress.layout.display = "none", None, None
            self.stop.disabled, self.progress.value, self.note.value = False, 0, ""
            for control in (self.one, self.other, self.write):
                control.disabled = True
            self._running = BackgroundRun(self.controls.asked, self)

    def cancel(self) -> None:
        """Stop the run at its next step."""
        if self._running is not None:
            self.stop.disabled = True
            self._running.stop()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until no run goes on, and tell whether that came in time."""
        running = self._running
        return running is None or running.wait(timeout_s)

    def progressed(self, what: str, step: int, steps: int) -> None:
        """Show how far the run is."""
        self.progress.max, self.progress.value = steps, step
        self.note.value = fill("{}", what)

    def found(self, runs: Sequence[Run]) -> None:
        """Show the engines that are recorded, under words of their own."""
        info = runs[0].trace.info
        so_far = Comparison(info.program, info.device, runs)
        self._show(so_far.groups(), Answer(), "Running", f"{_times(so_far)} so far, not checked")

    def done(self, asked: Asked, comparison: Comparison, *, in_a_row: bool) -> None:
        """Keep a run and show it."""
        self.past.append(Past(len(self.past) + 1, asked, comparison, in_a_row))
        self._offer_runs()
        self._rest()
        self._select(len(self.past), NOTHING)
        self._show_chosen()

    def failed(self, error: BaseException) -> None:
        """Show an error."""
        self._rest()
        self._fail(error)

    def stopped(self) -> None:
        """Go back to the forecast."""
        self._rest()
        self._forecast()
        self.note.value = "Cancelled."

    def _rest(self) -> None:
        """Be ready for another run."""
        self._running = None
        self.controls.enable(enabled=True)
        self.start.layout.display, self.stop.layout.display, self.progress.layout.display = None, "none", "none"
        self.one.disabled = self.other.disabled = False
        self.note.value = ""

    # ---- what is shown

    def _offer_runs(self) -> None:
        runs = [(past.title, past.number) for past in self.past]
        with self.hold_trait_notifications():
            self._select(FORECAST, NOTHING)
            self.one.options = [("the forecast", FORECAST), *runs]
            self.other.options = [("nothing", NOTHING), *runs]
        self.below.layout.display = None if runs else "none"

    def _select(self, one: int, other: int) -> None:
        """Set both lists without showing anything."""
        self._selecting = True
        try:
            for choice, value in ((self.one, one), (self.other, other)):
                if choice.options:
                    choice.value = value
        finally:
            self._selecting = False
        self.write.disabled = one == FORECAST

    def _chosen(self, change: Any) -> None:
        if self._selecting or change["new"] is None:
            return
        if self.one.value == FORECAST:
            self._forecast()
        else:
            self._show_chosen()

    def _show_chosen(self) -> None:
        first = self.past[self.one.value - 1]
        self._shown = first.comparison
        self._select(self.one.value, self.other.value)
        second = self.past[self.other.value - 1] if self.other.value != NOTHING else None
        if second is None or second is first:
            checked = "" if first.comparison.assessment.warning else ", results checked" if first.comparison.assessment.checked else ""
            told = answer(first.comparison, first.asked.streams, in_a_row=first.in_a_row)
            self._show(first.comparison.groups(), told, capitalised(first.name), _times(first.comparison) + checked)
            self._keep_still()
            return
        told = between(first.comparison, second.comparison, (first.name, second.name), (first.asked.settings, second.asked.settings))
        names = f"{capitalised(first.name)} and {second.name}"
        self._show(_side_by_side(first, second), told, names, _times(first.comparison, second.comparison))
        self._keep_still()

    def _show(self, groups: Sequence[TimelineGroup], told: Answer, source: str, basis: str) -> None:
        self._finding = " ".join(filter(None, (f"{source}, {basis}.", told.question, told.sentence, told.because)))
        paragraphs = [fill('<p class="{}">{}</p>', name, text) for name, text in told.parts if text]
        self.says.value = fill(
            '<div class="ss-x-says" aria-live="polite"><p class="source"><b>{}</b> · {}</p>{}</div>', source, basis, paragraphs
        )
        self._pictured = f"{source[:1].lower()}{source[1:]} of {groups[0].trace.info.program}, {basis}"
        self._draw(groups)

    def _draw(self, groups: Sequence[TimelineGroup]) -> None:
        if self.timeline is None:
            self.timeline = timeline(groups)
            self.stage.children = (self.timeline,)
        else:
            self.timeline.show(as_groups(groups))
        self.stage.remove_class("ss-x-stale")

    def _fail(self, error: BaseException) -> None:
        """Show an error and its line. The last picture stays, under its own title."""
        self._select(FORECAST, NOTHING)
        line, said = line_of_error(error), mistake(error)
        where = fill('<p class="because"><code>{}  {}</code></p>', line.where, line.source) if line else Html()
        still = fill('<p class="because">Below is still the last picture: {}.</p>', self._pictured) if self._pictured else Html()
        self.says.value = fill('<div class="ss-x-says" role="alert"><p class="answer wrong">{}</p>{}{}</div>', said, where, still)
        self._finding = self._finding or said
        self.stage.add_class("ss-x-stale")

    def _write(self, _button: w.Button) -> None:
        """Write the run that is shown into the folder of the notebook, where other notebooks may have written theirs."""
        shown, kind = self._shown, EXPORTS[self.kind.value]
        assert shown is not None
        past = self.past[self.one.value - 1]
        self.written.value = "Writing …"  # A PDF takes two seconds.
        name = re.sub(r"[^\w.-]+", "-", past.asked.subject.name).strip("-.")  # Captured code may come from a file, with any name.
        stem = Path(f"streamscope-{name.encode()[:LONGEST_NAME].decode(errors='ignore')}")
        try:
            paths = written_anew(stem, past.number, lambda stem: kind(shown, str(stem)))
        except StreamscopeError as error:
            self.written.value = fill("{}", mistake(error))
        else:
            self.written.value = fill("Written: {}", listed([str(path) for path in paths]))


def explorer(
    own: Any,
    inputs: Sequence[Any],
    attributes: Mapping[str, Any],
    *,
    engines: Sequence[str] | None,
    device: str | Device,
    streams: int | None,
    repeats: int,
    recorder: str,
) -> Explorer:
    """Return the explorer of a program with its inputs, or of ready ones; programs of the notebook can be chosen, too."""
    shell = get_ipython()
    namespace = {} if shell is None else shell.user_ns
    given = None if own is None else OwnProgram(getattr(own, "name", "program"), own, inputs, attributes, namespace)

    def offered() -> list[Subject]:
        found = list(subjects(given, namespace))
        first = [] if given is not None else [subject for subject in found if subject.name == FIRST]
        return [*first, *(subject for subject in found if subject not in first)]

    made = Explorer(
        partial(
            Controls, offered(), engines=engines or compared_at_first(), device=device, streams=streams, repeats=repeats, recorder=recorder
        )
    )
    if shell is not None:
        _follow_cells(shell, made, offered)
    return made


def _follow_cells(shell: InteractiveShell, made: Explorer, offered: Callable[[], Sequence[Subject]]) -> None:
    """Offer programs as cells define them, for as long as there is the explorer."""
    followed = ref(made)

    def ran(_result: object) -> None:
        living = followed()
        if living is None or living.comm is None:
            shell.events.unregister("post_run_cell", ran)
        else:
            living.cell_ran(offered())

    shell.events.register("post_run_cell", ran)


def _check_engines(engines: Sequence[str]) -> None:
    if not engines:
        raise EngineError("no engine is chosen", hint="choose one below the knobs")


def _times(*comparisons: Comparison) -> str:
    return "; ".join(
        dict.fromkeys(f"{'simulated' if one.device.simulated else 'measured'} times ({one.device.name})" for one in comparisons)
    )


def _links_words(preview: Preview, asked: Asked, comparison: Comparison) -> str:
    """Say what the links do to the fastest engine: against those that were measured or, of those, what faster ones would do."""
    engine = comparison.assessment.best[0]
    metrics = comparison[engine].metrics
    if not metrics.communication_us:
        return ""
    other = FASTER_LINKS if not asked.link.changed else 1.0
    metrics_then = preview.comparison([engine], streams=asked.streams, link_speed=other)[engine].metrics
    return links_words(asked.link, engine, metrics, metrics_then)


def _side_by_side(first: Past, second: Past) -> list[TimelineGroup]:
    """Return the timelines of two runs, those of one engine below each other."""
    groups, alike = [], first.asked.settings["program"] == second.asked.settings["program"]
    for engine in dict.fromkeys([*first.comparison, *second.comparison]):
        for past in (first, second):
            if engine not in past.comparison:
                continue
            run, beside = past.comparison[engine], first.comparison if past is second and alike else None
            words = "" if run.correct else WRONG_RESULTS
            if run.correct and beside and engine in beside and beside[engine].correct:
                words = f"{difference(run.metrics, beside[engine].metrics)} (against {first.name})"
            groups.append(TimelineGroup(run.trace, run.metrics.makespan_us * 1e3, label=f"{engine} · {past.name}", comparison=words))
    return groups


def _kernel_length(program: Program) -> str:
    """Return how long the kernel in the middle runs alone, by the cost model; empty where there is none."""
    model = reference_model()
    lengths_ns = [model.estimate_ns(launch) for launch in program.with_reuse.launches() if launch.kind is LaunchKind.KERNEL]
    return time_text(float(np.median(lengths_ns))) if lengths_ns else ""
