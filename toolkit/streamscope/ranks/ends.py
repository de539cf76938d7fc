"""What the ends of operations tell of the clock of a rank: its offset, how it drifts, and how they scatter."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamscope.arrays import BoolArray, FloatArray, IntArray
from streamscope.ranks.matching import slope_of

SAME_HOST_NS = 20_000
"""Ranks of one host read one clock, within this."""
_TOLERANCE_NS = 0.5
_SURE = 4.0
"""A drift is believed that is so many times its error."""
_LAST_LAG, _RECEIVER_LAG, _LONGEST_LAG_NS = 0.08, 0.3, 25_000
"""Usual lags. The last of two ranks to begin a collective ends later, by the first share of the transfer; a receiver that waited for its
message ends later than the sender, by the second share. None is longer than the third number."""
_LAGS = np.linspace(0.0, 7.5, 31)
"""Lags that are tried, in usual ones."""
_OFFSETS = np.linspace(-7.5, 7.5, 41)
"""Offsets that are tried, in the longest usual lag, around the middle of the ends."""
_UNUSUAL, _ONE_SIDED, _FAR = 0.1, 0.14, 0.001
"""What an explanation costs, in usual lags: for each by which its lag is another one, if it makes one of two ranks the last one always, and
for each by which its offset is away from the middle of the ends."""
_QUICKEST = 0.75
"""This share of the operations of two ranks counts, those with the shortest transfers: work beside the others makes their ends uneven."""
_MOST_COUNTED = 256
_NEAREST = 0.4
"""Ends that are all to one side scatter around this quantile above or below their middle."""
_LEAST_SIDE, _EVEN = 3, 0.5
"""Messages of both directions tell an offset, if there are so many of each. Ends of collectives are nearer to the truth than a clock that
two ranks share, if each was the last one for such a share of the other one's times."""
_TURNS = 8
"""Who began an operation last depends on the offset, which is estimated so many times at most."""


@dataclass(frozen=True)
class Meetings:
    """Operations of a rank with another one whose clock is known: equally long columns.

    Attributes
    ----------
    end_ns : float array
        On the rank's own clock.
    apart_ns : float array
        End on the other rank, less that.
    behind_ns : float array
        How much later the rank began, by its own clock.
    transfer_ns : float array
        How long the shortest part of any rank took.
    waited : bool array
        Whether both waited for a third rank, which began last.
    receives : int64 array
        1 where the rank receives a message, -1 where it sends one, else 0.
    simulated : bool
        Whether the operations are those of a simulated host, which end on all ranks at once.
    shared_ns : float, optional
        The offset if both read one clock, as ranks of one host do.
    """

    end_ns: FloatArray
    apart_ns: FloatArray
    behind_ns: FloatArray
    transfer_ns: FloatArray
    waited: BoolArray
    receives: IntArray
    simulated: bool
    shared_ns: float | None

    def line(self) -> tuple[float, float, float, float]:
        """Return offset at time 0, slope, scatter of the ends, and the lag that is assumed; no slope, where it is not clearly one."""
        order = np.argsort(self.end_ns)
        slope = slope_of(self.end_ns[order], self.apart_ns[order])
        rest_ns = self.apart_ns - slope * self.end_ns
        offset_ns = float(np.median(rest_ns))
        spread_ns = float(self.end_ns.std()) * np.sqrt(len(self.end_ns))
        if abs(slope) * spread_ns < _SURE * 1.25 * max(_scatter_ns(rest_ns, offset_ns), 1.0):
            slope, rest_ns = 0.0, self.apart_ns
        behind_ns = self.behind_ns + slope * self.end_ns
        fit = self._by_messages if self.receives.any() else self._by_collectives
        offset_ns, lag_ns, both_sides = fit(rest_ns, behind_ns)
        if self.shared_ns is not None and not both_sides and abs(offset_ns - self.shared_ns) <= 2 * SAME_HOST_NS:
            offset_ns, lag_ns = self.shared_ns, np.zeros(1)
        assumed_ns, nearest_ns = 0.0 if both_sides else float(np.median(lag_ns)), offset_ns
        if assumed_ns and not self.receives.any():  # All ends are to one side of the offset.
            nearest_ns = float(np.quantile(rest_ns, 0.5 + _NEAREST * np.sign(assumed_ns)))
        return offset_ns, slope, _scatter_ns(rest_ns, nearest_ns), abs(assumed_ns)

    def _by_messages(self, apart_ns: FloatArray, behind_ns: FloatArray) -> tuple[float, FloatArray, bool]:
        """Return the offset, by how much later the rank ends in each message, and whether messages of both directions tell it.

        A receiver that waited for its message ends later than the sender, and by as much in the other direction. If it waited in one
        direction only, the usual lag is taken off.
        """
        usual_ns = self._usual_lags_ns(0.0 if self.simulated else _RECEIVER_LAG)
        offset_ns, lag_ns, both_sides = float(np.median(apart_ns)), np.zeros(1), False
        for _ in range(_TURNS):
            before_ns = offset_ns
            waited = (behind_ns + offset_ns) * self.receives <= 0
            received, sent = (self._quickest(np.flatnonzero(waited & (self.receives == sign)), 0.5) for sign in (1, -1))
            both_sides = min(len(received), len(sent)) >= _LEAST_SIDE
            if both_sides:
                offset_ns, lag_ns = float(np.median(apart_ns[received]) + np.median(apart_ns[sent])) / 2, np.zeros(1)
            elif len(rows := max(received, sent, key=len)) >= _LEAST_SIDE:
                lag_ns = self.receives * usual_ns
                offset_ns = float(np.median((apart_ns + lag_ns)[rows]))
            if abs(before_ns - offset_ns) < _TOLERANCE_NS:
                break
        return offset_ns, lag_ns, both_sides

    def _by_collectives(self, apart_ns: FloatArray, behind_ns: FloatArray) -> tuple[float, FloatArray, bool]:
        """Return the offset, by how much later the rank ends in each collective, and whether each of the two was the last one at times."""
        rows = self._quickest(np.arange(len(apart_ns)), _QUICKEST)
        if len(rows) > _MOST_COUNTED:  # Not each n-th: what repeats could fall between.
            rows = np.random.default_rng(0).choice(rows, _MOST_COUNTED, replace=False)
        ends = _Ends(apart_ns, behind_ns, np.maximum(self._usual_lags_ns(_LAST_LAG), 1.0), self.waited, 0.0 if self.simulated else 1.0)
        offset_ns, lag = ends.some(rows).explained()
        both_sides = bool(ends.some(rows).evenness(np.array(offset_ns)) >= _EVEN)
        return offset_ns, ends.lags_ns(np.array(offset_ns), np.array([lag]))[0], both_sides

    def _usual_lags_ns(self, share: float) -> FloatArray:
        found: FloatArray = np.minimum(share * self.transfer_ns, _LONGEST_LAG_NS)
        return found

    def _quickest(self, rows: IntArray, share: float) -> IntArray:
        """Return that share of some operations whose transfers are the shortest."""
        found: IntArray = rows[self.transfer_ns[rows] <= np.quantile(self.transfer_ns[rows], share)] if len(rows) else rows
        return found


@dataclass(frozen=True)
class _Ends:
    """Ends of a rank's collectives with another one, and what explains them: an offset of its clock, and a lag of whoever began last.

    What the others have sent already lies in the buffers of the last one. So it ends later: by what it began later, or by the lag if that
    is less. Where it is always the same rank, a lag and an offset explain the same ends, and the lag is taken to be the usual one.
    """

    apart_ns: FloatArray
    behind_ns: FloatArray
    usual_ns: FloatArray
    waited: BoolArray
    usual: float
    """The lag that costs nothing, in ``usual_ns``."""

    def some(self, rows: IntArray) -> _Ends:
        """Return some of them."""
        columns = (self.apart_ns[rows], self.behind_ns[rows], self.usual_ns[rows], self.waited[rows])
        return _Ends(*columns, self.usual)

    def explained(self) -> tuple[float, float]:
        """Return the offset and the lag that leave the least unexplained, at the least cost."""
        offsets_ns = float(np.median(self.apart_ns)) + _OFFSETS * float(self.usual_ns.max())
        found_ns = offsets_ns[self._cost_ns(offsets_ns[:, None]).argmin(axis=0)]  # One for each lag.
        for _ in range(_TURNS):
            found_ns = np.median(self.apart_ns + self.lags_ns(found_ns, _LAGS), axis=-1)
        best = int(self._cost_ns(found_ns).argmin())
        return float(found_ns[best]), float(_LAGS[best])

    def lags_ns(self, offset_ns: FloatArray, lags: FloatArray) -> FloatArray:
        """Return by how much the rank ends later in each collective, less than 0 where the other one does: (…, lags, collectives)."""
        most_ns = lags[:, None] * self.usual_ns
        found: FloatArray = np.where(self.waited, 0.0, np.clip(self.behind_ns + offset_ns[..., None], -most_ns, most_ns))
        return found

    def evenness(self, offset_ns: FloatArray) -> FloatArray:
        """Return how often the one of the two ranks was the last one that was less often, as a share of the other one's times."""
        last, first = ((~self.waited & (sign * (self.behind_ns + offset_ns[..., None]) > 0)).sum(axis=-1) for sign in (1, -1))
        found: FloatArray = np.minimum(last, first) / np.maximum(1, np.maximum(last, first))
        return found

    def _cost_ns(self, offset_ns: FloatArray) -> FloatArray:
        left_ns = np.abs(self.apart_ns + self.lags_ns(offset_ns, _LAGS) - offset_ns[..., None]).mean(axis=-1)
        usual_ns, away_ns = float(np.median(self.usual_ns)), np.abs(offset_ns - np.median(self.apart_ns))
        found: FloatArray = (
            left_ns + _FAR * away_ns + usual_ns * (_UNUSUAL * np.abs(_LAGS - self.usual) + _ONE_SIDED * (1.0 - self.evenness(offset_ns)))
        )
        return found


def _scatter_ns(values_ns: FloatArray, around_ns: float) -> float:
    return 1.4826 * float(np.median(np.abs(values_ns - around_ns)))
