"""A trace's host: the factor of its calls over the cost model's, and the cost of waits.

A host is not always as fast as the one that was measured for the cost model: the same launch takes 2.8 µs there, and 3.4 to 5.4 µs on
another day. So prices of calls that the trace has are the trace's, and those that it does not have are the model's times the ratio.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from streamscope.analysis.idle import stream_gaps
from streamscope.devices.cost_model import CostModel
from streamscope.devices.link_model import LinkModel
from streamscope.devices.measured_models import links_of
from streamscope.engine_entry import GRAPH, traits_of
from streamscope.predicting.tasks import LaunchKey, Task, has_call
from streamscope.program.launch import LaunchKind
from streamscope.trace.info import DeviceInfo
from streamscope.trace.origins import Trait
from streamscope.trace.spans import Basis, SpanKind
from streamscope.trace.trace import Trace

LONGER_NODE_GAP_NS, LONGER_KERNEL_GAP_NS = 200.0, 450.0
"""By how much gaps are longer behind kernels that do more than the shortest, with which the cost model's gaps were measured: in a graph of
ResNet-50, CUPTI has 0.43 µs between kernels, and 0.24 between the shortest; on streams, from chains of additions of 1 and 16 million."""
_FEWEST_WAITS = 8
"""Launches from which a run tells whether its host was slower than usual; of fewer, one call that met something decides."""
_PACES = 0.25, 2.0
"""Limits of the factor on calls: beyond them it is not the host's pace, but kernels or waits that were slower, too."""
_LONGEST_WAIT = 1.2
"""How much longer than in the cost model a wait is taken to be: a longer one met something, or began late behind an event that was slow.
Waiting is the device's: of five traces each of 26 programs on one host, calls took up to 1.9 times as long in some, and waits did not."""


@dataclass(frozen=True)
class Host:
    """Host calls of a trace: a cost model with their costs from the trace, or as its other calls let one expect.

    ``links`` are those between its GPUs. ``tails_ns`` says for launches of a name how long the call goes on after it has put the work on
    the stream; ``last_wait_ns`` what the wait at the end of a run costs beside a stream's. Times of the host in the recorded run, times
    ``pace``, are those of a usual run.
    """

    model: CostModel
    tails_ns: dict[str, float]
    last_wait_ns: float
    pace: float = 1.0
    links: LinkModel = field(default_factory=LinkModel.load)

    def paced(self, tasks: Sequence[Task]) -> list[Task]:
        """Return tasks whose calls take as long as in a usual run."""
        return [replace(task, call_ns=task.call_ns * self.pace) for task in tasks]


def pace_of(trace: Trace, tasks: Sequence[Task], waits: Mapping[LaunchKey, float], measured_ns: float) -> float:
    """Return the time of the host's calls and functions in a usual run, as a share of the recorded one.

    A host has slow moments, and the run that is shown may lie in one. How long a run usually takes was ``measured_ns``, or is the median of
    unrecorded runs in the ledger, if that is NaN. The rest without kernels, copies and ``waits``, which are not slower then, is
    compared with the host's time in the recorded run. 1 where it did not wait for each launch, or for fewer than `_FEWEST_WAITS`.
    """
    if len(waits) != sum(has_call(task) for task in tasks) or len(waits) < _FEWEST_WAITS:
        return 1.0
    called = [task for task in tasks if task.on_host or has_call(task)]
    other_ns = sum(task.alone_ns for task in called) + sum(waits.values()) + _last_wait_ns(trace)
    usual_ns = float(trace.info.ledger.get("unrecorded_ns", 0.0)) if math.isnan(measured_ns) else measured_ns
    calls_ns = sum(task.call_ns for task in called)
    return float(np.clip((usual_ns - other_ns) / calls_ns, *_PACES)) if min(usual_ns, calls_ns) > 0 else 1.0


def host_of(trace: Trace, tasks: Sequence[Task], model: CostModel, measured_ns: float = math.nan) -> Host:
    """Return the host of a trace, given its tasks and the measured time of a run, if there is one."""
    waits = _waits_ns(trace, tasks, model)
    pace = pace_of(trace, tasks, waits, measured_ns)
    ratio = pace * _ratio([task.call_ns for task in tasks if _is_plain(task)], model.launch_ns)
    own = [wait for task in tasks if _is_plain(task) and (wait := waits.get(task.place)) is not None]
    known = own or list(waits.values())
    modelled_ns = model.launch_latency_ns + model.synchronize_return_ns
    both_ns = max(0.0, float(np.median(known))) if known else modelled_ns
    latency_ns = both_ns * model.launch_latency_ns / modelled_ns
    by_name: dict[str, list[float]] = {}
    for task in tasks:
        if task.place in waits and task.kind is LaunchKind.KERNEL:
            by_name.setdefault(task.name, []).append(both_ns - waits[task.place])
    scaled = replace(
        model,
        launch_latency_ns=max(latency_ns, _LEAST_NS),
        synchronize_return_ns=max(both_ns - latency_ns, _LEAST_NS),
        graph_launch_points=tuple((nodes, ratio * call_ns) for nodes, call_ns in model.graph_launch_points),
        graph_root_ns=ratio * model.graph_root_ns,
        graph_leaf_ns=ratio * model.graph_leaf_ns,
        event_record_ns=ratio * model.event_record_ns,
        stream_wait_ns=ratio * model.stream_wait_ns,
    )
    longer = 0.0 if trace.info.device.simulated else _share_of_longer(tasks, model)
    longer_node_gap_ns = _simulated_gap_ns(trace, model) if trace.info.device.simulated else longer * LONGER_NODE_GAP_NS
    scaled = replace(
        scaled,
        kernel_gap_ns=scaled.kernel_gap_ns + longer * LONGER_KERNEL_GAP_NS,
        graph_node_gap_ns=scaled.graph_node_gap_ns + longer_node_gap_ns,
    )
    tails_ns = {name: max(0.0, float(np.median(early))) for name, early in by_name.items()}
    # The last wait is for a stream of each GPU, one after the other.
    last_wait_ns = max(0.0, _last_wait_ns(trace) - len(trace.gpus) * scaled.synchronize_return_ns) if waits else 0.0
    return Host(scaled, tails_ns, last_wait_ns, pace, _links_of(trace.info.device))


def _links_of(device: DeviceInfo) -> LinkModel:
    """Return the links of a host by the name that `CudaDevice` gives it: as measured on this machine, else the built-in ones.

    A simulated host has another name, and the built-in links.
    """
    found = re.fullmatch(r"(?:simulated )?(\d+) × (.+)", device.name)
    return links_of(int(found[1]), found[2]) if found else LinkModel.load()


_LEAST_NS = 1.0
_NOT_PLAIN = Trait.COPY_IN | Trait.COPY_OUT | Trait.HOST | Trait.LIBRARY | Trait.CAPTURED


def _share_of_longer(tasks: Sequence[Task], model: CostModel) -> float:
    """Return which share of kernels is twice as long as the shortest that works; those between count in part.

    Those of libraries count as short: events time them 0.1 to 0.2 µs too long already, by CUPTI.
    """
    ratios = [0.0 if task.trait & Trait.LIBRARY else task.alone_ns / model.working_kernel_ns - 1 for task in tasks if not task.on_host]
    return float(np.clip(ratios, 0.0, 1.0).mean()) if ratios else 0.0


def _simulated_gap_ns(trace: Trace, model: CostModel) -> float:
    """Return by how much nodes of a simulated graph of captured code are further apart than the model's: as far as in its replay."""
    if traits_of(trace.info.engine) != frozenset({GRAPH}) or not len(trace.origins.captured):
        return 0.0
    gaps = stream_gaps(trace.spans, launch_ns=0)  # Whole, whatever they were spent on.
    return max(0.0, float(np.median(gaps.end_ns - gaps.start_ns)) - model.graph_node_gap_ns) if len(gaps.end_ns) else 0.0


def _is_plain(task: Task) -> bool:
    """Tell whether a task is a single kernel that the host launches with packed arguments."""
    return not task.has(_NOT_PLAIN)


def _ratio(calls_ns: Sequence[float], modelled_ns: float) -> float:
    known = [call_ns for call_ns in calls_ns if not math.isnan(call_ns)]
    return float(np.median(known)) / modelled_ns if known else 1.0


def _waits_ns(trace: Trace, tasks: Sequence[Task], model: CostModel) -> dict[LaunchKey, float]:
    """Return the time until the host went on after a launch, beyond the work's duration and the cost of recording.

    Of launches right before and right after which the host waited: for a collective once for each GPU. A wait for one stream is taken to be
    `_LONGEST_WAIT` times the model's at most.
    """
    spans = trace.spans
    host = np.flatnonzero((spans.kind < SpanKind.KERNEL) & (spans.kind != SpanKind.HOST))  # A host function leaves the device idle.
    wait = spans.kind[host] == SpanKind.SYNC
    # Of each call, the last wait of those right behind it; that at the end of the run is for nothing.
    others = np.flatnonzero(np.append(~wait, True))
    last = others[np.searchsorted(others, np.arange(len(host)), side="right")] - 1
    last -= (last == len(host) - 1) & (last > np.arange(len(host)) + 1)
    behind = np.append(True, wait[:-1])  # Else the wait is for what was launched before, too.
    waited = np.flatnonzero((spans.kind[host] == SpanKind.LAUNCH) & (last > np.arange(len(host))) & behind)
    launches, ends = host[waited], host[last[waited]]
    places = zip(spans.operation[launches].tolist(), spans.part[launches].tolist(), strict=True)
    beside_ns = {task.place: task.alone_ns + _event_ns(trace, task) for task in tasks if task.place[0] >= 0}
    waits_ns = (spans.end_ns[ends] - spans.end_ns[launches]).tolist()
    most_ns = _LONGEST_WAIT * (model.launch_latency_ns + model.synchronize_return_ns * (last - np.arange(len(host)))[waited])
    return {
        place: min(wait_ns - beside_ns[place], longest_ns)
        for place, wait_ns, longest_ns in zip(places, waits_ns, most_ns.tolist(), strict=True)
        if place in beside_ns
    }


def _event_ns(trace: Trace, task: Task) -> float:
    """Return the delay of a wait by an event behind a launch; stamped kernels have none."""
    stamped = bool(task.rows) and trace.spans.basis[task.rows[-1]] == Basis.MEASURED
    return 0.0 if task.on_host or stamped else float(trace.info.calibration.get("end_latency_ns", 0.0))


def _last_wait_ns(trace: Trace) -> float:
    """Return how long the last wait of the run took, if the wait before it left nothing to wait for."""
    spans = trace.spans
    host = np.flatnonzero(spans.kind < SpanKind.KERNEL)
    if len(host) > 1 and (spans.kind[host[-2:]] == SpanKind.SYNC).all():
        return float(spans.duration_ns[host[-1]])
    return 0.0
