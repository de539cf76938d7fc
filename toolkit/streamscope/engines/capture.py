"""Capturing bound steps: which step made which node, and whose fault it is when it fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from streamscope.devices.protocol import Device, Graph, Stream
from streamscope.engines.binding import Bound
from streamscope.engines.plan import Issue
from streamscope.errors import EngineError, StreamscopeError
from streamscope.interrupts import deferred

Describe = Callable[[Bound], str]


@contextmanager
def capturing(device: Device, stream: Stream, update: Graph | None = None) -> Iterator[list[Graph]]:
    """Capture what the block puts on a stream; the list then holds the graph.

    Whatever happens, no stream is left capturing: Ctrl-C waits for the end.

    Parameters
    ----------
    device : Device
    stream : Stream
    update : Graph, optional
        Updated, where the device accepts it, instead of making a new one.
    """
    graphs: list[Graph] = []
    with deferred():
        try:
            device.begin_capture(stream)
            yield graphs
        except BaseException:
            device.abandon_capture(stream)
            raise
        graphs.append(device.end_capture(stream, update))


class _StepFailedError(EngineError):
    """A step cannot be captured; the message names it."""


def captured(
    device: Device, stream: Stream, steps: Sequence[Bound], describe: Describe, update: Graph | None = None
) -> tuple[Graph, tuple[int, ...]]:
    """Capture bound steps and return the graph, and for each of its nodes the index of the step that made it.

    Raises
    ------
    EngineError
        An operation cannot be captured; the message names it, and the streams are usable again.
    """
    owners: list[int] = []
    try:
        with capturing(device, stream, update) as graphs:
            for index, bound in enumerate(steps):
                with _blaming(bound, describe):
                    bound.call()
                    # Counted after each step, since a step may be several nodes; this also meets a break that the step kept to itself.
                    owners += [index] * (device.captured_nodes(stream) - len(owners))
    except _StepFailedError:
        raise
    except EngineError as error:
        # Some faults show only at the end, for example a stream that was not joined.
        raise _culprit(device, steps, describe) or error from error
    return graphs[0], tuple(owners)


@contextmanager
def _blaming(bound: Bound, describe: Describe) -> Iterator[None]:
    """Let errors say which step they come from."""
    try:
        yield
    except StreamscopeError as error:
        raise _StepFailedError(f"{describe(bound)} cannot be captured: {error.message}", hint=error.hint) from error
    except Exception as error:
        raise _StepFailedError(f"{describe(bound)} cannot be captured: {error}") from error


def _culprit(device: Device, steps: Sequence[Bound], describe: Describe) -> EngineError | None:
    """Capture each launch by itself and return the error of the first that fails."""
    for bound in steps:
        if isinstance(bound.step, Issue) and bound.stream is not None:
            try:
                with _blaming(bound, describe), capturing(device, bound.stream):
                    bound.call()
            except EngineError as error:
                return error
    return None
