"""Several GPUs in one timeline: the words of each one's header, the slowest one, parts of collectives, copies from one to another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from streamscope.analysis import CollectiveTimes, collective_times, span_ns
from streamscope.analysis.collectives import awaited, bus_times
from streamscope.arrays import IntArray
from streamscope.trace import Trace
from streamscope.words import binary_size, counted, lane_prefix, percent, time_text
from streamscope_widgets.columns import ColumnBlock
from streamscope_widgets.gpu_activity import GpuActivity

WORTH_MARKING = 0.02
"""A GPU that computes this share longer than the others is marked as the slowest."""

MOST_ROWS = 18
"""With more rows of streams than this, GPUs are collapsed at first."""


@dataclass(frozen=True)
class GpuWords:
    """What the header of one GPU says."""

    gpu: int
    name: str = ""
    words: tuple[str, ...] = ()
    """Its metrics, in the order of their columns."""
    slowest: str = ""
    """Why it is the slowest of them, or the late one; empty if it is not, or none is."""
    details: tuple[tuple[str, str], ...] = ()
    """Terms and values of its tooltip."""
    folded: bool = False
    """Whether it shows its lane "at once" only, at first."""

    def header(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {**self.__dict__, "words": list(self.words), "details": [list(term) for term in self.details]}


def gpu_words(trace: Trace, activities: Sequence[GpuActivity]) -> tuple[GpuWords, ...]:
    """Return the words of each GPU of a trace; one without words where it has no two.

    ``activities``: of each GPU, while all of the trace's spans run.
    """
    if len(trace.gpus) < 2:
        return (GpuWords(trace.gpus[0] if trace.gpus else 0),)
    run_ns, times = max(1, span_ns(trace.spans)), collective_times(trace)
    slowest = _slowest(trace, activities, times)
    found = []
    for gpu, activity in zip(trace.gpus, activities, strict=True):
        # These are `gpu_busy_ns`, `exposed_communication_ns` and `hidden_communication_ns`: their unions are worked out already.
        busy_ns, computing = activity.time_ns(activity.kernels > 0), activity.kernels > activity.collectives
        communicating = activity.collectives + activity.peers > 0
        exposed_ns, hidden_ns = activity.time_ns(communicating & ~computing), activity.time_ns(communicating & computing)
        waiting_ns = int(times.waiting_ns[times.gpu == gpu].sum())
        told = [("busy", busy_ns), ("exposed communication", exposed_ns), ("waiting", waiting_ns)]
        details = [
            ("GPU busy", busy_ns), ("kernels that compute", activity.time_ns(computing)), ("exposed communication", exposed_ns),
            ("hidden communication", hidden_ns), ("collectives wait for other GPUs", waiting_ns),
        ]  # fmt: skip
        found.append(
            GpuWords(
                gpu,
                f"GPU {gpu}",
                tuple(f"{what} {percent(time_ns / run_ns)}" for what, time_ns in told[: 3 if times.known.any() else 2]),
                slowest.get(gpu, ""),
                tuple((what, f"{time_text(time_ns)}, {percent(time_ns / run_ns)}") for what, time_ns in details),
            )
        )
    return tuple(found)


def fold(gpus: Sequence[Sequence[GpuWords]], rows: int) -> tuple[tuple[GpuWords, ...], ...]:
    """Decide which GPUs of each group begin collapsed, where all of them have so many rows of streams.

    None where the rows fit. Else one run shows the slowest GPU beside one other to compare it with, and several runs show none.
    """
    open_ones = 0 if sum(len(words) > 1 for words in gpus) > 1 else 2
    found = []
    for words in gpus:
        shown = sorted(words, key=lambda each: not each.slowest)[:open_ones]
        fits = rows <= MOST_ROWS or len(words) < 2
        found.append(tuple(each if fits or each in shown else replace(each, folded=True) for each in words))
    return tuple(found)


def slowest_words(words: Sequence[GpuWords]) -> str:
    """Name the slowest GPU of a run, or the late one, and say why it is; empty where none is."""
    late = next((each for each in words if each.slowest), None)
    return "" if late is None else f"GPU {late.gpu} {'is the' if late.slowest.startswith('slowest') else 'was'} {late.slowest}"


def _slowest(trace: Trace, activities: Sequence[GpuActivity], times: CollectiveTimes) -> dict[int, str]:
    """Return the GPU that others wait for in collectives, and why; without collectives, the one that computes longest."""
    if times.known.any():
        late = awaited(trace, times)
        if late is None:
            return {}
        begun = f"begins {late.begun_last} of {counted(late.collectives, 'collective')} last, {late.wait}"
        return {late.gpu: f"slowest: {begun}" if late.works_longer else f"launched later, has no more work: {begun}"}
    compute_ns = np.array([each.time_ns(each.kernels > each.collectives) for each in activities])
    place = int(compute_ns.argmax())
    others_ns = np.median(np.delete(compute_ns, place))
    if compute_ns[place] <= (1 + WORTH_MARKING) * others_ns:
        return {}
    return {trace.gpus[place]: f"slowest: computes {percent((compute_ns[place] - others_ns) / max(others_ns, 1))} longer than the others"}


def _bytes_per_s(trace: Trace) -> IntArray:
    """Return the bus bandwidth of each part's collective; 0 where it is not known."""
    which, bus_bytes, time_ns = bus_times(trace)
    return (bus_bytes * 1e9 / np.maximum(time_ns, 1)).astype(np.int64)[which]


def encode_collectives(trace: Trace, block: ColumnBlock) -> dict[str, Any]:
    """Encode the parts of collectives, as `CollectivesHeader` in ``header.js`` has them; nothing where there are none."""
    found = trace.collectives
    if not len(found):
        return {}
    times = collective_times(trace)
    columns = np.stack([found.kind, found.op, found.nbytes, found.communicator, found.ranks], axis=1)
    alike, told = np.unique(columns, axis=0, return_inverse=True)
    texts = (*found.texts, "")
    return {
        "collectives": {
            "count": len(found),
            "words": [_terms(texts[kind], texts[op], nbytes, texts[name], ranks) for kind, op, nbytes, name, ranks in alike.tolist()],
            "instance": block.add_codes(np.where(times.known, found.instance, -1)),
            "waiting": block.add(times.waiting_ns),
            "last": block.add(np.searchsorted(trace.gpus, trace.spans.gpu[times.last])),
            "bandwidth": block.add(_bytes_per_s(trace)),
            "told": block.add(told),
        }
    }


def _terms(kind: str, op: str, nbytes: int, communicator: str, ranks: int) -> list[list[str]]:
    """Return what a tooltip says of a collective, whichever part it is of."""
    terms = (
        ("collective", ", ".join(filter(None, (kind.replace("_", "-"), op)))), ("size", binary_size(nbytes) if nbytes else ""),
        ("communicator", ", ".join(filter(None, (communicator, counted(ranks, "GPU") if ranks else "")))),
    )  # fmt: skip
    return [[term, value] for term, value in terms if value]


def waiting_ns_of(trace: Trace) -> IntArray:
    """Return for each span how long it waits for other GPUs, as part of a collective; int64."""
    waiting_ns = np.zeros(len(trace.spans), np.int64)
    waiting_ns[trace.collectives.span] = collective_times(trace).waiting_ns
    return waiting_ns


def joint_columns(trace: Trace) -> dict[str, IntArray]:
    """Return for each span its row among the collectives, -1 for none, and the lane of a copy on its other GPU, 0 for none.

    A column that has nothing to say is left out. Lanes on other GPUs are counted after the trace's own, as `far_lanes` has them.
    """
    columns = {}
    if len(trace.collectives):
        columns["collective"] = np.full(len(trace.spans), -1)
        columns["collective"][trace.collectives.span] = np.arange(len(trace.collectives))
    span, _, way = _far_ends(trace)
    if len(span):
        columns["far"] = np.zeros(len(trace.spans), np.int64)
        columns["far"][span] = len(trace.spans.lanes) + way
    return columns


def far_lanes(trace: Trace) -> list[dict[str, Any]]:
    """Return the lanes of copies on the GPUs of which no stream has them, as `LaneHeader` in ``header.js``.

    A copy is on a stream of one GPU, and occupies a copy engine of both.
    """
    _, ways, _ = _far_ends(trace)
    lanes = []
    for gpu, source, target in ways.tolist():
        way = f"from GPU {source}" if gpu == target else f"to GPU {target}"
        lanes.append({"name": lane_prefix(gpu) + way, "host": False, "gpu": gpu, "ends": [source, target]})
    return lanes


def _far_ends(trace: Trace) -> tuple[IntArray, IntArray, IntArray]:
    """Return the rows of copies between GPUs of a trace; each way of theirs as the GPU that has them not, source and target; their ways."""
    peers, gpus = trace.peers, trace.gpus
    here = trace.spans.gpu[peers.span]
    far = np.where(here == peers.from_gpu, peers.to_gpu, peers.from_gpu)
    between = (far != here) & ((here == peers.from_gpu) | (here == peers.to_gpu)) & np.isin(far, gpus)
    ways = np.stack([far, peers.from_gpu, peers.to_gpu], axis=1)[between]
    return peers.span[between], *np.unique(ways, axis=0, return_inverse=True)
