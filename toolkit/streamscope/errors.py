"""Exceptions of Streamscope, as one tree.

::

    StreamscopeError
    ├── ProgramError          a program, operator or argument is wrong (shape, dtype, unwritten read)
    │   └── UnknownAttributeError  an object of ours has no such attribute (an AttributeError, too)
    ├── KeywordError          a function of ours has no such keyword (a TypeError, too)
    ├── EngineError           an engine cannot do what was asked (unknown name, failed capture)
    ├── RaceError             a schedule does not order operations that share memory
    ├── CompilationError      a kernel did not compile
    ├── DeviceError           a device failed
    │   ├── NoDeviceError     the device that was asked for is not on this machine
    │   ├── HungError         a run does not end
    │   ├── WaitTimeoutError  a wait took longer than its time-out
    │   └── OutOfMemoryError  device memory ran out
    ├── PeerError             another rank of the job refused, failed or did not come
    ├── RecordingError        times could not be recorded
    ├── TraceError            a trace, or the file that holds one, is broken
    ├── ExpectationError      a comparison is not as a notebook expects (an AssertionError, too)
    ├── WorkloadError         unknown workload or setting
    └── OutputError           a file could not be written

Every error says what was wrong and with what value; ``hint`` says what to do about it.
"""

from __future__ import annotations

import re

from streamscope.tracebacks import notebook_traceback

LONGEST_LINE = 1000
"""Most characters of a message; a longer one is cut in its middle."""
_CONTROLS = r"\x00-\x08\x0b-\x1f\x7f-\x9f"  # All but tab and line feed.
_OTHER_ORDER = r"\u202a-\u202e\u2066-\u2069"  # What stands behind them may be shown in another order.
_LINE_BREAKS = r"\u2028\u2029"
_NOT_IN_XML = r"\ud800-\udfff\ufffe\uffff"
_HARMFUL = re.compile(f"[{_CONTROLS}{_OTHER_ORDER}{_LINE_BREAKS}{_NOT_IN_XML}]")


class StreamscopeError(Exception):
    """Root of every error that Streamscope raises on purpose.

    Parameters
    ----------
    message : str
        The problem, with the wrong value. Control characters in it are replaced, and long lines cut.
    hint : str, optional
        What the user can do about it.
    """

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        self.message = readable(message)
        self.hint = readable(hint) if hint else hint
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message

    def _render_traceback_(self) -> list[str]:
        """Return IPython's display of it."""
        return notebook_traceback(self)


def printable(text: str) -> str:
    """Return a text without characters that break an XML file or a line, or with which a terminal shows something else: each becomes ``�``.

    They come with names of files, programs and engines. Line feeds and tabs stay.
    """
    return _HARMFUL.sub("�", text)


def readable(message: str) -> str:
    """Return a message that is fit for a screen: printable, and with no line that a value makes endless."""
    return "\n".join(map(_shortened, printable(message.replace("\r\n", "\n")).split("\n")))


def _shortened(line: str) -> str:
    if len(line) <= LONGEST_LINE:
        return line
    return f"{line[: LONGEST_LINE // 2]} … ({len(line):,} characters) … {line[-LONGEST_LINE // 4 :]}"


def described(error: BaseException) -> str:
    """Return an error's class and message, even if its ``__str__`` fails: users' classes may do anything."""
    try:
        said = str(error)
    except Exception as failure:  # noqa: BLE001 — whatever it is, the error that is told of is another one
        said = f"(its text cannot be had: {type(failure).__name__})"
    return f"{type(error).__name__}: {said}"


class ProgramError(StreamscopeError):
    """A program, an operator or an argument to one is wrong."""


class UnknownAttributeError(ProgramError, AttributeError):
    """An object of ours does not have that attribute."""


class KeywordError(StreamscopeError, TypeError):
    """A keyword that neither the function of ours has nor the user's program, or that both have."""


class EngineError(StreamscopeError):
    """An engine cannot fulfil a request."""


class RaceError(StreamscopeError):
    """A schedule lets operations that share memory run side by side, or in another order; nothing was launched."""


class DeadlockError(StreamscopeError):
    """Collectives of a plan could wait for each other for ever; nothing was launched."""


class CompilationError(StreamscopeError):
    """A kernel did not compile; the message holds the compiler's log, with the user's line or the numbered source."""


class DeviceError(StreamscopeError):
    """A device failed, or was used in a way that it does not allow."""


class NoDeviceError(DeviceError):
    """The device that was asked for is not on this machine."""


class HungError(DeviceError):
    """A run on the device does not end; the process cannot use the device any more."""


class WaitTimeoutError(DeviceError):
    """A wait took longer than the time-out that it was given; engine and device can be used on."""


class OutOfMemoryError(DeviceError):
    """Device memory ran out."""


class PeerError(StreamscopeError):
    """Another rank of the job refused, failed, ended or did not come, so this one stopped, too."""


class RecordingError(StreamscopeError):
    """Times could not be recorded."""


class TraceError(StreamscopeError):
    """A trace, or the file that should hold one, is broken."""


class ExpectationError(StreamscopeError, AssertionError):
    """A measured value fails the expectation of ``%streamscope_assert``."""


class WorkloadError(StreamscopeError):
    """An unknown workload, or a setting that it does not have."""


class OutputError(StreamscopeError):
    """A file or folder could not be written."""


class MemoryWarning(UserWarning):
    """A request takes more of this machine's memory than is free."""


class UnusedGpusWarning(UserWarning):
    """A program uses fewer GPUs than were asked for."""


class RecordingWarning(UserWarning):
    """A recording is not whole."""


class CacheWarning(UserWarning):
    """Compiled kernels cannot be kept on disk, so the next process compiles them again."""
