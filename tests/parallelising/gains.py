"""Gains for tests."""

from __future__ import annotations

from streamscope.analysis.statistics import MedianInterval
from streamscope.capturing.captured import UpperBound
from streamscope.capturing.certificate import Certificate
from streamscope.capturing.memory import Access, Evidence, MemoryHeld, NodeMemory
from streamscope.devices.graph_node import GraphNode, NodeKind
from streamscope.measuring.choice import Candidate, Choice, Standing
from streamscope.parallelising.parallelised import Gain
from streamscope.trace.info import DeviceInfo

CARD = DeviceInfo("cuda", "NVIDIA H200")


def interval(middle):
    return MedianInterval(middle, middle - 0.02, middle + 0.02, 40, "95 % interval of the median")


def gain(before_us, after_us, ratio, name="inception"):
    """Return the gain of runs that took so long; without a ratio, nothing was gained, and without a time, the other order did not run."""
    before = Candidate("graph", Standing.SLOWER if ratio else Standing.CHOSEN, "", interval(before_us * 1e3), ratio and interval(ratio))
    if after_us is None:
        after = Candidate("graph-dual", Standing.RULED_OUT, "it uses one stream here, so it is graph")
    else:
        after = Candidate("graph-dual", Standing.CHOSEN if ratio else Standing.NO_FASTER, "", interval(after_us * 1e3))
    listed = (after, before) if ratio else (before, after)
    memories = [NodeMemory((Access(0, 4096, True, True, Evidence.SCHEMA),))] * 2
    nodes = [GraphNode(NodeKind.KERNEL, "relu <b>", after, where="model.py:7") for after in ((), (0,))]
    return Gain(
        name,
        CARD,
        2,
        Choice(listed[0].engine, "", listed, name, CARD),
        7000.0,
        2**20,
        MemoryHeld(2**20, ((0, 2**22),)),
        Certificate(name, nodes, memories, ((), (0,))),
        UpperBound(2, before_us, before_us, before_us / 2, before_us / 3),
        order="taken of 2 orders: fewest edges 909 µs; 2 streams 1.00 ms",
    )
