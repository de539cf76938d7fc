"""The timeline as a widget: all engines on one time axis, drawn in the browser."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anywidget
import traitlets

from streamscope.trace import TimelineGroup
from streamscope_widgets.payload import Payload, Traces, as_groups, bundle_source, encode

if TYPE_CHECKING:
    from streamscope.comparing.comparison import Comparison
    from streamscope.compiling.compare_compilation import CompilationComparison
    from streamscope.kernels.compile.compilation_log import CompilationLog


class TimelineWidget(anywidget.AnyWidget):
    """Timelines of traces, stacked on one time axis.

    The spans are not a trait: each view that asks for them gets one binary message. So a saved notebook does not hold them,
    zooming needs no kernel, and a reopened notebook shows the static result that stands beside this widget.

    Parameters
    ----------
    groups : sequence of TimelineGroup
        From `streamscope_widgets.payload.as_groups`.

    Raises
    ------
    OutputError
        The front end was not built.
    """

    _esm = traitlets.Unicode().tag(sync=True)

    def __init__(self, groups: tuple[TimelineGroup, ...], **kwargs: Any) -> None:
        super().__init__(_esm=bundle_source(), **kwargs)
        self.groups = groups
        self._payload: Payload | None = None
        self.on_msg(self._answer)

    @property
    def payload(self) -> Payload:
        """What the front end draws, encoded when the first view asks."""
        if self._payload is None:
            self._payload = encode(self.groups)
        return self._payload

    def show(self, groups: tuple[TimelineGroup, ...]) -> None:
        """Draw other timelines in all views.

        Parameters
        ----------
        groups : sequence of TimelineGroup
            From `streamscope_widgets.payload.as_groups`.
        """
        self.groups, self._payload = groups, None
        self._send_spans(None)

    def _answer(self, _widget: TimelineWidget, content: Any, _buffers: Any) -> None:
        # A message reaches every view of this model; each takes only the answer to its own request.
        if isinstance(content, dict) and content.get("type") == "ready":
            self._send_spans(content.get("view"))

    def _send_spans(self, view: str | None) -> None:
        self.send({"type": "spans", "view": view, "header": dict(self.payload.header)}, [self.payload.block])


def timeline(traces: Traces) -> TimelineWidget:
    """Return a widget that shows traces of one program on one time axis.

    Parameters
    ----------
    traces : sequence of Trace or TimelineGroup, or mapping from label to either
        One group each, from top to bottom.

    Raises
    ------
    TraceError
        There is no trace.
    OutputError
        The front end was not built.
    """
    return TimelineWidget(as_groups(traces))


def comparison_timeline(comparison: Comparison) -> TimelineWidget:
    """Return the live timelines of all engines."""
    return timeline(comparison.groups())


def compilation_timeline(log: CompilationLog, label: str) -> TimelineWidget:
    """Return the stages of a log, a lane a thread."""
    return timeline([log.trace(label)])


def compilation_comparison_timeline(comparison: CompilationComparison) -> TimelineWidget:
    """Return compiling one by one and together on one time axis, a lane a thread."""
    return timeline(
        [comparison.one_by_one.trace("one by one", comparison.program), comparison.together.trace("together", comparison.program)]
    )
