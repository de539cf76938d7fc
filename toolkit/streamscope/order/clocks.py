"""Vector clocks: which items are known to be done before the next one, and the fewest waits for those that are not.

Work is put on *lanes*: streams, by number. A lane is in order, and whoever has waited for an item of a lane knows all that the item knew.
So the clock of a lane says which items of the other lanes need no wait any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

Clock = tuple[int, ...]
"""For each lane, the position up to which its items are known to be done."""


class Stamp:
    """One item of a lane.

    The stamp carries its lane's clock, so no history is kept: the clock goes with the last one who holds the stamp.
    """

    __slots__ = ("clock", "lane", "position")

    def __init__(self, lane: int, position: int, clock: Clock) -> None:
        self.lane = lane
        self.position = position
        """Number of the lane, and which item of it, from 1."""
        self.clock = clock
        """The lane's clock when the item was issued."""

    @property
    def known(self) -> Clock:
        """The items known to be done once this one is."""
        return (*self.clock[: self.lane], self.position, *self.clock[self.lane + 1 :])

    def __repr__(self) -> str:
        return f"Stamp(lane={self.lane}, position={self.position})"


AnyStamp = TypeVar("AnyStamp", bound=Stamp)


def merged(clock: Clock, other: Clock) -> Clock:
    """Join two clocks."""
    return tuple(map(max, clock, other))


def fewest(clock: Clock, stamps: Sequence[AnyStamp]) -> list[AnyStamp]:
    """Return the fewest stamps to wait for, given what is known, by lane: the latest of each lane, and none that another one implies.

    Each wait that is left is necessary: without it, nothing orders what it is for.
    """
    latest: dict[int, AnyStamp] = {}
    for stamp in stamps:
        if clock[stamp.lane] < stamp.position and (stamp.lane not in latest or latest[stamp.lane].position < stamp.position):
            latest[stamp.lane] = stamp
    # The usual case, and each push pays for this function.
    if len(latest) < 2:
        return list(latest.values())
    chosen = [latest[lane] for lane in sorted(latest)]
    return [stamp for stamp in chosen if not any(other.clock[stamp.lane] >= stamp.position for other in chosen if other is not stamp)]
