"""The front end's one file, as the build put it beside this package."""

from __future__ import annotations

from pathlib import Path

from streamscope.errors import OutputError

BUNDLE = Path(__file__).parent / "static" / "timeline.js"


def bundle_source() -> str:
    """Return the JavaScript that draws timelines, in notebooks and in reports.

    Raises
    ------
    OutputError
        The package was put on the path without being built.
    """
    try:
        return BUNDLE.read_text(encoding="utf-8")
    except OSError as error:
        raise OutputError(
            f"the timeline's front end is missing: {BUNDLE.name} cannot be read ({error.strerror})",
            hint="run `make setup`, or `python hatch_build.py` in the clone",
        ) from error
