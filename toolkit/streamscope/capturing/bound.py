"""How much faster captured code can become by another order of its nodes, from how long each takes alone; before any work is done."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from streamscope.devices.cost_model import CostModel
from streamscope.order.graph import path_lengths, without_implied
from streamscope.program.captured_graph import Edges
from streamscope.program.launch import Cost
from streamscope.words import percent, time_text

_LITTLE = 0.05
"""A gain below this share of the time is not worth the work."""
_GAP_US = 0.03
"""The shortest gap between kernels of a replay, by CUPTI on an H200."""


@dataclass(frozen=True, repr=False)
class UpperBound:
    """Upper bound of the gain by another order of the same nodes.

    Times are worked out from how long each node takes alone, with the shortest gaps between them. Side by side, nodes take longer rather
    than shorter, so no order is faster than `least_us`.

    Attributes
    ----------
    nodes : int
    capture_us : float
        Time of the capture's order: measured or, where it was not, worked out like the others.
    one_stream_us : float
        All nodes one after the other.
    longest_path_us : float
        The longest path of the true order: its time with unlimited room.
    filled_us : float
        Time if the multiprocessors of this GPU are full all the time.
    """

    nodes: int
    capture_us: float
    one_stream_us: float
    longest_path_us: float
    filled_us: float

    @property
    def least_us(self) -> float:
        """Lower bound of the time of any order."""
        return min(self.capture_us, max(self.longest_path_us, self.filled_us))

    @property
    def speedup(self) -> float:
        """How many times as fast as the capture the fastest order is at most."""
        return self.capture_us / self.least_us if self.least_us > 0 else 1.0

    @property
    def nothing_to_gain(self) -> bool:
        """Whether the gain is less than `_LITTLE`."""
        return self.least_us >= (1 - _LITTLE) * self.capture_us

    def __str__(self) -> str:
        if not self.nothing_to_gain:
            return f"at most {self.speedup:.2g} times as fast as the capture: {_text(self.least_us)} of {_text(self.capture_us)}"
        if self.nodes < 2 or self.capture_us <= 0:
            return "nothing to gain here: there is nothing to run side by side"
        share = percent(min(1.0, self.least_us / self.capture_us))
        why = "the longest path takes" if self.longest_path_us >= self.filled_us else "the multiprocessors are full for"
        return f"nothing to gain here: {why} {share} of the time"

    __repr__ = __str__


def upper_bound(
    durations_us: Sequence[float],
    costs: Sequence[Cost],
    capture: Edges,
    order: Edges,
    model: CostModel,
    measured_us: float | None = None,
) -> UpperBound:
    """Return the upper bound of the gain by another order of nodes.

    ``durations_us``: how long each node takes alone.
    ``costs``: their blocks and threads say how much of the multiprocessors each fills.
    ``capture`` and ``order``: orders of the capture, and those that memory asks for.
    ``measured_us``: duration of a replay of the capture.

    Examples
    --------
    Two small kernels that could run beside each other, and one that needs both:

    >>> from streamscope.capturing.bound import upper_bound
    >>> from streamscope.devices.cost_model import CostModel
    >>> small = Cost(0, blocks=4, threads=128)
    >>> bound = upper_bound([20.0, 20.0, 10.0], [small] * 3, ((), (0,), (1,)), ((), (), (0, 1)), CostModel.load())
    >>> print(bound)
    at most 1.7 times as fast as the capture: 30.0 µs of 50.1 µs
    """
    filled_us = sum(us * _share(cost, model) for us, cost in zip(durations_us, costs, strict=True))
    one_stream_us = sum(durations_us) + _GAP_US * max(0, len(durations_us) - 1)
    captured_us, longest_path_us = (max(path_lengths(durations_us, edges, gap=_GAP_US), default=0.0) for edges in (capture, order))
    capture_us = max(captured_us, filled_us) if measured_us is None else measured_us
    if without_implied(order) == without_implied(capture):
        longest_path_us = capture_us  # There is no other order: gaps that are longer than the shortest stay as they are.
    return UpperBound(len(durations_us), capture_us, one_stream_us, longest_path_us, filled_us)


def _share(cost: Cost, model: CostModel) -> float:
    """Return which share of the multiprocessors a node takes at least while it runs.

    That is its share of their throughput, as the simulated device has it, but no more than its blocks fill in the mean: in the last round
    of blocks there is room for others.
    """
    held = model.residency(cost)
    if not held.multiprocessors:
        return 0.0
    fitting = cost.per_multiprocessor or max(1, model.threads_per_multiprocessor // max(1, cost.threads))
    rounds = cost.blocks / (fitting * model.multiprocessors)
    busy = held.multiprocessors / min(max(1, cost.blocks), model.multiprocessors)
    return min(held.multiprocessors / model.multiprocessors * model.throughput(held.load), busy * rounds / max(1, math.ceil(rounds)))


def _text(time_us: float) -> str:
    return time_text(1e3 * time_us)
