"""The discrete-event core: actions on the device, each at its time, and moments that can be waited for."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

Action = Callable[[], None]


class Moment:
    """A point in device time that is unknown until it has come."""

    __slots__ = ("_actions", "time_ns")

    def __init__(self) -> None:
        self.time_ns: float | None = None
        self._actions: list[Action] = []

    def has_come(self) -> bool:
        """Tell whether the moment has come."""
        return self.time_ns is not None

    def come(self, time_ns: float) -> None:
        """Say that the moment has come, and do what was waiting for it."""
        self.time_ns = time_ns
        actions, self._actions = self._actions, []
        for action in actions:
            action()

    def then(self, action: Action) -> None:
        """Do something when the moment comes, or at once if it has."""
        if self.time_ns is None:
            self._actions.append(action)
        else:
            action()


class Appointment:
    """An action that is due; `cancel` before its time, and it never happens."""

    __slots__ = ("action",)

    def __init__(self, action: Action) -> None:
        self.action: Action | None = action

    def cancel(self) -> None:
        """Take the action back."""
        self.action = None


class Timeline:
    """Actions in order of their time; those of one time in the order in which they were put there.

    Attributes
    ----------
    now_ns : float
        How far the device has been simulated. It never passes the host's clock but while the host is blocked.
    """

    def __init__(self) -> None:
        self.now_ns = 0.0
        self._due: list[tuple[float, int, Appointment]] = []
        self._order = count()

    def at(self, time_ns: float, action: Action) -> Appointment:
        """Put an action on the timeline, now at the earliest."""
        appointment = Appointment(action)
        heappush(self._due, (max(time_ns, self.now_ns), next(self._order), appointment))
        return appointment

    def is_due(self, time_ns: float) -> bool:
        """Tell whether `run_to` would change anything."""
        return self.now_ns < time_ns or bool(self._due and self._due[0][0] <= time_ns)

    def run_to(self, time_ns: float) -> None:
        """Do all that is due up to and at a time."""
        while self._due and self._due[0][0] <= time_ns:
            self._step()
        self.now_ns = max(self.now_ns, time_ns)

    def run_until(self, condition: Callable[[], bool]) -> bool:
        """Do what is due until a condition holds; False if it still does not when nothing is left."""
        while not condition():
            if not self._due:
                return False
            self._step()
        return True

    def _step(self) -> None:
        time_ns, _, appointment = heappop(self._due)
        if appointment.action is not None:
            self.now_ns = time_ns
            appointment.action()
