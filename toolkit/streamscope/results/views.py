"""The door of views: functions that show results, by kind of result and by form.

A class of results names its kind: ``view = "comparison"``. The view of that name shows the whole result. Other packages may add a view of a
kind of ours: then it stands below ours, in the notebook, in the report and in Markdown.
"""

from __future__ import annotations

import pkgutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from streamscope.doors import Door, GuestWarning
from streamscope.errors import OutputError, described, printable
from streamscope.results import widgets
from streamscope.results.widgets import Timeline
from streamscope.words import a_kind

_Renderer = Callable[..., Any] | str
"""A function whose first argument is the result; or ``"module:function"``, which is imported when it is first called."""


@dataclass(frozen=True, kw_only=True)
class View:
    """Functions that show one kind of result, each in one form. Only `html` is needed.

    Attributes
    ----------
    of : str
        Kind of result: attribute ``view`` of its class. A view whose own name is that kind shows the whole result; any other adds to it
        by ``html``, ``markdown`` and ``pictures``.
    html : callable or str
        ``html(result)``: HTML for a notebook, of at most 200 kB, without scripts, style sheets or network. Names of kernels and programs
        are somebody else's: `html.escape` them. Of another package, it closes each element and comment.
    markdown : callable or str, optional
        ``markdown(result)``: Markdown. Without it, the text of the result is shown.
    pictures : mapping of str to callable or str
        ``picture(result)``: an SVG document, by the name that ``picture(path, of=...)`` takes. ``save("x.svg")`` writes the first.
    timeline : callable or str, optional
        ``timeline(result, ...)``: live timelines, a notebook widget.
    report : callable or str, optional
        ``report(result, path)``: write one HTML file that needs no network, and return its path. Without it, the file holds ``html``.
    """

    of: str
    html: _Renderer
    markdown: _Renderer | None = None
    pictures: Mapping[str, _Renderer] = field(default_factory=dict)
    timeline: _Renderer | None = None
    report: _Renderer | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.html, str) and not callable(self.html):
            raise TypeError(f"html of a view of {self.of!r} is {a_kind(self.html)}, not a function")
        if not isinstance(self.pictures, Mapping):
            raise TypeError(f"pictures of a view of {self.of!r} is {a_kind(self.pictures)}, not a mapping of names to functions")


VIEWS: Door[View] = Door(
    "view",
    {
        "advice": "streamscope_widgets.advice_view:ADVICE",
        "audit": "streamscope_widgets.advice_view:AUDIT",
        "captured": "streamscope_widgets.capture_view:CAPTURED",
        "certificate": "streamscope_widgets.capture_view:CERTIFICATE",
        "choice": "streamscope_widgets.advice_view:CHOICE",
        "code": "streamscope_widgets.code_view:CODE",
        "comparison": "streamscope_widgets.comparison_view:COMPARISON",
        "compilation": "streamscope_widgets.compilation_view:COMPILATION",
        "compilation-comparison": "streamscope_widgets.compilation_view:COMPILATION_COMPARISON",
        "diff": "streamscope_widgets.diff_view:DIFF",
        "graph": "streamscope_widgets.graph_picture:GRAPH",
        "host-totals": "streamscope_widgets.totals_view:HOST_TOTALS",
        "job-prediction": "streamscope_widgets.prediction_view:JOB_PREDICTION",
        "memory": "streamscope_widgets.memory_view:MEMORY",
        "metrics": "streamscope_widgets.comparison_view:METRICS",
        "parallelised": "streamscope_widgets.parallelised_view:PARALLELISED",
        "prediction": "streamscope_widgets.prediction_view:PREDICTION",
        "ranks": "streamscope_widgets.ranks_view:RANKS",
        "summary": "streamscope_widgets.trace_view:SUMMARY",
        "sweep": "streamscope_widgets.sweep_view:SWEEP",
        "trace": "streamscope_widgets.trace_view:TRACE",
        "tuning": "streamscope_widgets.tuning_view:TUNING",
        "verification": "streamscope_widgets.prediction_view:VERIFICATION",
    },
    View,
)
"""All views by name: ours, then those of other packages."""


def kinds(result: object) -> tuple[str, ...]:
    """Kinds of a result: that of its class first, then those of its base classes."""
    named = (vars(each).get("view") for each in type(result).__mro__)
    return tuple(dict.fromkeys(kind for kind in named if isinstance(kind, str)))


def renderer(result: object, form: str) -> Callable[..., Any] | None:
    """Return the function that shows a whole result in a form, or None. Where a class has none, that of a base class does."""
    return next((_function(found) for view in _whole(result) if (found := getattr(view, form))), None)


def sections(result: object, form: str) -> list[str]:
    """Return the additions of other packages to a result in a form. One that fails or is malformed is named in a warning and left out."""
    found = []
    for name, view in _added(result):
        if chosen := getattr(view, form):
            try:
                added = _function(chosen)(result)
                why = _refusal(added, form)
            except Exception as error:  # noqa: BLE001 — a guest may fail in any way, and our own part is still there.
                why = printable(described(error))
            if why:
                warnings.warn(f"{VIEWS.named(name)} is left out: {why}", GuestWarning, stacklevel=3)
            else:
                found.append(added)
    return found


def _refusal(added: object, form: str) -> str:
    """Return why an addition cannot stand on our page, or nothing."""
    if not isinstance(added, str):
        return f"its {form} returned {a_kind(added)}, not a string"
    if form != "html":
        return ""
    from streamscope.results.closed_html import unclosed  # Here, since traces are loaded without a parser of HTML.

    why = unclosed(added)
    return why and f"its HTML would swallow what follows: {why}"


def html(result: object) -> str | None:
    """Return a result as static HTML; None where the widgets are not installed, so that a notebook shows the text."""
    whole = renderer(result, "html")
    return None if whole is None else "".join([str(whole(result)), *sections(result, "html")])


def markdown(result: object, text: str) -> str:
    """Return a result as Markdown; ``text`` is used where its view has no Markdown of its own."""
    whole = renderer(result, "markdown")
    return "\n".join([text if whole is None else str(whole(result)), *sections(result, "markdown")])


def timeline(result: object, *arguments: Any) -> Timeline:
    """Return a result as live timelines (a notebook widget).

    Raises
    ------
    OutputError
        The widgets are not installed.
    """
    whole = renderer(result, "timeline")
    if whole is None:
        raise OutputError(f"there is no timeline of a {type(result).__name__} here", hint="install streamscope with its widgets")
    widget: Timeline = whole(result, *arguments)
    return widget


def pictures(result: object) -> dict[str, Callable[[], str]]:
    """Return functions that draw a result as an SVG document, by the name of the picture; those of other packages come last."""
    whole = next((view for view in _whole(result) if view.pictures), None)
    views = [*([] if whole is None else [whole]), *(view for _, view in _added(result))]
    found: dict[str, Callable[[], str]] = {}
    for view in views:
        for name, draw in view.pictures.items():
            found.setdefault(name, partial(_drawn, draw, result))
    return found


def _whole(result: object) -> Iterator[View]:
    for kind in kinds(result):
        if kind in VIEWS and (kind not in VIEWS.own or widgets.installed()):
            yield VIEWS[kind]


def _added(result: object) -> Iterator[tuple[str, View]]:
    """Yield the views of other packages that add to a result. A warning names those of a kind that no result has."""
    of = kinds(result)
    for name, view in VIEWS.guests().items():
        if view.of in of and name not in of:
            yield name, view
        elif view.of not in (*of, *VIEWS):
            hint = f"the kinds are {', '.join(VIEWS.own)}"
            warnings.warn(f"{VIEWS.named(name)} is left out: no result is a {view.of!r}; {hint}", GuestWarning, stacklevel=4)


def _drawn(draw: _Renderer, result: object) -> str:
    return str(_function(draw)(result))


def _function(place: _Renderer) -> Callable[..., Any]:
    found: Callable[..., Any] = pkgutil.resolve_name(place) if isinstance(place, str) else place
    return found
