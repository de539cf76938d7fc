"""The error of a run that does not end."""

from __future__ import annotations

from collections.abc import Sequence

from streamscope.errors import HungError
from streamscope.words import counted, listed, time_text

_NAMED = 5
_ADVICE = (
    "the GPU waits for ever, and so would this process: restart the kernel, or end the process. engine='graph' keeps the capture's order"
)


def hung(what: str, limit_s: float, names: Sequence[str] = ()) -> HungError:
    """Return the error of a run that has not ended.

    ``limit_s``: how long it was waited for.
    ``names``: of the nodes under way, where they are known.
    """
    shown = [*names[:_NAMED], *([counted(len(names) - _NAMED, "other")] if len(names) > _NAMED else [])]
    where = f"; under way: {listed(shown)}" if names else ""
    why = ". If these nodes wait for each other, please report it: one of them must be ordered and is not" if len(names) > 1 else ""
    return HungError(f"{what} did not finish within {time_text(limit_s * 1e9)}{where}", hint=_ADVICE + why)
