"""Captured code, live on a GPU or read from a file: nodes, the memory that they touch, the duration of each, and the bound."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from streamscope.capturing.certificate import Certificate
from streamscope.capturing.communication import without_links
from streamscope.capturing.memory import AddressRange, CaptureOrigin, NodeMemory, origin_words, regions_of
from streamscope.capturing.true_order import all_orders, true_order
from streamscope.devices.cost_model import CostModel
from streamscope.devices.graph_node import GraphNode, NodeKind, crowds, waiting_groups
from streamscope.devices.measured_models import model_of
from streamscope.errors import ProgramError
from streamscope.order.ancestors import has, known_before
from streamscope.order.graph import path_lengths, without_implied
from streamscope.program.captured_graph import COMMUNICATION, CapturedGraph, Edges
from streamscope.program.foreign import CaptureInfo, ForeignProgram
from streamscope.program.launch import Cost, Launch
from streamscope.program.operation import Operation, Program, Variable
from streamscope.program.variable import ArraySpec, MemoryPlace
from streamscope.results.result import Result
from streamscope.trace.file_checks import plain
from streamscope.words import counted, percent, time_text

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
    communication_us : float
        All collectives one after the other, without waiting for other ranks.
    hidden_us : float
        How much of that any order could hide behind kernels, at most, if kernels run one after the other.
    """

    nodes: int
    capture_us: float
    one_stream_us: float
    longest_path_us: float
    filled_us: float
    communication_us: float = 0.0
    hidden_us: float = 0.0

    @property
    def least_us(self) -> float:
        """Lower bound of the time of any order."""
        return min(self.capture_us, max(self.longest_path_us, self.filled_us, self.communication_us))

    @property
    def speedup(self) -> float:
        """How many times as fast as the capture the fastest order is at most."""
        return self.capture_us / self.least_us if self.least_us > 0 else 1.0

    @property
    def nothing_to_gain(self) -> bool:
        """Whether the gain is less than `_LITTLE`."""
        return self.least_us >= (1 - _LITTLE) * self.capture_us

    def __str__(self) -> str:
        if not self.communication_us:
            return self._gain
        return f"{self._gain}; of {_text(self.communication_us)} of communication, any order hides at most {_text(self.hidden_us)}"

    @property
    def _gain(self) -> str:
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
    collectives: Sequence[bool] = (),
) -> UpperBound:
    """Return the upper bound of the gain by another order of nodes.

    ``durations_us``: how long each node takes alone.
    ``costs``: their blocks and threads say how much of the multiprocessors each fills.
    ``capture`` and ``order``: orders of the capture, and those that memory asks for.
    ``measured_us``: duration of a replay of the capture.
    ``collectives``: whether each node is one; they use the links one after the other, in any order that ``order`` allows.

    Examples
    --------
    Two small kernels that could run beside each other, and one that needs both:

    >>> from streamscope.capturing.captured import upper_bound
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
    communication_us = sum(us for us, collective in zip(durations_us, collectives, strict=True) if collective) if any(collectives) else 0.0
    kernels_us = sum(durations_us) - communication_us
    hidden_us = max(0.0, kernels_us + communication_us - max(longest_path_us, kernels_us, communication_us))
    stuck = hidden_us <= _LITTLE * communication_us if communication_us else without_implied(order) == without_implied(capture)
    if stuck:
        longest_path_us = capture_us  # There is no other order: gaps that are longer than the shortest stay as they are.
    hidden_us = hidden_us if communication_us else 0.0
    return UpperBound(len(durations_us), capture_us, one_stream_us, longest_path_us, filled_us, communication_us, hidden_us)


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


ELSEWHERE = "or open code that was captured elsewhere: ss.load_captured, for example of a file in notebooks/recorded/captured"
"""Alternatives without a GPU."""
TOKEN = ArraySpec((0,), np.dtype(np.uint8))
"""Output of a node, read by its successors: it has no elements."""


@dataclass(repr=False)
class CapturedProgram(Result, ForeignProgram):
    """Captured code; give it to `ss.compare` or `ss.prepare` as it is.

    Attributes
    ----------
    name : str
    program : Program
        One operation for each kernel, copy and set. Its variables have no elements: each stands for a node's output, and an
        operation reads those of the nodes that it must come after (see `true_order`).
    nodes : list of GraphNode
        Kind, name, grid, block, registers and edges of each; each is the operation of that number.
    memories : list of NodeMemory
        Reads and writes of each node, with the evidence.
    """

    view = "captured"

    name: str
    program: Program
    nodes: list[GraphNode]
    memories: list[NodeMemory]

    @property
    def durations_us(self) -> list[float]:
        """How long each node takes alone, in µs, as it was measured; NaN where it was not."""
        costs = (launch.cost for launch in self.program.launches())
        return [float("nan") if cost.alone_ns is None else cost.alone_ns / 1e3 for cost in costs]

    @property
    def regions(self) -> list[list[AddressRange]]:
        """Where the memory lies that each node touches, as far as it is known."""
        return list(map(regions_of, self.memories))

    @property
    def capture_us(self) -> float | None:
        """How long a replay takes in the order of the capture, in µs; None where it was not measured."""
        return None

    def trace(self) -> Program:
        """Return the program; it takes no arguments, since the capture holds its own memory."""
        return self.program

    def certificate(self) -> Certificate:
        """Return why the true order is right: each pair of nodes that must keep its order, with the path that keeps it.

        Each schedule of the program is checked with it before it runs.

        Examples
        --------
        You need a GPU to capture anything::

            captured = ss.capture(step, x, w)
            print(captured.certificate())
        """
        found = self.program.certificate
        assert isinstance(found, Certificate)
        return found

    def bound(self) -> UpperBound:
        """Return how much faster another order of the nodes can be at most, from how long each takes alone.

        Examples
        --------
        You need a GPU to capture anything, or a file that one made::

            print(ss.load_captured("model.captured.json").bound())
        """
        costs = [launch.cost for launch in self.program.launches()]
        order = tuple(operation.reads for operation in self.program.operations)
        collectives = [node.communication is not None and node.kind is NodeKind.KERNEL for node in self.nodes]
        if any(collectives):  # They may change places.
            order = true_order(list(map(without_links, self.memories)), self.program.captured)
        model = model_of(self.measured_on())
        return upper_bound(self.durations_us, costs, self.program.captured, order, model, self.capture_us, collectives)

    def save(self, path: str | Path) -> Path:
        """Write all but the kernels to a file, which `ss.load_captured` opens anywhere: nodes, memory, evidence, durations, names, lines.

        Parameters
        ----------
        path : str or path
            Ends with ``.captured.json``; or with ``.html``, ``.pdf`` or ``.md``, for the summary that a notebook shows.

        Raises
        ------
        OutputError
            The file cannot be written, or its suffix is another.

        Examples
        --------
        You need a GPU to capture anything::

            ss.capture(model, image).save("model.captured.json")
        """
        return super().save(path)

    def writers(self) -> dict[str, Callable[[Path], Path]]:
        """Return the functions that write it, each by the suffix of its files."""
        from streamscope.capturing.saved import save  # It makes programs of this class.

        # Under .json alone nobody would find what load_captured opens: the error there says so.
        return super().writers() | dict.fromkeys((".captured.json", ".json"), partial(save, self))

    def to_dict(self) -> dict[str, Any]:
        """Return the facts and the certificate as JSON values."""
        found: dict[str, Any] = plain({"name": self.name, **self.facts.to_dict(), "order": self.certificate().to_dict()})
        return found

    def origin(self) -> CaptureOrigin:
        """Return place, date and versions of the capture, and its memory."""
        raise NotImplementedError

    def measured_on(self) -> str:
        """Return the name of the GPU that the durations were measured on."""
        return self.origin().device

    @cached_property
    def facts(self) -> CaptureInfo:
        """Its lines in a comparison and a report."""
        origin, certificate = self.origin(), self.certificate()
        held = "" if origin.memory is None else str(origin.memory)
        evidence, notes = tuple(certificate.sentences), tuple(certificate.notes)
        return CaptureInfo(origin_words(origin), str(self.bound()), certificate.headline, evidence, held, notes)

    def __str__(self) -> str:
        return f"{self.name}: {counted(len(self.nodes), 'node')}, {self.certificate().longest_path:,} on the longest path of the true order"

    __repr__ = __str__

    def __reduce__(self) -> str:
        raise ProgramError(f"captured {self.name!r} cannot be pickled", hint="load its file in each process: ss.load_captured(path)")


def certified(
    name: str, nodes: Sequence[GraphNode], memories: Sequence[NodeMemory], multiprocessors: int, notes: Sequence[str] = ()
) -> Certificate:
    """Work out the true order of nodes, and return its certificate.

    ``multiprocessors``: of the GPU. Collectives that have no room side by side, also where the capture lets them, stay in a row.
    ``notes``: further notes of the certificate.
    """
    order = true_order(memories, tuple(node.after for node in nodes))
    waiting = sorted(node for each in waiting_groups(nodes).values() for node in each)
    if any(crowds(nodes, partial(has, known_before(order)), multiprocessors)):
        behind = dict(zip(waiting[1:], waiting, strict=False))
        order = all_orders([order, [(behind[node],) if node in behind else () for node in range(len(nodes))]])
    return Certificate(name, nodes, memories, order, notes)


def program_of(
    certificate: Certificate,
    launch: Callable[[int, tuple[int, ...]], Launch],
    sources: Sequence[str],
    raw: CapturedGraph | None = None,
    held: Sequence[tuple[int, int]] = (),
) -> Program:
    """Make a program with a variable for each node: a node writes its own and reads those of its predecessors.

    ``certificate``: its nodes know operator, module and line each.
    ``launch``: ``launch(number, after)`` returns the launch of a node.
    ``raw``: the captured graph, where it is in this process. ``held``: see `Program`.
    """
    operations = []
    for number, (node, after, source) in enumerate(zip(certificate.nodes, certificate.order, sources, strict=True)):
        attributes: dict[str, Any] = {"grid": node.grid, "block": node.block}
        if node.communication is not None:
            attributes[COMMUNICATION] = str(node.communication)
        work = (launch(number, after),)
        operations.append(Operation(number, node.operator, after, (number,), attributes, node.where, work, node.module, source))
    variables = tuple(Variable(number, node.name, TOKEN, MemoryPlace.DEVICE) for number, node in enumerate(certificate.nodes))
    edges = tuple(node.after for node in certificate.nodes)
    return Program(
        certificate.name, variables, tuple(operations), (), (),
        single_output=False, captured=edges, certificate=certificate, raw=raw, held=tuple(held),
    )  # fmt: skip
