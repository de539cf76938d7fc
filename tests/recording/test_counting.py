"""Counters and markers: taken from any thread at the recorder's times, and all that is no number on the host is refused by its name."""

from __future__ import annotations

import threading
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamscope as ss
from streamscope.engine_entry import ENGINES
from streamscope.errors import RecordingError, RecordingWarning
from streamscope.recording import counting
from streamscope.recording.activity_records import ActivityRecords
from streamscope.recording.counting import Heard, HostTimes, heard
from streamscope.recording.pauses import Piece, said_without_pauses
from streamscope.trace import Counters, Markers, SpanKind


@ss.host_function
def log(loss):
    """Count in a host function of a program."""
    ss.counter("loss").set(loss.mean())
    ss.counter("steps").add()
    ss.counter("steps").add(2)
    ss.marker("logged")
    return loss


def step(x):
    """Launch, log, and log again."""
    first = log(ss.ops.to_host(x * 2))
    return log(ss.ops.to_host(ss.ops.to_device(first) + 1))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_simulated_run_has_them_at_the_virtual_times_of_its_host_functions(engine):
    x = np.full(100, 3, np.float32)
    trace = ss.compare(step, x, engines=[engine], device="simulated", progress=False)[engine].trace
    spans = trace.spans.of_kind([SpanKind.HOST])
    starts = spans.start_ns.tolist()
    assert len(starts) == 2
    assert trace.markers.to_dict() | {"texts": None} == {"time_ns": starts, "name": [0, 0], "thread": [1, 1], "texts": None}
    assert (trace.markers.names, trace.markers.threads) == (["logged"] * 2, ["host"] * 2)
    found = trace.counters.to_pandas()
    assert found[found["name"] == "loss"][["time_ns", "value"]].to_numpy().tolist() == [[starts[0], 6.0], [starts[1], 7.0]]
    assert found[found["name"] == "steps"]["value"].tolist() == [1, 3, 4, 6]  # Each recorded run begins with 0.


def test_engines_give_the_same_numbers_whatever_ran_before():
    ss.counter("steps").add(1000)
    runs = ss.compare(step, np.ones(10, np.float32), device="simulated", progress=False)
    assert {tuple(map(str, run.trace.counters.summary())) for run in runs.values()} == {
        (
            "{'name': 'loss', 'count': 2, 'min': 2.0, 'max': 3.0, 'last': 3.0}",
            "{'name': 'steps', 'count': 4, 'min': 1.0, 'max': 6.0, 'last': 6.0}",
        )
    }


def test_where_nothing_records_nothing_is_kept():
    ss.counter("idle").set(1)
    ss.marker("idle")
    with heard(lambda: 5) as said:
        pass
    ss.counter("idle").set(2)
    assert (said.values, said.moments, counting._hearing) == ([], [], ())


def test_recordings_within_each_other_each_hear_on_their_own_clock():
    with heard(lambda: 5) as outer:
        ss.counter("x").set(1)
        with heard(lambda: 7) as inner:
            ss.counter("x").add(2.5)
        ss.marker("end")
    x = ss.counter("x")
    assert outer.values == [(5, x, 1, False), (5, x, 2.5, True)]
    assert inner.values == [(7, x, 2.5, True)]
    assert (outer.moments, inner.moments) == ([(5, "end", threading.get_native_id())], [])


def test_all_threads_are_heard_and_no_value_is_lost():
    clock = iter(range(10**6))
    with heard(lambda: next(clock)) as said:
        threads = [threading.Thread(target=lambda: [ss.counter("n").add() for _ in range(2000)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    trace = said.onto(ss.Trace.from_spans([("k", "s", 0, 10)]), 0, 10**6)
    assert trace.counters.summary() == [{"name": "n", "count": 8000, "min": 1.0, "max": 8000.0, "last": 8000.0}]


@pytest.mark.parametrize(
    "value", [3, -2.5, np.float32(1.5), np.int8(-3), np.uint64(2**63), np.array([4.0]), np.array(5, np.int16), 2**70, np.float64(0.1)]
)
def test_numbers_on_the_host_are_taken(value):
    with heard(lambda: 0) as said:
        ss.counter("x").set(value)
    assert said.values == [(0, ss.counter("x"), float(np.asarray(value).reshape(())), False)]


class OnGpu:
    """What CuPy's arrays say of themselves; nobody may ask for more, which would wait."""

    @property
    def __cuda_array_interface__(self):
        raise AssertionError("this waits")

    def __float__(self):
        raise AssertionError("this waits")

    item = __float__


class Tensor:
    """A tensor of PyTorch: it has the interface wherever it lies."""

    __cuda_array_interface__ = property(lambda self: 1 / 0)

    def __init__(self, *, is_cuda):
        self.is_cuda = is_cuda

    def item(self):
        raise AssertionError("this may wait")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (True, "the truth value True (int(x) counts it as 0 or 1)"),
        (np.True_, "a value of dtype bool"),
        (float("nan"), "NaN (leave such values out"),
        (np.float32("nan"), "NaN (leave such values out"),
        (float("-inf"), "infinite"),
        (10**400, "a whole number too large for a float"),
        (1j, "a complex"),
        (np.timedelta64(3, "s"), "a value of dtype timedelta64[s]"),
        (np.complex64(1), "a value of dtype complex64"),
        ("3", "a str (give an int or a float: counter.set(float(x)))"),
        (None, "a NoneType"),
        (Fraction(1, 2), "a Fraction"),
        (np.ones(3), "an array of 3 elements (give one number, for example its mean: counter.set(x.mean()))"),
        (np.array([]), "an array of 0 elements"),
        (OnGpu(), "an array on a GPU (tests's OnGpu), which would have to be waited for (count it where your code waits anyway"),
        (Tensor(is_cuda=True), "an array on a GPU (tests's Tensor), which would have to be waited for"),
        (Tensor(is_cuda=False), "a Tensor of tests (give the number in it: counter.set(x.item()))"),
    ],
    ids=lambda value: str(value)[:30],
)
@pytest.mark.parametrize("verb", ["set", "add"])
@pytest.mark.parametrize("recording", [False, True])
def test_all_else_is_refused_by_its_name_whether_something_records_or_not(value, words, verb, recording):
    listener = Heard(lambda: 0)
    if recording:
        counting.listen(listener)
    try:
        with pytest.raises(RecordingError) as refused:
            getattr(ss.counter("loss"), verb)(value)
    finally:
        counting.leave(listener)
    assert f"counter 'loss' takes a number on the host, not {words}" in str(refused.value)
    assert listener.values == []


def test_a_symbol_of_a_program_is_refused_with_what_to_do():
    def counts(x):
        ss.counter("loss").set(x.sum())
        return x

    with pytest.raises(RecordingError, match=r"not a symbol of a program that is being traced, .*ss\.host_function"):
        ss.prepare(counts, np.ones(3), device="simulated")


@pytest.mark.parametrize("say", [lambda: ss.marker("begin"), lambda: ss.counter("begin").add(1)], ids=["marker", "counter"])
def test_the_body_of_a_program_is_warned_that_its_runs_do_not_say_it(say):
    def counts(x):
        say()
        return x + 1

    with pytest.warns(RecordingWarning, match=r"'begin' in the body of a program is not in its runs.*ss\.host_function"):
        ss.prepare(counts, np.ones(3), device="simulated")


def test_a_variable_of_an_engine_is_refused():
    with (
        ss.Engine(device="simulated") as engine,
        pytest.raises(RecordingError, match="not a variable of an engine, which would"),
    ):
        ss.counter("loss").set(engine.variable(np.ones(1)))


@pytest.mark.parametrize("name", [3, None, "", "x" * 1001, ["a"], "\ud800"])
def test_names_are_texts(name):
    with pytest.raises(RecordingError, match=r"of a counter (must|has)"):
        ss.counter(name)
    with pytest.raises(RecordingError, match=r"a marker (must|has)"):
        ss.marker(name)


def test_a_name_and_a_unit_are_one_counter():
    assert ss.counter("power", "W") is ss.counter("power", "W")
    assert ss.counter("power", "W") is not ss.counter("power")
    assert repr(ss.counter("power", "W")) == "<counter 'power, W'>"


def test_the_profilers_clock_is_tied_to_the_hosts(monkeypatch):
    host = iter(range(1_000_000, 10**9, 100))
    monkeypatch.setattr(counting.time, "perf_counter_ns", lambda: next(host))
    now = 0

    def profiler_ns():
        nonlocal now
        now += 450  # Between two readings of the host's clock, 150 ns from the first one to the second; three times as quick, and 7 off.
        return now

    times = HostTimes(profiler_ns)
    ss.counter("x").set(1)
    ss.marker("m")
    said = times.end()
    assert counting._hearing == ()
    assert len(said.values) == len(said.moments) == 1
    assert 450 < said.values[0][0] < said.moments[0][0] < now


pieces = st.lists(st.tuples(st.lists(st.integers(-20, 120), max_size=5), st.integers(0, 10**6)), min_size=1, max_size=4)


@given(pieces)
def test_pauses_are_cut_out_of_counters_and_all_of_a_piece_lies_in_it(drawn):
    made, clock_ns, expected, x, before = list[Piece](), 10**6, list[int](), ss.counter("x"), 0
    for said_at, pause_ns in drawn:
        said = Heard(lambda: 0)
        said.values = [(clock_ns + at, x, 1.0, True) for at in said_at]
        said.moments = [(clock_ns + at, "m", 7) for at in said_at]
        made.append(Piece(ActivityRecords(), clock_ns, clock_ns + 100, clock_ns + 150, said))
        expected += [before + min(max(at, 0), 100) for at in said_at]
        clock_ns += 150 + pause_ns
        before += 150
    counters, markers = said_without_pauses(made).tables(10**6, [])
    assert counters.time_ns.tolist() == markers.time_ns.tolist() == sorted(expected)
    assert counters.value.tolist() == list(range(1, len(expected) + 1))
    assert set(markers.threads) <= {"thread 7"}


def test_what_was_said_outside_of_a_run_is_not_in_its_trace():
    said = Heard(lambda: 0)
    said.values = [(at, ss.counter("x"), float(at), False) for at in (5, 10, 20, 25)]
    said.moments = [(at, str(at), said.thread) for at in (9, 20)] + [(15, "other", 3)]
    trace = said.onto(ss.Trace.from_spans([("k", "s", 0, 10)]), 10, 20)
    assert (trace.counters.time_ns.tolist(), trace.counters.value.tolist()) == ([0, 10], [10.0, 20.0])
    assert (trace.markers.names, trace.markers.threads) == (["other", "20"], ["thread 3", "host"])


def test_more_than_a_trace_keeps_is_thinned_and_said():
    said = Heard(lambda: 0)
    said.values = [(at, ss.counter("xy"[at % 2]), float(at), False) for at in range(250_000)]
    said.moments = [(at, "m", said.thread) for at in range(20_001)]
    trace = said.onto(ss.Trace.from_spans([("k", "s", 0, 10)]), 0, 10**6)
    assert Counters.MOST / 2 < len(trace.counters) <= Counters.MOST
    assert {each["last"] for each in trace.counters.summary()} == {249_998.0, 249_999.0}
    assert len(trace.markers) == Markers.MOST
    left = 250_000 - len(trace.counters)
    assert trace.info.notes[-2:] == (
        f"left out: {left:,} values of counters, evenly, since a trace keeps 100,000",
        "left out: 1 marker, the latest; a trace keeps 20,000",
    )
