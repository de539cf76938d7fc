"""Who made collectives late, and why: the rank, and its kernel, call or idle time that the other ranks do not have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from streamscope.analysis.intervals import Intervals, union
from streamscope.analysis.work import Work, work_of
from streamscope.arrays import BoolArray, FloatArray, IntArray
from streamscope.ranks.clocks import Clocks
from streamscope.ranks.matching import BOTH_WAYS, MESSAGES, TOGETHER, Matched
from streamscope.ranks.named_work import EXPLAINS, NamedWork, alone, by_name, labels, range_of
from streamscope.ranks.rank import Rank
from streamscope.ranks.steps import JobSteps, is_step
from streamscope.ranks.waiting import Coverage, Waits
from streamscope.trace.joins import call_rows
from streamscope.trace.spans import DEVICE_KINDS, HOST_KINDS, SpanKind
from streamscope.words import counted, percent, time_text

_LEAST_NS = 5_000
"""A rank that begins later by less is not late."""
_TIMES_JITTER = 6.0
"""A rank is late where it begins so many times later than it usually scatters."""
_TIMES_NOISE = 4.0
"""And so many times later than the clocks' estimates scatter."""
_WORTH_SAYING, _ALL_WORTH_SAYING, _ONE_WORTH_SAYING = 0.01, 0.03, 0.1
"""Late ranks are told where one that is late most often, or clearly, costs this share of the time, where all together cost this share of
it, or where one of them once costs this share of a step."""
_OF_TWO = 1.3
"""The lesser scatter of two sides that are alike is so many times too small, of a dozen values."""
_SIDES = 6
"""Of fewer values, a side has too few to tell how they scatter."""
_CLEARLY = 2.0
"""A rank is clearly late by so many times what makes it late at all: by chance, 1.4 times was the most in 134 jobs without a straggler."""
_PART = 0.1
"""Of ranks, those that cost this part of what all late ranks cost are told."""
_MOST_RANKS = 16
_MOST_COMPARED = 64
"""Ranks that a late one is compared with."""
_CARRIED = 0.15
"""A difference also has to explain this part of a rank's lateness over all collectives, to some of which it was carried on."""
_TIMES_PACE = 2.5
"""Hosts that do the same differ by less while a recorder slows them: by up to 2.2 in 233 of 234 recorded jobs."""
_NEW = 0.5
"""Lateness begins where this part of it was not there at the collective before."""
_OFTEN = 0.6
_LEAST_STEPS = 3
"""Of fewer steps, what a GPU has to do in each may be chance."""
_NO_CHANCE = 4.0
"""Several events on one rank are no chance where they would be less often than one in so many: three of 2 ranks, two of 4."""


@dataclass(frozen=True)
class Late:
    """A rank for which others wait.

    Attributes
    ----------
    rank : int
    times, of : int
        In how many collectives it was late, of how many that it took part in.
    median_us : float
        How much later it began those than the median of the other ranks.
    share_of_step : float, optional
        Part of all steps in which the others wait for it in collectives and compute nothing. None where it is late in no step that is
        known, or in messages alone: stages of a pipeline would wait for each other also if none were late.
    cause : str
        ``"kernel"``: one that takes longer; ``"more work"``: kernels that the others do not have, or not as often; ``"slow GPU"``: all
        kernels take longer; ``"copy"``; ``"host call"``: a call or range of the host during which its GPU idles; ``"host late"``: its GPU
        idles, and no call explains it; ``"link"``: its transfers take longer; ``"unknown"``.
    where : str
        Name of the kernel, call or communicator; of the kernel behind the idle time, where the host was late. Empty where there is none.
    pattern : str
        ``"persistent"``: in most steps; ``"moving"``: in some, others or none are late in the rest; ``"once"``; or ``"hidden"``: its GPU
        has more to do in each step than those of the other ranks, by ``median_us``, and nobody waits for it. Then ``times`` is 0.
    cost_us : float
        What the others waited for it in all, in their median, and computed nothing.
    under : str
        Module or range that launched the kernel of the cause; empty where that is not known.
    """

    rank: int
    times: int
    of: int
    median_us: float
    share_of_step: float | None
    cause: str
    where: str
    pattern: str
    cost_us: float
    under: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "rank": self.rank,
            "times": self.times,
            "of": self.of,
            "median_us": self.median_us,
            "share_of_step": self.share_of_step,
            "cause": self.cause,
            "where": self.where,
            "under": self.under,
            "pattern": self.pattern,
        }

    @property
    def words(self) -> str:
        """The finding as a sentence."""
        of = counted(self.of, "collective")
        often = {"once": f"once, in one of {of}", "moving": f"now and then, in {self.times:,} of {of}"}.get(
            self.pattern, f"in {self.times:,} of {of}"
        )
        share = "" if self.share_of_step is None else f", which costs {percent(self.share_of_step)} of the steps"
        reason = _REASONS[self.cause].format(where=f"{self.where} under {self.under}" if self.under else self.where)
        if self.pattern == "hidden":
            more = f"Rank {self.rank} has {time_text(self.median_us * 1000)} more to do in each step than other ranks"
            return f"{more}, but the others do not wait for that: hosts or transfers hold all up for longer. {reason}"
        return f"Rank {self.rank} is late {often}, by {time_text(self.median_us * 1000)}{share}. {reason}"


_REASONS = {
    "kernel": "The cause is the kernel {where}, which takes longer there.",
    "more work": "The cause is more work than on the other ranks: {where}.",
    "slow GPU": "The cause is its GPU: all kernels take longer there.",
    "copy": "The cause is the copy {where}, which takes longer there.",
    "host call": "Its GPU idles, and the cause is {where} on the host.",
    "host late": "Its GPU idles: the host launches {where} late.",
    "link": "The cause is the link: transfers of {where} take longer there.",
    "unknown": "What makes it late is not in the traces.",
    "pace": "Its host launches everything more slowly. Hosts differ so while they are recorded: measure the step without a recorder.",
    "order": "One simulated host launches for all ranks, and for this one last.",
}


_UNKNOWN = ("unknown", "", "")
PACES = frozenset({"pace", "order"})
"""Causes that are no rank's own: its host does all more slowly, by less than hosts that do the same may differ; or one host launches for
all ranks, one after the other."""
_OF_HOSTS = frozenset({"host call", "host late"})


def late_ranks(
    ranks: Sequence[Rank], matched: Matched, clocks: Clocks, waits: Waits, steps: JobSteps, length_ns: float
) -> tuple[Late, ...]:
    """Name the ranks that make collectives late, worst first.

    A rank is late in a collective that it begins last, and later than the median of the others by six times its usual scatter, four times
    the noise of the clocks, and 5 µs; but not in messages that do not say which way they went. Where it is late again and again, its
    median counts, which scatters less. The cost is how long the others wait exposed, in their median, with the communication that the
    waiting pushes out from under their computing. Late ranks are named where one that is late most often, or by twice as much as it has
    to be, costs 1 % of the time, all together cost 3 %, or one of them once costs 10 % of a step.

    What repeats has to stand out from the medians of all ranks, and what a host does from what the same calls take elsewhere at a slow
    pace: hosts that do the same differ while they are recorded. Where no rank is late in most steps, those are told whose GPUs have more
    to do in each, if they are not late for just that now and then.
    """
    found = _told(ranks, matched, waits, steps, length_ns, *_events(matched, clocks, waits, steps))
    if any(late.pattern == "persistent" and late.cause not in (_UNKNOWN[0], *PACES) for late in found):
        return found
    hidden = {late.rank: late for late in _hidden(ranks, matched, waits, steps)}
    explained = list[Late]()
    for late in found:
        more = hidden.pop(late.rank, None) if late.cause == _UNKNOWN[0] else None
        explained.append(late if more is None else replace(late, cause=more.cause, where=more.where, under=more.under))
    named = {(late.rank, late.where or late.cause) for late in explained}
    return (*explained, *(late for late in hidden.values() if (late.rank, late.where or late.cause) not in named))


def _hidden(ranks: Sequence[Rank], matched: Matched, waits: Waits, steps: JobSteps) -> list[Late]:
    """Return the ranks whose GPUs have more to do in each step than those of their peers, also where nobody waits for them.

    Where hosts hold all GPUs up, as they do while they are recorded, the pace of each host decides who is late.
    """
    found, known = list[Late](), np.flatnonzero(waits.known)
    there, first, times = np.unique(matched.parts.rank[known], return_index=True, return_counts=True)
    ends = dict(zip(there.tolist(), matched.parts.span[known[np.stack([first, first + times - 1], axis=1)]], strict=True))
    for peers, stages in _peers(matched, known) if len(steps) >= _LEAST_STEPS else []:
        between = [ranks[at].trace.spans.start_ns[ends[at]] for at in peers]
        loads, length_ns = alone([ranks[at] for at in peers], between), float(np.ptp(between[0]))
        count = length_ns / max(1.0, float(np.median(steps.length_ns)))
        worth_ns = max(_ALL_WORTH_SAYING * length_ns, _LEAST_NS * count)
        for place in np.argsort([-load.all_ns for load in loads], kind="stable")[:_MOST_RANKS].tolist():
            others = [*loads[:place], *loads[place + 1 :]]
            more_ns, cause, where = _excess(loads[place], others, worth_ns, _OFTEN * count, stages=stages)
            if cause:
                rank, of = ranks[peers[place]], int(times[there == peers[place]][0])
                found.append(Late(rank.number, 0, of, more_ns / count / 1e3, 0.0, cause, where, "hidden", 0.0, range_of(rank, where)))
    return sorted(found, key=lambda late: -late.median_us)


def _excess(load: NamedWork, others: Sequence[NamedWork], worth_ns: float, often: float, *, stages: bool) -> tuple[float, str, str]:
    """Return how much more a GPU has to do than others, with cause and name; no cause where it is little, chance, or of no one name."""
    elsewhere = frozenset(name for each in others for name in each.ns)
    excess_ns = {name: ns for name, ns in load.excess(others).items() if not stages or name not in elsewhere}
    more_ns = sum(excess_ns.values())
    if more_ns < max(worth_ns, _TIMES_JITTER * np.hypot(load.noise_ns, np.median([each.noise_ns for each in others]))):
        return 0.0, "", ""
    cause, where = load.cause(others, EXPLAINS * more_ns, elsewhere)
    explains = excess_ns.get(where, 0.0) >= EXPLAINS * more_ns and load.counts.get(where, 0.0) >= often
    return (more_ns, cause, where) if explains or cause == "slow GPU" else (0.0, "", "")


def _peers(matched: Matched, known: IntArray) -> list[tuple[list[int], bool]]:
    """Return the ranks that do the same work, those of the communicator in which each meets most often; and whether they are stages.

    Stages of a pipeline exchange messages alone, and do different things.
    """
    parts = matched.parts
    count = np.zeros((int(parts.rank.max(initial=0)) + 1, int(parts.communicator.max(initial=0)) + 1), np.int64)
    together = known[parts.is_kind(TOGETHER)[known]]
    np.add.at(count, (parts.rank[together], parts.communicator[together]), 1)
    most = np.where(count.any(axis=1), count.argmax(axis=1), -1)
    there = np.unique(parts.rank[known])
    groups = [(there[most[there] == one].tolist(), one < 0) for one in np.unique(most[there]).tolist()]
    return [(peers, stages) for peers, stages in groups if len(peers) > 1]


def _told(
    ranks: Sequence[Rank],
    matched: Matched,
    waits: Waits,
    steps: JobSteps,
    length_ns: float,
    events: IntArray,
    clearly: BoolArray,
) -> tuple[Late, ...]:
    """Return the ranks that late parts are of, worst first, if what they cost is worth telling."""
    if not len(events):
        return ()
    rank = matched.parts.rank[events]
    all_costs_ns = _costs_ns(matched, waits, _pushed_ns(ranks, matched, waits, steps, events))[matched.operation]
    cost_ns = all_costs_ns[events]
    whole_ns = float(steps.length_ns.sum()) or length_ns
    step_ns = float(np.median(steps.length_ns)) if len(steps) else length_ns
    of_rank, times = np.bincount(rank, weights=cost_ns, minlength=len(ranks)), np.bincount(rank, minlength=len(ranks))
    most_often = (float(len(ranks)) ** np.minimum(times - 1, 8) >= _NO_CHANCE) & (times >= _OFTEN * len(events))
    no_chance = most_often | (np.bincount(rank, weights=clearly, minlength=len(ranks)) > 0)
    if not (
        (no_chance & (of_rank >= _WORTH_SAYING * whole_ns)).any()
        or cost_ns.sum() >= _ALL_WORTH_SAYING * whole_ns
        or cost_ns.max() >= _ONE_WORTH_SAYING * step_ns
    ):
        return ()
    found = []
    for at in np.argsort(-of_rank, kind="stable")[:_MOST_RANKS].tolist():
        own = events[rank == at]
        if of_rank[at] < _PART * cost_ns.sum() or not len(own):
            continue
        cause, where, under = _cause(ranks, matched, waits, at, own)
        latest = own[[waits.late_ns[own].argmax()]]
        if cause in _OF_HOSTS and len(own) > 1 and _cause(ranks, matched, waits, at, np.setdiff1d(own, latest))[0] in PACES:
            own = latest  # A host that stumbles once is no slow one.
        own_ns = float(all_costs_ns[own].sum())
        if cause == "waiting" or own_ns < _PART * cost_ns.sum():
            continue  # Another rank is late before, and is named.
        pattern = _pattern(waits, steps, own, events)
        known = int((waits.known & (matched.parts.rank == at)).sum())
        inside = own[steps.at(waits.start_ns[own]) >= 0]  # Those that are found by repetition begin behind the first collectives.
        inside = inside[~matched.parts.is_kind(MESSAGES)[inside]]  # Bubbles of a pipeline are no cost of a late rank.
        share = float(all_costs_ns[inside].sum() / steps.length_ns.sum()) if len(inside) else None
        median_us = float(np.median(waits.late_ns[own])) / 1e3
        found.append(Late(ranks[at].number, len(own), known, median_us, share, cause, where, pattern, own_ns / 1e3, under))
    return tuple(found)


def _pattern(waits: Waits, steps: JobSteps, own: IntArray, events: IntArray) -> str:
    """Return how often a rank is late: in one collective, in most steps, or in some. Where no steps are known, events stand for them."""
    if len(own) == 1:
        return "once"
    late, of = (len(np.unique(steps.at(waits.start_ns[own]))), len(steps)) if len(steps) else (len(own), len(events))
    return "persistent" if late >= _OFTEN * of else "moving"


def _events(matched: Matched, clocks: Clocks, waits: Waits, steps: JobSteps) -> tuple[IntArray, BoolArray]:
    """Return the parts that began last, and late: by much, or again and again at one place in a step. Also tell which are clearly late.

    A median of so many scatters less than one of them, by the root of their number; it also has to stand out from those of all ranks.
    """
    parts = matched.parts
    known = np.flatnonzero(waits.known)
    last = np.unique(waits.last[known])
    if not len(last):
        return last, np.zeros(0, bool)
    noise_ns = np.where(np.isfinite(clocks.noise_ns), clocks.noise_ns, clocks.error_ns)
    noise_ns = np.maximum(_LEAST_NS, _TIMES_NOISE * np.maximum(noise_ns, float(np.median(noise_ns))))
    least_ns = (noise_ns + clocks.assumed_ns)[parts.rank]
    columns = [parts.nbytes, parts.kind, parts.communicator, parts.rank]
    _, _, scatter_ns = _typical(waits, known, columns, one_side=True)
    limit_ns = np.maximum(least_ns, _TIMES_JITTER * scatter_ns)
    late = waits.late_ns > limit_ns
    known = known[parts.is_kind(TOGETHER)[known]]  # Who sends is later than who waits for it, again and again.
    repeats, typical_ns, scatter_ns = _typical(waits, known, [*columns, _places(waits, known, columns, steps)])
    apart_ns = _TIMES_JITTER * float(np.median(np.abs(typical_ns))) if len(typical_ns) else 0.0
    for rows, usual_ns in zip(repeats, typical_ns, strict=True):
        if usual_ns > max(least_ns[rows[0]], _TIMES_JITTER * scatter_ns / np.sqrt(len(rows)), apart_ns):
            late[rows] |= waits.late_ns[rows] > least_ns[rows]
    late &= ~parts.is_kind(BOTH_WAYS)  # Who had to wait for data is not known, and in a pipeline each stage waits for the others.
    found: IntArray = last[late[last]]
    return found, waits.late_ns[found] > _CLEARLY * limit_ns[found]


def _typical(
    waits: Waits, known: IntArray, columns: Sequence[IntArray], *, one_side: bool = False
) -> tuple[list[IntArray], list[float], float]:
    """Return the parts that are alike in some columns, three at least, with the median lateness of each group, and how it scatters."""
    columns = [column[known] for column in columns]
    order = np.lexsort(columns)
    groups = [rows for rows in np.split(known[order], np.flatnonzero(_changes(columns, order))[1:]) if len(rows) > 2]
    typical_ns = [float(np.median(waits.late_ns[rows])) for rows in groups]
    scatter_ns = [_scatter_ns(waits.late_ns[rows] - usual, one_side=one_side) for rows, usual in zip(groups, typical_ns, strict=True)]
    return groups, typical_ns, 1.4826 * float(np.median(scatter_ns)) if scatter_ns else 0.0


def _scatter_ns(apart_ns: FloatArray, *, one_side: bool) -> float:
    """Return the median distance from the middle; of the narrower side, since a rank that is late now and then spreads the other one."""
    usual_ns = float(np.median(np.abs(apart_ns)))
    if not one_side or len(apart_ns) < _SIDES:
        return usual_ns
    return min(usual_ns, _OF_TWO * float(min(np.median(apart_ns[apart_ns >= 0]), -np.median(apart_ns[apart_ns <= 0]))))


def _places(waits: Waits, known: IntArray, columns: Sequence[IntArray], steps: JobSteps) -> IntArray:
    """Return for parts that are known their place among those of their step that are alike; 0 where no steps are known."""
    place = np.zeros(len(waits.start_ns), np.int64)
    if len(steps) and len(known):
        columns = [steps.at(waits.start_ns[known]), *(column[known] for column in columns)]
        order = np.lexsort((waits.start_ns[known], *columns))
        begins = _changes(columns, order)
        place[known[order]] = np.arange(len(known)) - np.flatnonzero(begins)[np.cumsum(begins) - 1]
    return place


def _changes(columns: Sequence[IntArray], order: IntArray) -> BoolArray:
    """Tell where a group of rows that are alike begins, in an order."""
    found = np.zeros(len(order), bool)
    found[:1] = True
    for column in columns:
        found[1:] |= np.diff(column[order]) != 0
    return found


def _costs_ns(matched: Matched, waits: Waits, pushed_ns: FloatArray) -> FloatArray:
    """Return for each operation the median cost of the waiting of all ranks but the last one.

    It is the exposed waiting, and what the rest of the waiting pushed.
    """
    rows = np.flatnonzero(waits.known & (waits.last != np.arange(len(waits.last))))
    costs_ns = np.clip(pushed_ns, waits.exposed_ns, waits.waiting_ns)
    order = rows[np.lexsort((costs_ns[rows], matched.operation[rows]))]
    found = np.zeros(len(matched))
    if len(order):
        begins = np.flatnonzero(np.diff(matched.operation[order], prepend=-1))
        size = np.diff(np.append(begins, len(order)))
        own_ns = costs_ns[order]
        found[matched.operation[order[begins]]] = (own_ns[begins + (size - 1) // 2] + own_ns[begins + size // 2]) / 2
    return found


def _pushed_ns(ranks: Sequence[Rank], matched: Matched, waits: Waits, steps: JobSteps, events: IntArray) -> FloatArray:
    """Return how much more exposed communication a rank has from a late collective on than the rank that was waited for.

    Waiting beside computing delays the transfers behind it, which then have nothing to hide under: it costs at the end of the step. A
    collective counts until the next late one, or to the end of its step; where no steps are known, 0 is returned.
    """
    parts, found = matched.parts, np.zeros(len(matched.parts))
    step = steps.at(waits.start_ns)
    rows = np.flatnonzero(waits.known & (step >= 0) & np.isin(matched.operation, matched.operation[events]))
    rows = rows[np.lexsort((waits.start_ns[rows], parts.rank[rows]))]
    if not len(rows):
        return found
    until_ns = steps.end_ns[step[rows]]
    until_ns[:-1] = np.where(np.diff(parts.rank[rows]) == 0, np.minimum(until_ns[:-1], waits.start_ns[rows[1:]]), until_ns[:-1])
    for at in np.unique(parts.rank[rows]).tolist():
        spans, work = ranks[at].trace.spans, work_of(ranks[at].trace)
        communicating, computing = (
            union(spans.start_ns[work == one], spans.end_ns[work == one]) for one in (Work.COMMUNICATION, Work.COMPUTE)
        )
        own = parts.rank[rows] == at
        begin_ns = spans.start_ns[parts.span[rows[own]]].astype(np.float64)
        length_ns = until_ns[own] - waits.start_ns[rows[own]]
        found[rows[own]] = Coverage(_without(communicating, computing)).within(begin_ns, begin_ns + length_ns)
    found[rows] = np.where(waits.last[rows] == rows, 0, found[rows] - found[waits.last[rows]])
    return found


def _cause(ranks: Sequence[Rank], matched: Matched, waits: Waits, late: int, events: IntArray) -> tuple[str, str, str]:
    """Return the cause, its name, and the range around it: of all collectives that a rank made late, or else of those where that began.

    Where kernels run beside collectives, lateness is carried on to the next ones: what differs before these hides what made the first late.
    """
    events = _of_one_communicator(ranks[late], matched, waits, late, events)
    found = _difference(ranks, matched, waits, late, events)
    first = events[_is_new(matched, waits, late, events)]
    return _difference(ranks, matched, waits, late, first) if found == _UNKNOWN and 0 < len(first) < len(events) else found


def _is_new(matched: Matched, waits: Waits, late: int, events: IntArray) -> BoolArray:
    """Tell where most of a rank's lateness was not there at the collective before, of the same communicator; ``events`` are of one."""
    parts = matched.parts
    own = np.flatnonzero((parts.rank == late) & (parts.communicator == parts.communicator[events[0]]) & waits.known)
    before_ns = np.zeros(len(parts))
    before_ns[own[1:]] = waits.late_ns[own[:-1]]  # Parts of a rank are in the order of their starts.
    found: BoolArray = waits.late_ns[events] - before_ns[events] >= _NEW * waits.late_ns[events]
    return found


def _difference(ranks: Sequence[Rank], matched: Matched, waits: Waits, late: int, events: IntArray) -> tuple[str, str, str]:
    """Compare what a late rank did before collectives with what the other ranks did before them."""
    parts = matched.parts
    operations = matched.operation[events]
    there = np.unique(parts.rank[np.isin(matched.operation, operations)])
    others = [at for at in there.tolist() if at != late][:_MOST_COMPARED]
    own = _Stretches.of(ranks[late], matched, waits, late, operations)
    theirs = [_Stretches.of(ranks[at], matched, waits, at, operations) for at in others]
    if own is None or not (theirs := [each for each in theirs if each is not None]):
        return _UNKNOWN
    idle_ns, waiting_ns, transfer_ns = (
        float(getattr(own, name) - np.median([getattr(each, name) for each in theirs])) for name in ("idle_ns", "waiting_ns", "transfer_ns")
    )
    work_ns = sum(own.work.excess([each.work for each in theirs]).values())
    amounts = {"work": work_ns, "idle": idle_ns, "waiting": waiting_ns, "link": transfer_ns}
    most = max(amounts, key=lambda name: amounts[name])
    # Lateness is carried on to the next collectives where kernels run beside them, and explained once.
    late_ns = waits.late_ns[events]
    wanted_ns = max(EXPLAINS * late_ns.max(), _CARRIED * late_ns.sum())
    if amounts[most] < max(wanted_ns, EXPLAINS * sum(max(0.0, amount) for amount in amounts.values())):
        return _UNKNOWN
    if most == "waiting":
        return "waiting", "", ""
    if most == "link":
        return "link", own.slowest(theirs), ""
    if most == "idle":
        return _host_cause(ranks, matched, late, others, operations, own, idle_ns)
    spans = {at: ranks[at].trace.spans for at in others}
    elsewhere = frozenset(name for at in others for name in labels(ranks[at], np.flatnonzero(spans[at].is_kind(DEVICE_KINDS))).values())
    cause, name = own.work.cause([each.work for each in theirs], wanted_ns, elsewhere)
    return cause, name, range_of(ranks[late], name)


def _host_cause(
    ranks: Sequence[Rank], matched: Matched, late: int, others: Sequence[int], operations: IntArray, own: _Stretches, idle_ns: float
) -> tuple[str, str, str]:
    """Return what a late rank's host did while its GPU idled, beyond what hosts that do the same differ by."""
    theirs = [_host_ns(ranks[at], matched, at, operations) for at in others]
    calls = {name: ns - _TIMES_PACE * float(np.median([each.get(name, 0.0) for each in theirs])) for name, ns in own.calls.items()}
    name = max(calls, key=lambda one: calls[one], default="")
    if name and calls[name] >= EXPLAINS * idle_ns:
        return "host call", name, ""
    gaps_ns = _launch_gaps_ns(ranks[late], matched, late, operations)
    beyond_ns = [_beyond_pace_ns(gaps_ns, _launch_gaps_ns(ranks[at], matched, at, operations)) for at in others]
    if not len(gaps_ns) or float(np.median(beyond_ns)) >= EXPLAINS * idle_ns:
        return "host late", own.behind_gap, ""
    device = ranks[late].trace.info.device
    # Predictions of recorded ranks are called simulated, too, and each has a host of its own.
    shared = device.simulated and device.details.get("predicted_from", "simulated") == "simulated"
    return ("order" if shared else "pace"), "", ""


def _host_ns(rank: Rank, matched: Matched, at: int, operations: IntArray) -> dict[str, float]:
    """Return the time of a host's calls and ranges before operations, by name."""
    spans, calls = rank.trace.spans, _own_calls(rank)
    windows = Coverage(union(*_windows(rank, matched, at, operations)))
    return by_name(rank, calls, windows.within(spans.start_ns[calls], spans.end_ns[calls]))[0]


def _of_one_communicator(rank: Rank, matched: Matched, waits: Waits, late: int, events: IntArray) -> IntArray:
    """Return those of one communicator, whose ranks did the same work: of those with most lateness, the one that meets most often."""
    communicator = matched.parts.communicator[events]
    late_ns = np.bincount(communicator, weights=waits.late_ns[events])
    lengths_ns = {}
    for one in np.flatnonzero(late_ns >= late_ns.max() / 2).tolist():
        begins, ends = _windows(rank, matched, late, matched.operation[events[communicator == one]])
        if len(begins):
            lengths_ns[one] = float((ends - begins).mean())
    return events[communicator == min(lengths_ns, key=lambda one: lengths_ns[one])] if lengths_ns else events


@dataclass(frozen=True)
class _Stretches:
    """What a rank did before some collectives, since the one before of the same communicator: sums, in ns."""

    work: NamedWork
    calls: dict[str, float]
    idle_ns: float
    waiting_ns: float
    transfer_ns: float
    transfers: dict[str, float]
    behind_gap: str

    def slowest(self, others: Sequence[_Stretches]) -> str:
        """Return the communicator whose transfers take most time, beyond the median of the others."""
        usual = {name: float(np.median([each.transfers.get(name, 0.0) for each in others])) for name in self.transfers}
        return max(usual, key=lambda name: self.transfers[name] - usual[name], default="")

    @classmethod
    def of(cls, rank: Rank, matched: Matched, waits: Waits, at: int, operations: IntArray) -> _Stretches | None:
        parts, spans = matched.parts, rank.trace.spans
        begins, ends = _windows(rank, matched, at, operations)
        if not len(begins):
            return None
        windows = Coverage(union(begins, ends))
        kind = work_of(rank.trace)
        working = spans.is_kind(DEVICE_KINDS)
        rows = np.flatnonzero(working & (kind != Work.COMMUNICATION))
        work = NamedWork.of(rank, rows, windows.within(spans.start_ns[rows], spans.end_ns[rows]))
        own = np.flatnonzero(waits.known & (parts.rank == at))
        own_ns = spans.start_ns[parts.span[own]]
        met = np.isin(own_ns, begins)
        inside = own[(windows.within(own_ns, own_ns + 1) > 0) & ~met]
        busy_ns = spans.end_ns.copy()
        # The ranks that are compared met where stretches begin. That transfer may go on beside kernels: it hides no idle time.
        busy_ns[parts.span[own[met]]] = own_ns[met] + np.rint(waits.waiting_ns[own[met]]).astype(np.int64)
        idle = _without(union(begins, ends), union(spans.start_ns[working], busy_ns[working]))
        calls = _own_calls(rank)
        during, _ = by_name(rank, calls, Coverage(idle).within(spans.start_ns[calls], spans.end_ns[calls]))
        transfers: dict[str, float] = {}
        for row in inside.tolist():
            name = parts.texts[parts.communicator[row]] or parts.texts[parts.kind[row]]
            transfers[name] = transfers.get(name, 0.0) + float(waits.transfer_ns[row])
        return cls(
            work, _innermost(rank, calls, during), float(idle.length_ns),
            float(waits.waiting_ns[inside].sum()), float(waits.transfer_ns[inside].sum()), transfers,
            _behind_gap(rank, idle, rows),
        )  # fmt: skip


def _own_calls(rank: Rank) -> IntArray:
    """Return the calls and ranges of a host that its GPU may wait for: those of threads that launch work, without waits for the GPU."""
    spans = rank.trace.spans
    host = spans.is_kind(HOST_KINDS) & (spans.kind != SpanKind.SYNC)
    launching = np.unique(spans.lane[spans.is_kind([SpanKind.LAUNCH, SpanKind.GRAPH_LAUNCH])])
    if len(launching):
        host &= np.isin(spans.lane, launching) | (spans.kind == SpanKind.RANGE) | (spans.kind == SpanKind.HOST)
    return np.flatnonzero(host)


def _beyond_pace_ns(own_ns: FloatArray, other_ns: FloatArray) -> float:
    """Return how much longer gaps are than those of another rank at a host's slowest pace, the longest beside the longest."""
    beside_ns = np.quantile(other_ns, np.linspace(0, 1, len(own_ns))) if len(other_ns) else 0.0
    return float(np.maximum(np.sort(own_ns) - _TIMES_PACE * beside_ns, 0).sum())


def _launch_gaps_ns(rank: Rank, matched: Matched, at: int, operations: IntArray) -> FloatArray:
    """Return the times between launches of a host before operations, without its waits for the GPU; none where launches are not known."""
    spans = rank.trace.spans
    first, last = _neighbours(rank, matched, at, operations)
    first, last = call_rows(spans, first), call_rows(spans, last)
    launched = (first >= 0) & (last >= 0)
    begins, ends = spans.start_ns[first[launched]], spans.start_ns[last[launched]]
    inside = Coverage(union(begins, np.maximum(begins, ends)))
    launches_ns = np.sort(spans.start_ns[spans.is_kind([SpanKind.LAUNCH, SpanKind.GRAPH_LAUNCH])])
    syncs = spans.kind == SpanKind.SYNC
    waits = Coverage(union(spans.start_ns[syncs], spans.end_ns[syncs]))
    begin_ns, end_ns = launches_ns[:-1], launches_ns[1:]
    there = inside.within(begin_ns, end_ns) > 0
    begin_ns, end_ns = begin_ns[there], end_ns[there]
    found: FloatArray = (end_ns - begin_ns).astype(np.float64) - waits.within(begin_ns, end_ns)
    return found


def _windows(rank: Rank, matched: Matched, at: int, operations: IntArray) -> tuple[IntArray, IntArray]:
    """Return the stretches of a rank's trace before operations: each since the begin of the one before of the same communicator."""
    first, last = _neighbours(rank, matched, at, operations)
    return rank.trace.spans.start_ns[first], rank.trace.spans.start_ns[last]


def _neighbours(rank: Rank, matched: Matched, at: int, operations: IntArray) -> tuple[IntArray, IntArray]:
    """Return the spans of the parts before operations, of the same communicator, and those of the operations' own parts."""
    parts = matched.parts
    own = np.flatnonzero((parts.rank == at) & (matched.operation >= 0))
    own = own[np.lexsort((parts.span[own], parts.communicator[own]))]
    wanted: BoolArray = np.isin(matched.operation[own], operations)
    wanted &= np.concatenate([[False], np.diff(parts.communicator[own]) == 0])
    place = np.flatnonzero(wanted)
    return parts.span[own[place - 1]], parts.span[own[place]]


def _without(these: Intervals, others: Intervals) -> Intervals:
    """Return what intervals have beyond others."""
    columns = (these.start_ns, these.end_ns, others.start_ns, others.end_ns)
    edges_ns = np.concatenate(columns)
    order = np.argsort(edges_ns, kind="stable")  # Columns are in order, and a stable sort merges them.
    inside, hidden = (np.cumsum(np.repeat(sign, list(map(len, columns)))[order]) for sign in ((1, -1, 0, 0), (0, 0, 1, -1)))
    edges_ns = edges_ns[order]
    begin_ns, end_ns = edges_ns[:-1], edges_ns[1:]
    kept = (inside[:-1] > 0) & (hidden[:-1] == 0) & (end_ns > begin_ns)
    return union(begin_ns[kept], end_ns[kept])


def _innermost(rank: Rank, calls: IntArray, during: dict[str, float]) -> dict[str, float]:
    """Return times of calls without those of ranges, where a call explains as much: a range is around it."""
    spans = rank.trace.spans
    ranges = {spans.names[code] for code in np.unique(spans.name[calls[spans.kind[calls] == SpanKind.RANGE]]).tolist()}
    during = {name: time_ns for name, time_ns in during.items() if not is_step(name)}  # All the others have their steps, too.
    own = {name: time_ns for name, time_ns in during.items() if name not in ranges}
    most = max(own.values(), default=0.0)
    around = {name: time_ns for name, time_ns in during.items() if name in ranges}
    return own if most >= EXPLAINS * max(around.values(), default=0.0) else around


def _behind_gap(rank: Rank, idle: Intervals, rows: IntArray) -> str:
    """Return the name of the work that follows the longest idle times."""
    spans = rank.trace.spans
    if not len(idle.end_ns) or not len(rows):
        return ""
    at = np.searchsorted(spans.start_ns[rows], idle.end_ns)
    there = at < len(rows)
    code = spans.name[rows[at[there]]]
    time_ns = np.bincount(code, weights=(idle.end_ns - idle.start_ns)[there], minlength=1)
    return spans.names[int(time_ns.argmax())] if len(code) else ""
