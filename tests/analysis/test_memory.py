"""What fills the memory: against sums in plain Python, and by hand."""

import json
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streamscope as ss
from streamscope.analysis.memory import memories, memory
from streamscope.errors import TraceError
from streamscope.trace import (
    BEFORE,
    HELD,
    Allocation,
    Allocations,
    DeviceInfo,
    LaunchSites,
    Level,
    Origins,
    Site,
    SpanTable,
    Trace,
    TraceInfo,
)
from streamscope.trace.memory import BEFORE_THE_RECORDING

SPANS = SpanTable.of(("launch", "a", "host", 0, 3, 0), ("kernel", "a", "main", 5, 25, 0))
FORWARD, LOSS = Site("forward", "model.py", 12, "Net_0", defined=True), Site("loss", "model.py", 30)


def traced(rows, **more):
    return Trace(SPANS, TraceInfo("async", "step", DeviceInfo("cuda", "NVIDIA H200")), memory=Allocations.of(rows), **more)


times = st.integers(-5, 30)
allocations = st.lists(
    st.builds(
        lambda start, took, nbytes, site, before, kept: Allocation(
            nbytes, BEFORE if before else start, HELD if kept else start + took, site=site,
            kind=BEFORE_THE_RECORDING if before and site is None else "",
        ),
        times, st.integers(0, 12), st.integers(1, 50), st.sampled_from([None, FORWARD, LOSS]), st.booleans(), st.booleans(),
    ),
    min_size=1, max_size=12,
)  # fmt: skip


@settings(max_examples=60)
@given(allocations)
def test_curve_peak_rows_and_savings_are_those_of_plain_sums(rows):
    found = ss.analysis.memory(traced(rows))

    def held(at_ns, some=rows):
        return [row for row in some if row.start_ns <= at_ns < row.end_ns]

    curve = found.curve()
    assert (np.diff(curve.time_ns) > 0).all()
    assert curve.bytes.tolist() == [sum(row.bytes for row in held(at_ns)) for at_ns in curve.time_ns.tolist()]
    every = range(min(-10, int(curve.time_ns[0])), 60)
    assert found.peak.bytes == max(sum(row.bytes for row in held(at_ns)) for at_ns in every if at_ns >= curve.time_ns[0])
    for by in ("line", "module", "operation", "kind"):
        parts = found.held_by(by)
        assert sum(row.bytes for row in parts) == found.peak.bytes
        assert sum(row.allocations for row in parts) == len(held(found.peak.at_ns))
        before = sum(row.bytes for row in held(found.peak.at_ns) if row.kind)
        assert sum(row.bytes for row in parts if row.name == BEFORE_THE_RECORDING) == before
    saved = found.to_save
    if saved is None:
        known = [row for row in rows if row.kind]
        assert not found.peak.bytes or max(sum(row.bytes for row in held(at_ns, known)) for at_ns in every) * 10 >= found.peak.bytes * 9
    else:
        assert 10 * sum(row.bytes for row in saved.rows) > found.peak.bytes


@settings(max_examples=30)
@given(allocations)
def test_without_what_would_have_to_go_the_curve_is_a_tenth_lower(rows):
    trace = traced([row._replace(name=str(number)) for number, row in enumerate(rows)])
    found = ss.analysis.memory(trace, "operation")
    if found.to_save is not None:
        gone = {row.name for row in found.to_save.rows}
        left = traced([row for number, row in enumerate(rows) if str(number) not in gone] or [Allocation(0)])
        assert 10 * int(ss.analysis.memory(left).curve().bytes.max()) < 9 * found.peak.bytes
        assert found.to_save.allocations == len(gone)


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 8), st.integers(1, 20)), min_size=1, max_size=6))
def test_as_few_would_have_to_go_as_in_a_search_of_all(rows):
    held = [Allocation(nbytes, start, start + took) for start, took, nbytes in rows]
    found = ss.analysis.memory(traced(held))

    def below(left):
        most = max(sum(row.bytes for row in left if row.start_ns <= at_ns < row.end_ns) for at_ns in range(18))
        return 10 * most < 9 * found.peak.bytes

    fewest = next(count for count in range(len(held) + 1) if any(map(below, combinations(held, len(held) - count))))
    assert found.to_save.allocations == fewest


def test_of_equal_sizes_the_longest_held_would_have_to_go():
    """Two short ones would lower the same two places as the long one."""
    found = ss.analysis.memory(traced([Allocation(9, 0, 1), Allocation(9, 3, 4), Allocation(9, 0, 4, name="long")]), "operation")
    assert [(row.name, row.bytes) for row in found.to_save.rows] == [("long", 9)]


def example():
    return traced([
        Allocation(1000, kind=BEFORE_THE_RECORDING), Allocation(600, 5, 40, site=FORWARD, name="aten::mm", kind="PyTorch"),
        Allocation(300, 10, 20, site=FORWARD, name="aten::relu", kind="PyTorch"), Allocation(100, 12, HELD, site=LOSS, kind="PyTorch"),
        Allocation(900, 30, 35, name="aten::mm", kind="PyTorch"), Allocation(4096, level=Level.RESERVED), Allocation(7, gpu=-1),
        Allocation(50, 14, 16),
    ])  # fmt: skip


def test_each_way_to_divide_the_peak():
    found = ss.analysis.memory(example())
    assert (found.peak.bytes, found.peak.at_ns, found.by, found.gpu) == (2600, 30, "line", 0)
    assert [(row.called, row.allocations, row.bytes) for row in found.rows] == [
        (BEFORE_THE_RECORDING, 1, 1000), ("unknown", 1, 900), ("forward (model.py:12)", 1, 600), ("loss (model.py:30)", 1, 100),
    ]  # fmt: skip
    assert [(row.name, row.bytes) for row in found.held_by("module")] == [
        (BEFORE_THE_RECORDING, 1000), ("unknown", 1000), ("Net_0", 600),
    ]  # fmt: skip
    assert [(row.name, row.bytes) for row in found.held_by("operation")] == [
        ("aten::mm", 1500), (BEFORE_THE_RECORDING, 1000), ("unknown", 100),
    ]  # fmt: skip
    assert [(row.name, row.bytes) for row in found.held_by("kind")] == [("PyTorch", 1600), (BEFORE_THE_RECORDING, 1000)]
    assert found.answer == "The GPU holds at most 2.5 KiB, first at 0.030 µs; 38 % of it is held before the recording."
    assert found.saving == "To lower the peak by a tenth, 1 allocation would have to go: 900 B of an unknown line."
    assert found.fragmentation == (1496, 3096, 0)
    assert [(each.of, each.bytes) for each in found.peaks] == [("GPU 0", 2600), ("the host", 7)]
    assert found.notes[1:] == (
        "Reserved but unused: 1.5 KiB at the peak, and at most 3.0 KiB, at 0 µs.",
        "A file and line is where the function is defined: the profiler does not write the line that ran.",
        "Others hold at most: the host 7 B.",
    )


@pytest.mark.parametrize(("host", "named"), [(2, False), (3, True)])
def test_others_with_less_than_a_thousandth_of_the_peak_are_not_named(host, named):
    found = ss.analysis.memory(traced([Allocation(3000), Allocation(host, gpu=-1)]))
    assert ("Others hold at most: the host 3 B." in found.notes) == named
    assert any("Others" in note for note in found.notes) == named
    assert len(found.to_dict()["peaks"]) == 2


def test_what_comes_again_would_have_to_go_each_time_and_counts_once():
    again = [Allocation(100, 10 * at, 10 * at + 5, site=FORWARD) for at in range(8)]
    found = ss.analysis.memory(traced([Allocation(790, kind=BEFORE_THE_RECORDING), *again, *again]))
    assert found.to_save.allocations == 8
    assert [(row.bytes, row.allocations) for row in found.to_save.rows] == [(100, 1)]
    assert (
        found.saving
        == "To lower the peak by a tenth, 8 allocations at different times would have to go: up to 100 B at once of forward (model.py:12)."
    )


def test_modules_of_a_class_would_have_to_go_together():
    rows = [
        Allocation(size, 10 * at + start, 10 * at + start + 4, site=FORWARD._replace(module=f"{name}_{at}"))
        for at, (name, size) in enumerate([("Attention", 99), ("Attention", 100), ("MLP", 98)])
        for start in (0, 5)
    ]
    found = ss.analysis.memory(traced(rows), "module")
    assert found.saving == (
        "To lower the peak by a tenth, 6 allocations at different times would have to go: "
        "up to 100 B at once in each of 2 Attention modules and up to 98 B at once of MLP_2."
    )
    assert [row.name for row in found.to_save.rows] == ["Attention_1", "Attention_0", "MLP_2"]


def test_text_markdown_and_json_say_the_same():
    found = ss.analysis.memory(example())
    assert ["forward", "model.py:12", "1", "0.001", "23", "%"] in [line.split() for line in repr(found).splitlines()]
    assert "forward | model.py:12 | 1 | 0.001 | 23 %" in found.to_markdown().replace("\\", "")
    stored = json.loads(json.dumps(found.to_dict()))
    assert sum(row["bytes"] for row in stored["held_by"]) == stored["peak_bytes"]
    assert stored["to_save_a_tenth"]["rows"][0]["bytes"] == 900
    assert len(found.to_pandas()) == 4


def test_operations_of_a_program_tell_their_lines():
    origins = Origins(("model.py:7: x @ w",), *(np.array([at], np.int32) for at in (-1, 0, -1)))
    found = ss.analysis.memory(traced([Allocation(10, 1, 5, operation=0), Allocation(4, operation=3)], origins=origins))
    assert [(row.called, row.bytes) for row in found.rows] == [("x @ w (model.py:7)", 10), ("unknown", 4)]


def test_inputs_of_a_program_are_a_row():
    """No operation takes them, and the kind says what they are."""
    origins = Origins(("model.py:7: x @ w",), *(np.array([at], np.int32) for at in (-1, 0, -1)))
    found = ss.analysis.memory(
        traced([Allocation(9, kind="input"), Allocation(4, kind="output", operation=0), Allocation(2)], origins=origins)
    )
    assert [(row.name, row.bytes) for row in found.rows] == [("inputs", 9), ("x @ w", 4), ("unknown", 2)]
    assert found.answer.endswith("60 % of it is of inputs.")
    assert found.saving == "To lower the peak by a tenth, 1 allocation would have to go: 9 B of inputs."
    assert not any("unknown" in note for note in found.notes)


def test_modules_of_a_class_are_one_row_of_the_table():
    sites = [FORWARD._replace(module=f"Net.layers.{block}.{part}") for block in (0, 1, 2) for part in ("conv", "norm")]
    rows = [Allocation(10 + 90 * (at % 2), site=site) for at, site in enumerate([*sites, sites[0]])]
    rows += [Allocation(50, kind=BEFORE_THE_RECORDING), Allocation(7), Allocation(5, site=FORWARD._replace(module="Head"))]
    found = ss.analysis.memory(traced(rows), "module")
    classes = [(row.name, row.modules, row.allocations, row.bytes) for row in found.classes]
    assert classes == [
        ("Net.layers.*.norm", 3, 3, 300), (BEFORE_THE_RECORDING, 0, 1, 50), ("Net.layers.*.conv", 3, 4, 40),
        ("unknown", 0, 1, 7), ("Head", 1, 1, 5),
    ]  # fmt: skip
    assert found.answer.endswith("75 % of it is of Net.layers.*.norm, in 3 modules.")
    assert [cells[:2] for cells in found.table_rows()][:2] == [("Net.layers.*.norm", "3"), (BEFORE_THE_RECORDING, "")]
    assert found.to_dict()["classes"][0] == {
        "name": "Net.layers.*.norm", "allocations": 3, "bytes": 300, "share": pytest.approx(300 / 402), "modules": 3,
    }  # fmt: skip
    assert len([*found.singles.table_rows()]) == len(found.rows) == 9
    assert ss.analysis.memory(traced(rows), "line").classes == ()


def test_where_one_line_has_nearly_all_the_answer_goes_on_by_module():
    rows = [Allocation(size, site=FORWARD._replace(module=module)) for size, module in ((60, "Attention_3"), (40, "Linear_1"))]
    found = ss.analysis.memory(traced(rows), "line")
    assert found.answer.endswith("100 % of it is of forward (model.py:12). By module, 60 % is of Attention_3.")


def test_memory_is_divided_as_the_time_is():
    """One line has all of the time, so both go by module; what was held before the recording is no line's."""
    sites = [FORWARD._replace(module=module) for module in ("Attention_3", "Linear_1")]
    rows = [Allocation(size, site=site) for size, site in zip((60, 40), sites, strict=True)]
    spans = SpanTable.of(*(("kernel", "a", "main", at, at + 10) for at in (0, 10)))
    launched = LaunchSites(np.array([0, 1]), np.array([0, 1]), tuple(sites))
    held = Allocations.of([Allocation(50, kind=BEFORE_THE_RECORDING), *rows])
    trace = Trace(spans, TraceInfo("async", "step", DeviceInfo("cuda", "NVIDIA H200")), memory=held, sites=launched)
    found = ss.analysis.memory(trace)
    assert (found.by, [row.name for row in found.rows]) == ("module", ["Attention_3", BEFORE_THE_RECORDING, "Linear_1"])
    answer = ss.analysis.memory(trace, "line").answer
    assert answer.endswith("67 % of it is of forward (model.py:12). By module, 40 % is of Attention_3.")


def test_columns_with_many_texts_have_a_short_repr():
    """Callers nest: of a profiler's file they were 318,000 characters."""
    site = Site("f", "m.py", 1, caller=Site("x" * 10_000))
    held = Allocations.of([Allocation(1, site=site, name="y" * 10_000)])
    assert repr(held) == "<Allocations: 1 allocations>"
    assert repr(LaunchSites(np.array([0]), np.array([0]), (site,))) == "<LaunchSites: 1 launch sites>"


def test_what_is_unknown_is_told_by_kind():
    """Inputs of a program have a row of their own."""
    for kind, notes in (("parameter", ["Of the unknown line: 9 B parameter."]), ("input", [])):
        rows = [Allocation(9, kind=kind), Allocation(4, kind="output", site=LOSS), Allocation(5)]
        found = ss.analysis.memory(traced(rows), "line")
        assert [note for note in found.notes if note.startswith("Of the unknown")] == notes
    assert not any("unknown" in note for note in ss.analysis.memory(traced([Allocation(9, kind="input"), Allocation(4)]), "kind").notes[1:])


def test_the_driver_s_memory_is_shown_where_no_more_is_known():
    found = ss.analysis.memory(traced([Allocation(10, 1, 5, level=Level.RESERVED)]))
    assert (found.level, found.fragmentation) == (Level.RESERVED, None)
    assert "Memory that was taken from the driver: the trace does not tell what a pool lent of it." in found.notes


def test_levels_of_different_allocators_tell_no_fragmentation():
    assert ss.analysis.memory(traced([Allocation(10), Allocation(4, level=Level.RESERVED)])).fragmentation is None


def test_too_many_pieces_and_too_much_before_are_told_apart():
    many = ss.analysis.memory(traced([Allocation(1, 1, 5) for _ in range(4000)]))
    assert many.saving == "What would have to go to lower the peak by a tenth cannot be named: these are more than 300 allocations."
    before = ss.analysis.memory(traced([Allocation(99, kind=BEFORE_THE_RECORDING), Allocation(1, 1, 5)]))
    assert before.saving == "What would have to go to lower the peak by a tenth cannot be named: too much was held before the recording."


def test_memory_that_is_never_held_has_no_peak():
    found = ss.analysis.memory(traced([Allocation(10, 7, 7)]))
    assert (found.peak.bytes, found.rows, found.answer, found.notes) == (0, (), "No memory is held at any time of the trace.", ())
    assert found.to_dict()["to_save_a_tenth"] is None


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: ss.analysis.memory(SPANS), "memory is that of a trace"),
        (lambda: ss.analysis.memory(traced([])), "tells nothing of memory"),
        (lambda: ss.analysis.memory(example(), "file"), "by line, module, operation or kind"),
        (lambda: ss.analysis.memory(example(), gpu=3), "nothing of the memory of GPU 3"),
        (lambda: ss.analysis.memory(example()).held_by("x"), "by line, module, operation or kind"),
    ],
)
def test_what_is_wrong_is_refused(call, words):
    with pytest.raises(TraceError, match=words):
        call()


def test_the_memory_of_the_host_is_there_on_request():
    assert ss.analysis.memory(example(), gpu=-1).answer == "The host holds at most 7 B, first at 0 µs; 100 % of it is of an unknown kind."


def test_the_memory_of_all_gpus_is_that_of_each():
    trace = traced([Allocation(5, gpu=1), Allocation(7, 10, 20, gpu=0), Allocation(9, gpu=-1), Allocation(1, 12, 13, gpu=1)])
    several = memories(trace)
    assert [each.gpu for each in several] == [0, 1, -1]
    assert [each.to_dict() for each in several] == [memory(trace, "kind", gpu).to_dict() for gpu in (0, 1, -1)]
    assert memories(traced([])) == []
