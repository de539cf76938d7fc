"""The user's lines as they run, and which of them each launch call belongs to: by thread and time.

`sys.monitoring` tells of each line of the user's own code. Code of libraries runs as ever: Python tells of it once, when it first starts.
A call belongs to the line that began last on its thread. Where a function of the user's ends, or yields, its caller's line goes on.
Threads without Python, such as that of PyTorch's backward pass, have no lines.

Modules of PyTorch are known from the one function that calls them all. Hooks would make `torch.compile` compile anew.
"""

from __future__ import annotations

import os.path
import re
import sys
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, count
from traceback import walk_stack
from types import CodeType, FrameType
from typing import Any

import numpy as np

from streamscope.arrays import IntArray
from streamscope.errors import RecordingError, printable
from streamscope.program.user_line import cell_name
from streamscope.trace.launch_sites import Site

_monitoring: Any = getattr(sys, "monitoring", None)
_OF_LINES = 0 if _monitoring is None else _monitoring.events.LINE | _monitoring.events.PY_RETURN | _monitoring.events.PY_YIELD
_TOOLS = (2, 3, 4)
"""``sys.monitoring.PROFILER_ID``, and the two that belong to nobody."""
_QUICK_S = 5e-7
"""A line that is over sooner launched nothing, and is forgotten: so loops of Python alone take no memory."""
_FEW = 3 * 2**16
"""Before a log is longer than that, none of it is dropped."""
_TYPED = ("<ipython-input", "<stdin>", "<python-input")
_INSTALLED = re.compile(r"[/\\](?:site-packages|dist-packages|streamscope_widgets)[/\\]")
_OURS, _PYTHONS = (os.path.dirname(file) + os.sep for file in (os.path.dirname(__file__), os.__file__))  # noqa: PTH120 — compared as text
_MODULES_CALL, _MODULES_FILE = "_wrapped_call_impl", "/torch/nn/modules/module.py"


@lru_cache(maxsize=4096)
def is_users(file: str) -> bool:
    """Tell whether a file of code is the user's own, as cells of a notebook are: no library's, not Python's or ours, not generated.

    Examples
    --------
    >>> from streamscope.recording.launch_lines import is_users
    >>> [is_users(file) for file in ("/home/me/train.py", "/opt/lib/python3.12/site-packages/torch/nn/functional.py", "<string>")]
    [True, False, False]
    """
    if file.startswith("<"):
        return file.startswith(_TYPED)
    return not (file.startswith((_PYTHONS, _OURS)) or _INSTALLED.search(file))


@dataclass
class _Log:
    """What one thread ran: entries one behind the other, with times on the host's clock in seconds, since such numbers are made quicker."""

    lines: list[Any] = field(default_factory=lambda: [0.0, None, 0])
    """Of each entry the time, the code, and the number of the line; no code where no function of the user's runs."""
    modules: list[Any] = field(default_factory=lambda: [0.0, None])
    """Of each entry the time, and the module of PyTorch that is called."""
    called: list[Any] = field(default_factory=list)
    """Modules whose calls are under way, the innermost last."""
    most: int = field(default_factory=lambda: _FEW)
    """Length of ``lines`` or ``modules`` from which on those of before the last seconds are dropped."""


class LaunchLines:
    """Notes the user's lines between `start` and `stop`, and finds those of launch calls.

    Attributes
    ----------
    sites : dict
        Number of each site that a call had, from 1 on.
    cost_ns : float
        About how long it took Python to tell of the lines.

    Raises
    ------
    RecordingError
        Python is older than 3.12; at `start`, other tools have all of its places for profilers.
    """

    def __init__(self, last_ns: int | None = None) -> None:
        if _monitoring is None:
            version = ".".join(map(str, sys.version_info[:2]))
            raise RecordingError(
                f"stacks=True needs Python 3.12 or later, not {version}: an earlier one cannot tell of the lines of some code alone",
                hint="record with Python 3.12 or later, or without stacks=True",
            )
        self.sites: dict[Site, int] = {}
        self.cost_ns = 0.0
        self._last_ns = last_ns
        self._line_ns = 0.0
        self._tool: int | None = None
        self._forget()

    def start(self) -> None:
        """Note lines from now on, those first that are running."""
        self._forget()
        self._tool = tool = _taken_tool()
        events = _monitoring.events
        for event, callback in self._callbacks().items():
            _monitoring.register_callback(tool, event, callback)
        self._begun.update(self._running())
        _monitoring.restart_events()  # Else code of libraries is off that an earlier recording switched off, and may be the user's now.
        _monitoring.set_events(tool, events.PY_START | events.PY_RESUME | events.PY_UNWIND)

    def stop(self) -> None:
        """Note no more, and leave Python as it was; what was noted stays for `sites_of`."""
        tool, self._tool = self._tool, None
        if tool is None:
            return
        _monitoring.set_events(tool, 0)
        self._line_ns = _cost_of_a_line_ns(tool)
        for code in (*self._codes.values(), *self._modules_calls.values()):
            _monitoring.set_local_events(tool, code, 0)
        for event in self._callbacks():
            _monitoring.register_callback(tool, event, None)
        _monitoring.free_tool_id(tool)

    def sites_of(self, thread: IntArray, start_ns: IntArray, moved: Callable[[IntArray], IntArray]) -> IntArray:
        """Return the number in `sites` of each call, 0 where neither line nor module is known; and forget what was noted.

        ``thread`` has the system's numbers; ``moved`` makes times of the host's clock those of the clock of ``start_ns``.
        """
        found, module_name = np.zeros(len(thread), np.int64), _module_names(self._roots.values())
        for native in np.intersect1d(thread, [*self._logs, *self._begun]).tolist():
            which = np.flatnonzero(thread == native)
            logs = self._logs.get(native) or [_Log(self._begun[native])]
            lines, modules = (list(chain(*parts)) for parts in zip(*((log.lines, log.modules) for log in logs), strict=True))
            last = [
                np.maximum(np.searchsorted(moved((1e9 * np.array(times_s)).astype(np.int64)), start_ns[which], side="right") - 1, 0)
                for times_s in (lines[::3], modules[::2])
            ]
            used, inverse = np.unique(np.stack(last), axis=1, return_inverse=True)
            numbers = [
                self._number(lines[3 * line + 1], lines[3 * line + 2], module_name(modules[2 * module + 1])) for line, module in used.T
            ]
            found[which] = np.array(numbers)[inverse.reshape(-1)]
        self.cost_ns += self._told() * self._line_ns
        self._forget()  # It holds the user's modules, and so their memory.
        return found

    def _forget(self) -> None:
        self._codes: dict[int, CodeType] = {}
        self._begun: dict[int, list[Any]] = {}
        self._logs: dict[int, list[_Log]] = {}
        self._modules_calls: dict[int, CodeType] = {}
        self._roots: dict[int, Any] = {}
        self._here = threading.local()
        self._quick = count()

    def _told(self) -> int:
        """Return of how many lines Python told, or about as many events."""
        return next(self._quick) + sum(len(log.lines) // 3 + len(log.modules) // 2 for logs in self._logs.values() for log in logs)

    def _callbacks(self) -> dict[int, Callable[..., Any]]:
        """Return what Python calls, by the event. Each line costs one such call, so they are closures, and look up little."""
        here, codes, modules_calls = self._here, self._codes, self._modules_calls
        now, quick, disable, events = time.perf_counter, self._quick.__next__, _monitoring.DISABLE, _monitoring.events

        def line(code: CodeType | None, number: int) -> None:
            try:
                lines = here.lines
            except AttributeError:
                lines = self._log_here().lines
            at_s = now()
            if at_s - lines[-3] < _QUICK_S:
                lines[-3] = at_s
                lines[-2] = code
                lines[-1] = number
                quick()
            else:
                lines += (at_s, code, number)

        def line_of_the_last(code: CodeType | None, number: int) -> None:
            line(code, number)
            if len(here.lines) >= here.log.most:
                self._shorten(here.log)

        def started(code: CodeType, _offset: int) -> Any:
            if id(code) in modules_calls or self._calls_modules(code):
                log, module = self._log_here(), sys._getframe(1).f_locals.get("self")  # noqa: SLF001 — the frame that runs
                if not log.called:
                    self._roots.setdefault(id(module), module)
                log.called.append(module)
                log.modules += (now(), module)
                if self._last_ns is not None and len(log.modules) >= log.most:  # One line may call very many.
                    self._shorten(log)
                return None
            if is_users(code.co_filename):
                self._watch(code, codes, _OF_LINES)
            return disable

        def resumed(code: CodeType, _offset: int) -> Any:
            if not is_users(code.co_filename):
                return disable
            self._watch(code, codes, _OF_LINES)
            line(code, sys._getframe(1).f_lineno)  # noqa: SLF001
            return None

        def left(code: CodeType, _offset: int, _value: object) -> None:
            if id(code) in codes:
                line(*self._place(sys._getframe(1).f_back))  # noqa: SLF001
            elif id(code) in modules_calls:
                log = self._log_here()
                del log.called[-1:]  # None, if it was called before all this.
                log.modules += (now(), log.called[-1] if log.called else None)

        return {
            events.LINE: line if self._last_ns is None else line_of_the_last,
            events.PY_START: started, events.PY_RESUME: resumed,
            events.PY_RETURN: left, events.PY_YIELD: left, events.PY_UNWIND: left,
        }  # fmt: skip

    def _watch(self, code: CodeType, among: dict[int, CodeType], events: int) -> None:
        """Be told of events in some code."""
        if id(code) not in among and self._tool is not None:
            among[id(code)] = code
            _monitoring.set_local_events(self._tool, code, events)

    def _calls_modules(self, code: CodeType) -> bool:
        """Tell whether some code is PyTorch's call of any module; be told of its ends."""
        found = code.co_name == _MODULES_CALL and code.co_filename.replace("\\", "/").endswith(_MODULES_FILE)
        if found:
            self._watch(code, self._modules_calls, _monitoring.events.PY_RETURN)
        return found

    def _running(self) -> dict[int, list[Any]]:
        """Return the entry of the line of each thread that runs, by the system's number of the thread: nobody tells when they began."""
        frames = sys._current_frames()  # noqa: SLF001 — the only way to those of other threads
        for frame in frames.values():
            for each, _ in walk_stack(frame):
                if is_users(each.f_code.co_filename):
                    self._watch(each.f_code, self._codes, _OF_LINES)
        threads = {thread.ident: thread.native_id for thread in threading.enumerate()}
        natives = ((threads.get(ident), frame) for ident, frame in frames.items())
        return {native: [0.0, *self._place(frame)] for native, frame in natives if native is not None}

    def _place(self, frame: FrameType | None) -> tuple[CodeType | None, int]:
        """Return code and line of the innermost function of the user's."""
        while frame is not None and id(frame.f_code) not in self._codes:
            frame = frame.f_back
        return (None, 0) if frame is None else (frame.f_code, frame.f_lineno or 0)

    def _log_here(self) -> _Log:
        """Return the log of the thread that runs; a new one begins with the line that ran at the start."""
        try:
            found: _Log = self._here.log
        except AttributeError:
            native = threading.get_native_id()
            found = self._here.log = _Log(list(self._begun.get(native, (0.0, None, 0))))
            self._here.lines = found.lines
            self._logs.setdefault(native, []).append(found)
        return found

    def _shorten(self, log: _Log) -> None:
        """Drop entries of before the last seconds, but for the one that counts when they begin."""
        edge_s = time.perf_counter() - (self._last_ns or 0) / 1e9
        for entries, width in ((log.lines, 3), (log.modules, 2)):
            begun = bisect_left(entries[::width], edge_s)
            del entries[: width * max(0, begun - 1)]
        log.most = max(_FEW, 2 * len(log.lines), 2 * len(log.modules))

    def _number(self, code: CodeType | None, line: int, module: str) -> int:
        if code is not None:
            file = cell_name(code.co_filename) or code.co_filename
            site = Site(printable(code.co_qualname), printable(file), line, module)
        elif module:
            site = Site(module=module)
        else:
            return 0
        return self.sites.setdefault(site, len(self.sites) + 1)


def _module_names(roots: Iterable[Any]) -> Callable[[Any], str]:
    """Return what names a module: its path in the outermost one that was called, as ``layer1.0.conv1``, else the name of its class."""
    paths: dict[int, str] = {}
    for root in roots:
        with suppress(Exception):  # A class of the user's may have no such names.
            for path, module in root.named_modules():
                paths.setdefault(id(module), path)
    return lambda module: "" if module is None else printable(paths.get(id(module)) or type(module).__name__)


def _cost_of_a_line_ns(tool: int) -> float:
    """Return how long it takes now that Python tells of a line."""
    line, other = _monitoring.events.LINE, LaunchLines()
    _monitoring.register_callback(tool, line, other._callbacks()[line])  # noqa: SLF001
    took_ns = {}
    for events in (0, line):
        _monitoring.set_local_events(tool, _turns.__code__, events)
        began_ns = time.perf_counter_ns()
        _turns()
        took_ns[events] = time.perf_counter_ns() - began_ns
    _monitoring.set_local_events(tool, _turns.__code__, 0)
    return max(0, took_ns[line] - took_ns[0]) / max(1, other._told())  # noqa: SLF001


def _turns() -> None:
    for _ in range(500):
        pass


def _taken_tool() -> int:
    """Take a place among the interpreter's tools."""
    for tool in _TOOLS:
        if _monitoring.get_tool(tool) is None:
            _monitoring.use_tool_id(tool, "streamscope")
            return tool
    names = ", ".join(f"{_monitoring.get_tool(tool)!r}" for tool in _TOOLS)
    raise RecordingError(f"stacks=True needs a place in sys.monitoring, and others have them all: {names}", hint="end one of these first")
