"""Several GPUs in one timeline: the words of each one's header, the slowest one, parts of collectives, copies from one to another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from streamscope.analysis import collective_times, gpu_busy_ns, span_ns, waited_for_ns, work_split
from streamscope.analysis.collectives import bus_factor
from streamscope.arrays import IntArray
from streamscope.trace import Trace
from streamscope.words import binary_size, counted, percent, time_text
from streamscope_widgets.columns import ColumnBlock

WORTH_MARKING = 0.02
"""A GPU that takes this share longer than the others, or makes them wait for this share of the run, is marked as the slowest."""

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
    """Why it is the slowest of them; empty if it is not, or none is."""
    details: tuple[tuple[str, str], ...] = ()
    """Terms and values of its tooltip."""
    folded: bool = False
    """Whether it shows its lane "at once" only, at first."""

    def header(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {**self.__dict__, "words": list(self.words), "details": [list(term) for term in self.details]}


def gpu_words(trace: Trace) -> tuple[GpuWords, ...]:
    """Return the words of each GPU of a trace; one without words where it has no two."""
    if len(trace.gpus) < 2:
        return (GpuWords(trace.gpus[0] if trace.gpus else 0),)
    run_ns = max(1, span_ns(trace.spans))
    parts, slowest = collective_times(trace), _slowest(trace, run_ns)
    found = []
    for gpu in trace.gpus:
        own = trace.of_gpu(gpu)
        work, busy_ns = work_split(own), gpu_busy_ns(own.spans)
        waiting_ns = int(parts.waiting_ns[parts.gpu == gpu].sum())
        times = [("busy", busy_ns), ("exposed communication", work.exposed_communication_ns), ("waiting", waiting_ns)]
        told = times if parts.known.any() else times[:2]
        details = [
            ("GPU busy", busy_ns), ("kernels that compute", work.compute_ns), ("exposed communication", work.exposed_communication_ns),
            ("hidden communication", work.hidden_communication_ns), ("collectives wait for other GPUs", waiting_ns),
        ]  # fmt: skip
        found.append(
            GpuWords(
                gpu,
                f"GPU {gpu}",
                tuple(f"{what} {percent(time_ns / run_ns)}" for what, time_ns in told),
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
    """Name the slowest GPU of a run, and say why it is; empty where none is."""
    return next((f"GPU {each.gpu} is the {each.slowest}" for each in words if each.slowest), "")


def _slowest(trace: Trace, run_ns: int) -> dict[int, str]:
    """Return the slowest GPU and why it is: the one that others wait for in collectives; without collectives, the longest busy."""
    times = collective_times(trace)
    if times.known.any():
        waited_ns = np.array([waited_for_ns(trace, gpu) or 0 for gpu in trace.gpus])
        place = int(waited_ns.argmax())
        each_ns = waited_ns[place] / (len(waited_ns) - 1)
        if each_ns < WORTH_MARKING * run_ns or 2 * waited_ns[place] < waited_ns.sum():
            return {}
        last = np.unique(times.last[times.known])
        begun = f"begins {(trace.spans.gpu[last] == trace.gpus[place]).sum()} of {counted(len(last), 'collective')} last"
        return {trace.gpus[place]: f"slowest: {begun}, the others wait {time_text(each_ns)} each"}
    compute_ns = np.array([work_split(trace.of_gpu(gpu)).compute_ns for gpu in trace.gpus])
    place = int(compute_ns.argmax())
    others_ns = np.median(np.delete(compute_ns, place))
    if compute_ns[place] <= (1 + WORTH_MARKING) * others_ns:
        return {}
    return {trace.gpus[place]: f"slowest: computes {percent((compute_ns[place] - others_ns) / max(others_ns, 1))} longer than the others"}


def _bytes_per_s(trace: Trace, last: IntArray) -> IntArray:
    """Return the bus bandwidth of each part's collective, by the row of its part that began last; 0 where it is not known."""
    found, spans, kinds = trace.collectives, trace.spans, trace.collectives.words("kind")
    speed = np.zeros(len(found), np.int64)
    order = np.argsort(last, kind="stable")[(last < 0).sum() :]
    for rows in np.split(order, np.flatnonzero(np.diff(last[order])) + 1) if len(order) else []:
        ranks = int(found.ranks[rows[0]]) or len(np.unique(spans.gpu[found.span[rows]]))
        factor = bus_factor(kinds[int(rows[0])], ranks)
        took_ns = int(spans.end_ns[found.span[rows]].max() - spans.start_ns[last[rows[0]]])
        if factor and took_ns > 0:
            speed[rows] = int(found.nbytes[rows].max()) * factor / took_ns * 1e9
    return speed


def encode_collectives(trace: Trace, block: ColumnBlock) -> dict[str, Any]:
    """Encode the parts of collectives, as `CollectivesHeader` in ``header.js`` has them; nothing where there are none."""
    found = trace.collectives
    if not len(found):
        return {}
    times = collective_times(trace)
    terms: dict[tuple[tuple[str, str], ...], int] = {}
    kind, op, communicator = map(found.words, ("kind", "op", "communicator"))
    rows = zip(kind, op, found.nbytes.tolist(), communicator, found.ranks.tolist(), strict=True)
    told = [terms.setdefault(_terms(*row), len(terms)) for row in rows]
    return {
        "collectives": {
            "count": len(found),
            "words": [[list(term) for term in each] for each in terms],
            "instance": block.add_codes(np.where(times.known, found.instance, -1)),
            "waiting": block.add(times.waiting_ns),
            "last": block.add(np.searchsorted(trace.gpus, trace.spans.gpu[times.last])),
            "bandwidth": block.add(_bytes_per_s(trace, times.last)),
            "told": block.add(np.array(told)),
        }
    }


def _terms(kind: str, op: str, nbytes: int, communicator: str, ranks: int) -> tuple[tuple[str, str], ...]:
    """Return what a tooltip says of a collective, whichever part it is of."""
    terms = (
        ("collective", ", ".join(filter(None, (kind.replace("_", "-"), op)))), ("size", binary_size(nbytes) if nbytes else ""),
        ("communicator", ", ".join(filter(None, (communicator, counted(ranks, "GPU") if ranks else "")))),
    )  # fmt: skip
    return tuple((term, value) for term, value in terms if value)


def waiting_ns_of(trace: Trace) -> IntArray:
    """Return for each span how long it waits for other GPUs, as part of a collective; int64."""
    waiting_ns = np.zeros(len(trace.spans), np.int64)
    waiting_ns[trace.collectives.span] = collective_times(trace).waiting_ns
    return waiting_ns


def joint_columns(trace: Trace) -> dict[str, IntArray]:
    """Return for each span its row among the collectives, -1 for none, and the GPUs of a copy as ``peer`` of ``header.js`` has them.

    A column that has nothing to say is left out.
    """
    columns = {}
    if len(trace.collectives):
        columns["collective"] = np.full(len(trace.spans), -1)
        columns["collective"][trace.collectives.span] = np.arange(len(trace.collectives))
    if len(trace.peers) and len(trace.gpus) > 1:
        ends = [np.isin(gpus, trace.gpus) for gpus in (trace.peers.from_gpu, trace.peers.to_gpu)]
        known = ends[0] & ends[1]
        places = [np.searchsorted(trace.gpus, gpus[known]) for gpus in (trace.peers.from_gpu, trace.peers.to_gpu)]
        columns["peer"] = np.zeros(len(trace.spans), np.int64)
        columns["peer"][trace.peers.span[known]] = 1 + 256 * places[0] + places[1]
    return columns
