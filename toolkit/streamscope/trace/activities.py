"""A profiler's records, as columns: readers of other programs' files, and recorders of foreign code, hand them to `foreign_trace`."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from streamscope.arrays import IntArray
from streamscope.errors import TraceError
from streamscope.trace.instances import CollectiveFacts, PeerFacts
from streamscope.trace.joins import distinct, looked_up
from streamscope.trace.launch_sites import Site
from streamscope.trace.spans import DEVICE_KINDS, SpanKind, is_one
from streamscope.words import lane_prefix

FAR_NS = 2**61
"""Times beyond are left out and noted, whatever the others are: they cannot be subtracted."""
ON_DEVICE = (*DEVICE_KINDS, SpanKind.GRAPH)
STREAM_BITS = 40
"""A place is the number of an owner, from 1 on, and below it that of the stream, in so many bits: no thread has such a number."""
_OPTIONAL = {"correlation": -1, "graph_node": -1, "blocks": 0, "threads": 0, "bytes": 0, "gpu": -1, "process": -1, "fact": -1}


class Names:
    """Texts, each once, numbered in the order in which they came."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}

    def code(self, text: str) -> int:
        """Return the number of a text."""
        return self._codes.setdefault(text, len(self._codes))

    def codes(self, ids: npt.NDArray[Any], text_of: Callable[[int], str]) -> IntArray:
        """Return the numbers of the texts that ids stand for; each id is looked up once."""
        different, which = np.unique(ids, return_inverse=True)
        return np.array([self.code(text_of(one)) for one in different.tolist()], np.int64)[which.reshape(-1)]

    def all(self) -> tuple[str, ...]:
        """Return the texts in the order of their numbers."""
        return tuple(self._codes)


def _none() -> IntArray:
    return np.zeros(0, np.int64)


@dataclass
class Activities:
    """A profiler's records, one row each, in any order. All columns have one length; those from ``correlation`` on may be left out."""

    kind: npt.NDArray[Any]
    """uint8: `SpanKind`; of calls, that of `call_kinds`."""
    name: npt.NDArray[Any]
    """int32: index into ``names``. Of a kernel it is the symbol, from which `foreign_trace` makes a readable name."""
    start_ns: npt.NDArray[Any]
    end_ns: npt.NDArray[Any]
    """int64: on one clock, whatever its zero is."""
    place: npt.NDArray[Any]
    """int64: number of the thread (kinds of the host) or of the stream."""
    correlation: npt.NDArray[Any] = field(default_factory=_none)
    """int64: joins a call with its work on the device; -1 for none."""
    graph_node: npt.NDArray[Any] = field(default_factory=_none)
    blocks: npt.NDArray[Any] = field(default_factory=_none)
    threads: npt.NDArray[Any] = field(default_factory=_none)
    bytes: npt.NDArray[Any] = field(default_factory=_none)
    """int64: as in `SpanTable`."""
    gpu: npt.NDArray[Any] = field(default_factory=_none)
    """int64: number of the GPU; -1 for the host."""
    process: npt.NDArray[Any] = field(default_factory=_none)
    """int64: number of the process that called or launched; -1 where it is not known."""
    fact: npt.NDArray[Any] = field(default_factory=_none)
    """int64: index into ``facts``; -1 for none."""
    names: tuple[str, ...] = ()
    facts: Sequence[CollectiveFacts | PeerFacts | Site] = ()
    """What the profiler says of work with other GPUs; and of calls, where they stand in the user's code."""
    places: Mapping[int, str] = field(default_factory=dict)
    """Texts for numbers of threads and streams that are not numbers in the file."""
    processes: Mapping[int, str] = field(default_factory=dict)
    """Texts for numbers of processes."""

    def __post_init__(self) -> None:
        for column, missing in _OPTIONAL.items():
            if len(getattr(self, column)) == 0:
                setattr(self, column, np.full(len(self.kind), missing, np.int64))

    def __len__(self) -> int:
        return len(self.kind)

    def rows(self, chosen: npt.NDArray[Any]) -> Activities:
        """Return the rows that a boolean mask or an index array picks."""
        if chosen.dtype == bool and chosen.all():
            return self
        return replace(self, **{column: getattr(self, column)[chosen] for column in _COLUMNS})

    def is_kind(self, kinds: Iterable[SpanKind]) -> npt.NDArray[np.bool_]:
        """Tell of each row whether its kind is one of ``kinds``."""
        return is_one(self.kind, kinds)


_COLUMNS = tuple(each.name for each in fields(Activities) if each.name not in ("names", "facts", "places", "processes"))


def joined(parts: Sequence[Activities]) -> Activities:
    """Return several activities, which have the same names and facts, as one."""
    columns: dict[str, Any] = {column: np.concatenate([getattr(part, column) for part in parts]) for column in _COLUMNS}
    facts = next((part.facts for part in parts if part.facts), ())
    return Activities(
        **columns, names=parts[-1].names, facts=facts, places={number: text for part in parts for number, text in part.places.items()}
    )


NO_WORK_HINT = "switch CUDA activities on in the profiler, and synchronize before it stops"


class NoWorkError(TraceError):
    """A whole file holds no work of a GPU. Of a job, its rank may have had none.

    Parameters
    ----------
    message : str
    hint : str, optional
    job : mapping, optional
        Rank and number of ranks, as the file says them.
    """

    def __init__(self, message: str, *, hint: str | None = None, job: Mapping[str, int] | None = None) -> None:
        super().__init__(message, hint=hint)
        self.job = dict(job or {})


def no_work(job: Mapping[str, int] | None = None) -> NoWorkError:
    """Return the error for a file without work of a GPU, of which no more is known."""
    return NoWorkError("it holds no work of a GPU", hint=NO_WORK_HINT, job=job)


def gpus_of(found: Activities) -> list[int]:
    """Return the numbers of the GPUs that have work."""
    gpus: list[int] = distinct(found.gpu[found.is_kind(ON_DEVICE)])[0].tolist()
    return gpus


def wanted_gpus(found: Activities, wanted: int | None) -> list[int]:
    """Return the GPUs that are read: the wanted one, or all.

    Raises
    ------
    TraceError
        There is no work of the wanted one, or of any.
    """
    gpus = gpus_of(found)
    if not gpus:
        raise no_work()
    if wanted is not None and wanted not in gpus:
        raise no_work_of(wanted, gpus)
    return gpus if wanted is None else [wanted]


def no_work_of(wanted: int, gpus: Sequence[int]) -> TraceError:
    """Return the error for a file without work of the wanted GPU; ``gpus`` are those that it has work of."""
    known = ", ".join(f"GPU {gpu}" for gpu in gpus[:20])
    return TraceError(f"it holds no work of GPU {wanted}", hint=f"it has work of {known}" if known else None)


def with_peers(found: Activities, chosen: npt.NDArray[np.bool_], from_gpu: npt.NDArray[Any], to_gpu: npt.NDArray[Any]) -> Activities:
    """Return copies of which the ``chosen`` ones went from one GPU to another."""
    pairs, which = np.unique(np.stack((from_gpu, to_gpu))[:, chosen], axis=1, return_inverse=True)
    fact = np.full(len(found), -1)
    fact[chosen] = which.reshape(-1)
    return replace(found, fact=fact, facts=[PeerFacts(*pair) for pair in pairs.T.tolist()])


def named_place(what: str, text: str) -> str:
    """Name a thread or a stream; one that is called so already, as ``"stream 0"`` or ``"Stream #7"``, keeps its name."""
    return text if re.match(rf"{what}\b", text, re.IGNORECASE) else f"{what} {text}"


def gpu_names(found: Activities) -> dict[int, str]:
    """Return what stands before the names of the streams of each GPU; nothing where there is one GPU."""
    gpus = gpus_of(found)
    return {gpu: lane_prefix(gpu) for gpu in gpus} if len(gpus) > 1 else {}


def name_waits(found: Activities, correlation: npt.NDArray[Any], stream: npt.NDArray[Any], gpu: int | None = None) -> None:
    """Add to the names of calls that wait for a stream which one it is: ``"cudaStreamSynchronize stream 7"``, as its lane is called.

    ``gpu``: which one is read; by default all.
    """
    names = {text: code for code, text in enumerate(found.names)}
    on_gpu = gpu_names(found) if gpu is None else {}
    work = np.flatnonzero(found.is_kind(ON_DEVICE))
    gpu_of = dict(zip(found.place[work].tolist(), found.gpu[work].tolist(), strict=True)) if on_gpu else {}
    place = looked_up(correlation, stream, found.correlation, -1)
    rows = np.flatnonzero(found.is_kind([SpanKind.SYNC]) & (place >= 0) & (found.correlation >= 0))
    pairs, which = np.unique(np.stack((found.name[rows], place[rows])), axis=1, return_inverse=True)
    waits = (
        f"{found.names[code]} {on_gpu.get(gpu_of.get(one, -1), '')}{named_place('stream', str(found.places.get(one, one)))}"
        for code, one in pairs.T.tolist()
    )
    codes = [names.setdefault(wait, len(names)) for wait in waits]
    found.name = found.name.copy()
    found.name[rows] = np.array(codes, np.int64)[which.reshape(-1)]
    found.names = tuple(names)


class Streams:
    """Gives the streams of several processes and contexts, each of which counts its own, a number of their own: their place."""

    def __init__(self, *what: str) -> None:
        self._what = what
        """Owner of a stream, which tells it apart where its number does not: ``"process"``, ``"context"``."""
        self._owners: dict[tuple[int, ...], int] = {}

    def places(self, streams: npt.NDArray[Any], *owners: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Return the places of streams; one whose owners are all unknown, -1, is taken for one of the first owner."""
        keys, which = [()], np.zeros(len(streams), np.int64)
        for column in owners:
            used, code = distinct(column)
            both, which = distinct(which * len(used) + code)
            keys = [(*keys[each // len(used)], int(used[each % len(used)])) for each in both.tolist()]
        numbers = [1 if set(key) == {-1} else self._owners.setdefault(key, len(self._owners) + 1) for key in keys]
        owner = np.array(numbers, np.int64)[which]
        plain = (streams >= 0) & (streams < 1 << STREAM_BITS)
        return np.where(plain, streams + (owner << STREAM_BITS), streams).astype(np.int64)

    def texts(self, places: npt.NDArray[Any]) -> dict[int, str]:
        """Name the streams of some work, by their places: ``"7"``, or ``"7 (context 2)"`` where there are two."""
        owners = [*self._owners] or [(-1,) * len(self._what)]
        same = defaultdict[int, list[int]](list)
        for place in np.unique(places).tolist():
            owner, stream = divmod(place, 1 << STREAM_BITS)
            if 0 < owner <= len(owners):
                same[stream].append(owner)
        return {
            (owner << STREAM_BITS) + stream: _called(stream, self._what, owners[owner - 1], [owners[other - 1] for other in found])
            for stream, found in same.items() for owner in found
        }  # fmt: skip

    def texts_of(self, found: Activities) -> dict[int, str]:
        """Name the streams of all work; streams of two GPUs need not be told apart."""
        work = found.is_kind(ON_DEVICE)
        named = dict[int, str]()
        for gpu in gpus_of(found):
            named |= self.texts(found.place[work & (found.gpu == gpu)])
        return named


def _called(stream: int, what: Sequence[str], owner: tuple[int, ...], owners: Sequence[tuple[int, ...]]) -> str:
    differ = [f"{what[index]} {number}" for index, number in enumerate(owner) if any(other[index] != number for other in owners)]
    return f"{stream} ({', '.join(differ)})" if differ else str(stream)
