"""Why an engine was chosen, in words, by hand."""

from dataclasses import replace

from streamscope.analysis.statistics import MedianInterval
from streamscope.measuring.choice import HEADINGS, INTERVAL, Candidate, Choice, Standing, reason
from streamscope.trace import DeviceInfo

CARD, SIMULATED = DeviceInfo("cuda", "card"), DeviceInfo("simulated", "card")
BASIS = "95 % interval of the median"


def median(middle, low, high, count=10):
    return MedianInterval(middle, low, high, count, BASIS)


CHOSEN = Candidate("async", Standing.CHOSEN, "", median(29_400, 29_000, 30_000))
SYNC = Candidate("sync", Standing.SLOWER, "", ratio=median(6.63, 6.5, 6.7), against="async")
DUAL = Candidate("dual", Standing.SLOWER, "", ratio=median(2.468, 2.4, 2.5, 8), against="async")


def test_the_next_is_the_least_slow_and_the_others_follow_in_order():
    takes = "async takes 29.4 µs (median of 10 rounds)"
    interval = f" (2.40 to 2.50× in 8 paired rounds, {BASIS})"
    assert reason([CHOSEN, SYNC, DUAL], 10, CARD) == f"{takes}; dual, the next, takes 2.47× as long{interval}. Then: sync (6.63×)."
    assert reason([CHOSEN], 10, CARD) == f"{takes}."
    assert reason([CHOSEN, DUAL], 1, SIMULATED) == (
        "async takes 29.4 µs (run once); dual, the next, takes 2.47× as long. These times are simulated, not measured."
    )


def test_ties_and_what_was_ruled_out_are_told():
    others = [
        Candidate("dual", Standing.NO_FASTER, "", ratio=median(1, 1, 1), against="async"),
        Candidate("graph", Standing.NO_FASTER, "", ratio=median(1, 1, 1), against="sync"),
        Candidate("graph-dual", Standing.UNDECIDED, "", ratio=median(1, 0.9, 1.1, 100)),
        Candidate("mine", Standing.RULED_OUT, "its results are wrong"),
    ]
    assert reason([CHOSEN, *others], 10, CARD) == (
        "async takes 29.4 µs (median of 10 rounds). dual is not faster by more than 1 %, and async is simpler. graph is not faster by more "
        "than 1 % than sync, which is slower. graph-dual cannot be told apart from it in 100 rounds, and async is simpler. "
        "Ruled out: mine (its results are wrong)."
    )


def test_a_table_has_a_column_of_intervals_where_there_is_one():
    same = replace(CHOSEN, makespan_ns=median(29_400, 29_400, 29_401), device_bytes=3 << 19)
    slower = replace(DUAL, makespan_ns=median(72_559, 72_000, 73_000))
    rows = Choice("async", "", (same, slower), "step", CARD).rows()
    assert rows[0] == HEADINGS
    assert rows[1] == ("async", "chosen", "29.4", "–", "–", "1.50", "")
    assert rows[2] == ("dual", "slower", "72.6", "72.0 to 73.0", "2.468 (2.400 to 2.500)", "–", "")
    assert INTERVAL not in Choice("async", "", (same,), "step", CARD).rows()[0]
