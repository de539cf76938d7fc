"""Where results are shown. This module alone reaches `streamscope_widgets`, and chooses what draws a result by the result's type.

Results call it: `Shown` calls `html`, ``timeline()`` calls `timeline`, and so on. So no result knows how it is drawn.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from streamscope.errors import printable

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell
    from rich.console import Console

BETWEEN_DRAWINGS_S = 0.1
"""To draw a bar takes a millisecond, and there may be 200,000 steps."""

RENDERERS = {
    "Advice": {"html": "advice_view:advice_html", "report": "advice_view:advice_page"},
    "Audit": {"html": "advice_view:audit_html"},
    "CapturedProgram": {"html": "capture_view:capture_html"},
    "Certificate": {"html": "capture_view:certificate_html"},
    "Choice": {"html": "advice_view:choice_html"},
    "Comparison": {
        "html": "comparison_view:comparison_html",
        "timeline": "timeline:comparison_timeline",
        "report": "exports:write_report",
        "picture": "exports:write_picture",
    },
    "CompilationComparison": {
        "html": "compilation_view:compilation_comparison_html",
        "timeline": "timeline:compilation_comparison_timeline",
    },
    "CompilationLog": {"html": "compilation_view:compilation_html", "timeline": "timeline:compilation_timeline"},
    "EngineMetrics": {"html": "comparison_view:metrics_html"},
    "EngineTable": {"html": "comparison_view:metrics_html"},
    "GraphView": {"html": "graph_picture:graph_html", "svg": "graph_picture:graph_svg"},
    "Parallelised": {"html": "capture_view:parallelised_html"},
    "Prediction": {
        "html": "prediction_view:prediction_html",
        "timeline": "timeline:prediction_timeline",
        "report": "exports:write_prediction",
    },
    "Trace": {"html": "trace_view:trace_html", "timeline": "timeline:trace_timeline", "report": "exports:write_trace"},
    "TraceDiff": {"html": "diff_view:diff_html", "timeline": "diff_view:diff_timeline"},
    "Tuning": {"html": "tuning_view:tuning_html"},
    "Verification": {"html": "prediction_view:verification_html"},
}
"""For each type of result, by its name: what draws it, as ``module:function`` of `streamscope_widgets`."""


@runtime_checkable
class Timeline(Protocol):
    """Live timelines on one time axis, a notebook widget. Its four values follow the reader, and move the view when you set them.

    `streamscope_widgets.timeline.TimelineWidget` documents what each may hold, and is the class that you get.
    """

    selection: dict[str, Any] | None
    """The selected operation."""
    range: tuple[float, float] | None
    """First and last nanosecond in view."""
    engines: list[str]
    """Labels of the engines that are shown, from top to bottom."""
    shows: list[str]
    """What is drawn besides the spans."""

    def observe(self, handler: Callable[[Any], Any], names: str) -> None:
        """Call ``handler`` with each change of the values called ``names``."""

    def show_live(self) -> None:
        """Show it alone, below an output that ends with a still picture."""

    def _ipython_display_(self) -> None:
        """Show it in the output of a cell."""


@runtime_checkable
class Explorer(Protocol):
    """The explorer, a notebook widget."""

    past: Sequence[Any]
    """The runs so far, oldest first, each with its ``comparison``."""

    def run(self) -> None:
        """Run the program as the knobs stand, in a thread."""

    def cancel(self) -> None:
        """Stop the run at its next step."""

    def _ipython_display_(self) -> None:
        """Show it in the output of a cell."""


def html(result: object) -> str | None:
    """Return a result as static HTML; None where the widgets are not installed, so that a notebook shows the text."""
    try:
        import streamscope_widgets  # noqa: F401
    except ImportError:
        return None
    return str(_renderer(result, "html")(result))


class Shown:
    """A result that a notebook shows by itself, as static HTML."""

    def _repr_html_(self) -> str | None:
        return html(self)


def svg(result: object) -> str:
    """Return a result as an SVG document."""
    return str(_renderer(result, "svg")(result))


def timeline(result: object, *arguments: Any) -> Timeline:
    """Return a result as live timelines (a notebook widget)."""
    widget: Timeline = _renderer(result, "timeline")(result, *arguments)
    return widget


def explorer(own: object, inputs: Sequence[Any], attributes: Mapping[str, Any], **chosen: Any) -> Explorer:
    """Return the explorer (a notebook widget) of a program with its inputs, or of ready ones where ``own`` is None."""
    made: Explorer = _widget("exploring.explorer:explorer")(own, inputs, attributes, **chosen)
    return made


def report(result: object, path: Path) -> Path:
    """Write a result to one file, which as HTML needs no network, and return its path.

    Raises
    ------
    OutputError
        The file cannot be written.
    """
    written: Path = _renderer(result, "report")(result, path)
    return written


def picture(result: object, path: Path, of: str) -> Path:
    """Write one of a result's pictures as SVG or PNG, and return its path.

    Raises
    ------
    OutputError
        The file cannot be written, or there is no such picture.
    """
    written: Path = _renderer(result, "picture")(result, path, of)
    return written


def bundle_source() -> str:
    """Return the JavaScript that draws timelines."""
    return str(_widget("payload:bundle_source")())


def register_magics(shell: InteractiveShell) -> None:
    """Add ``%%streamscope`` to an IPython shell."""
    _widget("magics:register")(shell)


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[[str, int, int], None]]:
    """Show a bar where the user is, in a notebook or in a terminal; give the function ``progress(what, step, steps)`` that moves it.

    It is drawn for each new phase, which is what stands before a colon, and else at most every `BETWEEN_DRAWINGS_S`.
    """
    bar: AbstractContextManager[Callable[[str, int, int], None]] = (
        _widget("show.html:notebook_progress")() if _in_notebook() else _terminal_progress(title)
    )
    with bar as draw:
        drawn, drawn_s = "", 0.0

        def moved(what: str, step: int, steps: int) -> None:
            nonlocal drawn, drawn_s
            phase, now_s = what.partition(":")[0], monotonic()
            if phase != drawn or now_s - drawn_s >= BETWEEN_DRAWINGS_S:
                drawn, drawn_s = phase, now_s
                draw(what, step, steps)

        yield moved


def console(*, stderr: bool) -> Console:
    """Return a console that sends no control characters to the terminal but its own: names of files and engines may have some."""
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class Screen(Console):
        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
            for text, style, control in super().render(renderable, options):
                yield Segment(text if control else printable(text), style, control)

    return Screen(stderr=stderr, highlight=False, markup=False, emoji=False)


@contextmanager
def _terminal_progress(title: str) -> Iterator[Callable[[str, int, int], None]]:
    # In a file, a bar would leave an empty line.
    if not sys.stderr.isatty():
        yield lambda what, step, steps: None
        return
    from rich.markup import escape  # Names of files and engines may look like markup.
    from rich.progress import Progress

    # No thread of its own draws it: that would run while times are measured.
    with Progress(console=console(stderr=True), transient=True, auto_refresh=False) as bar:
        task = bar.add_task(escape(title), total=None)
        yield lambda what, step, steps: bar.update(task, completed=step, total=steps, description=escape(what), refresh=True)


def _in_notebook() -> bool:
    """Tell whether a Jupyter kernel runs this; Rich's bar would leave a widget there that a reopened notebook cannot show."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


def _renderer(result: object, view: str) -> Callable[..., Any]:
    """Return what draws a result; that of a base class where the class itself has none."""
    kinds = [kind.__name__ for kind in type(result).__mro__ if view in RENDERERS.get(kind.__name__, {})]
    return _widget(RENDERERS[kinds[0]][view])


def _widget(place: str) -> Callable[..., Any]:
    import streamscope_widgets

    module, name = place.split(":")
    found: Callable[..., Any] = getattr(importlib.import_module(f"{streamscope_widgets.__name__}.{module}"), name)
    return found
