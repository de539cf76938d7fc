"""Lines and modules of launch calls that `ss.record(stacks=True)` notes: calls are made up, lines are those of this file, as they run."""

# ruff: noqa: F821 - launch() is put among the globals by a fixture

import gc
import sys
import threading
import time
import weakref
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from tests.recording.fake_cupti import ActivityKind, Runtime, record, text

import streamscope as ss
from streamscope.errors import RecordingError
from streamscope.recording import launch_lines
from streamscope.recording.launch_lines import LaunchLines, code_lines, is_users
from streamscope.trace import LaunchSites, SpanKind
from streamscope.trace.launch_sites import MOST_CALLERS

monitored = pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring came with Python 3.12")
LIBRARY = "/opt/lib/python3.12/site-packages/library.py"


def of_library(function, file=LIBRARY):
    """Return a function whose code is that of a library."""
    function.__code__ = function.__code__.replace(co_filename=file)
    return function


@pytest.fixture
def calls(monkeypatch):
    """Launch calls by their names: the thread, and the time."""
    made = {}

    @of_library
    def launch(name):
        np.zeros(100).sum()  # A launch takes some time, too.
        made[name] = threading.get_native_id(), time.perf_counter_ns()
        np.zeros(100).sum()
        return name

    monkeypatch.setitem(globals(), "launch", launch)
    return made


@of_library
def apply(function, *arguments):
    """Call a function of the user's, and launch behind it."""
    function(*arguments)
    launch(f"behind {function.__name__}")


@of_library
def swallow(function):
    try:
        function()
    except ValueError:
        launch("swallowed")


def inner():
    launch("inner")
    return 1


def failing():
    launch("failing")
    raise ValueError


def items():
    launch("first")
    yield launch("second")
    launch("third")


def deep(count):
    if count:
        deep(count - 1)
    launch(f"deep {count}")


def found(calls, lines):
    """Return what is known of each call: function, text of the line, module; the file where it is not this one. None where nothing is."""
    source = Path(__file__).read_text(encoding="utf-8").splitlines()
    thread, at_ns = (np.array(column, np.int64) for column in zip(*calls.values(), strict=True))
    numbers = lines.sites_of(thread, at_ns, lambda times_ns: times_ns).tolist()
    sites = [None, *lines.sites]

    def told(site):
        line = source[site.line - 1].strip() if site.file == __file__ else site.file
        return site.function.rpartition(".")[2], line, site.module

    return {name: sites[one] and told(sites[one]) for name, one in zip(calls, numbers, strict=True)}


@monitored
def test_a_launch_belongs_to_the_line_that_runs(calls):
    lines = LaunchLines()
    lines.start()
    launch("own")
    if inner() and launch("after inner"):
        apply(inner)
    swallow(failing)
    try:
        failing()
    except ValueError:
        launch("handled")
    for item in items():
        launch(f"loop {item}")
    deep(1)
    _ = [launch(f"listed {number}") for number in range(1)]
    apply(lambda: launch("in lambda"))
    exec(compile("launch('cell')", "<ipython-input-1>", "exec"))
    exec(compile("launch('generated')", "<generated>", "exec"))
    lines.stop()
    launch("later")
    me = "test_a_launch_belongs_to_the_line_that_runs"
    assert {name: one[:2] for name, one in found(calls, lines).items()} == {
        "own": (me, 'launch("own")'),
        "inner": ("inner", 'launch("inner")'),
        "after inner": (me, 'if inner() and launch("after inner"):'),
        "behind inner": (me, "apply(inner)"),
        "failing": ("failing", 'launch("failing")'),
        "swallowed": (me, "swallow(failing)"),
        "handled": (me, 'launch("handled")'),
        "first": ("items", 'launch("first")'),
        "second": ("items", 'yield launch("second")'),
        "third": ("items", 'launch("third")'),
        "loop second": (me, 'launch(f"loop {item}")'),
        "deep 0": ("deep", 'launch(f"deep {count}")'),
        "deep 1": ("deep", 'launch(f"deep {count}")'),
        "listed 0": (me, '_ = [launch(f"listed {number}") for number in range(1)]'),
        "in lambda": ("<lambda>", 'apply(lambda: launch("in lambda"))'),
        "behind <lambda>": (me, 'apply(lambda: launch("in lambda"))'),
        "cell": ("<module>", "<ipython-input-1>"),
        "generated": (me, 'exec(compile("launch(\'generated\')", "<generated>", "exec"))'),
        "later": (me, "lines.stop()"),
    }
    assert lines.cost_ns > 0


@monitored
def test_python_is_left_as_it_was():
    lines = LaunchLines()
    lines.start()
    inner_runs = lines._codes
    sum(items_of_python())
    assert id(items_of_python.__code__) in inner_runs
    lines.stop()
    lines.stop()
    for tool in (2, 3, 4):
        assert sys.monitoring.get_tool(tool) is None
        sys.monitoring.use_tool_id(tool, "test")
        assert sys.monitoring.get_events(tool) == sys.monitoring.get_local_events(tool, items_of_python.__code__) == 0
        sys.monitoring.free_tool_id(tool)


def items_of_python():
    yield from range(3)


@monitored
def test_it_can_start_again(calls):
    """Code that was looked at before is told of once more; sites keep their numbers."""
    lines = LaunchLines()
    for round_number in range(2):
        calls.clear()
        lines.start()
        inner()
        lines.stop()
        assert found(calls, lines) == {"inner": ("inner", 'launch("inner")', "")}, round_number
    assert [*lines.sites.values()] == [1]


@monitored
def test_each_thread_has_its_lines(calls):
    ready, go, done = threading.Event(), threading.Event(), threading.Event()

    def early():
        @of_library
        def waits():
            ready.set()
            go.wait()
            launch("in a line that began before")
            done.set()

        waits()
        launch("next line")

    def late():
        inner()

    @of_library
    def without_python():
        launch("of a library's thread")

    first = threading.Thread(target=early)
    first.start()
    ready.wait()
    lines = LaunchLines()
    lines.start()
    go.set()
    done.wait()
    first.join()
    for target in (late, without_python):
        other = threading.Thread(target=target)
        other.start()
        other.join()
    lines.stop()
    assert found(calls, lines) == {
        "in a line that began before": ("early", "waits()", ""),
        "next line": ("early", 'launch("next line")', ""),
        "inner": ("inner", 'launch("inner")', ""),
        "of a library's thread": None,
    }


@monitored
def test_a_generator_and_a_function_that_began_before(calls):
    lines, begun = LaunchLines(), items()
    next(begun)

    def starts():
        lines.start()
        return launch("starts")

    starts()
    next(begun, None)
    launch("own")
    lines.stop()
    here = {name: one and one[:2] for name, one in found(calls, lines).items()}
    assert here["starts"] == ("starts", 'return launch("starts")')
    assert here["third"] == ("items", 'launch("third")')
    assert here["own"] == ("test_a_generator_and_a_function_that_began_before", 'launch("own")')


class Module:
    """As PyTorch's, as far as it matters here."""

    def __init__(self, **children):
        self.children = children
        self.__dict__.update(children)

    def _wrapped_call_impl(self, *args, **kwargs):
        return self.forward(*args, **kwargs)

    __call__ = of_library(_wrapped_call_impl, "/venv/lib/python3.13/site-packages/torch/nn/modules/module.py")

    def named_modules(self, prefix=""):
        yield prefix, self
        for name, child in self.children.items():
            yield from child.named_modules(f"{prefix}.{name}".lstrip("."))


class Linear(Module):
    @of_library
    def forward(self, name):
        launch(name)
        if name == "wrong":
            raise ValueError


class Net(Module):
    def forward(self):
        self.first("of first")
        launch("of net")
        try:
            self.inner.second("wrong")
        except ValueError:
            launch("behind second")


@monitored
def test_modules_are_named_by_their_path(calls):
    net = Net(first=Linear(), inner=Module(second=Linear()))
    lines = LaunchLines()
    lines.start()
    net()
    launch("outside")
    Linear()("alone")
    lines.stop()
    here = found(calls, lines)
    assert {name: one[2] for name, one in here.items()} == {
        "of first": "first", "of net": "Net", "wrong": "inner.second", "behind second": "Net", "outside": "", "alone": "Linear",
    }  # fmt: skip
    assert here["of first"][:2] == ("forward", 'self.first("of first")')
    held = weakref.ref(net)
    del net
    gc.collect()
    assert held() is None


@monitored
@pytest.mark.parametrize(("last_ns", "dropped"), [(1, True), (10**12, False), (None, False)])
def test_stacks_of_before_the_last_seconds_are_dropped(calls, monkeypatch, last_ns, dropped):
    monkeypatch.setattr(launch_lines, "_MOST_ENTRIES", 24)
    monkeypatch.setattr(launch_lines, "_QUICK_S", 0)

    @of_library
    def often(module):  # One line may call very many.
        for _ in range(50):
            module("inside")

    me = "test_stacks_of_before_the_last_seconds_are_dropped"
    lines = LaunchLines(last_ns)
    lines.start()
    for _ in range(50):
        inner()
    often(Linear())
    lines.stop()
    (log,) = lines._logs[threading.get_native_id()]
    assert len(log.entries) <= 3 * 25
    assert (len(log.stacks()[0]) <= 2 * 25) == dropped
    assert dropped or {name: one[::2] for name, one in found(calls, lines).items()} == {"inner": ("inner", ""), "inside": (me, "Linear")}


@monitored
def test_lines_that_launch_nothing_take_no_memory(calls, monkeypatch):
    monkeypatch.setattr(launch_lines, "_QUICK_S", 3e-6)  # On a busy machine, such a line can take a microsecond, and a launch takes six.
    lines = LaunchLines()
    lines.start()
    for number in range(20_000):
        number + 1
    launch("behind the loop")
    lines.stop()
    (log,) = lines._logs[threading.get_native_id()]
    assert len(log.stacks()[0]) < 10_000
    assert found(calls, lines)["behind the loop"][1] == 'launch("behind the loop")'


@monitored
def test_callers_are_the_functions_and_modules_around(calls):
    net = Net(first=Linear(), inner=Module(second=Linear()))
    lines = LaunchLines()
    lines.start()
    net()
    deep(100)
    for item in items():
        launch(f"loop {item}")
    lines.stop()
    found(calls, lines)
    stacks = [[(one.function.rpartition(".")[2], one.module) for one in (*site.callers, site)] for site in lines.sites]
    me = test_callers_are_the_functions_and_modules_around.__name__
    begin = stacks[0].index((me, ""))
    inside = {tuple(stack[begin + 1 :]) for stack in stacks}
    assert {
        ((me, "Net"), ("forward", "Net"), ("forward", "first")),
        ((me, "Net"), ("forward", "Net")),
        (("deep", ""),),
        (("deep", ""), ("deep", "")),
        (("items", ""),),
        (),
    } <= inside
    assert {stack[begin] for stack in stacks} == {(me, "")}
    assert max(map(len, stacks)) == MOST_CALLERS + 1  # `deep` called itself more often.
    LaunchSites(np.arange(1), np.arange(1), tuple(lines.sites))


@monitored
@pytest.mark.parametrize("ends", ["close", "throw"])
def test_a_generator_that_is_ended_from_outside_leaves_no_frame(calls, ends):
    def cleans():
        try:
            yield
        finally:
            launch("cleaned")

    lines = LaunchLines()
    lines.start()
    begun = cleans()
    next(begun)
    with suppress(ValueError):
        getattr(begun, ends)(*[ValueError] * (ends == "throw"))
    launch("own")
    lines.stop()
    assert {name: one[1] for name, one in found(calls, lines).items()} == {"cleaned": 'launch("cleaned")', "own": 'launch("own")'}


@monitored
def test_lines_that_can_launch_nothing_are_left_out(calls):
    class Turns:
        def __iter__(self):
            yield from (launch(f"turn {number}") for number in range(2))

    def loops(x, turns):
        for _ in range(300):
            launch("in the loop")
        for _ in of_library(lambda turns: iter([launch("of the iterator"), *turns]))(turns):
            y = x
        return y

    lines = LaunchLines()
    lines.start()
    for _ in range(2):
        loops(1, Turns())
    lines.stop()
    (log,) = lines._logs[threading.get_native_id()]
    told = [log.entries[at + 2] for at in range(0, len(log.entries), 3) if log.entries[at + 1] is loops.__code__]
    first = loops.__code__.co_firstlineno
    assert (told.count(first + 1), told.count(first + 2)) == (3, 600)  # The loop's own line once each time, and before it was known.
    assert told.count(first + 4) == told.count(first + 5) == 1
    here = found(calls, lines)
    assert here["in the loop"][1] == 'launch("in the loop")'
    assert here["of the iterator"][1].startswith("for _ in of_library")


@pytest.mark.parametrize(
    ("loop", "heads"),
    [
        ("for _ in range(3):", 1),
        ("for _ in range(len(x), 2 * y):", 1),
        ("for _ in f(range(3)):", 0),
        ("for _ in list(range(3)):", 0),
        ("for _ in range:", 0),
        ("for _ in f(range(3), x):", 0),
        ("range(3)\n  for _ in x:", 0),
    ],
)
def test_loops_over_range_are_known(loop, heads):
    (code, *_) = compile(f"def f(x):\n  {loop}\n    f()", "<stdin>", "exec").co_consts
    assert len(code_lines(code).heads) == heads


@monitored
def test_lines_with_which_a_call_begins_are_known():
    def plain(x):
        """Be documented."""
        return x + 1

    def over_lines(x):
        return plain(
            x,
        )

    def loops(x):
        for _ in x:
            plain(x)

    def calm(x):
        y = x
        return plain(y)

    def around(x):
        with x:
            plain(x)

    found = [code_lines(one.__code__).first - one.__code__.co_firstlineno for one in (plain, lambda x: plain(x + 1), items)]
    assert found == [2, 0, 1]
    assert [code_lines(one.__code__).first for one in (over_lines, loops, calm, around)] == [0] * 4


@monitored
def test_other_tools_are_named_where_there_is_no_place(library):
    for tool in (2, 3, 4):
        sys.monitoring.use_tool_id(tool, f"tool {tool}")
    try:
        with pytest.raises(RecordingError, match=r"others have them all: 'tool 2', 'tool 3', 'tool 4'"), ss.record(stacks=True):
            pass
    finally:
        for tool in (2, 3, 4):
            sys.monitoring.free_tool_id(tool)
    assert not library.enabled  # Nothing is left on.


@pytest.fixture
def recorded(library, monkeypatch):
    """A CUPTI with the host's clock, and ``launch(correlation)``, which puts a record of a call and a kernel there."""

    def timestamp(stamp):
        stamp._obj.value = library.now = time.perf_counter_ns() + 10**15
        return 0

    monkeypatch.setattr(library, "cuptiGetTimestamp", timestamp)

    @of_library
    def launch(correlation, thread=None):
        np.zeros(100).sum()
        start = time.perf_counter_ns() + 10**15
        call = {"thread_id": thread or threading.get_native_id(), "correlation_id": correlation, "cbid": Runtime.cudaLaunchKernel_v7000}
        library.records.append(record(ActivityKind.RUNTIME, start=start, end=start + 20, **call))
        kernel = {"correlation_id": correlation, "stream_id": 7, "name": text(b"axpy"), "grid_x": 1, "grid_y": 1, "grid_z": 1}
        library.records.append(record(ActivityKind.CONCURRENT_KERNEL, start=start + 30, end=start + 90, **kernel))

    monkeypatch.setitem(globals(), "launch", launch)
    return library


@monitored
def test_a_recording_has_the_lines_of_its_launches(recorded):
    with ss.record(stacks=True) as recording:
        launch(1)
        launch(2, thread=4711)  # as PyTorch's backward pass
        recording.pause()
        sum(items_of_python())
        recording.resume()
        launch(3)
    trace, first = recording.trace, test_a_recording_has_the_lines_of_its_launches.__code__.co_firstlineno + 3
    assert [(site.file, site.line, site.defined) for site in trace.sites.sites] == [(__file__, line, False) for line in (first, first + 5)]
    assert trace.spans.kind[trace.sites.span].tolist() == [SpanKind.KERNEL] * 2
    assert trace.info.ledger["lines_ns"] > 0
    rows = sorted(ss.analysis.by_code(trace, "line").rows, key=lambda row: row.line or 0)[::-1]
    assert [(row.line, row.kernels) for row in rows] == [(first + 5, 1), (first, 1), (None, 1)]
    assert rows[-1].name == "unknown"
    frames = [(frame.line, frame.kind) for frame in ss.analysis.call_tree(trace).frames]
    assert {(first, "line"), (first + 5, "line")} <= set(frames)


@monitored
def test_a_block_that_fails_is_recorded_with_its_lines(recorded):
    with suppress(ValueError), ss.record(stacks=True, last=10.0) as recording:
        launch(1)
        raise ValueError
    assert [site.line for site in recording.trace.sites.sites] == [
        test_a_block_that_fails_is_recorded_with_its_lines.__code__.co_firstlineno + 3
    ]
    assert sys.monitoring.get_tool(2) is None


def test_without_stacks_there_are_no_lines(library, recorded):
    with ss.record() as recording:
        launch(1)
    assert (len(recording.trace.sites), "lines_ns" in recording.trace.info.ledger) == (0, False)


def test_older_pythons_are_refused(monkeypatch):
    monkeypatch.setattr(launch_lines, "_monitoring", None)
    with pytest.raises(RecordingError, match=r"stacks=True needs Python 3\.12 or later, not 3\.\d+"):
        ss.record(stacks=True)
    with pytest.raises(RecordingError, match="stacks=1 must be True or False"):
        ss.record(stacks=1)


@pytest.mark.parametrize(
    ("file", "users"),
    [
        ("/home/me/train.py", True),
        ("/tmp/ipykernel_7/123.py", True),
        ("<ipython-input-3-abc>", True),
        ("<stdin>", True),
        ("/home/me/torch/net.py", True),
        (threading.__file__, False),
        (np.__file__, False),
        (launch_lines.__file__, False),
        ("/usr/lib/python3/dist-packages/numpy/core.py", False),
        ("<frozen importlib._bootstrap>", False),
        ("<string>", False),
        ("<eval_with_key>.3", False),
    ],
)
def test_files_of_the_user(file, users):
    assert is_users(file) == users
