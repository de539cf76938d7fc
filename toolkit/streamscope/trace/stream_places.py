"""Numbers for the streams of several processes and contexts, each of which counts its own: two may have a stream 7."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from streamscope.trace.joins import distinct

_BITS = 40
"""A place is the number of an owner, from 1 on, and below it that of the stream, in so many bits: no thread has such a number."""


class Streams:
    """Gives each stream a number of its own, its place."""

    def __init__(self, *what: str) -> None:
        self._what = what
        """What owns a stream, and tells it apart where its number does not: ``"process"``, ``"context"``."""
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
        plain = (streams >= 0) & (streams < 1 << _BITS)
        return np.where(plain, streams + (owner << _BITS), streams).astype(np.int64)

    def texts(self, places: npt.NDArray[Any]) -> dict[int, str]:
        """Return what the streams of some work are called, by their places: ``"7"``, or ``"7 (context 2)"`` where there are two."""
        owners = [*self._owners] or [(-1,) * len(self._what)]
        same = defaultdict[int, list[int]](list)
        for place in np.unique(places).tolist():
            owner, stream = divmod(place, 1 << _BITS)
            if 0 < owner <= len(owners):
                same[stream].append(owner)
        return {
            (owner << _BITS) + stream: _called(stream, self._what, owners[owner - 1], [owners[other - 1] for other in found])
            for stream, found in same.items() for owner in found
        }  # fmt: skip


def _called(stream: int, what: Sequence[str], owner: tuple[int, ...], owners: Sequence[tuple[int, ...]]) -> str:
    differ = [f"{what[index]} {number}" for index, number in enumerate(owner) if any(other[index] != number for other in owners)]
    return f"{stream} ({', '.join(differ)})" if differ else str(stream)
