"""Times of a program's kernels in its own runs, by launch: the check of the event recorder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamscope.engines.binding import BoundStep
from streamscope.engines.plan import Issue
from streamscope.recording.communication import call_of
from streamscope.recording.launch_kernels import LaunchKernel
from streamscope.recording.timed_run import launches_of
from streamscope.trace.spans import DEVICE_KINDS, SpanKind, SpanTable

_Key = tuple[int, int, int]
"""A launch: the host's step that put it on the device, its operation, and its part of that."""
Times = tuple[float, float]

_APART, _APART_NS = 0.03, 1000.0
"""Runs of a graph are alike where the times of its launches differ by so much of its length and so many ns more at most, in the mean."""


@dataclass(frozen=True)
class KernelTimes:
    """How long the launches of a program take in its own order, beside their neighbours and with its caches; times in ns.

    Runs are those that were recorded; of a program with graphs, the largest group in which these ran alike.
    """

    pieces: dict[_Key, tuple[LaunchKernel, ...]]
    """The kernels, copies and sets of each launch, since its start; medians of the runs."""
    in_replay_ns: dict[_Key, Times]
    """Start and end of each launch in a graph, counted from the end of its replay; medians of the runs."""
    transfers_ns: dict[_Key, Times]
    """How long each part of a collective transfers: at the least, as the shortest part; at the most, from when all have begun."""
    leads: dict[_Key, float]
    """By how much each part of a collective begins before part 0, as a share of the host's call for all parts; medians of the runs."""
    replays_ns: float
    """How long the replays of a run take together, from the first start to the last end of each; the median."""
    unrecorded_share: float = 1.0
    """Length of the graph without CUPTI over that with it; 1 where they are alike."""

    def of(self, steps: Sequence[BoundStep], replay: int | None = None) -> tuple[dict[int, float], dict[int, tuple[LaunchKernel, ...]]]:
        """Return duration and pieces of each launch among steps, by index; one that puts nothing on the device has none.

        ``replay`` is the host's step that replays the graph which the steps make; None for steps of the host itself.
        """
        launches = launches_of(steps)
        pieces = {index: self.pieces.get(key_of(steps[index], index, replay), ()) for index in launches}
        return {index: max((piece.end_ns for piece in own), default=0.0) for index, own in pieces.items()}, pieces


def key_of(bound: BoundStep, index: int, replay: int | None = None) -> _Key:
    """Return which launch a bound step is; ``index`` is its place among the host's steps, or ``replay`` that of its graph."""
    assert isinstance(bound.step, Issue)
    return call_of(bound.step, index) if replay is None else replay, bound.step.launch.operation, bound.step.launch.part


def kernel_times(runs: Sequence[SpanTable]) -> KernelTimes | None:
    """Return the medians of some recorded runs of one program; None where they have different kernels."""
    found = [_by_launch(spans) for spans in runs]
    first, *others = ({key: [(one.kind, one.symbol, one.graph_node) for one in own] for key, own in run.items()} for run in found)
    if any(other != first for other in others):
        return None
    inside = [key for key, own in found[0].items() if own[0].graph_node >= 0]
    times = np.array([[(_begin(run[key]), _end(run[key])) for key in inside] for run in found])
    replay = np.array([key[0] for key in inside])
    extent_ns, longest_ns = np.zeros(len(found)), 0.0
    for one in set(replay.tolist()):
        own = times[:, replay == one]
        end_ns = own[:, :, 1].max(axis=1)
        own_ns = end_ns - own[:, :, 0].min(axis=1)
        extent_ns, longest_ns = extent_ns + own_ns, max(longest_ns, float(np.median(own_ns)))
        times[:, replay == one] -= end_ns[:, None, None]
    if inside:
        kept = _most_alike(times, _APART_NS + _APART * longest_ns)
        found, times, extent_ns = [found[run] for run in kept], times[kept], extent_ns[kept]
        runs = [runs[run] for run in kept]
    # Medians of times that are in order in each run are in order, too: what depends on another begins after it.
    medians = np.median(times, axis=0).tolist() if inside else []
    return KernelTimes(
        {key: _medians([run[key] for run in found]) for key in first},
        {key: (start, end) for key, (start, end) in zip(inside, medians, strict=True)},
        _transfers_ns(found),
        _leads(runs, found),
        float(np.median(extent_ns)),
    )


def _most_alike(times: npt.NDArray[np.float64], apart_ns: float) -> list[int]:
    """Return the run that most others are alike, and these; all runs where no two are alike.

    Some graphs run in two ways or more: two kernels become ready together, and either may begin first. A median of both is neither.
    """
    apart = np.abs(times[:, None] - times[None]).mean(axis=(2, 3))
    near = apart <= apart_ns
    middle = np.lexsort((apart.sum(axis=1), -near.sum(axis=1)))[0]
    return np.flatnonzero(near[middle] | (near.sum() == len(near))).tolist()


def _transfers_ns(found: Sequence[Mapping[_Key, Sequence[LaunchKernel]]]) -> dict[_Key, Times]:
    """Return `KernelTimes.transfers_ns`; waiting is left out, since another part may wait in another run."""
    parts: dict[tuple[int, int], list[_Key]] = {}
    for key in found[0]:
        parts.setdefault(key[:2], []).append(key)
    transfers: dict[_Key, Times] = {}
    for keys in parts.values():
        begins, ends = (np.array([[of(run[key]) for key in keys] for run in found]) for of in (_begin, _end))
        longest_ns = (ends - begins.max(axis=1, keepdims=True)).max(axis=0)
        transfers.update({key: (float((ends - begins).min()), own_ns) for key, own_ns in zip(keys, longest_ns.tolist(), strict=True)})
    return transfers


def _leads(runs: Sequence[SpanTable], found: Sequence[Mapping[_Key, Sequence[LaunchKernel]]]) -> dict[_Key, float]:
    """Return `KernelTimes.leads`, of runs in which part 0, the last to be launched, begins within the call: then its stream was free.

    Differences alone count: how far CUPTI's clock is off that of the host's calls is in both.
    """
    later = [key for key in found[0] if key[2] and (*key[:2], 0) in found[0]]
    leads: dict[_Key, list[float]] = {}
    for spans, own in zip(runs, found, strict=True):
        calls = spans.of_kind([SpanKind.LAUNCH])
        columns = (calls.correlation, calls.start_ns, calls.end_ns)
        times = {call: (start, end) for call, start, end in zip(*(column.tolist() for column in columns), strict=True)}
        for key in later:
            last_ns = _begin(own[*key[:2], 0])
            start, end = times.get(key[0], (0, 0))
            if start < last_ns < end:
                leads.setdefault(key, []).append((last_ns - _begin(own[key])) / (end - start))
    return {key: float(np.median(shares)) for key, shares in leads.items()}


def _begin(pieces: Sequence[LaunchKernel]) -> float:
    return min(one.start_ns for one in pieces)


def _end(pieces: Sequence[LaunchKernel]) -> float:
    return max(one.end_ns for one in pieces)


def _by_launch(spans: SpanTable) -> dict[_Key, list[LaunchKernel]]:
    """Return the kernels, copies and sets of each launch, those of a graph in the order of its nodes, others in that of their starts."""
    work = spans.of_kind(DEVICE_KINDS)
    order = np.lexsort((work.start_ns, work.graph_node))
    columns = (work.correlation, work.operation, work.part, work.kind, work.start_ns, work.end_ns, work.symbol, work.blocks, work.threads)
    found: dict[_Key, list[LaunchKernel]] = {}
    for *key, kind, start, end, symbol, blocks, threads, node in zip(
        *(column[order].tolist() for column in (*columns, work.graph_node)), strict=True
    ):
        name = work.names[symbol] if symbol >= 0 else ""
        found.setdefault((key[0], key[1], key[2]), []).append(LaunchKernel(SpanKind(kind), start, end, name, blocks, threads, node))
    return found


def _medians(runs: Sequence[Sequence[LaunchKernel]]) -> tuple[LaunchKernel, ...]:
    """Return the pieces of one launch with the medians of their times, counted from its start."""
    times = np.array([[(piece.start_ns, piece.end_ns) for piece in own] for own in runs])
    starts = np.median(times[:, :, 0] - times[:, :, 0].min(axis=1, keepdims=True), axis=0)
    lengths = np.median(times[:, :, 1] - times[:, :, 0], axis=0)
    return tuple(
        LaunchKernel(one.kind, float(start), float(start + length), one.symbol, one.blocks, one.threads, one.graph_node)
        for one, start, length in zip(runs[0], starts, lengths, strict=True)
    )
