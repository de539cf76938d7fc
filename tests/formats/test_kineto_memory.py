"""Memory in Kineto files: instants ``[memory]``. All expected rows were worked out by hand."""

import pytest
from tests.formats.kineto_files import call, content, dumps, event, kernel, us

import streamscope as ss
from streamscope.trace import BEFORE, HELD, Level, Site

MAIN = 4242


def memory(at_ns, nbytes, address, total, reserved=0, *, device=0, kind=1, tid=MAIN, pid=MAIN):
    """Return one instant, as PyTorch 2.9 writes it."""
    args = {
        "Total Reserved": reserved, "Total Allocated": total, "Bytes": nbytes, "Addr": address, "Device Id": device, "Device Type": kind,
        "ev idx": at_ns,
    }  # fmt: skip
    return {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": pid, "tid": tid, "ts": us(at_ns), "args": args}


def operator(name, start_ns, end_ns, *, tid=MAIN):
    return event("cpu_op", name, start_ns, end_ns, tid=tid, pid=MAIN)


BASE = [call("cudaLaunchKernel", 0, 10, 1), kernel("gemm", 1000, 1050, 1)]


@pytest.fixture
def read(tmp_path):
    def read(events, **options):
        path = tmp_path / "trace.json"
        path.write_text(dumps(content(events)))
        return ss.read(path, **options)

    return read


def test_each_tensor_is_a_row_and_the_totals_are_those_of_the_allocator(read):
    trace = read([
        *BASE,
        memory(100, 512, 2**47 + 1, 1512, 4096), memory(200, 1024, 7, 2536, 4096),
        memory(300, -1024, 7, 1512, 4096), memory(400, -600, 9, 912, 4096),
        memory(150, 64, 11, 64, device=-1, kind=0),
    ])  # fmt: skip
    rows = trace.memory.to_pandas()[["start_ns", "end_ns", "bytes", "gpu", "level", "kind"]].to_numpy().tolist()
    assert sorted(rows) == [
        [BEFORE, 400, 600, 0, "allocated", "before the recording"],
        [BEFORE, HELD, 400, 0, "allocated", "before the recording"],
        [BEFORE, HELD, 4096, 0, "reserved", "before the recording"],
        [100, HELD, 512, 0, "allocated", "PyTorch"],
        [150, HELD, 64, -1, "allocated", "PyTorch"],
        [200, 300, 1024, 0, "allocated", "PyTorch"],
    ]
    assert trace.info.notes == ()


def test_the_operator_is_the_one_that_wanted_the_memory(read):
    trace = read([
        *BASE,
        event("user_annotation", "ProfilerStep#3", 0, 900, tid=MAIN, pid=MAIN),
        operator("aten::linear", 100, 200), operator("aten::addmm", 110, 190), operator("aten::empty", 120, 130),
        operator("aten::empty", 300, 310), operator("aten::relu", 100, 200, tid=7),
        memory(125, 1, 1, 1), memory(305, 2, 2, 3), memory(400, 4, 3, 7), memory(150, 8, 4, 15, tid=7),
    ])  # fmt: skip
    assert dict(zip(trace.memory.bytes.tolist(), trace.memory.names, strict=True)) == {
        1: "aten::addmm", 2: "aten::empty", 4: "", 8: "aten::relu",
    }  # fmt: skip


def test_line_and_module_are_those_around_it_and_of_the_forward_operator_in_the_backward_pass(read):
    def frame(name, start_ns, end_ns):
        return event("python_function", name, start_ns, end_ns, tid=MAIN, pid=MAIN)

    numbers = {"Sequence number": 5, "Fwd thread id": 0}
    trace = read([
        *BASE,
        frame("train.py(3): step", 0, 900), frame("nn.Module: Linear_0", 90, 200), frame("model.py(10): forward", 95, 200),
        event("cpu_op", "aten::addmm", 100, 190, tid=MAIN, pid=MAIN, **numbers),
        event("cpu_op", "AddmmBackward0", 500, 600, tid=8, pid=MAIN, **{**numbers, "Fwd thread id": 1}),
        memory(150, 1, 1, 1), memory(550, 2, 2, 3, tid=8), memory(700, 4, 3, 7), memory(800, -4, 3, 3),
    ])  # fmt: skip
    site = {nbytes: trace.memory.sites[code] for nbytes, code in zip(trace.memory.bytes.tolist(), trace.memory.site.tolist(), strict=True)}
    inner = Site("forward", "model.py", 10, "Linear_0", defined=True)
    step = Site("step", "train.py", 3, defined=True)
    assert site[4] == step
    assert [site[nbytes]._replace(caller=None) for nbytes in (1, 2)] == [inner, inner]
    assert site[1].callers == (step, step._replace(module="Linear_0", caller=step))
    assert trace.info.notes == (
        "of 3 frames of Python, only those of the user's code and of modules around each launch call and allocation are kept",
    )


def test_reserved_memory_and_other_gpus_stay_apart(read):
    events = [*BASE, kernel("b", 1000, 1010, 2, device=1), call("cudaLaunchKernel", 20, 30, 2)]
    events += [memory(100, 512, 1, 512, 2048), memory(200, 512, 1, 512, 4096, device=1), memory(300, 4096, 2, 4608, 8192)]
    trace = read(events)
    held = trace.of_gpu(0).memory
    assert held.rows(held.level == Level.RESERVED).bytes.tolist() == [2048, 6144]
    assert read(events, gpu=1).memory.bytes.tolist() == [4096, 512]


def test_what_cannot_be_kept_is_counted(read):
    broken = memory(300, 1, 1, 1)
    del broken["ts"]
    trace = read([*BASE, memory(100, 512, 1, 512), broken, {**memory(1, 1, 1, 1), "name": "[OutOfMemory]"}])
    assert sorted(trace.info.notes) == ["left out: 1 event called '[OutOfMemory]'", "left out: 1 event called '[memory]'"]
    assert trace.memory.bytes.tolist() == [512]


def test_a_file_of_two_processes_keeps_no_memory_and_says_so(read):
    events = [
        call("cudaLaunchKernel", 0, 10, 1), kernel("a", 1000, 1050, 1), memory(100, 512, 1, 512),
        {**call("cudaLaunchKernel", 0, 10, 1), "pid": 5000}, {**kernel("b", 1000, 1050, 1), "pid": 1}, memory(100, 512, 1, 512, pid=5000),
    ]  # fmt: skip
    for marks, count in ((events, "2 events"), (events[:-1], "1 event")):
        trace = read(marks)
        assert len(trace.memory) == 0
        assert any(f"{count} called '[memory]', of several processes" in note for note in trace.info.notes)


def test_old_files_have_no_totals(read):
    marks = [memory(100, 512, 1, 0), memory(200, -512, 1, 0), memory(300, -64, 2, 0)]
    for mark in marks:
        del mark["args"]["Total Allocated"], mark["args"]["Total Reserved"]
    assert read([*BASE, *marks]).memory.to_pandas()[["start_ns", "end_ns", "bytes"]].to_numpy().tolist() == [
        [BEFORE, 300, 64], [100, 200, 512],
    ]  # fmt: skip


def test_an_event_whose_values_are_wrong_is_refused_or_skipped(read):
    events = [*BASE, memory(100, "many", 1, 512), memory(200, 512, 2, 512)]
    with pytest.raises(ss.errors.TraceError, match="whole number"):
        read(events)
    assert read(events, damaged="skip").memory.bytes.tolist() == [512]
