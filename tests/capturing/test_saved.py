"""Captured code in files: what was saved is what loads, as a program of the simulated device; files of others are refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.mutating import mutated_bytes, mutated_json

import streamscope as ss
from streamscope.capturing.memory import Access, Evidence, MemoryHeld, NodeMemory
from streamscope.capturing.saved import MOST_NODES, LoadedCapture, without_kernels
from streamscope.devices.cost_model import CostModel
from streamscope.devices.graph_node import Communication, GraphNode, NodeKind, kernel_name
from streamscope.errors import DeviceError, OutputError, ProgramError, StreamscopeError, UnknownAttributeError
from streamscope.program.launch import Cost, LaunchKind
from streamscope.trace.file_checks import with_digest

H200 = CostModel.load()
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
SIZES = st.integers(0, 2**40)
COUNTS = st.none() | st.integers(0, 255)
SPANS = st.tuples(st.integers(0, 12), st.integers(0, 5)).map(lambda one: (one[0], one[0] + one[1]))
ACCESSES = st.builds(
    lambda span, use, evidence: Access(*span, *use, evidence),
    SPANS,
    st.sampled_from([(True, False), (False, True), (True, True)]),
    st.sampled_from(Evidence),
)
COMMUNICATIONS = st.none() | st.builds(
    Communication, TEXTS, TEXTS, st.lists(st.integers(0, 9), max_size=2).map(tuple), SIZES, st.integers(0, 9)
)
EXTENTS = st.tuples(*[st.integers(1, 65_535)] * 3)
COSTS = st.builds(
    Cost, SIZES, st.just(0), SIZES, st.integers(0, 1024), alone_ns=st.just(0.0) | st.floats(0.1, 1e9), per_multiprocessor=st.integers(0, 32)
)


def captured_of(nodes, memories, costs, kinds=None, sources=None, replay_us=None, notes=()):
    """Return captured code without kernels, as a file holds it."""
    kinds, sources = kinds or [LaunchKind.KERNEL] * len(nodes), sources or [""] * len(nodes)
    program = without_kernels("sample", nodes, memories, costs, kinds, sources, 132, notes)
    return LoadedCapture("sample", program, nodes, memories, "NVIDIA H200", "2026-11-22", replay_us)


@st.composite
def captures(draw):
    """Draw captured code: any nodes, in a chain or not."""
    count = draw(st.integers(1, 6))
    nodes = []
    for number in range(count):
        after = tuple(sorted(draw(st.sets(st.integers(0, number - 1), max_size=2)))) if number else ()
        name, operator, where, symbol, module = draw(st.tuples(*[TEXTS] * 5))
        name = kernel_name(symbol) if symbol else name
        nodes.append(
            GraphNode(
                draw(st.sampled_from(NodeKind)), name, after, draw(EXTENTS), draw(EXTENTS), draw(COUNTS), draw(COUNTS), draw(SIZES),
                operation=number, operator=operator, where=where, symbol=symbol, module=module, communication=draw(COMMUNICATIONS),
            )
        )  # fmt: skip
    memories = [NodeMemory(tuple(draw(st.lists(ACCESSES, max_size=3))), draw(TEXTS)) for _ in nodes]
    kinds = [draw(st.sampled_from(LaunchKind)) for _ in nodes]
    sources, replay_us, notes = [draw(TEXTS) for _ in nodes], draw(st.none() | st.floats(0.1, 1e6)), draw(st.lists(TEXTS, max_size=2))
    held = draw(st.none() | st.builds(MemoryHeld, SIZES, st.sets(st.integers(0, 9)).map(lambda at: tuple((n, n + 1) for n in sorted(at)))))
    made = captured_of(nodes, memories, [draw(COSTS) for _ in nodes], kinds, sources, replay_us, notes)
    return replace(made, versions=draw(st.dictionaries(TEXTS, TEXTS, max_size=2)), memory=held, results=draw(st.lists(SIZES).map(tuple)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder for all examples of a property."""
    return tmp_path_factory.mktemp("captured")


@given(captures())
def test_what_was_saved_is_what_loads(folder, captured):
    loaded = ss.load_captured(captured.save(folder / "any.captured.json"))
    assert loaded.nodes == captured.nodes
    assert loaded.memories == captured.memories
    assert loaded.durations_us == captured.durations_us
    assert (loaded.name, loaded.capture_us, loaded.origin()) == (captured.name, captured.capture_us, captured.origin())
    for one, other in zip(loaded.program.operations, captured.program.operations, strict=True):
        assert (one.name, one.reads, one.where, one.label, one.source) == (other.name, other.reads, other.where, other.label, other.source)
        assert [(launch.name, launch.kind, launch.cost) for launch in one.launches] == [
            (launch.name, launch.kind, launch.cost) for launch in other.launches
        ]
    assert loaded.program.captured == captured.program.captured
    assert loaded.certificate().to_dict() == captured.certificate().to_dict()
    assert loaded.certificate().sentences == captured.certificate().sentences


def kernel(number, name="kernel", after=None, module=""):
    after = ((number - 1,) if number else ()) if after is None else after
    return GraphNode(NodeKind.KERNEL, name, after, (8, 1, 1), (128, 1, 1), operation=number, operator="op", where="net.py:7", module=module)


def writes(number):
    return NodeMemory((Access(512 * number, 512 * number + 512, True, True, Evidence.SCHEMA),))


def two_branches(alone_us=50.0, blocks=8, per_multiprocessor=4):
    """Return two nodes that share nothing, and a third one that reads what both wrote; captured as a chain."""
    joined = NodeMemory((Access(0, 1024, True, False, Evidence.SCHEMA), Access(1024, 1536, True, True, Evidence.SCHEMA)))
    cost = Cost(0, 0, blocks, 128, alone_ns=1e3 * alone_us, per_multiprocessor=per_multiprocessor)
    nodes = [kernel(0, "left", module="net.left"), kernel(1, "right", module="net.right"), kernel(2, "join", module="net")]
    return captured_of(nodes, [writes(0), writes(1), joined], [cost] * 3, sources=["a = self.left(x)", "b = self.right(x)", "a + b"])


@pytest.fixture
def loaded(tmp_path):
    """Two branches and what joins them, from a file."""
    return ss.load_captured(two_branches().save(tmp_path / "branches.captured.json"))


def kernels_us(run):
    """Return starts and ends of kernels, in µs, from the first start on."""
    spans = run.trace.spans
    rows = np.flatnonzero(spans.operation >= 0)
    rows = [row for row in rows if spans.names[spans.name[row]] in ("left", "right", "join") and spans.duration_ns[row] >= 40e3]
    first = min(spans.start_ns[row] for row in rows)
    return [((spans.start_ns[row] - first) / 1e3, (spans.end_ns[row] - first) / 1e3) for row in rows]


def test_gaps_are_as_long_as_the_replay_of_the_capture_shows(tmp_path):
    """Three nodes of 50 µs in a chain took 150 µs, what lies around a graph, and two gaps of 0.4 µs."""
    around_us = (H200.event_pair_empty_ns + H200.graph_launch_latency_ns) / 1e3
    captured = replace(two_branches(), replay_us=150 + around_us + 2 * 0.4)
    loaded = ss.load_captured(captured.save(tmp_path / "chain.captured.json"))
    times_us = kernels_us(ss.compare(loaded, engines="graph", device="simulated", progress=False)["graph"])
    assert times_us == pytest.approx(np.array([(0, 50), (50.4, 100.4), (100.8, 150.8)]), abs=0.002)
    assert loaded.durations_us == captured.durations_us
    assert json.loads(loaded.save(tmp_path / "again.captured.json").read_text())["captured"]["nodes"] == _nodes(tmp_path)


def _nodes(folder):
    return json.loads((folder / "chain.captured.json").read_text())["captured"]["nodes"]


def test_each_kernel_takes_as_long_as_it_was_measured_and_runs_beside_others_as_memory_allows(loaded):
    runs = ss.compare(loaded, progress=False)
    assert runs.device.simulated
    chain, branched = (sorted(kernels_us(runs[engine])) for engine in ("graph", "graph-dual"))
    for each in (chain, branched):
        assert [end - start for start, end in each] == pytest.approx([50.0] * 3, abs=0.01)
    assert chain[1][0] >= chain[0][1]
    assert branched[1][0] < branched[0][1]
    assert branched[2][0] >= max(end for _, end in branched[:2])
    gain_us = runs["graph"].metrics.makespan_us - runs["graph-dual"].metrics.makespan_us
    assert gain_us == pytest.approx(50.0, abs=5.0)


def test_traces_have_the_memory_of_the_capture(tmp_path):
    held = MemoryHeld(512, ((0, 512), (512, 1024), (4096, 4608)))
    loaded = ss.load_captured(replace(two_branches(), memory=held).save(tmp_path / "held.captured.json"))
    rows = ss.compare(loaded, engines="graph", progress=False)["graph"].trace.memory.to_pandas()
    assert rows[["bytes", "kind", "operation", "module"]].values.tolist() == [
        [512, "capture", 0, "net.left"], [512, "capture", 1, "net.right"], [512, "capture", -1, ""],
    ]  # fmt: skip


def test_a_kernel_that_was_too_short_to_measure_takes_no_time(tmp_path):
    runs = ss.compare(ss.load_captured(two_branches(alone_us=0.0).save(tmp_path / "short.captured.json")), progress=False)
    assert all(run.metrics.kernel_time_us == 0 for run in runs.values())
    assert all(run.metrics.kernel_count == 3 for run in runs.values())


def test_kernels_whose_blocks_leave_no_room_do_not_run_beside_each_other(tmp_path):
    full = two_branches(blocks=132, per_multiprocessor=1).save(tmp_path / "full.captured.json")
    runs = ss.compare(ss.load_captured(full), engines="graph,graph-dual", progress=False)
    # Each kernel starts and ends alone for about the shortest kernel's time; its work does not overlap.
    assert runs["graph-dual"].metrics.makespan_us > 0.9 * runs["graph"].metrics.makespan_us


@pytest.mark.parametrize("source", ["async", "graph", "graph-dual"])
def test_a_predicted_graph_keeps_the_order_of_the_capture_and_others_what_memory_asks_for(loaded, source):
    runs = ss.compare(loaded, progress=False)
    for engine in ("graph", "graph-dual"):
        predicted = ss.what_if(runs[source].trace, engine=engine)
        predicted_us = predicted.spans.end_ns.max() / 1e3
        assert predicted_us == pytest.approx(runs[engine].metrics.makespan_us, rel=0.02)


def test_results_are_said_to_be_unchecked_and_times_to_be_simulated(loaded):
    runs = ss.compare(loaded, progress=False)
    assert "Simulated times" in runs.verdict
    assert "Results were not checked: the code was captured elsewhere" in runs.verdict
    assert all(np.isnan(run.tolerance) for run in runs.values())


def test_module_operator_line_and_source_are_in_each_trace_and_graph(loaded):
    runs = ss.compare(loaded, progress=False)
    for run in runs.values():
        texts = run.trace.origins.texts
        assert [texts[number] for number in run.trace.origins.label] == ["net.left", "net.right", "net"]
        assert texts[run.trace.origins.line[0]] == "net.py:7: a = self.left(x)"
        assert {texts[number] for number in run.trace.origins.arguments} == {"op"}
    prepared = ss.prepare(loaded, engine="graph-dual", progress=False)
    for _ in range(2):
        prepared.run()
    prepared.wait()
    (graph,) = prepared.graphs
    assert {(node.operator, node.module, node.where) for node in graph.nodes} == {
        ("op", module, "net.py:7") for module in ("net.left", "net.right", "net")
    }


def test_module_operator_and_line_are_in_files_of_other_formats(loaded, tmp_path):
    trace = ss.compare(loaded, engines="graph", progress=False)["graph"].trace
    events = json.loads(trace.to_kineto(tmp_path / "t.json").read_text())["traceEvents"]
    told = [event["args"] for event in events if event.get("cat") == "kernel"]
    assert [each["module"] for each in told] == ["net.left", "net.right", "net"]
    assert {each["operator"] for each in told} == {"op"}
    assert told[1]["line"] == "net.py:7: b = self.right(x)"
    perfetto = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    packets = perfetto.Trace.FromString(trace.to_perfetto(tmp_path / "t.pftrace").read_bytes()).packet
    stages = [packet.gpu_render_stage_event for packet in packets if packet.HasField("gpu_render_stage_event")]
    found = [{data.name: data.value for data in stage.extra_data} for stage in stages]
    assert [each["module"] for each in found if "module" in each] == ["net.left", "net.right", "net"]


def test_every_verb_takes_it(loaded):
    assert ss.best(loaded, progress=False).engine
    assert ss.audit(loaded, progress=False).ok
    assert abs(ss.verify(loaded, progress=False).worst.error) < 0.05
    assert ss.what_if(ss.compare(loaded, engines="graph", progress=False)["graph"].trace, engine="async").spans
    assert ss.Engine("graph", device="simulated").run(loaded) == ()
    assert loaded.certificate().pairs == 2
    with pytest.raises(ProgramError, match="takes no inputs"):
        ss.compare(loaded, np.ones(3))
    with pytest.raises(ProgramError, match="cannot be pickled"):
        loaded.__reduce__()


def test_it_saves_again_what_it_was(loaded, tmp_path):
    again = ss.load_captured(loaded.save(tmp_path / "again.captured.json"))
    assert (again.nodes, again.memories, again.device) == (loaded.nodes, loaded.memories, loaded.device)


class Gpu:
    """Stands for a GPU that is there."""

    info = replace(ss.open_device("simulated").info, kind="cuda", name="NVIDIA H200")


def test_a_gpu_cannot_run_it(loaded):
    with pytest.raises(DeviceError, match=r"read from a file, without its kernels.*device='simulated'"):
        ss.prepare(loaded, device=Gpu(), progress=False)


def test_a_name_with_another_ending_and_unknown_durations_are_refused(tmp_path):
    with pytest.raises(OutputError, match=r"does not end with .captured.json"):
        two_branches().save(tmp_path / "branches.json")
    unknown = captured_of([kernel(0)], [writes(0)], [Cost(0)])
    with pytest.raises(ProgramError, match="durations of its nodes are unknown"):
        unknown.save(tmp_path / "unknown.captured.json")


def test_a_file_that_is_missing_or_of_something_else_says_so(tmp_path):
    with pytest.raises(ProgramError, match="cannot read"):
        ss.load_captured(tmp_path / "none.captured.json")
    with pytest.raises(ProgramError, match="cannot read"):
        ss.load_captured(tmp_path)
    other = tmp_path / "other.captured.json"
    other.write_text(json.dumps(with_digest({"workload": "cnn"})))
    with pytest.raises(ProgramError, match="holds no captured code"):
        ss.load_captured(other)


def sealed(tmp_path, change):
    """Return a file whose content was changed and has the digest that fits."""
    path = two_branches().save(tmp_path / "changed.captured.json")
    content = json.loads(path.read_text())["captured"]
    change(content)
    path.write_text(json.dumps(with_digest({"captured": content})))
    return path


def node(content, number, field, value):
    """Change a field of a node, by its position in the row."""
    content["nodes"][number][field] = value


CHANGES = {
    "a newer version": (lambda content: content.update(version=3), "upgrade streamscope"),
    "a version before the first": (lambda content: content.update(version=-1), "version -1"),
    "threads beyond any block": (lambda content: node(content, 1, 16, 2**62), "<= 1024"),
    "blocks beyond any grid": (lambda content: node(content, 1, 15, 2**62), "<= 1099511627776"),
    "a grid beyond CUDA's": (lambda content: node(content, 1, 3, [2**31, 1, 1]), "<= 2147483647"),
    "a block beyond 32 bits": (lambda content: node(content, 1, 4, [1, 2**62, 1]), "<= 2147483647"),
    "no nodes": (lambda content: content.update(nodes=[]), "length >= 1"),
    "too many nodes": (lambda content: content.update(nodes=content["nodes"][:1] * (MOST_NODES + 1)), "length <="),
    "an edge to a later node": (lambda content: node(content, 1, 2, [1]), "comes after a later one"),
    "a text that is not there": (lambda content: node(content, 1, 1, 999), "node 1 has text 999, and the last of the table is"),
    "a kind that is none": (lambda content: node(content, 1, 0, 1), "is not a NodeKind"),
    "a duration below zero": (lambda content: node(content, 1, 18, -1.0), ">= 0"),
    "an address below zero": (lambda content: content["nodes"][0][20][0].__setitem__(0, -1), ">= 0"),
    "a lone surrogate": (lambda content: content["texts"].append("\ud800"), "not valid Unicode"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_does_not_fit_is_refused_with_its_reason(tmp_path, name):
    change, reason = CHANGES[name]
    with pytest.raises(ProgramError, match=reason):
        ss.load_captured(sealed(tmp_path, change))


def test_a_short_file_whose_order_would_take_hours_is_refused(tmp_path):
    def nested(content):
        row = content["nodes"][0]
        content["nodes"] = [[*row[:20], [[k, 2**40 - 2 * k, 3, row[20][0][3]] for k in range(50 * n, 50 * n + 50)]] for n in range(200)]
        for each in content["nodes"]:
            each[2] = []

    with pytest.raises(ProgramError, match="pieces of memory"):
        ss.load_captured(sealed(tmp_path, nested))


NUMBERS = {3: [2**31 - 1] * 3, 4: [2**31 - 1] * 3, 5: 2**62, 6: 2**62, 7: 2**62, 14: 2**62, 15: 2**40, 16: 1024, 17: 2**62, 18: 1e11}


@pytest.mark.parametrize("field", NUMBERS)
def test_the_largest_number_that_loads_runs(tmp_path, field):
    loaded = ss.load_captured(sealed(tmp_path, lambda content: node(content, 1, field, NUMBERS[field])))
    assert ss.compare(loaded, progress=False).device.simulated


def test_the_device_says_whose_times_the_kernels_have(tmp_path):
    assert (
        ss.compare(ss.load_captured(sealed(tmp_path, lambda _: None)), engines="graph", progress=False).device.name
        == "simulated NVIDIA H200"
    )
    other = ss.load_captured(sealed(tmp_path, lambda content: content.update(device="AMD Foo")))
    for device in ("auto", "simulated"):
        runs = ss.compare(other, engines="graph", device=device, progress=False)
        assert runs.device.name == "simulated NVIDIA H200, kernels as measured on AMD Foo"


def test_it_says_in_a_sentence_what_it_is(loaded):
    text = "sample: 3 nodes, 2 on the longest path of the true order; at most 1.5 times as fast as the capture: "
    for said in (str(loaded), repr(loaded)):
        assert said.startswith(text)
        assert said.endswith("(measured on NVIDIA H200)")
        assert len(said) < 200


@pytest.mark.parametrize("seed", range(60))
def test_damaged_files_are_refused_or_load_and_run(tmp_path, seed):
    random, path = Random(seed), two_branches().save(tmp_path / "damaged.captured.json")
    if random.random() < 0.5:
        path.write_bytes(mutated_bytes(random, path.read_bytes()))
    else:
        content = {key: value for key, value in json.loads(path.read_text()).items() if key not in ("digest", "schema")}
        path.write_text(mutated_json(random, content, sealed=True), errors="surrogatepass")
    try:
        loaded = ss.load_captured(path)
    except StreamscopeError:
        return
    assert loaded.certificate().unordered() == []
    assert len(ss.prepare(loaded, engine="graph", progress=False).plan.program.operations) == len(loaded.nodes)


def test_a_trace_is_said_to_be_one():
    path = Path(__file__).parents[1] / "data/kineto/resnet50_graph.json.gz"
    with pytest.raises(ProgramError, match="is a trace, not captured code") as caught:
        ss.load_captured(path)
    assert "ss.read" in caught.value.hint


@pytest.mark.parametrize(("name", "hinted"), [("as_called", True), ("no_such_name", False)])
def test_a_loaded_capture_says_where_its_comparison_with_a_call_is(tmp_path, name, hinted):
    loaded = ss.load_captured(two_branches().save(tmp_path / "two.captured.json"))
    with pytest.raises(UnknownAttributeError) as caught:
        getattr(loaded, name)
    assert ("print(captured.certificate())" in str(caught.value)) is hinted
