"""Kernels of NCCL with the calls of NCCL that launched them, by the NVTX ranges that NCCL makes of its calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from streamscope.trace.communication import collective_kind
from streamscope.trace.instances import CollectiveFacts

DOMAIN = "NCCL"
_BARE = frozenset({"all_gather", "all_to_all"})
"""Kinds whose payload is the communicator and the bytes; the others have a root, a peer or a reduction behind them."""
_MESSAGES = frozenset({"send", "recv"})
_WHOLE = _MESSAGES | {"all_reduce", "broadcast", "reduce"}
"""Kinds whose payload has the bytes of the whole operation. Others have those of one rank, and how many ranks there are is not known."""


class NcclRange(NamedTuple):
    """The NVTX range of one call of NCCL, with its payload: empty where CUPTI gives none."""

    thread: int
    start_ns: int
    name: str
    payload: bytes = b""


class NcclLaunch(NamedTuple):
    """The call of CUDA that launched a kernel that communicates; ``kind`` is by the kernel's name, or empty."""

    thread: int
    start_ns: int
    kind: str = ""


def nccl_facts(ranges: Iterable[NcclRange], launches: Sequence[NcclLaunch]) -> list[CollectiveFacts | None]:
    """Return the facts of each launch by the calls of NCCL before it on its thread; None where there are none.

    Calls of a group launch together, at its end. So calls of NCCL, and the launches that follow before the next call, belong together.
    """
    found: list[CollectiveFacts | None] = [None] * len(launches)
    events: dict[int, list[tuple[int, int, NcclRange | int]]] = {}
    for one in ranges:
        if collective_kind(one.name):
            events.setdefault(one.thread, []).append((one.start_ns, 0, one))
    for at, launch in enumerate(launches):
        events.setdefault(launch.thread, []).append((launch.start_ns, 1, at))
    for on_thread in events.values():
        calls, launched = list[NcclRange](), list[int]()
        for *_, event in sorted(on_thread, key=lambda each: each[:2]):
            if isinstance(event, int):
                launched.append(event)
                continue
            if launched:
                _tell(calls, launched, launches, found)
                calls, launched = [], []
            calls.append(event)
        _tell(calls, launched, launches, found)
    return found


def _tell(calls: Sequence[NcclRange], launched: Sequence[int], launches: Sequence[NcclLaunch], found: list[CollectiveFacts | None]) -> None:
    """Put the facts that all calls of a group have in common at its launches."""
    if not calls:
        return
    kinds = {collective_kind(call.name) for call in calls}
    communicators = {_communicator_and_bytes(call)[0] for call in calls}
    peers = {_peer(call) for call in calls}
    kind, communicator = (one.pop() if len(one) == 1 else "" for one in (kinds, communicators))
    peer = peers.pop() if len(peers) == 1 else -1
    # NCCL may put several calls into one kernel; each rank of the process has as many.
    nbytes, rest = divmod(sum(_communicator_and_bytes(call)[1] for call in calls), max(1, len(launched)))
    nbytes = nbytes if kind in _WHOLE and communicator and not rest else 0
    for at in launched:  # Kernels are called SendRecv, whatever they do.
        its_kind = kind if kind in _MESSAGES else launches[at].kind or kind
        found[at] = CollectiveFacts(its_kind, nbytes=nbytes, communicator=communicator, peer=peer)


def _peer(call: NcclRange) -> int:
    """Return the rank within the communicator to which a message goes, or from which it comes; -1 where that is not known."""
    if collective_kind(call.name) not in _MESSAGES or len(call.payload) < 20:
        return -1
    return max(-1, int.from_bytes(call.payload[16:20], "little", signed=True))


def _communicator_and_bytes(call: NcclRange) -> tuple[str, int]:
    """Return the communicator's hash, which all of its ranks have in common, and the bytes; empty and 0 where they are not known."""
    size = 16 if collective_kind(call.name) in _BARE else 24
    if len(call.payload) < size:  # That of NCCL before 2.24 has no communicator.
        return "", 0
    communicator, nbytes = (int.from_bytes(call.payload[at : at + 8], "little") for at in (0, 8))
    return f"{communicator:x}", nbytes if nbytes < 2**62 else 0


def ranges_of_nccl(ranges: Iterable[Mapping[str, int]], texts: Mapping[int, str], payloads: Mapping[int, bytes]) -> list[NcclRange]:
    """Return the NVTX ranges in NCCL's domain, of those of `marker_ranges`."""
    return [
        NcclRange(int(one["thread"]), int(one["start_ns"]), texts.get(int(one["name"]), ""), payloads.get(int(one["id"]), b""))
        for one in ranges
        if texts.get(int(one["domain"])) == DOMAIN
    ]
