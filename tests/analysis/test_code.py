"""Time by line, module and range: small traces with rows worked out by hand, and sums that hold for any trace."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamscope as ss
from streamscope.analysis.code import UNKNOWN, most_telling
from streamscope.errors import TraceError
from streamscope.trace import DeviceInfo, LaunchSites, Origins, Site, SpanTable, Trace, TraceInfo

INFO = TraceInfo("kineto", "step", DeviceInfo("cuda", "NVIDIA H200"))
SITES = (
    Site("forward", "model.py", 12, "Linear_0", defined=True),
    Site("loss", "train.py", 40, "", defined=True),
    Site("", "", 0, "ReLU_0"),
)


def table(found):
    return [(row.name, row.place, row.kernels, row.gpu_ns, row.exposed_ns, row.idle_ns) for row in found.rows]


@pytest.fixture
def trace():
    """Return a trace of four launches of five works, and one kernel without a launch.

    The GPU is idle from 0 to 10, before the first kernel, from 50 to 60 before the third, and from 110 to 120, after the last.
    """
    spans = SpanTable.of(
        ("range", "step", "thread 1 ranges", 0, 100),
        ("range", "inner", "thread 1 ranges", 4, 8),
        ("launch", "call", "thread 1", 0, 2, 0),
        ("launch", "call", "thread 1", 4, 6, 1),
        ("launch", "call", "thread 1", 8, 9, 2),
        ("kernel", "gemm", "stream 7", 10, 40, 0),
        ("kernel", "ncclDevKernel_AllReduce_Sum", "stream 20", 30, 50, 1),
        ("kernel", "relu", "stream 7", 60, 80, 2),
        ("copy", "Memcpy", "stream 7", 80, 90, 2),
        ("kernel", "late", "stream 7", 90, 110),
        ("sync", "wait", "thread 1", 100, 120),
    )
    row = {spans.names[spans.name[at]]: at for at in range(len(spans))}
    sites = {row["gemm"]: 0, row["ncclDevKernel_AllReduce_Sum"]: 1}
    at = sorted(sites)
    return Trace(spans, INFO, sites=LaunchSites(np.array(at), np.array([sites[one] for one in at]), SITES))


def test_lines(trace):
    """All of the all-reduce from 40 on is exposed. The kernel and the copy of the third launch have no line."""
    found = ss.analysis.by_code(trace, "line")
    assert table(found) == [
        ("forward", "model.py:12", 1, 30, 0, 10),
        (UNKNOWN, "", 1, 30, 0, 10),
        ("loss", "train.py:40", 1, 20, 10, 0),
    ]
    rest = found.unattributed
    assert (rest.kernels, rest.gpu_ns, rest.exposed_ns, rest.idle_ns) == (1, 20, 0, 10)
    assert (found.gpu_ns, found.exposed_ns, found.idle_ns, found.kernels) == (100, 10, 30, 4)
    assert [row.share for row in found.rows] == [0.3, 0.3, 0.2]
    assert found.heads()[:2] == ("function", "defined at")
    assert found.answer == "forward (model.py:12) costs most: 30 % of 0.100 µs on the GPU."
    assert len(found.notes) == 3


def test_modules(trace):
    """The all-reduce has a line and no module."""
    answer = ss.analysis.by_code(trace, "module").answer
    assert answer.startswith("Linear_0 costs most of the known modules: 30 % of 0.100 µs on the GPU. By line: forward (model.py:12) costs")
    assert table(ss.analysis.by_code(trace, "module")) == [(UNKNOWN, "", 2, 50, 10, 10), ("Linear_0", "", 1, 30, 0, 10)]


def test_ranges(trace):
    """The innermost range around the launch call counts: the third call begins when the inner range is over."""
    found = ss.analysis.by_code(trace, "range")
    assert table(found) == [("step", "", 2, 60, 0, 20), ("inner", "", 1, 20, 10, 0)]
    assert "file:line" not in found.heads()


def test_json(trace):
    found = ss.analysis.by_code(trace, "line").to_dict()
    assert list(found)[:3] == ["by", "rows", "unattributed_us"]
    assert found["by"] == "line"
    assert found["rows"][2] == {
        "name": "loss", "file": "train.py", "line": 40, "kernels": 1, "gpu_us": 0.02, "exposed_us": 0.01, "idle_us": 0.0, "share": 0.2,
    }  # fmt: skip
    assert found["rows"][1]["file"] is found["rows"][1]["line"] is None
    assert found["unattributed_us"] == 0.02
    for column in ("kernels", "gpu_us", "exposed_us", "idle_us"):
        rest = found["unattributed_us" if column == "gpu_us" else f"unattributed_{column}"]
        assert sum(row[column] for row in found["rows"]) + rest == pytest.approx(found[column])
    assert found["lines_are"] == "definitions"


def test_lines_of_a_program_are_those_that_launched():
    spans = SpanTable.of(("launch", "a", "host", 0, 2, 0), ("kernel", "a", "main", 5, 25, 0), ("kernel", "b", "main", 25, 30, 0))
    spans = replace(spans, operation=np.array([0, 0, 1]))
    origins = Origins(
        ("model.py:12: h = x @ w", "block", "nn.py:3"), label=np.array([1, -1]), line=np.array([0, 2]), arguments=-np.ones(2, int)
    )
    found = ss.analysis.by_code(Trace(spans, INFO, origins), "line")
    assert table(found) == [("h = x @ w", "model.py:12", 1, 20, 0, 5), ("nn.py:3", "nn.py:3", 1, 5, 0, 0)]
    assert [row.called for row in found.rows] == ["h = x @ w (model.py:12)", "nn.py:3"]
    assert not found.defined
    assert found.to_dict()["lines_are"] == "lines"
    assert table(ss.analysis.by_code(Trace(spans, INFO, origins), "range")) == [("block", "", 1, 20, 0, 5), (UNKNOWN, "", 1, 5, 0, 0)]
    assert ss.analysis.by_code(Trace(spans, INFO, origins), "module").rows == ()


def nested():
    """Return a trace of a wrapper that calls a block: 10 ns are its own, layers in it have 20 and 30 ns, one in these has 5."""
    wrapper = Site("run", "tool.py", 3, defined=True)
    block = Site("run", "tool.py", 3, "Block_0", defined=True, caller=wrapper)
    layers = [Site("run", "tool.py", 3, f"Linear_{number}", defined=True, caller=block) for number in (0, 1)]
    inner = Site("run", "tool.py", 3, "Linear_2", defined=True, caller=layers[1])
    rows = [("launch", "call", "host", 0, 2, at) for at in range(4)]
    rows += [("kernel", f"k{at}", "main", *times, at) for at, times in enumerate(((10, 20), (20, 40), (40, 70), (70, 75)))]
    spans = SpanTable.of(*rows)
    return Trace(spans, INFO, sites=LaunchSites(np.arange(4, 8), np.arange(4), (block, *layers, inner)))


def test_backward_kernels_in_rows_of_forward_operators_are_told():
    def traced(name, site):
        spans = SpanTable.of(
            ("launch", "call", "thread 1", 0, 2, 0), ("range", name, "thread 2 ranges", 2, 9), ("launch", "call", "thread 2", 4, 6, 1),
            ("kernel", "mm", "stream 7", 10, 40, 0), ("kernel", "mm_backward", "stream 7", 40, 50, 1),
        )  # fmt: skip
        at = [row for row in range(len(spans)) if spans.names[spans.name[row]] in site]
        return Trace(spans, INFO, sites=LaunchSites(np.array(at), np.zeros(len(at), int), SITES))

    backward, said = "autograd::engine::evaluate_function: MmBackward0", "Backward kernels count for the line of their forward operator."
    assert said in ss.analysis.by_code(traced(backward, ("mm", "mm_backward"))).notes
    assert not ss.analysis.by_code(traced(backward, ("mm", "mm_backward")), "range").backward
    assert not ss.analysis.by_code(traced(backward, ("mm",))).backward  # The file does not tell the forward operator.
    assert not ss.analysis.by_code(traced("aten::mm", ("mm", "mm_backward"))).backward


def test_modules_stand_in_sum_by_class():
    """A layer inside a layer counts once in the time with what is inside."""
    found = ss.analysis.by_code(nested(), "module")
    assert [(row.name, row.modules, row.kernels, row.gpu_ns, row.with_inside_ns) for row in found.classes] == [
        ("Linear", 3, 3, 55, 55), ("Block_0", 1, 1, 10, 65),
    ]  # fmt: skip
    assert {row.name: row.gpu_ns for row in found.rows} == {"Linear_0": 20, "Linear_1": 30, "Linear_2": 5, "Block_0": 10}
    assert found.answer == "Linear costs most: 85 % of 0.065 µs on the GPU, in 3 modules."
    assert found.heads()[:2] == ("module", "modules")
    assert next(found.table_rows())[:3] == ("Linear", "3", "3")
    assert found.to_dict()["classes"][1] == {
        "name": "Block_0", "kernels": 1, "gpu_us": 0.01, "exposed_us": 0.0, "idle_us": 0.01, "share": 10 / 65, "modules": 1,
        "with_inside_us": 0.065,
    }  # fmt: skip
    assert "lines_are" not in found.to_dict()
    assert "4 single modules" in found._repr_html_()


def test_where_one_line_has_nearly_all_the_answer_goes_on_by_module():
    """A profiler's wrapper calls the model of a package: its line is true and says nothing."""
    found = ss.analysis.by_code(nested(), "line")
    assert found.answer == (
        "run (tool.py:3) costs most: 100 % of 0.065 µs on the GPU. By module: Linear costs most: 85 % of 0.065 µs on the GPU, in 3 modules."
    )
    assert most_telling(nested()).by == "module"


def test_one_line_has_nearly_all_although_much_is_not_attributed():
    """Kernels without a launch call in the trace belong to no line: 30 of 95 ns."""
    whole = nested()
    late = SpanTable.of(*(("launch", "call", "host", 0, 2, at) for at in range(4)), *(
        ("kernel", f"k{at}", "main", *times, at) for at, times in enumerate(((10, 20), (20, 40), (40, 70), (70, 75)))
    ), ("kernel", "late", "main", 75, 105))  # fmt: skip
    found = ss.analysis.by_code(replace(whole, spans=late), "line")
    assert found.answer.startswith("run (tool.py:3) costs most: 68 % of 0.095 µs on the GPU. By module: Linear costs most: 58 %")
    assert most_telling(replace(whole, spans=late)).by == "module"


def test_where_no_line_is_known_the_answer_goes_on_by_range(trace):
    bare = replace(trace, sites=LaunchSites())
    assert "names no line for any kernel" in ss.analysis.by_code(bare).answer
    assert "By range: step costs most: 60 %" in ss.analysis.by_code(bare).answer
    assert (most_telling(bare).by, most_telling(trace).by) == ("range", "line")


def test_captured_code_has_modules_and_operators():
    spans = SpanTable.of(("launch", "a", "host", 0, 2, 0), ("kernel", "a", "main", 5, 25, 0), ("kernel", "b", "main", 25, 30, 0))
    spans = replace(spans, operation=np.array([0, 0, 1]))
    texts = ("layer1.0", "aten::relu", "net.py:7: y = f(x)")
    origins = Origins(texts, label=np.array([0, 0]), line=np.array([2, 2]), arguments=np.array([1, -1]))
    trace = Trace(spans, INFO, origins)
    assert table(ss.analysis.by_code(trace, "module")) == [("layer1.0", "", 2, 25, 0, 5)]
    assert table(ss.analysis.by_code(trace, "range")) == [("aten::relu", "", 1, 20, 0, 5), (UNKNOWN, "", 1, 5, 0, 0)]
    assert table(ss.analysis.by_code(trace, "line")) == [("y = f(x)", "net.py:7", 2, 25, 0, 5)]


def test_without_lines_all_is_unattributed():
    spans = SpanTable.of(("launch", "a", "thread 1", 0, 2, 0), ("kernel", "a", "stream 7", 5, 25, 0))
    found = ss.analysis.by_code(Trace(spans, INFO))
    assert (found.rows, found.unattributed.gpu_ns, found.unattributed.idle_ns) == ((), 20, 5)
    assert "names no line" in found.answer
    assert "with_stack=True" in str(found)


def test_one_gpu_of_several():
    gpus = {"stream 7": 0, "GPU 1 stream 7": 1}
    rows = [("kernel", "a", "stream 7", 0, 20), ("kernel", "b", "GPU 1 stream 7", 0, 30)]
    spans = SpanTable.of(*rows, gpus=gpus)
    sites = LaunchSites(np.array([0, 1]), np.array([1, 0]), SITES)
    trace = Trace(spans, INFO, sites=sites)
    found = ss.analysis.by_code(trace)
    assert (found.gpu, table(found)) == (1, [("forward", "model.py:12", 1, 30, 0, 0)])
    assert table(ss.analysis.by_code(trace.of_gpu(0))) == [("loss", "train.py:40", 1, 20, 0, 0)]


def test_wrong_arguments(trace):
    with pytest.raises(TraceError, match="not by 'file'"):
        ss.analysis.by_code(trace, "file")
    with pytest.raises(TraceError, match="not by \\[1\\]"):
        ss.analysis.by_code(trace, [1])
    with pytest.raises(TraceError, match="of a trace, not of"):
        ss.analysis.by_code(trace.spans)


def test_many_rows_are_summed_in_text():
    count = 50
    spans = SpanTable.of(*(("kernel", "k", "main", 10 * at, 10 * at + 5) for at in range(count)))
    sites = LaunchSites(np.arange(count), np.arange(count), tuple(Site(f"f{at}", "m.py", at + 1) for at in range(count)))
    found = ss.analysis.by_code(Trace(spans, INFO, sites=sites))
    cells = list(found.table_rows(20))
    assert len(cells) == 21
    assert cells[20][:3] == ("30 more lines", "", "30")
    assert "30 more lines" in found.to_markdown()
    assert "more row" in found._repr_html_()


def test_html_of_many_long_names_is_small_and_escaped():
    count = 300
    spans = SpanTable.of(*(("kernel", "k", "main", 10 * at, 10 * at + 5) for at in range(count)))
    names = [f"<b>{at:04}" + "&" * 900 for at in range(count)]
    sites = LaunchSites(np.arange(count), np.arange(count), tuple(Site(name, name, 1) for name in names))
    html = ss.analysis.by_code(Trace(spans, INFO, sites=sites))._repr_html_()
    assert len(html) < 200_000
    assert "<b>0" not in html
    assert "60 more rows" in html
    assert "225 more lines" in html


@given(spans=st.from_type(SpanTable), data=st.data(), by=st.sampled_from(["line", "module", "range"]))
def test_rows_and_the_rest_add_up(spans, data, by):
    device = np.flatnonzero(spans.kind >= 8)
    chosen = np.array(sorted(data.draw(st.sets(st.sampled_from(device.tolist())))) if len(device) else [], np.int64)
    site = np.array([data.draw(st.integers(0, 2)) for _ in chosen], np.int64)
    communication = data.draw(st.sampled_from([(), ("work",)]))
    trace = Trace(spans, INFO, sites=LaunchSites(chosen, site, SITES))
    found = ss.analysis.by_code(trace, by, communication)
    every = [*found.rows, found.unattributed]
    begin_ns = int(spans.start_ns[0]) if len(spans) else 0
    split = ss.analysis.work_split(trace, communication)
    assert sum(row.gpu_ns for row in every) == found.gpu_ns == spans.duration_ns[device].sum()
    assert sum(row.exposed_ns for row in every) == found.exposed_ns == split.exposed_communication_ns
    assert sum(row.idle_ns for row in every) == found.idle_ns == ss.analysis.device_idle(spans, begin_ns=begin_ns).total_ns
    assert sum(row.kernels for row in every) == found.kernels == ss.analysis.kernel_count(spans)
    assert all(min(row.kernels, row.gpu_ns, row.exposed_ns, row.idle_ns) >= 0 for row in every)


@given(
    kernels=st.lists(st.tuples(st.booleans(), st.integers(0, 40), st.integers(0, 12), st.integers(0, 2)), max_size=10),
)
def test_exposed_communication_adds_up_beside_compute(kernels):
    """Of kernels that compute and communicate, side by side."""
    rows = [
        ("kernel", "nccl" if nccl else "gemm", f"stream {at}", start, start + length) for at, (nccl, start, length, _) in enumerate(kernels)
    ]
    spans = SpanTable.of(*rows)
    order = np.argsort([start for _, start, _, _ in kernels], kind="stable")
    sites = LaunchSites(np.arange(len(rows)), np.array([site for *_, site in kernels], np.int64)[order], SITES)
    trace = Trace(spans, INFO, sites=sites)
    found = ss.analysis.by_code(trace, "module", ["nccl"])
    exposed_ns = sum(row.exposed_ns for row in (*found.rows, found.unattributed))
    assert exposed_ns == ss.analysis.work_split(trace, ["nccl"]).exposed_communication_ns
