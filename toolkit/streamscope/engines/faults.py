"""What is left to do when a run breaks off: say which operation it was, and let nothing stay pending."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from streamscope.devices.protocol import Call, Stream
from streamscope.engines.plan import Issue
from streamscope.errors import StreamscopeError
from streamscope.interrupts import deferred

if TYPE_CHECKING:
    from streamscope.engines.binding import Bound


def settle(streams: Iterable[Stream], error: BaseException) -> None:
    """Wait until nothing is pending on a plan's streams, after an error in the middle of a run: the waits rest on runs being whole.

    Not for the whole device, which CUDA forbids while another thread captures. What goes wrong meanwhile becomes a note on the error.
    """
    with deferred():
        for stream in streams:
            try:
                stream.synchronize()
            except StreamscopeError as other:
                error.add_note(f"meanwhile {other}")


@contextmanager
def settled(streams: Iterable[Stream]) -> Iterator[None]:
    """Carry out a run's steps in a block; where it breaks off, see `settle`."""
    try:
        yield
    except BaseException as error:
        settle(streams, error)
        raise


def name_launch(error: BaseException, steps: Iterable[Bound], call: Call | None) -> None:
    """Add a note to an error that a call of one of the steps raised, which names the operation and the user's line.

    Host functions do so themselves, and an interrupt is nobody's fault.
    """
    if isinstance(error, Exception):
        for bound in steps:
            if bound.call is call and isinstance(bound.step, Issue):
                error.add_note(f"while {bound.step.launch} was issued")
