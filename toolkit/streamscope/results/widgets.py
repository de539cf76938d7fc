"""The one way to `streamscope_widgets`, and protocols of its widgets."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Timeline(Protocol):
    """Live timelines on one time axis, a notebook widget. Its four values follow the reader, and move the view when you set them.

    `streamscope_widgets.timeline.TimelineWidget` documents the values of each, and is the class that you get.
    """

    selection: dict[str, Any] | None
    """The selected operation."""
    range: tuple[float, float] | None
    """First and last nanosecond in view."""
    engines: list[str]
    """Labels of the engines that are shown, from top to bottom."""
    shows: list[str]
    """Layers drawn besides the spans."""

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


def load(place: str) -> Any:
    """Load a name from a module of the widgets: ``load("payload:bundle_source")``."""
    return pkgutil.resolve_name(f"streamscope_widgets.{place}")


def installed() -> bool:
    """Tell whether the widgets are there; a tree that is run by ``PYTHONPATH=toolkit`` has none."""
    try:
        import streamscope_widgets  # noqa: F401
    except ImportError:
        return False
    return True
