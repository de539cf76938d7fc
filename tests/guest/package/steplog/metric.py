"""A metric: how long the longest kernel takes."""

from streamscope.analysis import Metric
from streamscope.trace import SpanKind


def longest_us(trace):
    """Duration of the longest kernel.

    Formula: max(end - start) over kernels. Unit: µs. None where no kernel runs.
    """
    kernels = trace.spans.duration_ns[trace.spans.kind == SpanKind.KERNEL]
    return kernels.max() / 1000 if len(kernels) else None


METRIC = Metric(name="longest_us", label="longest kernel", unit="µs", function=longest_us)
