"""Successive elimination: which engine is the fastest, told from paired rounds with as few of them as the noise allows.

In a round every engine that is still in runs once, so that a drift of the machine meets all alike. Of a pair, only the sign of each
round counts: was ``a`` faster than ``b`` by more than a margin? Nothing is assumed about the distribution of times, but that rounds are
independent. After every round each pair is tested anew; the tests stay right however often one looks (`evidence`).

An engine is out once it is slower than another one by more than the margin, or once it is not faster by more than the margin than the
simplest engine that is still in. The second rule compares with the simplest only, so that margins cannot add up along a chain of ties.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import comb
from typing import TypeVar

import numpy as np

Time = TypeVar("Time")

MARGIN = 0.01
"""Engines closer than this share of the makespan are not worth a distinction; it is that of `analysis.statistics.SAME_WITHIN`."""
ERROR_RATE = 0.05
"""Probability that any engine of a comparison is dropped wrongly, however many rounds it takes."""


def in_turns(names: Iterable[str], time: Callable[[str], Time], random: np.random.Generator) -> dict[str, Time]:
    """Time each of several engines once, in random order, and return the times by name."""
    return {name: time(name) for name in map(str, random.permutation(list(names)))}


class Out(Enum):
    """Why an engine is out."""

    SLOWER = "slower"
    NO_FASTER = "no faster"


@dataclass(frozen=True)
class Dropped:
    """An engine that is out."""

    why: Out
    against: str
    """Than which engine it is slower, or no faster."""


@dataclass
class Elimination:
    """The state of a comparison by rounds."""

    names: tuple[str, ...]
    """The engines, the one to prefer among equals first."""
    exact: bool = False
    """Times have no noise (a simulated device): one round tells."""
    times_ns: dict[str, list[float]] = field(default_factory=dict)
    """Each engine's times, in ns; round by round from the first, up to the round that it was last in."""
    dropped: dict[str, Dropped] = field(default_factory=dict)

    @property
    def remaining(self) -> tuple[str, ...]:
        """Engines that are still in, the one to prefer among equals first."""
        return tuple(name for name in self.names if name not in self.dropped)

    @property
    def decided(self) -> bool:
        """Whether one engine is left."""
        return len(self.remaining) <= 1

    def add(self, times_ns: Mapping[str, float]) -> None:
        """Add a round, which must hold every engine that is still in, and drop the engines that it decides against."""
        for name in self.names:
            if name in times_ns:
                self.times_ns.setdefault(name, []).append(times_ns[name])
        self._drop_slower()
        self._drop_no_faster()

    def _drop_slower(self) -> None:
        found = {}
        for slow in self.remaining:
            beaten_by = [fast for fast in self.remaining if fast != slow and self._shown(*self._signs(fast, slow))]
            if beaten_by:
                found[slow] = Dropped(Out.SLOWER, min(beaten_by, key=lambda name: sum(self.times_ns[name])))
        # Majorities can go round in a circle, with three engines or more; then nothing is known.
        if len(found) < len(self.remaining):
            self.dropped |= found

    def _drop_no_faster(self) -> None:
        simplest, *others = self.remaining
        for other in others:
            faster, not_faster = self._signs(other, simplest)
            if self._shown(not_faster, faster):
                self.dropped[other] = Dropped(Out.NO_FASTER, simplest)

    def _signs(self, fast: str, slow: str) -> tuple[int, int]:
        """Count the rounds in which ``fast`` was faster by more than the margin, and the others."""
        pairs = zip(self.times_ns.get(fast, ()), self.times_ns.get(slow, ()), strict=False)
        signs = [quick * (1 + MARGIN) < long for quick, long in pairs]
        return sum(signs), len(signs) - sum(signs)

    def _shown(self, wins: int, losses: int) -> bool:
        # Every pair may err, at any round: the error rate is divided by their number (Bonferroni).
        tests = 3 * len(self.names) * (len(self.names) - 1) / 2  # slower: each ordered pair; no faster: each pair
        return evidence(wins, losses) > (1 if self.exact else tests / ERROR_RATE)


def evidence(wins: int, losses: int) -> float:
    """Return the evidence that a win is more likely than a loss, as an e-value.

    Formula: the likelihood of the rounds, averaged over all chances p of a win from 1/2 to 1, over their likelihood at p = 1/2:
    2 ∫ (2p)^wins (2 - 2p)^losses dp from 1/2 to 1, which is Σ C(n + 1, i) for i = 0 … wins, over (n + 1) C(n, wins), n = wins + losses.
    If no win is more likely than a loss, it exceeds x at any time with a probability of at most 1/x (Ville's inequality), so one may look
    after every round. Source: Robbins, Annals of Mathematical Statistics 41 (1970); Ramdas et al., Statistical Science 38 (2023).
    """
    rounds = wins + losses
    return _binomial_sum(rounds + 1, wins) / ((rounds + 1) * comb(rounds, wins))


def _binomial_sum(rounds: int, most: int) -> int:
    return sum(comb(rounds, count) for count in range(most + 1))


def paired_ratios(times_ns: Sequence[float], base_ns: Sequence[float]) -> list[float]:
    """Return the ratios of two engines' times in the rounds that both were in."""
    return [time / base for time, base in zip(times_ns, base_ns, strict=False) if base > 0]
