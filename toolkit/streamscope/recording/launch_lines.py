"""The user's lines as they run, and which of them each launch call belongs to: by thread and time.

`sys.monitoring` tells of each line of the user's own code. Code of libraries runs as ever: Python tells of it once, when it first starts.
A call belongs to the line that began last on its thread. Where a function of the user's ends, or yields, its caller's line goes on.
Threads without Python, such as that of PyTorch's backward pass, have no lines.

While the user's code runs, it is only noted what happens, and when. Replaying that tells the stack of the user's functions and modules.

Modules of PyTorch are known from the one function that calls them all. Hooks would make `torch.compile` compile anew.
"""

from __future__ import annotations

import os.path
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dis import findlabels, get_instructions, opmap, stack_effect
from functools import lru_cache
from traceback import walk_stack
from types import CodeType
from typing import Any, NamedTuple

import numpy as np

from streamscope.arrays import FloatArray, IntArray
from streamscope.errors import RecordingError, printable
from streamscope.program.user_line import cell_name
from streamscope.trace.launch_sites import MOST_CALLERS, Site

_monitoring: Any = getattr(sys, "monitoring", None)
_events: Any = getattr(_monitoring, "events", None)
_OF_LINES = 0 if _monitoring is None else _events.LINE | _events.PY_RETURN | _events.PY_YIELD
_TOOLS = (2, 3, 4)
"""``sys.monitoring.PROFILER_ID``, and the two that belong to nobody."""
_QUICK_S = 5e-7
"""A line that is over sooner launched nothing, and is forgotten: so loops of Python alone take no memory."""
_MOST_ENTRIES = 2**18
"""So many are kept before they are replayed: they take 20 MB."""
_LOOKS = 256
"""So many lines are looked at for calm places since one was found, or since a function was seen for the first time."""
_CALM = """
    CACHE EXTENDED_ARG NOP COPY SWAP PUSH_NULL POP_TOP LOAD_CONST LOAD_SMALL_INT LOAD_COMMON_CONSTANT RETURN_VALUE RETURN_CONST
    JUMP_FORWARD JUMP_BACKWARD JUMP_BACKWARD_NO_INTERRUPT NOT_TAKEN IS_OP POP_JUMP_IF_NONE POP_JUMP_IF_NOT_NONE LOAD_FAST
    LOAD_FAST_CHECK LOAD_FAST_LOAD_FAST LOAD_FAST_BORROW LOAD_FAST_BORROW_LOAD_FAST_BORROW STORE_FAST STORE_FAST_LOAD_FAST
    STORE_FAST_STORE_FAST LOAD_DEREF STORE_DEREF BUILD_TUPLE BUILD_LIST MAKE_FUNCTION SET_FUNCTION_ATTRIBUTE
"""
"""Instructions that call nothing."""
_ENTERED, _LEFT, _MODULE = -1, -2, -3
"""In the place of a line: a function of the user's begins, a function ends, a module is called."""
_TYPED = ("<ipython-input", "<stdin>", "<python-input")
_INSTALLED = re.compile(r"[/\\](?:site-packages|dist-packages|streamscope_widgets)[/\\]")
_OURS, _PYTHONS = (os.path.dirname(file) + os.sep for file in (os.path.dirname(__file__), os.__file__))  # noqa: PTH120 — compared as text
_MODULES_CALL, _MODULES_FILE = ("_wrapped_call_impl", "self"), "/torch/nn/modules/module.py"


class CodeLines(NamedTuple):
    """What the instructions of a function tell of its lines; see `code_lines`."""

    calm: frozenset[int]
    """Offsets of instructions of lines that can launch nothing."""
    heads: frozenset[int]
    """Offsets of instructions that begin a turn of a loop over ``range``, which launches nothing either."""
    first: int
    """The first line, where it runs at the beginning of each call and then no more, and is not calm; else 0."""


@lru_cache(maxsize=4096)
def code_lines(code: CodeType) -> CodeLines:
    """Look at the instructions of a function.

    Examples
    --------
    >>> from streamscope.recording.launch_lines import code_lines
    >>> def function(x):
    ...     for _ in range(3):
    ...         x = x + 1
    ...     return x
    >>> len(code_lines(function.__code__).heads)
    1
    """
    calm_codes, names = frozenset(opmap[name] for name in _CALM.split() if name in opmap), code.co_code[::2]
    lines = [(range(start, end, 2), line) for start, end, line in code.co_lines() if line is not None]
    calm = frozenset(
        offset for offsets, _ in lines if calm_codes.issuperset(code.co_code[offsets.start : offsets.stop : 2]) for offset in offsets
    )
    heads = frozenset(_heads_of_ranges(code)) if "range" in code.co_names else frozenset()
    begin = 2 * names.find(opmap["RESUME"]) + 2
    first = next((line for offsets, line in lines if begin in offsets), 0)
    (place, *again) = [offsets for offsets, line in lines if line == first] or [range(0)]
    jumps = findlabels(code.co_code)  # type: ignore[arg-type] # It takes bytes.
    once = not again and begin not in calm and not any(target in place for target in jumps)
    return CodeLines(calm, heads, first if once else 0)


def _heads_of_ranges(code: CodeType) -> Iterator[int]:
    """Yield the offset of each ``FOR_ITER`` whose iterator comes from a call of ``range`` right before."""
    instructions = [one for one in get_instructions(code) if one.opname not in {"CACHE", "EXTENDED_ARG"}]
    for at, one in enumerate(instructions):
        if one.opname == "LOAD_GLOBAL" and one.argval == "range":
            # What it puts on the stack, and its arguments put there, is one value when it was called.
            depth = 0
            for end in range(at, len(instructions) - 2):
                depth += stack_effect(instructions[end].opcode, instructions[end].arg, jump=False)
                if instructions[end].opname == "CALL" and depth == 1:
                    get, head = instructions[end + 1 : end + 3]
                    if (get.opname, head.opname) == ("GET_ITER", "FOR_ITER"):
                        yield head.offset
                    break


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


class _Log:
    """What one thread ran: entries of what happened, which `replay` makes stacks of.

    ``begun``: codes and lines of the user's functions that ran when it began, the outermost first. ``module_calls``: codes that call
    modules, by their id. ``firsts``: lines with which calls of functions begin, by the id of their codes.
    """

    def __init__(
        self, begun: Iterable[tuple[CodeType, int]], module_calls: Mapping[int, CodeType], firsts: Mapping[int, int], last_ns: int | None
    ) -> None:
        self.entries: list[Any] = []
        """One behind the other the time on the host's clock in s, which is made quicker than in ns; code or module; and the line."""
        self.told = 0
        """So many entries were replayed."""
        self.nodes: list[tuple[int, Any, int]] = [(0, None, 0)]
        """Stacks as a tree: of each the number of that around it, its code or module, and its line. The first one is empty."""
        self.roots: list[Any] = []
        """Modules that were called outside of others, the first time."""
        self._modules: dict[int, Any] = {}
        self._module_calls, self._firsts, self._last_ns = module_calls, firsts, last_ns
        self._numbers: dict[tuple[int, int, int], int] = {}
        self._stack: list[list[Any]] = [[code, line, 0] for code, line in begun]
        """Of each frame code or module, line, and the number of its stack, or 0 as long as nobody needs it."""
        self._parts = [(np.array([-np.inf]), np.array([self._number()]))]
        """Times, and the numbers of the stacks from then on."""

    def stacks(self) -> tuple[FloatArray, IntArray]:
        """Return the times when the stack changed, and the number of each stack."""
        self.replay()
        times_s, numbers = zip(*self._parts, strict=True)
        return np.concatenate(times_s), np.concatenate(numbers)

    def replay(self) -> None:
        """Find the stacks of the entries, and drop these."""
        entries = self.entries.copy()
        if not entries:
            return
        del self.entries[: len(entries)]
        self.told += len(entries) // 3
        times_s, lines = np.array(entries[::3], float), np.array(entries[2::3], np.int64)
        lasts = np.append(np.diff(times_s) >= _QUICK_S, True)
        needed = lasts | (lines < 0) | np.append(lines[1:] < 0, True)
        rows = np.flatnonzero(needed)
        numbers = [
            self._after(entries[3 * row + 1], entries[3 * row + 2], counts=counts)
            for row, counts in zip(rows.tolist(), lasts[rows].tolist(), strict=True)
        ]
        kept = lasts[rows]
        self._parts.append((times_s[rows][kept], np.array(numbers, np.int64)[kept]))
        if self._last_ns is not None:
            edge_s = time.perf_counter() - self._last_ns / 1e9
            while len(self._parts) > 1 and self._parts[1][0][0] <= edge_s:
                del self._parts[0]

    def _after(self, thing: Any, line: int, *, counts: bool) -> int:
        """Change the stack as an entry tells, and return its number if it counts."""
        stack = self._stack
        if line == _LEFT:
            left = len(stack) - 1
            while left >= 0 and not self._is_of(stack[left], thing):
                left -= 1
            if left >= 0:  # Else it began before all this.
                del stack[left:]
        elif line < 0 or not stack or stack[-1][0] is not thing or (stack[-1][1] and line == self._firsts.get(id(thing))):
            if line == _MODULE and id(thing) not in self._modules:
                self._modules[id(thing)] = thing
                self.roots += [] if any(frame[1] == _MODULE for frame in stack) else [thing]
            stack.append([thing, 0 if line == _ENTERED else line, 0])
        else:
            stack[-1][1:] = line, 0
        return self._number() if counts else 0

    def _is_of(self, frame: list[Any], code: CodeType) -> bool:
        return id(code) in self._module_calls if frame[1] == _MODULE else frame[0] is code

    def _number(self) -> int:
        """Return the number of the stack."""
        known = len(self._stack)
        while known and not self._stack[known - 1][2]:
            known -= 1
        number = self._stack[known - 1][2] if known else 0
        for frame in self._stack[known:]:
            key = number, id(frame[0]), frame[1]
            if key not in self._numbers:
                self._numbers[key] = len(self.nodes)
                self.nodes.append((number, frame[0], frame[1]))
            number = frame[2] = self._numbers[key]
        return number


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
        self._callers: dict[Site, Site] = {}
        self._last_ns = last_ns
        self._line_ns = 0.0
        self._tool: int | None = None
        self._forget()

    def start(self) -> None:
        """Note lines from now on, those first that are running."""
        self._forget()
        self._tool = tool = _taken_tool()
        for event, callback in self._callbacks().items():
            _monitoring.register_callback(tool, event, callback)
        self._begun.update(self._running())
        _monitoring.restart_events()  # Else code of libraries is off that an earlier recording switched off, and may be the user's now.
        _monitoring.set_events(tool, _events.PY_START | _events.PY_RESUME | _events.PY_THROW | _events.PY_UNWIND)

    def stop(self) -> None:
        """Note no more, and leave Python as it was; what was noted stays for `sites_of`."""
        tool, self._tool = self._tool, None
        if tool is None:
            return
        _monitoring.set_events(tool, 0)
        self._line_ns = _cost_of_a_line_ns(tool)
        for code in (*self._codes.values(), *self._module_calls.values()):
            _monitoring.set_local_events(tool, code, 0)
        for event in self._callbacks():
            _monitoring.register_callback(tool, event, None)
        _monitoring.free_tool_id(tool)

    def sites_of(self, thread: IntArray, start_ns: IntArray, moved: Callable[[IntArray], IntArray]) -> IntArray:
        """Return the number in `sites` of each call, 0 where neither line nor module is known; and forget what was noted.

        ``thread`` has the system's numbers; ``moved`` makes times of the host's clock those of the clock of ``start_ns``.
        """
        found = np.zeros(len(thread), np.int64)
        for native in np.intersect1d(thread, [*self._logs, *self._begun]).tolist():
            for number, log in enumerate(self._logs.get(native) or [self._log_of(native)]):
                times_s, stacks = log.stacks()
                changed_ns = moved((1e9 * times_s[1:]).astype(np.int64))
                which = np.flatnonzero((thread == native) & ((number == 0) | (start_ns >= changed_ns.min(initial=2**63 - 1))))
                used, inverse = np.unique(stacks[np.searchsorted(changed_ns, start_ns[which], side="right")], return_inverse=True)
                found[which] = self._sites_of(log, used.tolist())[inverse]
        self.cost_ns += sum(log.told for logs in self._logs.values() for log in logs) * self._line_ns
        self._forget()  # It holds the user's modules, and so their memory.
        return found

    def _forget(self) -> None:
        self._codes: dict[int, CodeType] = {}
        self._begun: dict[int, list[tuple[CodeType, int]]] = {}
        self._logs: dict[int, list[_Log]] = {}
        self._module_calls: dict[int, CodeType] = {}
        self._firsts: dict[int, int] = {}
        self._entered: set[int] = set()
        self._here = threading.local()
        self._looked_at: Callable[[CodeType, int], Any] | None = None

    def _callbacks(self) -> dict[int, Callable[..., Any]]:
        """Return what Python calls, by the event. Each line costs one such call, so they are closures, and look up little."""
        here, codes, entered, module_calls = self._here, self._codes, self._entered, self._module_calls
        now, disable, most = time.perf_counter, _monitoring.DISABLE, 3 * _MOST_ENTRIES
        frame_above = sys._getframe  # noqa: SLF001 — the only way to what a function was given

        def line(thing: Any, number: int) -> None:
            try:
                entries = here.entries
            except AttributeError:
                entries = self._entries_here()
            entries += (now(), thing, number)
            if len(entries) > most:
                here.log.replay()

        def looked_at(code: CodeType, number: int) -> Any:
            line(code, number)
            frame = frame_above(1)
            known = code_lines(code)
            if frame.f_lasti in known.calm or (frame.f_lasti in known.heads and frame.f_globals.get("range", range) is range):
                self._looks = _LOOKS
                return disable
            self._looks -= 1
            if self._looks <= 0:
                self._register(_events.LINE, line)
            return None

        def started(code: CodeType, _offset: int) -> Any:
            key = id(code)
            if key not in module_calls and key not in entered and not self._tells_of_start(code):
                return disable
            thing, number = (frame_above(1).f_locals["self"], _MODULE) if key in module_calls else (code, _ENTERED)
            try:  # As `line` does: a call of it would take half as long as all this.
                entries = here.entries
            except AttributeError:
                entries = self._entries_here()
            entries += (now(), thing, number)
            return None

        def resumed(code: CodeType, _offset: int, _error: object = None) -> Any:
            if not is_users(code.co_filename):
                return disable if _error is None else None
            self._watch(code, codes, _OF_LINES)
            line(code, _ENTERED)
            line(code, frame_above(1).f_lineno or 0)
            return None

        def left(code: CodeType, _offset: int, _value: object) -> None:
            try:
                entries = here.entries
            except AttributeError:
                entries = self._entries_here()
            entries += (now(), code, _LEFT)
            if len(entries) > most:  # One line may call very many modules.
                here.log.replay()

        def unwound(code: CodeType, _offset: int, _error: object) -> None:
            if id(code) in codes or id(code) in module_calls:
                line(code, _LEFT)

        self._looked_at = looked_at
        return {
            _events.LINE: line, _events.PY_START: started, _events.PY_RESUME: resumed, _events.PY_THROW: resumed,
            _events.PY_RETURN: left, _events.PY_YIELD: left, _events.PY_UNWIND: unwound,
        }  # fmt: skip

    def _watch(self, code: CodeType, among: dict[int, CodeType], events: int) -> None:
        """Be told of events in some code."""
        if id(code) not in among and self._tool is not None:
            among[id(code)] = code
            if events == _OF_LINES:
                if first := code_lines(code).first:
                    self._firsts[id(code)] = first
                else:
                    self._entered.add(id(code))
                self._looks = _LOOKS
                self._register(_events.LINE, self._looked_at)
            _monitoring.set_local_events(self._tool, code, events)

    def _register(self, event: int, callback: Callable[..., Any] | None) -> None:
        if self._tool is not None:
            _monitoring.register_callback(self._tool, event, callback)

    def _tells_of_start(self, code: CodeType) -> bool:
        """Tell whether each start of some code is to be noted; if it is the user's, or calls PyTorch's modules, be told of its events.

        Where the first line tells of a start, Python need not.
        """
        if is_users(code.co_filename):
            self._watch(code, self._codes, _OF_LINES)
        elif (code.co_name, *code.co_varnames[:1]) == _MODULES_CALL and code.co_filename.replace("\\", "/").endswith(_MODULES_FILE):
            self._watch(code, self._module_calls, _events.PY_RETURN)
        return id(code) in self._entered or id(code) in self._module_calls

    def _running(self) -> dict[int, list[tuple[CodeType, int]]]:
        """Return the user's functions that run, by the system's number of the thread: nobody tells when they began."""
        threads = {thread.ident: thread.native_id for thread in threading.enumerate()}
        found = {}
        for ident, frame in sys._current_frames().items():  # noqa: SLF001 — the only way to those of other threads
            if (native := threads.get(ident)) is not None:
                users = [(each.f_code, line or 0) for each, line in walk_stack(frame) if is_users(each.f_code.co_filename)]
                found[native] = users[::-1]
                for code, _ in users:
                    self._watch(code, self._codes, _OF_LINES)
        return found

    def _log_of(self, native: int) -> _Log:
        return _Log(self._begun.pop(native, ()), self._module_calls, self._firsts, self._last_ns)

    def _entries_here(self) -> list[Any]:
        """Return the entries of a new log, of the thread that runs."""
        native = threading.get_native_id()
        self._here.log = log = self._log_of(native)
        self._here.entries = log.entries
        self._logs.setdefault(native, []).append(log)
        return log.entries

    def _sites_of(self, log: _Log, used: Iterable[int]) -> IntArray:
        """Return the number in `sites` of each of some stacks; 0 for the empty one."""
        module_name, sites = _module_names(log.roots), {0: Site()}
        found = []
        for number in used:
            inner, unknown = number, list[int]()
            while inner not in sites:
                unknown.append(inner)
                inner = log.nodes[inner][0]
            for node in reversed(unknown):
                sites[node] = self._site(sites[log.nodes[node][0]], *log.nodes[node][1:], module_name)
            found.append(self.sites.setdefault(sites[number], len(self.sites) + 1) if number else 0)
        return np.array(found, np.int64)

    def _site(self, around: Site, thing: Any, line: int, module_name: Callable[[Any], str]) -> Site:
        # What is deeper lies in the outer frames all the same.
        caller = (around if len(around.callers) < MOST_CALLERS else around.caller) if any(around) else None
        if line == _MODULE:
            site = around._replace(module=module_name(thing), caller=caller)
        else:
            file = cell_name(thing.co_filename) or thing.co_filename
            site = Site(printable(thing.co_qualname), printable(file), line, around.module, caller=caller)
        return self._callers.setdefault(site, site)


def _module_names(roots: Iterable[Any]) -> Callable[[Any], str]:
    """Return what names a module: its path in the outermost one that was called, as ``layer1.0.conv1``, else the name of its class."""
    paths: dict[int, str] = {}
    for root in roots:
        with suppress(Exception):  # A class of the user's may have no such names.
            for path, module in root.named_modules():
                paths.setdefault(id(module), path)
    return lambda module: printable(paths.get(id(module)) or type(module).__name__)


def _cost_of_a_line_ns(tool: int) -> float:
    """Return how long it takes now that Python tells of a line."""
    line, other = _events.LINE, LaunchLines()
    _monitoring.register_callback(tool, line, other._callbacks()[line])  # noqa: SLF001
    took_ns = {}
    for events in (0, line):
        _monitoring.set_local_events(tool, _turns.__code__, events)
        began_ns = time.perf_counter_ns()
        _turns()
        took_ns[events] = time.perf_counter_ns() - began_ns
    _monitoring.set_local_events(tool, _turns.__code__, 0)
    told = sum(len(log.entries) // 3 for logs in other._logs.values() for log in logs)  # noqa: SLF001
    return max(0, took_ns[line] - took_ns[0]) / max(1, told)


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
