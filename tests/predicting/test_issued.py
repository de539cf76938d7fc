"""Calls of code that is not ours as they were issued, by hand."""

import pytest

from streamscope.predicting.issued import Calls, _awaited, issued_tasks, last_wait_ns, own_gap_ns
from streamscope.trace import DeviceInfo, Origins, SpanTable, Trace, TraceInfo
from streamscope.trace.origins import Trait


def test_a_blocking_copy_gives_the_host_back_after_as_long_as_other_calls_take():
    calls = Calls.of(
        SpanTable.of(
            ("launch", "cudaLaunchKernel", "thread 1", 100, 104, 0), ("kernel", "a", "stream 7", 110, 120, 0),
            ("launch", "cudaMemcpy", "thread 1", 130, 160, 1), ("copy", "Memcpy DtoH", "stream 7", 140, 155, 1),
            ("launch", "cudaLaunchKernel", "thread 1", 170, 174, 2), ("kernel", "b", "stream 7", 180, 190, 2),
        )
    )  # fmt: skip
    assert (calls.called_ns.tolist(), calls.back_ns.tolist()) == ([0, 30, 70], [4, 34, 74])
    assert (calls.begin_ns.tolist(), calls.end_ns.tolist()) == ([10, 40, 80], [20, 55, 90])
    assert calls.breaks == {2: 10}  # The host was free again at 160, and called at 170.


def test_the_first_call_may_be_a_blocking_copy():
    calls = Calls.of(
        SpanTable.of(
            ("launch", "cudaMemcpy", "thread 1", 0, 30, 0), ("copy", "Memcpy DtoH", "stream 7", 10, 25, 0),
            ("launch", "cudaLaunchKernel", "thread 1", 40, 44, 1), ("kernel", "b", "stream 7", 50, 60, 1),
        )
    )  # fmt: skip
    assert (calls.back_ns.tolist(), calls.breaks) == ([4, 44], {1: 10})


@pytest.mark.parametrize(("starts_ns", "gap_ns"), [(134_999, 0), (135_000, 30_000)])
def test_a_kernel_that_comes_30_us_late_waited_for_something(starts_ns, gap_ns):
    """The first launch was on its way for 5 µs, so the second was there at 105."""
    spans = SpanTable.of(
        ("launch", "a", "thread 1", 0, 4_000, 0), ("kernel", "a", "stream 7", 5_000, 9_000, 0),
        ("launch", "b", "thread 1", 100_000, 104_000, 1), ("kernel", "b", "stream 7", starts_ns, 150_000, 1),
    )  # fmt: skip
    first, second = issued_tasks(Trace(spans, TraceInfo("kineto", "step", DeviceInfo("cuda", "card"), "kineto")))
    assert (first.call_ns, first.gap_ns, second.call_ns, second.gap_ns) == (4_000, 0, 100_000, gap_ns)


def test_a_wait_that_ended_before_the_first_kernel_began_is_one_between_the_first_two_calls():
    calls = Calls.of(
        SpanTable.of(
            ("launch", "a", "thread 1", 0, 2, 0), ("sync", "wait", "thread 1", 2, 5), ("launch", "b", "thread 1", 8, 10, 1),
            ("kernel", "a", "stream 7", 10, 20, 0), ("kernel", "b", "stream 7", 22, 30, 1),
        )
    )  # fmt: skip
    assert calls.breaks == {1: 3}


@pytest.mark.parametrize(("name", "starts_ns", "awaited", "on_bus"), [
    ("Memcpy HtoD (Pinned -> Device)", 25, {0}, True),  # the bus was free
    ("Memcpy HtoD (Pinned -> Device)", 24, set(), False),  # it began too soon to have waited for the bus: the device takes 5 between two
    ("Memcpy DtoH (Device -> Pinned)", 25, set(), True),  # that is another direction
])  # fmt: skip
def test_a_copy_comes_after_the_one_before_in_its_direction_unless_it_began_before_that_had_ended(name, starts_ns, awaited, on_bus):
    spans = SpanTable.of(
        ("copy", "Memcpy HtoD (Pinned -> Device)", "stream 7", 0, 20), ("copy", name, "stream 20", starts_ns, 35),
        ("kernel", "a", "stream 7", 45, 50),
    )  # fmt: skip
    trace = Trace(spans, TraceInfo("kineto", "step", DeviceInfo("cuda", "card"), "kineto"), Origins(complete=True))
    before, traits = _awaited(trace, Calls.of(spans), gap_ns=5)
    assert before == [set(), awaited, {0}]
    assert [bool(trait & (Trait.COPY_IN | Trait.COPY_OUT)) for trait in traits] == [True, on_bus, False]


@pytest.mark.parametrize(("call_ends_ns", "noticed_ns", "wait_ns"), [(40, 45, 5), (20, 45, 15), (20, 30, 0)])
def test_the_host_notices_the_end_after_its_last_call_and_the_last_kernel(call_ends_ns, noticed_ns, wait_ns):
    spans = SpanTable.of(
        ("launch", "a", "thread 1", 0, call_ends_ns, 0), ("kernel", "a", "stream 7", 10, 30, 0),
        ("sync", "wait", "thread 1", call_ends_ns, noticed_ns),
    )  # fmt: skip
    assert last_wait_ns(Trace(spans, TraceInfo("kineto", "step", DeviceInfo("cuda", "card"), "kineto"))) == wait_ns


@pytest.mark.parametrize(
    ("begins_ns", "ends_ns", "next_ns", "gap_ns"), [(400, 1_000, 1_900, 400), (950, 1_000, 1_900, 900), (1_200, 1_300, 3_000, 1_000)]
)
def test_the_devices_own_delay_is_the_shortest_latency_or_gap_and_at_most_a_microsecond(begins_ns, ends_ns, next_ns, gap_ns):
    spans = SpanTable.of(
        ("launch", "a", "thread 1", 0, 100, 0), ("launch", "b", "thread 1", 500, 600, 1),
        ("kernel", "a", "stream 7", begins_ns, ends_ns, 0),
        ("kernel", "b", "stream 7", next_ns, next_ns + 100, 1),
    )  # fmt: skip
    assert own_gap_ns(spans) == gap_ns


@pytest.mark.parametrize(("kind", "gap_ns"), [("kernel", 900), ("copy", 300)])
def test_where_there_are_copies_each_stream_begins_behind_the_start_of_the_run(kind, gap_ns):
    spans = SpanTable.of(
        ("launch", "b", "thread 1", 0, 100, 1), (kind, "a", "stream 7", 300, 1_000), ("kernel", "b", "stream 7", 1_900, 2_000, 1),
    )  # fmt: skip
    assert own_gap_ns(spans) == gap_ns


def test_the_host_works_from_the_end_of_what_it_waited_for_to_its_next_call():
    spans = SpanTable.of(
        ("launch", "a", "thread 1", 0, 2, 0), ("kernel", "a", "stream 7", 5, 20, 0), ("sync", "wait", "thread 1", 2, 20),
        ("launch", "b", "thread 1", 20, 22, 1), ("kernel", "b", "stream 7", 25, 30, 1),
    )  # fmt: skip
    tasks = issued_tasks(Trace(spans, TraceInfo("kineto", "step", DeviceInfo("cuda", "card"), "kineto")))
    assert [(task.name, task.after, task.call_ns) for task in tasks] == [("a", (), 2), ("host", (0,), 0), ("b", (0,), 2)]
