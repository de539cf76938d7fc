"""The command line.

Results go to standard output, everything else (progress, notes, errors) to standard error. Exit codes: 0 done, 1 failed,
2 wrong usage (an unknown workload, setting or engine too), 3 the results of an engine are wrong, 128 + N stopped by signal N (130: Ctrl-C).

A command is a function in a file of its own and of its name, listed in `COMMANDS` of ``cli/app.py``.
This file imports next to nothing, so that signals find their handlers while the rest is imported.
"""

from __future__ import annotations

# The C functions: `signal` itself imports enumerations first.
import _signal  # type: ignore[import-not-found]
import _thread
import errno
import sys
import time
from collections.abc import Callable, Sequence
from types import FrameType

FAILED, _INTERRUPTED = 1, 130
_NAMES = {_signal.SIGTERM: "SIGTERM", _signal.SIGHUP: "SIGHUP"}
_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)
"""Errors of the system when standard output cannot take more."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    ``arguments``: ``sys.argv[1:]`` by default; none at all shows the help.
    """
    stops = Stops()
    stops.begin()
    try:
        try:
            code = _run(sys.argv[1:] if arguments is None else arguments)
        except BaseException:
            if stops.number is None:
                raise
            code = _INTERRUPTED  # Libraries may turn the exception of a signal into any other, imports above all.
        stops.over = True
        return _stopped(stops.number or _signal.SIGINT) if code == _INTERRUPTED else code
    finally:
        stops.end(for_good=arguments is None)


class StoppedError(KeyboardInterrupt):
    """A signal asks the process to stop.

    Not `KeyboardInterrupt` itself: once that has left an ``exec``, as in dataclasses, CPython kills the process at its end.
    """


class Stops:
    """Makes Ctrl-C, SIGTERM and SIGHUP raise a `StoppedError` in the main thread, so that open files are closed and removed.

    Signals that are ignored, as SIGHUP is under nohup, stay ignored. SIGTERM and SIGHUP wait where Ctrl-C is deferred.
    Python ignores what is raised in a ``__del__`` or in the callback of a weak reference; a signal that comes there is sent again.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        """The signal that came."""
        self.over = False
        """Whether signals come too late to stop anything."""
        self._before: dict[int, object] = {}
        self._report: Callable[[sys.UnraisableHookArgs], object] | None = None

    def begin(self) -> None:
        """Set the handlers; in other threads than the main one, which get no signals, do nothing."""
        try:
            for number in (_signal.SIGTERM, _signal.SIGHUP):
                if _signal.getsignal(number) == _signal.SIG_DFL:
                    self._before[number] = _signal.signal(number, self._pass_on)
            self._before[_signal.SIGINT] = _signal.signal(_signal.SIGINT, self._stop)
        except ValueError:
            return
        self._report, sys.unraisablehook = sys.unraisablehook, self._ignored

    def end(self, *, for_good: bool = False) -> None:
        """Put back the handlers that were there; ``for_good`` tells that the process ends, where Python's own would print a traceback."""
        self.over = True
        if self._report is not None:
            sys.unraisablehook = self._report
        for number, handler in self._before.items():
            _signal.signal(number, _signal.SIG_DFL if for_good and callable(handler) else handler)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        if self.over or (number == _signal.SIGINT and self._before.get(number) == _signal.SIG_IGN):
            return
        self.number = number
        raise StoppedError(number)

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        """Let the current handler of Ctrl-C handle another signal: `_stop`, or the one that defers it."""
        _signal.getsignal(_signal.SIGINT)(number, frame)

    def _ignored(self, unraisable: sys.UnraisableHookArgs) -> None:
        """Send the signal again whose exception Python has just ignored."""
        if self.number is not None and issubclass(unraisable.exc_type, StoppedError):
            _thread.start_new_thread(self._send_again, (self.number,))
        elif self._report is not None:
            self._report(unraisable)

    def _send_again(self, number: int) -> None:
        """Send the main thread a signal; where that is still in a place where exceptions are ignored, this is called once more."""
        time.sleep(0.01)
        if not self.over:
            _thread.interrupt_main(number)  # type: ignore[arg-type]  # Numbers will do: `signal`, which has the names, is not imported.


def _run(arguments: Sequence[str]) -> int:
    from streamscope.cli.terminal import complain, drop, make_ready, warnings_on_a_line

    make_ready()
    if sys.stdout is None:
        complain("standard output is closed", "send it to a file, or to /dev/null")
        return FAILED
    try:
        from streamscope.cli.app import run

        with warnings_on_a_line():
            code = run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        drop(sys.stdout)  # Whoever read it has gone (``| head``).
        return FAILED
    except OSError as error:
        if error.errno not in _UNWRITABLE or error.filename is not None:
            raise
        drop(sys.stdout)
        complain(f"cannot write the output: {error.strerror}", "free space, or send it elsewhere")
        return FAILED
    return code


def _stopped(number: int) -> int:
    """Say that a signal stopped the command, and return the exit code that says so too."""
    from streamscope.cli.terminal import complain, drop

    try:
        sys.stdout.flush()
    except OSError:
        drop(sys.stdout)
    complain(f"stopped by {_NAMES[number]}" if number in _NAMES else "interrupted")
    return 128 + number


if __name__ == "__main__":
    sys.exit(main())
