"""The timeline as a widget: all engines on one time axis, drawn in the browser."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import anywidget
import numpy as np
import traitlets
from IPython.display import display

from streamscope.errors import TraceError
from streamscope.trace import TimelineGroup, Trace
from streamscope.words import capitalised, listed
from streamscope_widgets.block_group import block_group
from streamscope_widgets.details import details_of
from streamscope_widgets.diff_view import diff_groups
from streamscope_widgets.job_timeline import job_groups, job_of
from streamscope_widgets.messages import Answer, Spans
from streamscope_widgets.payload import Payload, Traces, as_groups, bundle_source, encode, nature_of
from streamscope_widgets.prediction_view import job_prediction_groups, predicted_words, prediction_groups
from streamscope_widgets.show.html import EMPTY
from streamscope_widgets.still_timeline import timeline_still
from streamscope_widgets.tile_questions import QUESTIONS, answer
from streamscope_widgets.tiles import Tiles, needs_tiles
from streamscope_widgets.trace_view import NATURE_WORDS, finding_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streamscope.analysis.diff import TraceDiff
    from streamscope.comparing.comparison import Comparison
    from streamscope.compiling.compare_compilation import CompilationComparison
    from streamscope.kernels.compile.compilation_log import CompilationLog
    from streamscope.predicting.prediction import Prediction
    from streamscope.ranks.job import Job
    from streamscope.ranks.what_if import JobPrediction


SHOWS = ("overlap", "critical path", "by code", "counters")
"""Values of the trait ``shows``."""


class TimelineWidget(anywidget.AnyWidget):
    """Timelines of traces, stacked on one time axis.

    The spans are not a trait: each view that asks for them gets one binary message. So a saved notebook does not hold them,
    and zooming needs no kernel. Of more than a million spans a view gets an overview, and asks the kernel for the rest as it zooms.
    Where no kernel answers, the still picture that stands before the widget is shown.

    Four traits follow what the reader does in the browser, and move the view when you set them; ``observe`` them to react.

    Parameters
    ----------
    groups : sequence of TimelineGroup
        From `streamscope_widgets.payload.as_groups`.
    finding : str
        Text of the still picture: the verdict.

    Attributes
    ----------
    selection : dict or None
        The selected operation: ``{"engine": label, "operation": id, "name": str, "span": row in the engine's trace}``.
        To set it, the engine and the operation (or the span) are enough.
    range : tuple of float or None
        First and last nanosecond in view; None shows everything.
    engines : list of str
        Labels of the engines that are shown, from top to bottom.
    shows : list of str
        Parts besides the spans: ``"overlap"``, ``"critical path"``, ``"by code"``, ``"counters"``.

    Raises
    ------
    OutputError
        The front end was not built.
    TraceError
        A trait was set to an engine or an operation that is not there, to something that cannot be shown, or to a range whose end does
        not lie after its start.

    Examples
    --------
    >>> import streamscope as ss
    >>> function, inputs = ss.workload("branches").build()
    >>> runs = ss.compare(function, *inputs, device="simulated", progress=False)
    >>> timeline = runs.timeline()
    >>> timeline.engines
    ['sync', 'async', 'dual', 'graph', 'graph-dual']
    >>> timeline.engines = ["graph-dual", "graph"]  # the others are hidden
    >>> timeline.selection = {"engine": "graph", "operation": 2}
    >>> timeline.observe(lambda change: print(change["new"]), "range")
    >>> timeline.range = (0, 20_000)
    (0.0, 20000.0)
    """

    _esm = traitlets.Unicode().tag(sync=True)
    selection = traitlets.Dict(allow_none=True, default_value=None).tag(sync=True)
    range = traitlets.Tuple(traitlets.CFloat(), traitlets.CFloat(), allow_none=True, default_value=None).tag(sync=True)
    engines = traitlets.List(traitlets.Unicode()).tag(sync=True)
    shows = traitlets.List(traitlets.Unicode(), default_value=["overlap"]).tag(sync=True)

    def __init__(self, groups: tuple[TimelineGroup, ...], finding: str = "", **kwargs: Any) -> None:
        self.groups = groups
        shows = ["overlap", "counters"] if "counters" in details_of(groups) else ["overlap"]
        super().__init__(_esm=bundle_source(), **{"engines": [group.label for group in groups], "shows": shows} | kwargs)
        self.finding = finding
        self._payload: Payload | None = None
        self._tiles: Tiles | None = None
        self.on_msg(self._answer)

    @property
    def payload(self) -> Payload:
        """The front end's payload, encoded once."""
        if self._payload is None:
            self._tiles = Tiles(self.groups) if needs_tiles(self.groups) else None
            self._payload = self._tiles.overview() if self._tiles else encode(self.groups)
        return self._payload

    def show(self, groups: tuple[TimelineGroup, ...]) -> None:
        """Draw other timelines in all views.

        Parameters
        ----------
        groups : sequence of TimelineGroup
            From `streamscope_widgets.payload.as_groups`.
        """
        known = {group.label for group in self.groups}
        labels = [group.label for group in groups]
        self.groups, self._payload = groups, None
        self._send_spans(None)
        kept = [label for label in self.engines if label in labels]
        self.engines = kept + [label for label in labels if label not in known] or labels
        chosen: dict[str, Any] | None = self.selection
        if chosen is not None and chosen["engine"] not in labels:
            self.set_trait("selection", None)

    @traitlets.validate("engines")
    def _check_engines(self, proposal: Any) -> list[str]:
        labels = [group.label for group in self.groups]
        for label in proposal["value"]:
            self._check_label(label)
        return list(dict.fromkeys(proposal["value"])) or labels

    @traitlets.validate("shows")
    def _check_shows(self, proposal: Any) -> list[str]:
        for name in proposal["value"]:
            if name not in SHOWS:
                raise TraceError(f"the timeline cannot show {name!r}", hint=f"it can show {listed(SHOWS)}")
        return [name for name in SHOWS if name in proposal["value"]]

    @traitlets.validate("selection")
    def _check_selection(self, proposal: Any) -> dict[str, Any] | None:
        if (chosen := proposal["value"]) is None:
            return None
        self._check_label(chosen.get("engine"))
        spans = next(group.trace.spans for group in self.groups if group.label == chosen["engine"])
        # The front end says of a wait, say, that it belongs to no operation.
        operation, span = chosen.get("operation"), chosen.get("span")
        if not isinstance(span if operation is None else operation, int):
            raise TraceError(f"{chosen!r} names no operation", hint='write {"engine": "graph", "operation": 3}')
        if operation is not None and (operation < 0 or not (spans.operation == operation).any()):
            known = np.unique(spans.operation[spans.operation >= 0])
            hint = f"its operations are {known[0]} to {known[-1]}" if len(known) else "its trace tells no operations"
            raise TraceError(f"{chosen['engine']} has no operation {operation}", hint=hint)
        if operation is None and not 0 <= span < len(spans):
            raise TraceError(f"{chosen['engine']} has no span {span}", hint=f"it has {len(spans):,}, counted from 0")
        return dict(chosen)

    @traitlets.validate("range")
    def _check_range(self, proposal: Any) -> tuple[float, float] | None:
        value: tuple[float, float] | None = proposal["value"]
        if value is not None and not -math.inf < value[0] < value[1] < math.inf:
            raise TraceError(f"the range {value} has no length", hint="give its start and its end in nanoseconds, or None for everything")
        return value

    def _check_label(self, label: Any) -> None:
        labels = [group.label for group in self.groups]
        if label not in labels:
            raise TraceError(f"the timeline has no engine {label!r}", hint=f"it has {listed(labels)}")

    def _ipython_display_(self) -> None:
        """Show the still picture, and after it the widget, which hides the picture as soon as it has drawn.

        JupyterLab shows a widget without its model as an error, whatever else is in the same output. So the picture is one of its own.
        """
        still = timeline_still(self.groups, self.finding)
        display({"text/html": str(still), "text/plain": self.finding or repr(self)}, raw=True)  # type: ignore[no-untyped-call]
        self.show_live()

    def show_live(self) -> None:
        """Show the widget alone, below an output that ends with a still picture.

        The spans are encoded while the browser makes a view, which then asks for them.
        """
        found = self._repr_mimebundle_()
        widget = found[0] if isinstance(found, tuple) else found
        display({**(widget or {}), **EMPTY}, raw=True)  # type: ignore[no-untyped-call]
        _ = self.payload

    def _answer(self, _widget: TimelineWidget, content: Any, _buffers: Any) -> None:
        # A message reaches every view of this model; each takes only the answers to its own requests.
        asked = content.get("type") if isinstance(content, dict) else None
        if asked == "ready":
            self._send_spans(content.get("view"))
        elif asked in QUESTIONS:
            _ = self.payload  # makes the tiles
            found = answer(self._tiles, self.groups, content)
            self._tell(content, found)

    def _tell(self, question: Mapping[str, Any], found: Payload) -> None:
        told = Answer(view=question.get("view", ""), id=question.get("id", ""), header=dict(found.header))
        self.send({"type": "answer", **told}, [found.block])

    def _send_spans(self, view: str | None) -> None:
        told = Spans(view=view, header=dict(self.payload.header))
        self.send({"type": "spans", **told}, [self.payload.block])


def timeline(traces: Traces, finding: str = "") -> TimelineWidget:
    """Return a widget that shows traces of one program on one time axis.

    ``traces``: one group each, from top to bottom.
    ``finding``: text of the still picture in a reopened notebook.
    """
    return TimelineWidget(as_groups(traces), finding)


def comparison_timeline(comparison: Comparison) -> TimelineWidget:
    """Return the live timelines of all engines."""
    return timeline(comparison.groups(), comparison.verdict)


def trace_timeline(trace: Trace, by: str) -> TimelineWidget:
    """Return the live timeline of one trace, whoever recorded it; by multiprocessor, their blocks stand below the streams."""
    if by == "stream":
        return timeline([trace], finding_of(trace))
    blocks = block_group(trace)
    return timeline([TimelineGroup(trace), blocks], f"{NATURE_WORDS[nature_of(trace.info)]}{capitalised(blocks.note)}.")


def prediction_timeline(prediction: Prediction, by: str) -> TimelineWidget:
    """Return a trace and its prediction, live on one axis."""
    if by != "stream":
        return trace_timeline(prediction, by)
    return TimelineWidget(prediction_groups(prediction), predicted_words(prediction))


def job_prediction_timeline(prediction: JobPrediction, ranks: Sequence[int]) -> TimelineWidget:
    """Return ranks as recorded and as predicted, live on one axis."""
    return TimelineWidget(job_prediction_groups(prediction, ranks), prediction.verdict)


class JobTimeline(TimelineWidget):
    """Timelines of some ranks of a job, and the map of all, which chooses them.

    Its ``groups`` are those of `streamscope_widgets.job_timeline.job_groups`.
    """

    def _answer(self, _widget: TimelineWidget, content: Any, _buffers: Any) -> None:
        found = job_of(self.groups)
        if found is None or found.job is None or not isinstance(content, dict) or content.get("type") != "show":
            return super()._answer(_widget, content, _buffers)
        header: dict[str, Any] = {}
        try:
            self.show(job_groups(found.job, [int(rank) for rank in content["numbers"]]))
        except (TraceError, LookupError, TypeError, ValueError) as error:
            header = {"refused": str(error)}
        self._tell(content, Payload(header, b""))
        return None


def job_timeline(job: Job, ranks: Sequence[int] | None) -> JobTimeline:
    """Return the live timeline of ranks of a job, and the map of all of them."""
    return JobTimeline(job_groups(job, ranks), job.verdict)


def diff_timeline(found: TraceDiff) -> TimelineWidget:
    """Return both traces live on one axis: a selection in one is marked in the other."""
    return TimelineWidget(diff_groups(found), found.answer)


def compilation_timeline(log: CompilationLog, label: str) -> TimelineWidget:
    """Return the stages of a log, a lane a thread."""
    return timeline([log.trace(label)])


def compilation_comparison_timeline(comparison: CompilationComparison) -> TimelineWidget:
    """Return compiling one by one and together on one time axis, a lane a thread."""
    one_by_one, together = (
        comparison.one_by_one.trace("one by one", comparison.program),
        comparison.together.trace("together", comparison.program),
    )
    return timeline([one_by_one, TimelineGroup(together, comparison=f"{comparison.words} (against one by one)")])
