"""What the device does at each time, at every level of detail: short stretches that share a pixel become one for each thing done."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from streamscope.analysis import Activity
from streamscope_widgets.levels import finest_level, level_of

KERNELS, COPIES = 12, 4
"""Bits from which the streams with kernels, and with copies, stand in a number that tells what is done."""


@dataclass(frozen=True)
class Stretches:
    """An activity, of which some stretches are the time that a crowd of shorter ones takes with one thing, put together."""

    found: Activity
    crowd: npt.NDArray[np.bool_]
    """bool: which stretches stand for a crowd: how long one thing is done is right in sum, when it is done within a pixel."""

    def select(self, chosen: npt.NDArray[Any] | slice) -> Stretches:
        """Return the stretches that a mask or a slice picks."""
        columns = {name: getattr(self.found, name)[chosen] for name in self.found.__dataclass_fields__}
        return Stretches(Activity(**columns), self.crowd[chosen])

    def merged(self, pitch_ns: int) -> Stretches:
        """Return the stretches of a level whose pixels are ``pitch_ns`` long, a multiple of those that these were made for."""
        found = self.found
        length_ns = found.end_ns - found.start_ns
        short, pixel = length_ns < pitch_ns, found.start_ns // pitch_ns
        alone = np.append(True, ~(short[1:] & short[:-1] & (pixel[1:] == pixel[:-1])))[: len(short)]
        crowd = np.cumsum(alone) - 1
        done = found.kernels.astype(np.int64) << KERNELS | found.copies.astype(np.int64) << COPIES | found.occupation
        _, first, inverse = np.unique(crowd << 20 | done, return_index=True, return_inverse=True)
        if len(first) == len(short):
            return self
        end_ns = found.start_ns[0] + np.cumsum(np.bincount(inverse, length_ns).astype(np.int64))
        several = np.bincount(inverse) > 1
        # Whatever shares its pixel with something else was moved.
        lonely = np.bincount(crowd)[crowd[first]] == 1
        kept = Activity(
            np.append(found.start_ns[:1], end_ns[:-1]), end_ns, found.kernels[first], found.copies[first], found.occupation[first],
            np.where(several, np.nan, found.fullness[first]).astype(found.fullness.dtype),
        )  # fmt: skip
        return Stretches(kept, self.crowd[first] | ~lonely)


class StretchLevels:
    """The stretches of a run at every level."""

    def __init__(self, found: Activity, most_direct: int) -> None:
        small = {name: np.minimum(getattr(found, name), 255).astype(np.uint8) for name in ("kernels", "copies", "occupation")}
        found = replace(found, **small, fullness=found.fullness.astype(np.float32))
        self.most_direct = most_direct
        """So many stretches are merged whenever they are asked for."""
        self._whole = Stretches(found, np.zeros(len(found.start_ns), bool))
        self._levels: dict[int, Stretches] = {}

    def within(self, level: int, start_ns: float, end_ns: float, most_exact: int = 0) -> Stretches:
        """Return the stretches that reach into a stretch of time; the parameters are those of `Rows.marks`."""
        part = _within(self._whole, start_ns, end_ns)
        count = len(part.crowd)
        if level <= 0 or count <= most_exact:
            return part
        return part.merged(1 << level) if count <= self.most_direct else _within(self._level(level), start_ns, end_ns)

    def _level(self, level: int) -> Stretches:
        found = self._whole.found
        finest = finest_level(int(found.end_ns[-1] - found.start_ns[0]), len(found.start_ns), self.most_direct)
        return level_of(self._levels, level, finest, self._whole.merged)


def _within(stretches: Stretches, start_ns: float, end_ns: float) -> Stretches:
    found = stretches.found
    return stretches.select(slice(int(np.searchsorted(found.end_ns, start_ns, "right")), int(np.searchsorted(found.start_ns, end_ns))))
