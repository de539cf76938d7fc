"""The launching process of each kernel, in a Kineto file of several processes: tools merge the files of all ranks into one.

Each process counts its launches from 1, so correlations stand twice. An event of the device has the number of the device in the place of a
process (``pid``). Tools that merge put the rank before or behind that number, of calls and of kernels, or of calls alone. Then times and
correlations decide: nothing runs before it was launched, and no process launches two things with one correlation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from streamscope.errors import printable
from streamscope.trace.activities import ON_DEVICE, Activities
from streamscope.trace.foreign import MIXED
from streamscope.trace.joins import distinct, looked_up
from streamscope.trace.spans import HOST_KINDS, SpanKind
from streamscope.words import counted, listed

_STYLES = (re.compile(r"(.*\D)\d+"), re.compile(r"\d+(\D.*)"))
"""Where the rank stands in a ``pid``: before or behind the number that was there."""
_FEW = 0.01
"""The share of launches that may contradict: clocks of host and device are not quite the same, and profilers lose records."""
_COVERED = 0.9
"""Share of the best process's coverage that makes another one a candidate for the launches."""
_SHARED = 0.1
"""The share of correlations that two GPUs have in common at least if different processes launched their work."""
_CALLS = HOST_KINDS - {SpanKind.RANGE}
_NO_LAUNCHES = (SpanKind.EVENT, SpanKind.SYNC)
_ROUNDED_NS = 1000
"""How far a call may seem to last beyond the one that it is in: older files have whole µs."""
_MOST_PROCESSES = 256
"""Beyond, nothing is tried: pairs of them are looked at."""
_MOST_NAMED = 8


@dataclass(frozen=True)
class Processes:
    """Activities that are joined by correlations alone, since each is of one process."""

    found: Activities
    several: bool
    notes: tuple[str, ...] = ()
    devices: Mapping[int, int] = field(default_factory=dict)
    """Of GPUs that were given another number: the one in the file."""


@dataclass(eq=False)
class _Owner:
    """Work on one device, as the file tells devices apart."""

    pid: int
    device: int
    rows: npt.NDArray[np.int64]
    correlations: npt.NDArray[np.int64]
    """Those that stand for one piece of work: not of a launch of a graph, which may have nodes on several devices."""
    candidates: set[int] = field(default_factory=set)
    """Processes that may have launched it."""

    def shares(self, other: _Owner) -> bool:
        """Tell whether two cannot be of one process: it would have launched two things with one correlation, again and again."""
        least = min(len(self.correlations), len(other.correlations))
        return least > 0 and len(np.intersect1d(self.correlations, other.correlations, assume_unique=True)) > _SHARED * least


def of_one_process(found: Activities) -> Processes:
    """Return activities whose correlations are of one process."""
    return Processes(replace(found, process=np.full(len(found), -1)), several=False)


def by_process(found: Activities, pids: Sequence[str]) -> Processes:
    """Tell processes apart by their events; ``pids``: texts for the column ``process``."""
    calls = found.is_kind(_CALLS) & (found.correlation >= 0)
    hosts = np.unique(found.process[calls]).tolist()
    owners = _owners(found)
    rank_of = _ranks(pids, hosts, [owner.pid for owner in owners])
    if len(owners) > 1:
        graphs = _graphs_launched_once(found, ranks_known=bool(rank_of))
        for owner in owners:
            owner.correlations = np.setdiff1d(owner.correlations, graphs, assume_unique=True)
    few = max(len(owners), len(hosts)) <= _MOST_PROCESSES
    apart = few and any(one.shares(other) for at, one in enumerate(owners) for other in owners[:at])
    if not rank_of and not apart and len(hosts) <= 1:
        mixed = _mixed_notes(found, owners, found.gpu)
        found, twice = _single_calls(replace(found, process=np.full(len(found), -1)))
        return Processes(found, several=False, notes=(*_unknown_notes(twice, 1), *mixed))
    if few:
        _choose(found, owners, hosts, rank_of)
    process, kind = found.process.copy(), found.kind.copy()
    known = [owner for owner in owners if len(owner.candidates) == 1]
    process[found.gpu >= 0] = -1
    for owner in known:
        (process[owner.rows],) = owner.candidates
    lost = np.concatenate([found.correlation[owner.rows] for owner in owners if owner not in known] or [found.correlation[:0]])
    unclaimed = calls & ~np.isin(found.process, [host for owner in known for host in owner.candidates])
    kind[unclaimed & np.isin(found.correlation, lost) & ~found.is_kind(_NO_LAUNCHES)] = SpanKind.API  # What they launched is not known.
    gpu, devices, notes = _gpus(found, owners, rank_of, pids) if few else (found.gpu, {}, [])
    mixed = _mixed_notes(found, owners, gpu)
    correlation = _of_their_own(found.correlation, process)
    if rank_of:
        process = _by_rank(process, rank_of)
    found, twice = _single_calls(replace(found, kind=kind, correlation=correlation, process=process, gpu=gpu))
    found.processes = {code: _shown(rank_of.get(code, text)) for code, text in enumerate(pids)}
    return Processes(found, several=True, notes=(*notes, *_unknown_notes(len(lost) + twice, len(hosts)), *mixed), devices=devices)


def _owners(found: Activities) -> list[_Owner]:
    rows = np.flatnonzero(found.is_kind(ON_DEVICE))
    pids, which = distinct(found.process[rows])
    gpus, gpu = distinct(found.gpu[rows])
    pairs, pair = distinct(which * len(gpus) + gpu)
    order = np.argsort(pair, kind="stable")
    owners = []
    for key, some in zip(pairs.tolist(), np.split(rows[order], np.flatnonzero(np.diff(pair[order])) + 1), strict=True):
        used, _ = distinct(found.correlation[some])
        owners.append(_Owner(int(pids[key // len(gpus)]), int(gpus[key % len(gpus)]), some, used[used >= 0]))
    return owners


def _graphs_launched_once(found: Activities, *, ranks_known: bool) -> npt.NDArray[np.int64]:
    """Return the correlations of graphs that one call launched; where ranks are known, one of each process."""
    calls = found.rows(found.is_kind(_CALLS) & (found.correlation >= 0))
    launched = calls.correlation[calls.is_kind([SpanKind.GRAPH_LAUNCH])]
    return np.setdiff1d(launched, _called_twice(calls, same_process=ranks_known))


def _ranks(pids: Sequence[str], hosts: Sequence[int], devices: Sequence[int]) -> dict[int, str]:
    """Return the rank in each ``pid``, where calls and kernels have one in the same place; else nothing."""
    for style in _STYLES:
        ranks = {code: found[1] for code, text in enumerate(pids) if (found := style.fullmatch(text))}
        theirs, ours = ({ranks.get(code) for code in codes} for codes in (devices, hosts))
        if None not in theirs | ours and theirs & ours and len(theirs | ours) > 1:
            return ranks
    if len(hosts) > 1 and {pids[code] for code in hosts} == {pids[code] for code in devices}:
        return {code: pids[code] for code in (*hosts, *devices)}  # The rank alone was put there.
    return {}


def _choose(found: Activities, owners: Sequence[_Owner], hosts: Sequence[int], rank_of: Mapping[int, str]) -> None:
    """Find the processes that may have launched the work of each owner."""
    launches = {host: _launches(found, host) for host in hosts}
    for owner in owners:
        same = [host for host in hosts if rank_of.get(host) == rank_of.get(owner.pid)]
        owner.candidates = set(same) if rank_of and len(same) == 1 else _possible(found, owner, {host: launches[host] for host in same})
    pairs = [(one, other) for one in owners for other in owners if one is not other and one.shares(other)]
    changed = True
    # A process that surely launched one owner's work cannot have launched another's with the same correlations.
    while changed:
        changed = False
        for one, other in pairs:
            if len(one.candidates) == 1 and len(other.candidates) > 1 and one.candidates <= other.candidates:
                other.candidates -= one.candidates
                changed = True
    for one in {id(one): one for one, other in pairs if len(one.candidates) == 1 and one.candidates == other.candidates}.values():
        one.candidates = set()


def _launches(found: Activities, host: int) -> Activities:
    """Return the calls of a process that may have launched something, in the order of their starts."""
    rows = np.flatnonzero((found.process == host) & found.is_kind(_CALLS - set(_NO_LAUNCHES)) & (found.correlation >= 0))
    return found.rows(rows[np.argsort(found.start_ns[rows], kind="stable")])


def _possible(found: Activities, owner: _Owner, launches: Mapping[int, Activities]) -> set[int]:
    """Return the processes that have the calls for some work, each before it ran and for one thing."""
    rows = owner.rows[found.correlation[owner.rows] >= 0]
    covered = {}
    for host, calls in launches.items():
        at = looked_up(calls.correlation, np.arange(len(calls)), found.correlation[rows], -1)
        there = at >= 0
        early = np.count_nonzero(found.start_ns[rows[there]] < calls.start_ns[at[there]])
        single = there & (found.kind[rows] == SpanKind.KERNEL) & (calls.kind[at] != SpanKind.GRAPH_LAUNCH)
        twice = np.count_nonzero(single) - len(np.unique(at[single]))
        if there.any() and max(early, twice) <= _FEW * np.count_nonzero(there):
            covered[host] = np.count_nonzero(there)
    return {host for host, count in covered.items() if count >= _COVERED * max(covered.values())}


def _of_their_own(correlation: npt.NDArray[np.int64], process: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return correlations that differ between processes; -1 where there is none, or no process."""
    known = (correlation >= 0) & (process >= 0)
    used, code = distinct(correlation[known])
    found = np.full(len(correlation), -1)
    found[known] = process[known] * len(used) + code
    return found


def _single_calls(found: Activities) -> tuple[Activities, int]:
    """Take the correlation from calls that stand apart and share one, and from the work; return for how much work that is.

    A call inside of another one, as of the driver in one of the runtime, is one with it.
    """
    device = found.is_kind(ON_DEVICE)
    twice = _called_twice(found.rows(found.is_kind(_CALLS) & (found.correlation >= 0)))
    shared = np.isin(found.correlation, twice)
    if not (shared & device).any():
        return found, 0
    kind = np.where(shared & found.is_kind(_CALLS - set(_NO_LAUNCHES)), SpanKind.API, found.kind)
    return replace(found, kind=kind, correlation=np.where(shared, -1, found.correlation)), int((shared & device).sum())


def _called_twice(calls: Activities, *, same_process: bool = False) -> npt.NDArray[np.int64]:
    """Return the correlations of calls that stand apart, or are of two processes; with ``same_process``, those of one process alone."""
    used, which = distinct(calls.correlation)
    if len(used) == len(calls):
        return used[:0]
    rows = np.flatnonzero(np.bincount(which)[which] > 1)
    rows = rows[np.lexsort((-calls.end_ns[rows], calls.start_ns[rows], calls.process[rows], calls.correlation[rows]))]
    one, other = rows[:-1], rows[1:]
    apart = (calls.start_ns[other] > calls.end_ns[one]) | (calls.end_ns[other] > calls.end_ns[one] + _ROUNDED_NS)
    differ = calls.process[one] != calls.process[other]
    apart = apart & ~differ if same_process else apart | differ
    return np.unique(calls.correlation[one[apart & (calls.correlation[one] == calls.correlation[other])]])


def _gpus(
    found: Activities, owners: Sequence[_Owner], rank_of: Mapping[int, str], pids: Sequence[str]
) -> tuple[npt.NDArray[np.int64], dict[int, int], list[str]]:
    """Return the GPU of each row, and the device in the file of each; two processes may each call theirs 0."""
    same = [(one, other) for at, one in enumerate(owners) for other in owners[:at] if one.device == other.device and one.pid != other.pid]
    if not any(rank_of.get(one.pid) != rank_of.get(other.pid) or one.shares(other) for one, other in same):
        return found.gpu, {}, []
    gpu, devices, said = found.gpu.copy(), dict[int, int](), []
    for number, owner in enumerate(sorted(owners, key=lambda owner: (_natural(pids[owner.pid]), owner.device))):
        gpu[owner.rows] = number
        devices[number] = owner.device
        said.append(f"GPU {number} is device {owner.device} of {_shown(rank_of.get(owner.pid, pids[owner.pid]))!r}")
    more = f" and {len(said) - _MOST_NAMED:,} more" if len(said) > _MOST_NAMED else ""
    return gpu, devices, [f"several processes have a device of the same number: {listed(said[:_MOST_NAMED])}{more}"]


def _mixed_notes(found: Activities, owners: Sequence[_Owner], gpu: npt.NDArray[np.int64]) -> list[str]:
    """Say which GPUs have work of several processes."""
    calls = found.rows(found.is_kind(_CALLS - set(_NO_LAUNCHES)) & (found.correlation >= 0))
    mixed = sorted({int(gpu[owner.rows[0]]) for owner in owners if _is_mixed(found, owner, calls)})
    if not mixed:
        return []
    which = listed([f"GPU {number}" for number in mixed[:_MOST_NAMED]]) + (" and more" if len(mixed) > _MOST_NAMED else "")
    return [f"{MIXED} {which}: busy, idle and overlap there are of all of them together"]


def _is_mixed(found: Activities, owner: _Owner, calls: Activities) -> bool:
    """Tell whether several processes launched the work: it has correlations twice, or those that several of them launched each alone."""
    rows = owner.rows[found.correlation[owner.rows] >= 0]
    if not len(rows):
        return False
    used, which = distinct(found.correlation[rows])
    nodes, node = distinct(found.graph_node[rows])
    by_graph = calls.is_kind([SpanKind.GRAPH_LAUNCH])
    by_call = np.isin(used, calls.correlation[~by_graph]) & ~np.isin(used, calls.correlation[by_graph])
    single = (found.kind[rows] == SpanKind.KERNEL) & ((found.graph_node[rows] >= 0) | by_call[which])
    twice = np.bincount(distinct(which[single] * len(nodes) + node[single])[1], minlength=1) > 1
    if np.count_nonzero(twice) > _SHARED * max(1, len(twice)):
        return True
    launched = calls.rows(np.isin(calls.correlation, used))
    alone = launched.rows(~np.isin(launched.correlation, _called_twice(launched)))
    parts = [len(distinct(alone.correlation[alone.process == host])[0]) for host in distinct(alone.process)[0]]
    return sum(part > _SHARED * len(used) for part in parts) > 1


def _by_rank(process: npt.NDArray[np.int64], rank_of: Mapping[int, str]) -> npt.NDArray[np.int64]:
    """Return one number for all processes of a rank: those that launch nothing, such as workers that load data, belong to it, too."""
    first = dict[str, int]()
    number = np.arange(max(int(process.max()), *rank_of) + 2)  # The last one is for -1.
    for code, rank in rank_of.items():
        number[code] = first.setdefault(rank, code)
    number[-1] = -1
    return number[process]


def _shown(text: str) -> str:
    return printable(text).strip(" _:/-")[:50] or "?"


def _natural(text: str) -> list[tuple[bool, int, str]]:
    """Return a key that sorts ``rank10`` behind ``rank9``."""
    return [(part.isdecimal(), int(part[:18]) if part.isdecimal() else 0, part) for part in re.split(r"(\d+)", text)]


def _unknown_notes(count: int, hosts: int) -> list[str]:
    if not count:
        return []
    which = f"which of {hosts} processes" if hosts > 1 else "which call"
    why = "correlations stand twice in the file, as where files of several ranks were merged"
    return [f"{which} launched {counted(count, 'device span')} cannot be told, and launch latency is unknown: {why}"]
