"""Verdicts: the words follow from the numbers, and what cannot be told is not told."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from streamscope.analysis import EngineMetrics, Ranking, assess, median_interval, verdict
from streamscope.analysis.traits import streams_words, what_differs
from streamscope.analysis.verdict import FUNCTION, NOTHING, difference, fastest, shares_of
from streamscope.engine_entry import ENGINES
from streamscope.errors import TraceError
from streamscope.trace import DeviceInfo

CARD = DeviceInfo("cuda", "NVIDIA H200")


def engine(makespan_us, *, name="async", busy=0.5, noise=0.01, copies=0.0, host=0.0, **changes):
    """Metrics of an engine; busy, copies and host are shares of the makespan."""
    metrics = EngineMetrics(
        engine=name, simulated=False, repeats=20, makespan_basis="95 % interval of the median",
        makespan_us=makespan_us, makespan_low_us=makespan_us * (1 - noise), makespan_high_us=makespan_us * (1 + noise),
        gpu_busy_us=busy * makespan_us, idle_us=(1 - busy - copies) * makespan_us, busy_fraction=busy, overlap_us=0, overlap=0,
        copy_us=copies * makespan_us, host_wait_us=0, kernel_wait_us=0, other_idle_us=(1 - busy - copies) * makespan_us,
        host_function_us=host * makespan_us, kernel_count=100, kernel_time_us=busy * makespan_us,
        api_time_us=100, launch_latency_us=5, queue_time_us=2, recording_cost=1.1, missing_records=0,
    )  # fmt: skip
    return replace(metrics, **changes)


def test_times_have_one_unit_wherever_they_stand():
    judged = assess({"async": engine(4000), "graph": engine(1005)}, CARD)
    assert judged.evidence[1].startswith("async: 4.00 ms (3.96 to 4.04, 95 % interval")
    assert judged.evidence[2].startswith("graph: 1.00 ms (995 µs to 1.02 ms, 95 % interval")  # 0.994950 and 1.01505 ms
    assert not any(
        "1 repeats" in line or "1 kernels" in line for line in assess({"async": engine(1, repeats=1, kernel_count=1)}, CARD).evidence
    )


def test_the_example_of_the_issue():
    metrics = {"async": engine(340, busy=0.21), "dual": engine(340 * 1.12, busy=0.19), "graph": engine(100, busy=0.7)}
    judged = assess(metrics, CARD)
    assert judged.text == (
        "Launch-bound: under async the GPU is busy 21 % of the time. A second stream alone makes it 12 % slower; "
        "a CUDA graph makes it 3.4× faster. Fastest: graph."
    )
    assert (judged.bottleneck, judged.best) == ("launch-bound", ("graph",))
    assert verdict(metrics, CARD) == str(judged) == judged.text
    assert any("340 µs (337 to 343, 95 % interval of the median, 20 repeats)" in line for line in judged.evidence)


def test_overlapping_intervals_are_never_ranked():
    metrics = {"async": engine(100), "dual": engine(101), "graph": engine(60), "graph-dual": engine(59)}
    text = verdict(metrics, CARD)
    assert "A second stream alone makes it neither faster nor slower (within the noise)" in text
    assert "a second stream inside a graph makes the graph neither faster nor slower (within the noise)" in text
    assert text.endswith("Fastest: graph-dual and graph, which cannot be told apart.")
    assert fastest(metrics) == ("graph-dual", "graph")
    assert verdict({"async": engine(100), "dual": engine(101)}, CARD).endswith("No engine is measurably the fastest.")


def test_graph_dual_is_compared_with_graph_where_that_ran():
    text = verdict({"graph": engine(100), "graph-dual": engine(80)}, CARD)
    assert "under graph" in text
    assert "A second stream inside a graph makes it 25 % faster. Fastest: graph-dual." in text


@pytest.mark.parametrize(
    ("times", "said"),
    [
        ({"dual": 100, "graph-dual": 50}, "A CUDA graph makes it 2.0× faster. Fastest: graph-dual."),
        ({"async": 100, "dual": 100, "graph-dual": 50}, "; a CUDA graph makes dual 2.0× faster. Fastest: graph-dual."),
        ({"async": 100, "graph-dual": 50}, "A CUDA graph with a second stream makes it 2.0× faster."),
        ({"sync": 100, "graph": 50}, "A CUDA graph in place of waiting after every operation makes it 2.0× faster."),
        ({"dual": 100, "graph": 50}, "A CUDA graph in place of a second stream makes it 2.0× faster."),
        ({"dual": 100, "sync": 200}, "Waiting after every operation in place of a second stream makes it 2.0× slower."),
        ({"dual": 100, "graph": 50, "graph-dual": 25}, "; a second stream inside a graph makes the graph 2.0× faster."),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, dict) else "",
)
def test_an_engine_is_compared_with_one_that_differs_in_one_thing_or_told_with_all_in_which_they_differ(times, said):
    assert said in verdict({name: engine(time) for name, time in times.items()}, CARD)


def test_whichever_engines_ran_each_is_told_by_what_it_does():
    for count in range(2, len(ENGINES) + 1):
        for names in combinations(ENGINES, count):
            judged = assess({name: engine(100) for name in names}, CARD)
            for change in judged.changes:
                told, differ = what_differs(change.engine, change.base), ENGINES[change.engine].traits ^ ENGINES[change.base].traits
                assert told.startswith(tuple(trait for entry in ENGINES.values() for trait in entry.traits) if differ else change.engine)
                assert (" in place of " in told or " with " in told) == (len(differ) > 1)


@pytest.mark.parametrize(
    ("times", "said"),
    [
        ({"async": 100, "dual": 50}, "4 streams alone make it 2.0× faster."),
        ({"graph": 100, "graph-dual": 50}, "3 streams inside a graph make it 2.0× faster."),
        ({"async": 200, "graph": 100, "graph-dual": 50}, "; 3 streams inside a graph make the graph 2.0× faster."),
        ({"async": 100, "graph-dual": 50}, "A CUDA graph with 3 streams makes it 2.0× faster."),
        ({"dual": 100, "graph": 50}, "A CUDA graph in place of 4 streams makes it 2.0× faster."),
        ({"dual": 100, "graph-dual": 50}, "A CUDA graph with 3 streams makes it 2.0× faster."),
    ],
)
def test_more_than_two_streams_are_told_by_their_number(times, said):
    metrics = {name: engine(time) for name, time in times.items()}
    several, two = (
        {name: streams_words({"streams": count}) for name, count in (("dual", dual), ("graph-dual", inside))}
        for dual, inside in ((4, 3), (2, 1))
    )
    assert said in assess(metrics, CARD, several).text
    assert assess(metrics, CARD, two).text == assess(metrics, CARD).text == verdict(metrics, CARD)


def test_a_graph_that_is_on_no_streams_has_branches():
    several = {"graph-dual": streams_words({"streams": 9, "branches": 9})}
    judged = assess({"graph": engine(100), "graph-dual": engine(50)}, CARD, several)
    assert "9 branches inside a graph make it 2.0× faster." in judged.text


def test_an_engine_of_unknown_traits_is_told_by_its_name():
    judged = assess({"new": engine(50), "graph": engine(100), "graph-dual": engine(100)}, CARD)
    assert judged.reference == "graph"
    assert "New makes it 2.0× faster; a second stream inside a graph makes it neither" in judged.text


@pytest.mark.parametrize("repeats", range(1, 6))
def test_fewer_than_six_repeats_say_nothing_on_a_real_device(repeats):
    times = {"async": 100, "dual": 120, "graph": 50}
    metrics = {name: engine(time, noise=0, repeats=repeats) for name, time in times.items()}
    judged = assess(metrics, CARD)
    assert judged.text == (
        "Launch-bound: under async the GPU is busy 50 % of the time. Too few repeats to tell the effect of a second stream alone and "
        "a CUDA graph. Too few repeats to tell which engine is the fastest: run 6 or more."
    )
    assert (judged.gain.ranking, judged.gain.told, set(judged.best)) == (Ranking.UNKNOWN, False, {"async", "dual", "graph"})
    assert difference(metrics["graph"], metrics["async"]) == "too few repeats to tell"
    assert assess({"graph": metrics["graph"], "dual": metrics["dual"]}, CARD).changed == (
        "Too few repeats to tell the effect of a CUDA graph in place of a second stream."
    )
    simulated = {name: replace(values, simulated=True) for name, values in metrics.items()}
    assert "a CUDA graph makes it 2.0× faster. Fastest: graph." in verdict(simulated, DeviceInfo("simulated", "simulated NVIDIA H200"))


def test_one_engine_with_few_repeats_is_not_ranked_among_others():
    metrics = {"async": engine(100), "dual": engine(200, repeats=3), "graph": engine(50)}
    judged = assess(metrics, CARD)
    assert judged.changed == "A CUDA graph makes it 2.0× faster; too few repeats to tell the effect of a second stream alone."
    assert judged.fastest == "Fastest: graph and dual, which cannot be told apart."


def claims(repeats, comparisons=300):
    """The share of comparisons of five engines that take equally long, with 5 % noise, that call one faster, slower or the fastest."""
    random = np.random.default_rng(0)
    found = 0
    for _ in range(comparisons):
        metrics = {}
        for name in ENGINES:
            times = median_interval(random.normal(100, 5, repeats))
            ends = {"makespan_low_us": times.low, "makespan_high_us": times.high, "makespan_basis": times.basis}
            metrics[name] = engine(times.median, name=name, repeats=times.count, **ends)
        judged = assess(metrics, CARD)
        found += any(change.told for change in judged.changes) or len(judged.best) < len(metrics)
    return found / comparisons


@pytest.mark.parametrize(("repeats", "most"), [(1, 0), (2, 0), (3, 0), (5, 0), (6, 0.05), (10, 0.05), (30, 0.05)])
def test_noise_is_not_called_a_difference(repeats, most):
    assert claims(repeats) <= most


def test_a_simulated_device_has_no_noise():
    times = {"async": 100, "dual": 100.5, "graph": 60, "graph-dual": 59}
    metrics = {name: engine(time, simulated=True, noise=0.03) for name, time in times.items()}
    judged = assess(metrics, DeviceInfo("simulated", "simulated NVIDIA H200"))
    assert "A second stream alone makes it neither faster nor slower (same within 1 %)" in judged.text
    assert "a second stream inside a graph makes the graph 2 % faster. Fastest: graph-dual." in judged.text
    assert "engines that are the same within 1 % are not ranked" in judged.evidence[0]
    alike = {name: metrics[name] for name in ("async", "dual")}
    device = DeviceInfo("simulated", "card")
    assert verdict(alike, device).endswith("No engine is the fastest: all are the same within 1 %.")
    assert verdict(alike | {"sync": engine(200, simulated=True)}, device).endswith(
        "Fastest: async and dual, which are the same within 1 %."
    )
    for text in (judged.text, *judged.evidence):
        assert "noise" not in text
        assert "told apart" not in text


def test_simulated_times_say_so_first():
    judged = assess({"async": engine(100)}, DeviceInfo("simulated", "simulated NVIDIA H200"))
    assert judged.text.startswith("Simulated times (simulated NVIDIA H200), not measured. ")
    assert "simulated" in judged.evidence[0]


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        ({"busy": 0.75}, "GPU-bound"), ({"busy": 1.2}, "GPU-bound"), ({"busy": 0.8, "copies": 0.2}, "GPU-bound"),
        ({"busy": 0.5}, "launch-bound"), ({"busy": 0.0}, "launch-bound"),
        ({"busy": 0.4, "copies": 0.5}, "copy-bound"), ({"busy": 0.4, "host": 0.5}, "host-bound"),
        ({"busy": 0.74}, "mixed"), ({"busy": 0.51}, "mixed"), ({"busy": 0.3, "copies": 0.3, "host": 0.3}, "mixed"),
    ],
)  # fmt: skip
def test_the_stated_thresholds(shares, expected):
    assert shares_of(engine(100, **shares)).bottleneck == expected


def test_other_bottlenecks_in_words():
    assert verdict({"async": engine(100, busy=0.3, copies=0.6)}, CARD) == (
        "Copy-bound: under async the GPU is busy 30 % of the time, copies alone take 60 % and launching and waiting take 10 %."
    )
    assert verdict({"sync": engine(100, busy=0.4, host=0.6)}, CARD) == (
        "Host-bound: under sync the GPU is busy 40 % of the time and host functions alone take 60 %."
    )
    assert "take 50 %, host functions alone take 1 % and" in verdict({"async": engine(100, busy=0.3, copies=0.5, host=0.01)}, CARD)
    assert verdict({"graph": engine(100, busy=0.996)}, CARD) == "GPU-bound: under graph the GPU is busy 100 % of the time."


def test_an_interval_of_simulated_times_is_evidence_where_they_differ():
    simulated = DeviceInfo("simulated", "simulated NVIDIA H200")
    assert assess({"async": engine(100, noise=0)}, simulated).evidence[1].startswith("async: 100 µs (20 repeats), ")
    assert assess({"async": engine(100, noise=0)}, CARD).evidence[1].startswith("async: 100 µs (100 to 100, 95 % interval")
    assert assess({"async": engine(100)}, simulated).evidence[1].startswith("async: 100 µs (99.0 to 101, 95 % interval")


def test_what_was_not_checked_is_told_by_name():
    judged = replace(assess({"async": engine(100)}, CARD), checked=True, not_checked=("out",))
    assert "Not checked: out, which depends on an operation" in judged.unchecked
    assert "Not checked: out and loss, which depend on an operation" in replace(judged, not_checked=("out", "loss")).unchecked


def test_an_engine_with_wrong_results_is_not_ranked():
    metrics = {"async": engine(100), "dual": engine(80), "graph": engine(50)}
    judged = assess(metrics, CARD, wrong=["graph"])
    assert "WRONG under graph" in judged.text
    assert judged.text.endswith("A second stream alone makes it 25 % faster. Fastest: dual.")
    assert assess(metrics, CARD, wrong=["async", "dual"]).reference == "graph"
    assert assess(metrics, CARD, wrong=[*metrics]).text.endswith("50 % of the time.")


def test_engines_of_the_same_traits_are_told_by_their_names(monkeypatch):
    monkeypatch.setattr(ENGINES, "_guests", {"mine": replace(ENGINES["dual"], name="mine")})
    told = assess({"async": engine(100), "dual": engine(50), "mine": engine(200)}, CARD).changed
    assert told == "Dual makes it 2.0× faster; mine makes it 2.0× slower."


def test_results_that_are_wrong_under_every_engine_are_those_of_another_function():
    told = "Under every engine, so the traced program does something else than the function"
    metrics = {"async": engine(100), "graph": engine(50)}

    def warning(wrong, against=FUNCTION):
        return replace(assess(metrics, CARD, wrong=wrong), checked=True, checked_against=against).warning

    assert told not in warning(["graph"])
    assert told not in warning(["async"])
    assert told in warning(["async", "graph"])
    assert told not in warning(["async", "graph"], "NumPy")


def test_missing_records_make_busy_a_lower_bound():
    metrics = {"async": engine(100, busy=0.2, missing_records=3, flags=("launch calls without a record: 3",))}
    assert "busy at least 20 %" in verdict(metrics, CARD)
    assert "async: launch calls without a record: 3." in assess(metrics, CARD).evidence


@pytest.mark.parametrize(
    ("time_us", "words"),
    [
        (10, "10.0× faster"), (66.6, "1.5× faster"), (66.8, "1.5× faster"), (67, "49 % faster"), (95, "5 % faster"),
        (105, "5 % slower"), (160, "1.6× slower"), (99.5, "same within 1 %"),
    ],
)  # fmt: skip
def test_differences_in_words(time_us, words):
    assert difference(engine(time_us, noise=0), engine(100, noise=0)) == words


def test_an_engine_of_the_users_own_is_named_as_it_is():
    assert "Mine makes it 2.0× faster" in verdict({"async": engine(100), "mine": engine(50)}, CARD)


def test_a_program_without_kernels_is_not_bound_by_launches():
    text = verdict({"async": engine(2.4, busy=0, kernel_count=0)}, CARD)
    assert text.startswith("No kernels: nothing runs on the GPU under async.")
    copying = engine(100, busy=0, copies=0.9, kernel_count=0)
    assert verdict({"async": copying}, CARD).startswith("Copy-bound")


def test_no_engines():
    with pytest.raises(TraceError, match="no engines"):
        assess({}, CARD)


def test_a_verdict_is_data():
    judged = assess({"async": engine(340, busy=0.21), "dual": engine(345), "graph": engine(100, busy=0.7)}, CARD)
    assert (judged.reference, judged.gain.engine, judged.gain.ranking) == ("async", "graph", Ranking.FASTER)
    assert judged.gain.ratio == pytest.approx(3.4)
    assert judged.shares.busy == 0.21
    assert [(change.engine, change.base, change.told) for change in judged.changes] == [("dual", "async", False), ("graph", "async", True)]


def test_what_was_checked_is_told_where_it_belongs():
    judged = assess({"async": engine(100), "graph": engine(50)}, CARD)
    told = replace(judged, checked=True, wrong=("graph",), checked_against="NumPy")
    assert told.text.startswith("RESULTS ARE WRONG under graph: they differ from those of NumPy by more than is allowed. Launch-bound")
    assert told.text.endswith("Fastest: graph.")
    for by, why, words in (
        ("the plain function", "", "Results are those of the plain function."),
        ("NumPy", "uses none", "Results are those of the traced program in NumPy (the function itself uses none)."),
        ("NumPy", "", ""),  # as it is stored by older versions
    ):
        right = replace(judged, checked=True, checked_against=by, why_not_function=why)
        assert right.text.endswith(f"Fastest: graph. {words}".rstrip())
        assert words not in replace(right, wrong=("graph",)).text or not words
        together = "Under every engine, so the traced program does something else than the function."
        assert (together in replace(right, wrong=("async", "graph")).text) == (by == "the plain function")
    assert replace(judged, checked=False).text.endswith("Results were not checked: an operation has no NumPy reference, or is stateful.")
    captured = replace(judged, checked=False, checked_against="a plain call")
    assert captured.text.endswith("Results were not checked: the function returns none.")
    for found in (captured, replace(judged, checked=False, checked_against=NOTHING)):
        told = "Fastest: graph. None of these times is that of a plain call: every engine, also async, launches the captured"
        assert told in found.text
    assert "plain call" not in judged.text


def test_copies_and_host_functions_beside_other_work_are_told():
    metrics = {
        "async": engine(100, copies=0.5, copy_overlap=0.0, host_overlap=0.21),
        "graph": engine(50, name="graph", copy_overlap=0.125, host_overlap=0.46),
    }
    text = verdict(metrics, CARD)
    assert (
        "Copies run beside kernels for 0 % of their time under async and 12 % under graph; "
        "host functions run beside the device for 21 % of their time under async and 46 % under graph."
    ) in text
    assert any("copies beside kernels 12 % and host functions beside the device 46 %" in line for line in assess(metrics, CARD).evidence)


@pytest.mark.parametrize(
    ("copies", "host", "told"),
    [
        (None, None, ""),
        (0.5, None, "Copies run beside kernels for 50 % of their time under async."),
        (None, 0.25, "Host functions run beside the device for 25 % of their time under async."),
    ],
)
def test_what_there_is_none_of_is_not_told(copies, host, told):
    assert assess({"async": engine(100, copy_overlap=copies, host_overlap=host)}, CARD).overlapped == told


def test_of_several_gpus_one_is_named_and_communication_is_told():
    collectives = {"communication_us": 60.0, "exposed_us": 60.0, "hidden_us": 0.0, "gpu": 1}
    collectives |= {"collective_wait_us": 20.0, "collective_transfer_us": 40.0}
    metrics = {
        "graph": replace(engine(100, busy=0.9), **collectives, awaited="the others wait 2.00 µs each for GPU 1, which has more work"),
        "graph-dual": replace(engine(50, busy=0.9), **collectives | {"exposed_us": 15.0, "hidden_us": 45.0}),
    }
    plan = {"streams": 2, "gpus": 2, "communication": 1}
    found = assess(metrics, CARD, {"graph-dual": streams_words(plan)})
    assert found.bottleneck == "communication-bound"
    assert found.text == (
        "Communication-bound: under graph GPU 1 is busy 90 % of the time and communication alone takes 60 %. Does communication on GPU 1 "
        "hide? In part: under graph-dual, 75 % of 60.0 µs is hidden and 15.0 µs is exposed. Communication on GPU 1 takes 60.0 µs under "
        "graph (40.0 µs transfer, 20.0 µs waiting) and 60.0 µs under graph-dual (40.0 µs transfer, 20.0 µs waiting). Under graph the "
        "others wait 2.00 µs each for GPU 1, which has more work. A second stream and one for communication on each GPU inside a graph "
        "make it 2.0× faster. Fastest: graph-dual."
    )
    of_capture = replace(found, checked=False, checked_against=NOTHING).communicated
    assert of_capture == f"{found.communicated} It is that of one rank, as if all others came in time."
    assert streams_words({**plan, "streams": 1}) == "a stream for communication on each GPU"
    assert streams_words({"streams": 2, "gpus": 2, "communication": 0}) == "a second stream on each GPU"
