"""Long work says what is done and what is left, step by step, and can be ended at any step."""

from __future__ import annotations

import signal
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import numpy as np
import pytest

import streamscope as ss
from streamscope.devices.simulated import SimulatedDevice

X = np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8)


def step(x):
    a, b = ss.ops.tanh(x), ss.ops.exp(x)
    return a @ b + ss.ops.sigmoid(b), a - b


LAUNCHES = 6
DEVICE = SimulatedDevice()


def reports(verb, **options):
    found = []
    verb(step, X, device=DEVICE, progress=lambda *report: found.append(report), **options)
    return found


class Cancelled(BaseException):
    """Raised by a button."""


def ends(kind, at, counter):
    """Return a progress that raises, or sends Ctrl-C, at a step."""

    def progress(what, step, steps):
        counter.append(what)
        if len(counter) - 1 == at:
            if kind is Cancelled:
                raise Cancelled
            signal.raise_signal(signal.SIGINT)

    return progress


VERBS = [ss.compare, ss.best]


@pytest.mark.parametrize("verb", VERBS, ids=["compare", "best"])
def test_steps_only_grow_and_stay_within_their_number(verb):
    found = reports(verb)
    steps = [step for _, step, _ in found]
    assert steps == sorted(steps)
    assert {steps for *_, steps in found} == {found[-1][2]}
    assert 0 <= steps[0] <= steps[-1] <= found[-1][2]


def test_a_comparison_tells_of_each_operation_of_each_run():
    found = reports(ss.compare, engines="async,graph", repeats=5)
    assert found[-1][1] == found[-1][2]
    phases = Counter(what.partition(":")[0] for what, *_ in found if ":" in what)
    # Of the second output, tanh, exp, sigmoid and subtract are perturbed four times; a simulated device runs each engine once.
    assert phases == {"NumPy reference": 6, "preparing async": 6, "preparing graph": 6, "tolerances": 4 * 4}
    assert [what for what, *_ in found if "reference: " in what][1:3] == [
        "NumPy reference: exp (2 of 6)",
        "NumPy reference: matmul (3 of 6)",
    ]


@pytest.mark.parametrize("kind", [Cancelled, KeyboardInterrupt])
@pytest.mark.parametrize("verb", VERBS, ids=["compare", "best"])
def test_any_step_may_end_it_and_all_engines_work_afterwards(verb, kind):
    told = reports(verb)
    for at in range(0, len(told), max(1, len(told) // 12)):
        counter = []
        with pytest.raises(kind):
            verb(step, X, device=DEVICE, progress=ends(kind, at, counter))
        assert len(counter) <= at + 1 + LAUNCHES  # No run begins any more; one that was issued in part is done, as far as it was.
    runs = ss.compare(step, X, device=DEVICE, progress=False)
    assert all(run.correct for run in runs.values())
    fresh = ss.compare(step, X, device="simulated", progress=False)
    for engine, run in runs.items():  # The clock is rounded to whole ns.
        np.testing.assert_allclose(run.makespans_ns, fresh[engine].makespans_ns, atol=2)


def test_ending_it_in_a_run_stops_between_two_launches():
    """Nothing of the run that is under way is computed any more, however long it is."""
    computed = []

    def reference(x):
        computed.append(len(computed))
        return x + 1

    add = ss.operator(lambda x, y: None, reads=["x"], writes=["y"], reference=reference)

    def chain(x):
        for _ in range(200):
            x = add(x)
        return x

    def progress(what, step, steps):
        if what.startswith("preparing async: "):
            computed.clear()
            raise Cancelled

    with pytest.raises(Cancelled):
        ss.compare(chain, X, device="simulated", engines="async", progress=progress)
    assert len(computed) <= 1


@pytest.mark.parametrize(
    ("delays", "runs", "timed"), [(None, 1, 1), (lambda launch, stream: (0, 1), 3 + 2 + 1, 2)], ids=["exact", "delayed"]
)
def test_a_device_that_repeats_itself_exactly_is_run_once(delays, runs, timed):
    calls = []
    add = ss.operator(lambda x, y: None, reads=["x"], writes=["y"], reference=lambda x: calls.append(1) or x + 1)
    found = ss.compare(lambda x: add(x) * 2, X, device=SimulatedDevice(delays=delays), engines="async,graph", repeats=2, progress=False)
    assert len(calls) == 2 * runs + 1  # The reference is the other one.
    assert [run.makespans_ns.shape for run in found.values()] == [(timed,), (timed,)]
    assert all(run.correct for run in found.values())
    for run in found.values():  # The clock is rounded to whole ns.
        np.testing.assert_allclose(run.makespans_ns, run.trace.info.ledger["recorded_ns"], atol=1)


def test_a_device_is_not_watched_any_more_afterwards():
    device, told = SimulatedDevice(), []
    prepared = ss.prepare(step, X, device=device, progress=False)
    with device.watched(lambda launch: told.append(launch.name)):
        prepared.run()
        prepared.wait()
    assert told == ["tanh", "exp", "matmul", "sigmoid", "add", "subtract"]
    prepared.run()
    prepared.wait()
    assert len(told) == LAUNCHES


def test_what_one_thread_raises_does_not_stop_another():
    device, met = SimulatedDevice(), []
    prepared = ss.prepare(step, X, device=device, progress=False)

    def cancel(launch):
        met.append(launch.name)
        raise Cancelled

    def run():
        prepared.run()
        prepared.wait()

    with device.watched(cancel):
        with ThreadPoolExecutor(1) as other:
            error = other.submit(run).exception()
        assert (error, met) == (None, [])
        with pytest.raises(Cancelled):
            run()
    assert met == ["tanh"]
    run()


def test_blocks_of_two_threads_may_overlap():
    device, mine, others = SimulatedDevice(), [], []
    prepared = ss.prepare(step, X, device=device, progress=False)

    def run():
        prepared.run()
        prepared.wait()

    block = device.watched(lambda launch: others.append(launch.name))
    with ThreadPoolExecutor(1) as other:
        other.submit(block.__enter__).result()
        with device.watched(lambda launch: mine.append(launch.name)):
            other.submit(run).result()
            other.submit(block.__exit__, None, None, None).result()
            run()
        other.submit(run).result()
    run()
    assert len(mine) == len(others) == LAUNCHES


def test_a_comparison_that_is_cancelled_ends_in_its_own_thread_alone():
    # Delayed, so that there are several runs: the other thread may compute all of one.
    device, ends = SimulatedDevice(delays=lambda launch, stream: (0, 1)), Event()

    def run_until_told():
        prepared = ss.prepare(step, X, device=device, progress=False)
        while not ends.is_set():
            prepared.run()
            prepared.wait()

    def boom(what, step, steps):
        if what.startswith("preparing async: exp"):
            raise Cancelled

    with ThreadPoolExecutor(1) as other:
        running = other.submit(run_until_told)
        try:
            for _ in range(20):
                with pytest.raises(Cancelled):
                    ss.compare(step, X, device=device, engines="async,graph", progress=boom)
        finally:
            ends.set()
        running.result()
