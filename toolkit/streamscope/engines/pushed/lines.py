"""The user's lines, looked up once each: to find one takes longer than to launch a kernel."""

from __future__ import annotations

from types import CodeType, FrameType

from streamscope.engines.pushed.recent import Recent
from streamscope.program.user_line import user_line

KEPT_LINES = 256


class Lines:
    """Names of the lines that call the engine."""

    def __init__(self) -> None:
        self._names: Recent[tuple[CodeType, int], str] = Recent(KEPT_LINES)

    def of(self, caller: FrameType) -> str:
        """Return `user_line`, which is the same whenever the same line is the caller."""
        key = (caller.f_code, caller.f_lineno)
        name = self._names.get(key)
        if name is None:
            name = user_line()
            self._names.put(key, name)
        return name
