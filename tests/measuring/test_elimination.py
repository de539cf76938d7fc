"""Evidence against exact values, and the elimination against what it promises."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from tests.measuring.conftest import rounds_to_tell

from streamscope.measuring.elimination import ERROR_RATE, MARGIN, Dropped, Elimination, Out, evidence, paired_ratios


@pytest.mark.parametrize(
    ("wins", "losses", "expected"),
    [
        (0, 0, 1),
        (1, 0, Fraction(3, 2)),
        (0, 1, Fraction(1, 2)),
        (2, 0, Fraction(7, 3)),
        (1, 1, Fraction(2, 3)),
        (11, 0, Fraction(4095, 12)),
    ],
)
def test_evidence_by_hand(wins, losses, expected):
    assert evidence(wins, losses) == pytest.approx(float(expected), rel=1e-14)


@given(st.integers(0, 30), st.integers(0, 30))
def test_evidence_is_the_integral_of_its_definition(wins, losses):
    integral, _ = quad(lambda p: 2 * (2 * p) ** wins * (2 - 2 * p) ** losses, 0.5, 1)
    assert evidence(wins, losses) == pytest.approx(integral, rel=1e-7)


def test_a_fair_coin_exceeds_twenty_at_any_time_in_at_most_one_of_twenty_games():
    """Exactly, by counting the paths of 120 tosses that reach it."""
    reached, states = Fraction(0), {0: Fraction(1)}
    for tosses in range(1, 121):
        following: dict[int, Fraction] = {}
        for wins, chance in states.items():
            for result in (wins, wins + 1):
                if evidence(result, tosses - result) > 20:
                    reached += chance / 2
                else:
                    following[result] = following.get(result, Fraction(0)) + chance / 2
        states = following
    assert 0.01 < reached <= Fraction(1, 20)
    assert reached + sum(states.values()) == 1


def play(times, exact=False, most=100):
    """Let engines play rounds of their times (a function of the round) until one is left."""
    elimination = Elimination(tuple(times), exact)
    for number in range(most):
        if elimination.decided and number:
            break
        elimination.add({name: times[name](number) for name in elimination.remaining})
    return elimination


def test_a_clear_case_takes_as_few_rounds_as_the_error_rate_allows():
    elimination = play({"sync": lambda _: 300.0, "async": lambda _: 200.0, "graph": lambda _: 100.0})
    needed = rounds_to_tell(3)
    tests = 3 * 3 * 2 / 2
    assert (2**needed - 1) / needed <= tests / ERROR_RATE < (2 ** (needed + 1) - 1) / (needed + 1)
    assert {name: len(values) for name, values in elimination.times_ns.items()} == dict.fromkeys(("sync", "async", "graph"), needed)
    assert elimination.remaining == ("graph",)
    assert elimination.dropped == {"sync": Dropped(Out.SLOWER, "graph"), "async": Dropped(Out.SLOWER, "graph")}


def test_of_equals_the_simpler_is_left():
    elimination = play({"async": lambda _: 100.0, "dual": lambda _: 99.5})
    assert elimination.remaining == ("async",)
    assert elimination.dropped["dual"] == Dropped(Out.NO_FASTER, "async")


def test_margins_do_not_add_up():
    """Each is 0.8 % faster than the one before: the first is 1.6 % behind the last, and so it is out."""
    elimination = play({"a": lambda _: 100.0, "b": lambda _: 99.2, "c": lambda _: 98.4}, exact=True)
    assert elimination.remaining == ("b",)
    assert elimination.dropped == {"a": Dropped(Out.SLOWER, "c"), "c": Dropped(Out.NO_FASTER, "b")}


def test_an_engine_at_the_margin_is_not_faster_by_more():
    elimination = play({"a": lambda _: 101.0, "b": lambda _: 100.0}, exact=True)
    assert 100.0 * (1 + MARGIN) == 101.0
    assert elimination.dropped == {"b": Dropped(Out.NO_FASTER, "a")}


def test_majorities_that_go_round_in_a_circle_leave_somebody():
    """Each of three is faster than the next in two rounds of three, and all of that is shown at the same time."""
    rows = {"a": [1.0, 2.0, 3.0], "b": [2.0, 3.0, 1.0], "c": [3.0, 1.0, 2.0]}
    elimination = Elimination(tuple(rows), times_ns={name: row * 1000 for name, row in rows.items()})
    elimination.add({name: row[0] for name, row in rows.items()})
    assert elimination.remaining
    assert all(dropped.why is Out.NO_FASTER for dropped in elimination.dropped.values())


@given(st.lists(st.floats(1, 1000), min_size=1, max_size=5))
def test_without_noise_it_is_the_simplest_within_the_margin_of_the_fastest(times):
    names = [f"engine {number}" for number in range(len(times))]
    elimination = play({name: lambda _, time=time: time for name, time in zip(names, times, strict=True)}, exact=True)
    within = [name for name, time in zip(names, times, strict=True) if time <= min(times) * (1 + MARGIN)]
    assert elimination.remaining == (within[0],)


def test_wrong_decisions_are_as_rare_as_promised():
    """Engines that differ in nothing but heavy-tailed noise: hardly ever is one called slower."""
    wrong = 0
    for seed in range(100):
        random = np.random.default_rng(seed)
        noisy = {name: lambda _: 100 * float(np.exp(0.3 * random.standard_t(2))) for name in ("a", "b", "c")}  # noqa: B023 — called in this turn
        wrong += any(dropped.why is Out.SLOWER for dropped in play(noisy).dropped.values())
    assert wrong <= 100 * ERROR_RATE


def test_noise_hides_no_clear_winner():
    random = np.random.default_rng(1)
    noisy = {name: lambda _, mean=mean: mean * float(np.exp(0.1 * random.standard_normal())) for name, mean in (("a", 100), ("b", 80))}
    assert play(noisy).remaining == ("b",)


def test_ratios_are_paired_by_round():
    assert paired_ratios([2, 4], [1, 2, 3]) == [2, 2]
    assert paired_ratios([2, 4], [0, 2]) == [2]  # Nothing takes as many times as long as what takes no time.
