"""Stacks of Python in Kineto files: which line and module launched each kernel. All expected rows were worked out by hand."""

import json

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.formats.kineto_files import call, content, dumps, event, kernel

import streamscope as ss
from streamscope.errors import TraceError
from streamscope.formats.kineto import stacks
from streamscope.formats.kineto.stacks import user_frame
from streamscope.trace import LaunchSites, Site, SpanKind

MAIN, ENGINE = 4242, 4300
TRAIN = "/home/me/train.py(3): step"
MODEL = "model.py(10): forward"
CALL_IMPL = "torch/nn/modules/module.py(1553): _call_impl"
LINEAR = "torch/nn/modules/linear.py(124): forward"
BUILT_IN = "<built-in function linear>"


def frame(name, start_ns, end_ns, tid=MAIN, **args):
    return event("python_function", name, start_ns, end_ns, tid=tid, pid=4242, **args)


def operator(name, start_ns, end_ns, sequence, forward=0, tid=MAIN):
    return event("cpu_op", name, start_ns, end_ns, tid=tid, pid=4242, **{"Sequence number": sequence, "Fwd thread id": forward})


def launch(correlation, start_ns, tid=MAIN, name="gemm"):
    """Return a call of 10 ns and its kernel of 50 ns, which begins 1,000 ns after it."""
    begin_ns = start_ns + 1000
    return [call("cudaLaunchKernel", start_ns, start_ns + 10, correlation, tid=tid), kernel(name, begin_ns, begin_ns + 50, correlation)]


def forward_and_backward():
    """A step of two linear layers: launches 1 and 2 forward, 3 the loss, 4 to 6 backward, 7 the optimizer."""
    return [
        frame("threading.py(1002): _bootstrap", 0, 9000),
        frame(TRAIN, 100, 8000),
        frame(CALL_IMPL, 150, 2000),
        frame("nn.Module: Net_0", 160, 1990),
        frame(MODEL, 200, 1900),
        frame("nn.Module: Linear_0", 300, 800),
        frame(CALL_IMPL, 310, 790),
        frame(LINEAR, 320, 780),
        frame(BUILT_IN, 330, 770),
        operator("aten::linear", 340, 760, 7),
        operator("aten::t", 350, 360, 7),
        operator("aten::addmm", 400, 700, 8),
        *launch(1, 450),
        frame("nn.Module: Linear_1", 900, 1500),
        operator("aten::addmm", 1000, 1400, 9),
        *launch(2, 1100),
        operator("aten::mean", 2100, 2400, 10),
        *launch(3, 2200),
        # The engine's thread has no frames.
        operator("autograd::engine::evaluate_function: MeanBackward0", 3000, 3400, 10, 1, ENGINE),
        operator("MeanBackward0", 3010, 3390, 10, 1, ENGINE),
        *launch(4, 3100, ENGINE),
        operator("autograd::engine::evaluate_function: AddmmBackward0", 4000, 4400, 9, 1, ENGINE),
        *launch(5, 4100, ENGINE),
        event("cpu_op", "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", 5000, 5400, tid=ENGINE, pid=4242),
        *launch(6, 5100, ENGINE),
        frame("/usr/lib/python3.12/site-packages/apex/optim.py(9): step", 6000, 6500),
        *launch(7, 6100),
        frame(TRAIN.replace("step", "save"), 7000, 7100),
        frame("<eval_with_key>.3(5): forward", 7010, 7090),
        *launch(8, 7050),
    ]


@pytest.fixture
def written(tmp_path):
    def write(events, name="step.json", **beside):
        path = tmp_path / name
        path.write_text(dumps(content(events, **beside)), encoding="utf-8")
        return path

    return write


def sites(trace):
    """Return function, line and module of each kernel by its correlation; None where the trace does not tell."""
    site = dict(zip(trace.sites.span.tolist(), trace.sites.site.tolist(), strict=True))
    found = {}
    for row in np.flatnonzero(trace.spans.kind == SpanKind.KERNEL).tolist():
        one = trace.sites.sites[site[row]] if row in site else None
        found[int(trace.spans.correlation[row])] = one and (one.function, one.line, one.module)
    return found


EXPECTED = {
    1: ("forward", 10, "Linear_0"),
    2: ("forward", 10, "Linear_1"),
    3: ("step", 3, ""),
    4: ("step", 3, ""),  # of the mean, outside of the network
    5: ("forward", 10, "Linear_1"),  # the number of the second layer
    6: None,
    7: ("step", 3, ""),  # the optimizer is a library
    8: ("save", 3, ""),  # generated code is not the user's
}


def test_each_launch_belongs_to_the_innermost_frame_of_the_user_and_module(written):
    trace = ss.read(written(forward_and_backward()))
    assert sites(trace) == EXPECTED
    assert all(site.defined for site in trace.sites.sites)
    assert {site.file for site in trace.sites.sites} == {"/home/me/train.py", "model.py"}
    assert trace.info.notes == ("of 13 frames of Python, only those of the user's code and of modules around each launch call are kept",)
    assert {trace.spans.names[code] for code in trace.spans.name[trace.spans.kind == SpanKind.RANGE]} >= {"aten::addmm"}


def test_whole_stacks_are_kept_as_callers(written):
    """Launch 5 is of the backward pass, and lies in the stack of its forward operator."""
    trace = ss.read(written(forward_and_backward()))
    tree = ss.analysis.call_tree(trace)
    paths = {
        int(trace.spans.correlation[row]): "/".join(frame.name for frame in tree.path(frame))
        for row, frame in zip(tree.span.tolist(), tree.frame.tolist(), strict=True)
    }
    assert paths == {
        1: "step/Net_0/forward/Linear_0/gemm", 2: "step/Net_0/forward/Linear_1/gemm", 3: "step/gemm", 4: "step/gemm",
        5: "step/Net_0/forward/Linear_1/gemm", 6: "unknown/gemm", 7: "step/gemm", 8: "step/save/gemm",
    }  # fmt: skip


def test_the_deepest_callers_are_left_out_of_a_deep_recursion(written):
    frames = [frame(f"walk.py({depth + 1}): walk", depth, 5000 - depth) for depth in range(90)]
    trace = ss.read(written([*frames, *launch(1, 1000)]))
    (site,) = trace.sites.sites
    assert site.line == 90
    assert [caller.line for caller in site.callers] == list(range(1, 65))
    assert LaunchSites.from_dict(json.loads(json.dumps(trace.sites.to_dict()))) == trace.sites


def test_order_of_events_does_not_matter(written):
    assert sites(ss.read(written(forward_and_backward()[::-1]))) == EXPECTED


def test_rows_by_line_and_module(written):
    trace = ss.read(written(forward_and_backward()))
    found = ss.analysis.by_code(trace, "line")
    assert [(row.name, row.place, row.kernels, row.gpu_ns) for row in found.rows] == [
        ("step", "/home/me/train.py:3", 3, 150),
        ("forward", "model.py:10", 3, 150),
        ("save", "/home/me/train.py:3", 1, 50),
        ("unknown", "", 1, 50),
    ]
    assert found.defined
    assert found.unattributed.gpu_ns == 0
    found = ss.analysis.by_code(trace, "module")
    assert [(row.name, row.kernels) for row in found.rows] == [("unknown", 5), ("Linear_1", 2), ("Linear_0", 1)]


def test_parquet_keeps_the_sites(written, tmp_path):
    trace = ss.read(written(forward_and_backward()))
    back = ss.read(trace.to_parquet(tmp_path / "step.parquet"))
    assert back.sites == trace.sites
    assert ss.analysis.by_code(back) == ss.analysis.by_code(trace)


def in_order(trace):
    """Return the site of each kernel, in the order of their starts."""
    site = dict(zip(trace.sites.span.tolist(), trace.sites.site.tolist(), strict=True))
    return [trace.sites.sites[site[row]] if row in site else None for row in np.flatnonzero(trace.spans.kind == SpanKind.KERNEL).tolist()]


def test_kineto_keeps_the_sites(written, tmp_path):
    trace = ss.read(written(forward_and_backward()))
    path = trace.to_kineto(tmp_path / "back.json")
    assert in_order(ss.read(path)) == in_order(trace)
    (call,) = (one for one in json.loads(path.read_text())["traceEvents"] if one.get("args", {}).get("module") == "Linear_0")
    assert (call["cat"], call["args"]["defined at"], call["args"]["function"]) == ("cuda_runtime", "model.py:10", "forward")


@pytest.mark.parametrize("site", [99, -1, 0])
def test_kineto_of_ours_with_other_numbers_of_sites(written, tmp_path, site):
    trace = ss.read(written(forward_and_backward()))
    path = trace.to_kineto(tmp_path / "back.json")
    content = json.loads(path.read_text())
    for each in content["traceEvents"]:
        if "launch site" in each.get("args", {}):
            each["args"]["launch site"] = site
    path.write_text(json.dumps(content))
    assert {*in_order(ss.read(path))} == {None, *([trace.sites.sites[0]] if site == 0 else [])}


@pytest.mark.parametrize("row", [[0, 0, 0, "12", 0], [0, 0, 0, 12, 2], [99, 0, 0, 12, 0], "text", None])
def test_kineto_of_ours_with_damaged_sites(written, tmp_path, row):
    path = ss.read(written(forward_and_backward())).to_kineto(tmp_path / "back.json")
    content = json.loads(path.read_text())
    content["streamscope"]["sites"]["sites"] = [row] * 9
    path.write_text(json.dumps(content))
    with pytest.raises(TraceError):
        ss.read(path)


def test_a_prediction_keeps_the_sites(written):
    trace = ss.read(written(forward_and_backward()))
    predicted = ss.what_if(trace)
    assert [(row.name, row.kernels) for row in ss.analysis.by_code(predicted, "module").rows] == [
        (row.name, row.kernels) for row in ss.analysis.by_code(trace, "module").rows
    ]


def test_of_an_operator_that_ran_again_the_last_one_before_counts(written):
    """Numbers go on from step to step. Operators without a gradient repeat the number of the next one that has one."""
    events = [
        frame("a.py(1): first", 0, 1000),
        operator("aten::zeros", 100, 200, 5),
        frame("b.py(2): second", 1000, 2000),
        operator("aten::mul", 1100, 1200, 5),
        operator("MulBackward0", 3000, 3400, 5, 1, ENGINE),
        *launch(1, 3100, ENGINE),
        frame("c.py(3): third", 4000, 5000),
        operator("aten::mul", 4100, 4200, 5),
    ]
    assert sites(ss.read(written(events))) == {1: ("second", 2, "")}


def test_backward_on_the_thread_of_the_forward_pass(written):
    """Frames around ``loss.backward()`` are there. The forward operator says more."""
    events = [
        frame("a.py(1): main", 0, 9000),
        frame("b.py(2): layer", 100, 900),
        operator("aten::mul", 200, 300, 5),
        operator("MulBackward0", 3000, 3400, 5, 1),
        *launch(1, 3100),
    ]
    assert sites(ss.read(written(events))) == {1: ("layer", 2, "")}


def test_backward_without_its_forward_operator_is_unknown(written):
    """The profiler began after the forward pass."""
    events = [frame("a.py(1): main", 0, 9000), operator("MulBackward0", 3000, 3400, 5, 1), *launch(1, 3100), *launch(2, 5000)]
    trace = ss.read(written(events))
    assert sites(trace) == {1: None, 2: ("main", 1, "")}
    assert {row.name for row in ss.analysis.by_code(trace).rows} == {"main", "unknown"}


def test_several_forward_threads(written):
    """Each thread counts its operators. Thread 1 alone has all numbers of the first backward thread; of the second, both could be."""
    events = [
        frame("a.py(1): one", 0, 900, tid=1),
        frame("b.py(2): two", 0, 900, tid=2),
        *(operator("aten::mul", 100 * number, 100 * number + 50, number, tid=1) for number in (1, 2, 3)),
        *(operator("aten::mul", 100 * number, 100 * number + 50, number, tid=2) for number in (2, 3)),
        operator("MulBackward0", 3000, 3100, 1, 1, ENGINE),
        *launch(1, 3010, ENGINE),
        operator("MulBackward0", 3200, 3300, 3, 1, ENGINE),
        *launch(2, 3210, ENGINE),
        operator("MulBackward0", 3400, 3500, 2, 2, ENGINE),
        *launch(3, 3410, ENGINE),
    ]
    assert sites(ss.read(written(events))) == {1: ("one", 1, ""), 2: ("one", 1, ""), 3: None}


def test_threads_of_two_processes_have_their_own_frames(written):
    events = [frame("a.py(1): one", 0, 900), *launch(1, 100)]
    others = [frame("b.py(2): two", 0, 900), call("cudaLaunchKernel", 100, 110, 2), kernel("relu", 1100, 1150, 2, device=1)]
    for each in others[:2]:
        each["pid"] = 4243
    assert [*sites(ss.read(written([*events, *others]))).values()] == [("one", 1, ""), ("two", 2, "")]


def test_all_kernels_of_a_graph_belong_to_its_launch(written):
    events = [frame("a.py(1): replay", 0, 900), call("cudaGraphLaunch", 100, 200, 1)]
    events += [kernel(name, 500 + at, 510 + at, 1, graph_node_id=at) for at, name in ((100, "a"), (200, "b"))]
    trace = ss.read(written(events))
    assert [trace.sites.sites[one].function for one in trace.sites.site] == ["replay", "replay"]


def test_driver_call_within_the_call_of_the_runtime(written):
    events = [frame("a.py(1): f", 0, 900), *launch(1, 100), call("cuLaunchKernel", 102, 108, 1, category="cuda_driver")]
    assert sites(ss.read(written(events))) == {1: ("f", 1, "")}


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("train.py(12): <module>", Site("<module>", "train.py", 12, defined=True)),
        ("/home/me/a(1)/b.py(7): f", Site("f", "/home/me/a(1)/b.py", 7, defined=True)),
        ("C:\\me\\train.py(7): f", Site("f", "C:\\me\\train.py", 7, defined=True)),
        ("/tmp/ipykernel_7/123.py(1): f", Site("f", "/tmp/ipykernel_7/123.py", 1, defined=True)),
        ("<ipython-input-3-abc>(2): f", Site("f", "<ipython-input-3-abc>", 2, defined=True)),
        ("mypackage/torch/x.py(2): f", Site("f", "mypackage/torch/x.py", 2, defined=True)),
        ("torch/nn/modules/module.py(1553): _call_impl", None),
        ("contextlib.py(81): inner", None),
        ("importlib/__init__.py(90): import_module", None),
        ("/usr/lib/python3.12/json/decoder.py(1): f", None),
        ("/opt/venv/lib/python3.12/site-packages/numpy/x.py(1): f", None),
        ("C:\\venv\\Lib\\site-packages\\numpy\\x.py(1): f", None),
        ("<frozen importlib._bootstrap>(241): _call_with_frames_removed", None),
        ("<string>(1): __init__", None),
        ("<built-in method linear of type object at 0x7f(3): f>", None),
        ("threading.py(1002): _bootstrap", None),
        ("trace.py(3): train", Site("train", "trace.py", 3, defined=True)),  # the standard library's has no such function
        ("trace.py(1): <module>", Site("<module>", "trace.py", 1, defined=True)),
        ("code/net.py(3): forward", Site("forward", "code/net.py", 3, defined=True)),
        ("platform/__init__.py(3): system", Site("system", "platform/__init__.py", 3, defined=True)),
        ("json/../decoder.py(3): decode", Site("decode", "json/../decoder.py", 3, defined=True)),
        (f"json/{'a' * 500}.py(3): f", Site("f", f"json/{'a' * 500}.py", 3, defined=True)),
        ("json/a\0.py(3): f", Site("f", "json/a�.py", 3, defined=True)),
        ("torchvision/models/resnet.py(90): forward", None),
        ("transformers/models/bert/modeling_bert.py(90): forward", None),
        ("timm/layers/mlp.py(20): forward", None),
        ("numpy.py(3): f", Site("f", "numpy.py", 3, defined=True)),
        ("/home/me/timm/net.py(20): forward", Site("forward", "/home/me/timm/net.py", 20, defined=True)),
        ("train.py(99999999999): f", None),
        ("train.py: f", None),
        ("", None),
    ],
)
def test_frames_of_the_user(name, found):
    assert user_frame(name) == found


def test_without_stacks_there_are_no_sites(written):
    trace = ss.read(written([operator("aten::mul", 0, 90, 5), *launch(1, 10)]))
    assert trace.sites == LaunchSites()


def test_frames_without_a_time_and_frames_too_many_are_noted(written, monkeypatch):
    events = [frame("a.py(1): f", 0, 900), *launch(1, 100)]
    untimed = {key: value for key, value in frame("b.py(1): f", 0, 900).items() if key != "dur"}
    trace = ss.read(written([*events, untimed]))
    assert trace.info.notes[0] == "left out: 1 event of category 'python_function' without a time"
    assert sites(trace) == {1: ("f", 1, "")}
    monkeypatch.setattr(stacks, "MOST_FRAMES", 0)
    trace = ss.read(written(events))
    assert sites(trace) == {1: None}
    assert any("1 frame of Python" in note for note in trace.info.notes)


def test_more_sites_than_a_trace_keeps_are_noted(written, monkeypatch):
    monkeypatch.setattr(LaunchSites, "MOST", 1)
    trace = ss.read(written([frame("a.py(1): f", 0, 9000), *launch(1, 100), *launch(2, 200), *launch(3, 2000)]))
    assert len(trace.sites) == 1
    assert "without its line: 2 device spans, since a trace keeps 1" in trace.info.notes


@pytest.mark.parametrize("wrong", [{"Sequence number": "many"}, {"Sequence number": [1]}, {"Fwd thread id": {}, "Sequence number": 1}])
def test_wrong_numbers_of_operators_are_damage(written, wrong):
    events = [frame("a.py(1): f", 0, 900), event("cpu_op", "aten::mul", 0, 50, tid=MAIN, pid=4242, **wrong), *launch(1, 100)]
    path = written(events)
    with pytest.raises(TraceError):
        ss.read(path)
    trace = ss.read(path, damaged="skip")
    assert sites(trace) == {1: ("f", 1, "")}


def test_a_real_file_with_frames_put_in(repository, written):
    """A step of training by PyTorch 2.11: of the backward kernels, those of operators with a number belong to the forward function."""
    import gzip

    with gzip.open(repository / "tests/data/kineto/transformer_train.json.gz") as file:
        recorded = json.load(file)
    operators = [each for each in recorded["traceEvents"] if each.get("cat") == "cpu_op"]
    forward = [each for each in operators if each["args"].get("Fwd thread id") == 0]
    numbers = {each["args"]["Sequence number"] for each in forward}
    backward = {each["args"]["Sequence number"] for each in operators if each["args"].get("Fwd thread id", 0) > 0}
    assert backward <= numbers
    thread = forward[0]["tid"]
    begin_us, end_us = min(each["ts"] for each in forward) - 1000, max(each["ts"] + each["dur"] for each in forward) + 1000
    recorded["traceEvents"].append(
        {"ph": "X", "cat": "python_function", "name": "net.py(5): loss", "pid": forward[0]["pid"], "tid": thread,
         "ts": begin_us, "dur": end_us - begin_us, "args": {"Python id": 1, "Python parent id": None}}
    )  # fmt: skip
    found = ss.analysis.by_code(ss.read(written(recorded["traceEvents"])), "line")
    ours, unknown = found.rows
    assert (ours.place, unknown.name, found.unattributed.kernels) == ("net.py:5", "unknown", 0)
    assert ours.kernels + unknown.kernels == found.kernels
    assert ours.kernels > 80


@st.composite
def threads(draw):
    """Frames, modules and operators of two threads, which nest or do not; and when each thread launched."""
    frames, operators = [], []
    for _ in range(draw(st.integers(0, 8))):
        start, code = draw(st.integers(0, 30)), draw(st.integers(0, 5))
        frames.append((draw(st.integers(1, 2)), start, start + draw(st.integers(0, 15)), code))
    for _ in range(draw(st.integers(0, 8))):
        start, sequence = draw(st.integers(0, 30)), draw(st.integers(0, 2))
        operators.append((draw(st.integers(1, 2)), start, start + draw(st.integers(0, 10)), sequence, draw(st.sampled_from([0, 0, 0, 1]))))
    calls = [(draw(st.integers(1, 2)), draw(st.integers(0, 40))) for _ in range(draw(st.integers(1, 5)))]
    return frames, operators, calls


def last_around(rows, thread, time):
    """Return the last of some rows of (thread, start, end, ...) that began, of those around a time; of equals the shortest."""
    around = [row for row in rows if row[0] == thread and row[1] <= time < row[2]]
    return max(around, key=lambda row: (row[1], -row[2]), default=None)


@given(threads())
def test_against_a_search_through_all_events(events):
    frames, operators, calls = events
    # Of events that are alike in thread and time, any may be the innermost.
    assume(len({row[:3] for row in frames}) == len(frames))
    assume(len({row[:2] for row in operators}) == len(operators))
    names = ["a.py(1): f", "nn.Module: A_0", "b.py(2): g", "nn.Module: B_0", "torch/x.py(1): h", "c.py(3): h"]
    found = stacks.Stacks()
    code = found.code([names[row[3]] for row in frames])
    columns = [np.array(column, np.int64) for column in zip(*(row[:3] for row in frames), strict=True)] or [np.zeros(0, np.int64)] * 3
    keep = code >= 0
    found.add(stacks.Frames(np.zeros(keep.sum(), np.int64), *(column[keep] for column in columns), code[keep]))
    if operators:
        found.add(stacks.Operators(np.zeros(len(operators), np.int64), *(np.array(column) for column in zip(*operators, strict=True))))
    thread, at = (np.array(column, np.int64) for column in zip(*calls, strict=True))
    number, sites = found.sites(stacks.ThreadTimes(np.zeros(len(calls), np.int64), thread, at, at))
    forward = [row for row in operators if row[4] == 0]
    asked = [around for one, time in calls if (around := last_around([row for row in operators if row[4]], one, time))]
    known = {row[3] for row in asked} & {row[3] for row in forward}
    whole = [one for one in (1, 2) if known and known <= {row[3] for row in forward if row[0] == one}]
    for call_place, which in zip(calls, number.tolist(), strict=True):
        place = call_place
        if around := last_around([row for row in operators if row[4]], *place):
            before = [row for row in forward if [row[0]] == whole and row[3] == around[3] and row[1] <= around[1]]
            place = max(before, key=lambda row: row[1])[:2] if before else (0, 0)
        user = last_around([row for row in frames if row[3] in (0, 2, 5)], *place)
        module = last_around([row for row in frames if row[3] in (1, 3)], *place)
        expected = (names[user[3]].split(": ")[1] if user else "", names[module[3]].split(": ")[1] if module else "")
        assert (("", "") if which < 0 else (sites[which].function, sites[which].module)) == expected
