"""Every fault is raised once or counted once, however many there are, and what is kept of it holds nothing of ours."""

from __future__ import annotations

import contextlib
import gc
import traceback
import weakref

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streamscope as ss
from streamscope.devices.simulated import SimulatedDevice
from streamscope.engines.pushed.engine import Engine
from streamscope.engines.pushed.faults import KEPT, Fault, FaultLog, kept
from streamscope.errors import EngineError, ProgramError


def told(error):
    """How many faults an error of a wait for all stands for."""
    if error is None:
        return 0
    *notes, last = getattr(error, "__notes__", []) or [""]
    more = int(last.split()[1]) if last.startswith("and ") else 0
    return 1 + len(notes) + (more or bool(last))


def log_of(count):
    log, faults = FaultLog(), [Fault(f"number {number}", "here", ValueError()) for number in range(count)]
    for fault in faults:
        log.add(fault)
    return log, faults


def test_later_ones_are_told_when_all_that_are_kept_were_raised():
    log, faults = log_of(KEPT + 2)
    for fault in faults[:KEPT]:
        assert log.take(fault) is not None
    assert log.live
    assert told(log.take_all()) == 2
    assert not log.live
    assert [log.take(fault) for fault in faults] == [None] * (KEPT + 2)
    assert log.take_all() is None


def test_what_is_told_at_once_is_not_raised_again():
    log, faults = log_of(KEPT + 2)
    assert told(log.take_all()) == KEPT + 2
    assert log.take(faults[-1]) is None
    log.add(Fault("another", "here", ValueError()))
    assert told(log.take_all()) == 1


def test_later_ones_that_nothing_holds_are_counted():
    log, faults = log_of(KEPT + 3)
    for fault in faults[:KEPT]:
        log.take(fault)
    faults.clear()
    del fault
    with pytest.raises(EngineError, match="3 operations failed after 100 others"):
        raise log.take_all()
    assert log.take_all() is None


@settings(max_examples=60)
@given(st.lists(st.one_of(st.integers(0, 400), st.sampled_from(["add 30", "all", "drop"])), max_size=40))
def test_each_is_told_once_in_any_order(steps):
    log, faults, added, seen = FaultLog(), [], 0, 0
    for step in steps:
        if step == "add 30":
            new = [Fault("one", "here", ValueError()) for _ in range(30)]
            for fault in new:
                log.add(fault)
            faults += new
            added += 30
        elif step == "all":
            seen += told(log.take_all())
            assert not log.live
        elif step == "drop":
            del faults[::3]  # The variables that they spoiled are gone.
        elif faults:
            seen += log.take(faults[step % len(faults)]) is not None
        assert log.live is (seen < added)
        assert len(log._faults) <= KEPT
    seen += told(log.take_all())
    assert seen == added
    assert not any(log.take(fault) for fault in faults)


def failing(values):
    raise ValueError("as planned")


def test_only_the_users_frames_are_kept():
    with Engine("async", device=SimulatedDevice()) as engine:
        h = engine.variable(np.ones(4), place="host")
        engine.push(failing, reads=(h,), writes=(h,))
        with pytest.raises(EngineError, match="as planned") as raised:
            engine.wait_to_read(h)
        assert [entry.name for entry in traceback.extract_tb(raised.value.__cause__.__traceback__)] == ["failing"]


def test_errors_that_led_to_it_are_cleaned_too():
    def ours():
        exec("raise KeyError('inner')", {"__name__": "streamscope.engines.pushed.anything"})  # a frame of a module of ours

    try:
        try:
            ours()
        except KeyError as inner:
            raise ValueError("outer") from inner
    except ValueError as error:
        cleaned = kept(error)
    names = [frame.f_globals["__name__"] for one in (cleaned, cleaned.__cause__) for frame, _ in traceback.walk_tb(one.__traceback__)]
    assert names == [__name__] * 3
    assert isinstance(kept(KeyboardInterrupt("once")), KeyboardInterrupt)


class Stop(BaseException):
    """Cannot be made again from its arguments."""

    def __new__(cls, reason, *, code):
        return super().__new__(cls, reason)

    def __init__(self, reason, *, code):
        super().__init__(reason)


class Leave(SystemExit):
    """The same, derived from another class of Python's."""

    def __new__(cls, reason, *, code):
        return super().__new__(cls, reason)

    def __init__(self, reason, *, code):
        super().__init__(reason)


class Several(BaseExceptionGroup):
    """Gives Python's class other arguments than it gets."""

    def __new__(cls, errors):
        return super().__new__(cls, "several", errors)


@pytest.mark.parametrize("error", [Stop("now", code=1), Leave("now", code=1), Several([KeyboardInterrupt()]), GeneratorExit("now")])
def test_of_what_ends_the_program_another_one_is_kept(error):
    with pytest.raises(type(error)):
        raise error
    another = kept(error)
    assert type(another) is type(error)
    assert another is not error
    assert another.__traceback__ is None
    assert str(another) == str(error)


class Silent(Exception):  # noqa: N818
    """Fails to say what it is."""

    def __str__(self):
        raise ZeroDivisionError


class OfTheUser(ProgramError):  # noqa: N818
    """Is made in another way than ours, and keeps nothing."""

    def __init__(self, number, reason):
        self.number = number

    __str__ = Silent.__str__


def test_errors_of_any_class_are_told():
    log = FaultLog()
    for cause in (ValueError("first"), Silent(), OfTheUser(1, "it"), Stop("now", code=1)):
        log.add(Fault("step", "here", cause))
    error = log.take_all()
    assert error.__notes__ == [
        "also: step (pushed at here) failed: Silent: (its text cannot be had: ZeroDivisionError)",
        "also: step (pushed at here) failed: OfTheUser: (its text cannot be had: ZeroDivisionError)",
        "also: step (pushed at here) was interrupted by Stop (push it again)",
    ]
    assert type(Fault("step", "here", OfTheUser(1, "it")).error()) is ProgramError


@pytest.mark.parametrize("error", [Stop, Silent])
def test_an_error_of_any_class_ends_no_worker(error):
    def fails(values):
        raise Stop("now", code=1) if error is Stop else Silent

    engine = Engine("async", device=SimulatedDevice(), workers=1)
    h = engine.variable(np.ones(4), place="host")
    engine.push(fails, reads=(h,), writes=(h,))
    with pytest.raises(EngineError, match=f"fails .*{error.__name__}"):
        engine.read(h)
    engine.push(lambda values: values + 1, reads=(h,), writes=(h,))
    assert engine.read(h).tolist() == [2] * 4
    engine.close()


def faults():
    return sum(type(one) is Fault for one in gc.get_objects())


@pytest.mark.parametrize("name", ["sync", "async"])
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_what_went_wrong_goes_with_the_variable_without_the_collector(name, error, monkeypatch):
    def interrupt(*arguments):
        raise error("as planned")

    with Engine(name, device=SimulatedDevice()) as engine:
        x, y = engine.variable(np.ones(4)), engine.variable(ss.ArraySpec((4,), "float64"))
        gc.collect()
        gc.disable()
        try:
            before = faults()
            monkeypatch.setattr(engine._issuer, "_bound", interrupt)
            with contextlib.suppress(KeyboardInterrupt):
                engine.push(ss.ops.negative, reads=(x,), writes=(y,))
            assert faults() == before + 1
            with contextlib.suppress(EngineError):
                engine.wait_to_read(y)
            engine.delete(y)
            del y
            assert faults() == before
        finally:
            gc.enable()


def test_a_failed_host_operation_is_gone_without_the_collector():
    class Wrong:
        """What the failing function holds."""

    wrong = Wrong()
    gone = weakref.ref(wrong)

    def fails(values, wrong=wrong):
        raise ValueError("as planned")

    engine = Engine("async", device=SimulatedDevice())
    h = engine.variable(np.ones(4), place="host")
    gc.collect()
    gc.disable()
    try:
        engine.push(fails, reads=(h,), writes=(h,))
        del fails, wrong
        with contextlib.suppress(EngineError):
            engine.wait_to_read(h)
        engine.delete(h)
        engine.close()
        del h
        assert gone() is None
    finally:
        gc.enable()
