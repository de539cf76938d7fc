"""Which GPU a metric is of.

A metric of one GPU is never of several together: kernels on two GPUs are no overlap. Of spans of several GPUs, it is that of the busiest
one; ``trace.of_gpu(n)`` gives another.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from streamscope.trace.one_gpu import busiest_gpu, rows_of_gpu
from streamscope.trace.spans import SpanTable
from streamscope.trace.trace import Trace

_Measure = TypeVar("_Measure", bound=Callable[..., Any])


def of_one_gpu(measure: _Measure) -> _Measure:
    """Make a function of spans one of a single GPU: of several, it measures the busiest."""

    @wraps(measure)
    def measured(spans: SpanTable, *args: Any, **kwargs: Any) -> Any:
        return measure(of_busiest(spans), *args, **kwargs)

    return cast("_Measure", measured)


def several_gpus(spans: SpanTable) -> bool:
    """Tell whether spans lie on the lanes of two GPUs at least."""
    return len({gpu for gpu in spans.gpus if gpu >= 0}) > 1


def of_busiest(spans: SpanTable) -> SpanTable:
    """Return the spans of the host and of the busiest GPU, with all lanes."""
    return spans.select(rows_of_gpu(spans, busiest_gpu(spans))) if several_gpus(spans) else spans


def busiest(trace: Trace) -> Trace:
    """Return the trace of its busiest GPU; one of a single GPU as it is."""
    return trace.of_gpu(busiest_gpu(trace.spans)) if several_gpus(trace.spans) else trace
