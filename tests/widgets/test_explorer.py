"""The explorer without a browser: what it says and sends as its controls move, and how runs begin, stop and end."""

from __future__ import annotations

import re
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import streamscope as ss
from streamscope.analysis.statistics import Ranking
from streamscope.analysis.verdict import Change
from streamscope.comparing.comparison import Comparison
from streamscope.comparing.preview import Preview
from streamscope.errors import DeviceError, EngineError, ProgramError, RecordingError
from streamscope.recording.recorders import recorder_of
from streamscope.trace import DeviceInfo, SpanKind
from streamscope.workloads import WORKLOADS
from streamscope_widgets import chromium, exports
from streamscope_widgets.exploring import words
from streamscope_widgets.exploring.subjects import OwnProgram, ReadyProgram, subjects
from streamscope_widgets.payload import encode

pytestmark = pytest.mark.usefixtures("bundle")

RECORDED = Path(__file__).parents[2] / "notebooks/recorded/captured"
HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture
def sent(monkeypatch):
    """What timelines are sent: headers, in order."""
    messages = []
    monkeypatch.setattr(
        "streamscope_widgets.timeline.TimelineWidget.send", lambda self, content, buffers: messages.append((content["header"], buffers))
    )
    return messages


@pytest.fixture
def explorer(sent):
    return ss.explore(device="simulated", engines="async,dual,graph,graph-dual")  # as it opens today; a further engine changes nothing here


def knob(explorer, name):
    shown = [part for control in explorer.controls.knobs.children for part in (control, *getattr(control, "children", ()))]
    return next(control for control in shown if name in getattr(control, "description", ""))


def said(explorer, part="answer"):
    text = explorer.says.value
    return text.partition(f'<p class="{part}">')[2].partition("</p>")[0]


def finish(explorer):
    explorer.run()
    assert explorer.wait(60)


def step(x, w):
    return ss.ops.relu(x @ w)


SQUARES = np.ones((2, 8, 8), np.float32)


def test_it_opens_on_a_question_with_its_answer_and_the_picture(explorer):
    assert said(explorer, "question") == "Does a second stream pay here?"
    assert said(explorer).startswith("Only inside a CUDA graph: there a second stream makes it 1.5× faster.")
    assert said(explorer, "source") == "<b>Forecast</b> · simulated times (simulated NVIDIA H200)"
    assert [group.label for group in explorer.timeline.groups] == ["async", "dual", "graph", "graph-dual"]
    assert explorer.below.layout.display == "none"


def test_marimo_which_draws_no_ipywidgets_shows_the_forecast_and_what_to_do(explorer):
    shown = explorer._display_()._repr_html_()
    assert "marimo does not draw ipywidgets" in shown
    assert "Only inside a CUDA graph" in shown
    assert "<img" in shown


def test_a_knob_that_moves_changes_the_words_and_sends_the_picture(explorer, sent):
    knob(explorer, "size").value = 1 << 19
    assert said(explorer).startswith("Only inside a CUDA graph: there a second stream makes it 41 % faster.")
    assert sent[-1][0] == encode(explorer.timeline.groups).header
    makespans = [group.makespan_ns for group in explorer.timeline.groups]
    explorer.controls.streams.value = 4
    assert said(explorer, "question") == "Do 4 streams pay here?"
    assert [group.makespan_ns for group in explorer.timeline.groups][::2] == makespans[::2]
    knob(explorer, "copies").value = True
    assert "copy in" in explorer.timeline.groups[0].trace.spans.lanes
    assert len(sent) == 3
    assert all("simulated" in group["device"]["kind"] for group in sent[-1][0]["groups"])


def choose(explorer, program):
    explorer.controls.program.value = dict(explorer.controls.program.options)[program]


def test_of_several_gpus_it_says_whether_communication_hides_and_what_the_links_do(explorer):
    links = explorer.controls.links
    assert links.layout.display == "none"
    choose(explorer, "data-parallel")
    assert links.layout.display is None
    assert said(explorer, "question") == "Does communication hide here?"
    assert said(explorer).startswith("In part: under graph-dual, ")
    assert "With links twice as fast it would be " in said(explorer, "because")
    links.value = dict(links.options)["PCIe"]
    assert "With PCIe, it is " in said(explorer, "because")
    assert "links 0.14× as fast" in said(explorer, "source")
    for name, value in {"width": 256, "rows": 256, "layers": 2}.items():
        knob(explorer, name).value = value
    forecast = [group.makespan_ns for group in explorer.timeline.groups]
    finish(explorer)
    assert [group.makespan_ns for group in explorer.timeline.groups] == pytest.approx(forecast, rel=0.01)
    assert ", PCIe, simulated" in explorer.past[0].title
    assert explorer.past[0].comparison.device.name.endswith("links 0.14× as fast")
    links.value = 1.0
    finish(explorer)
    explorer.other.value = 1
    assert "Run 1 has links PCIe instead of NVLink." in said(explorer)
    choose(explorer, "branches")
    assert links.layout.display == "none"


def test_knobs_of_several_gpus_reach_all_gpus_and_useful_buckets():
    knobs = {knob.name: knob.values for knob in ReadyProgram(WORKLOADS["data-parallel"]).knobs}
    assert knobs["gpus"] == tuple(range(2, 9))
    assert (knobs["bucket"][:3], knobs["bucket"][-1]) == ((0, 256, 512), 32_768)
    assert (knobs["width"][0], knobs["width"][-1]) == (256, 16_384)


@pytest.mark.parametrize(
    ("settings", "because"),
    [
        ({"branches": 1}, "Each operation needs the result of the one before"),
        ({"size": 1 << 24}, "of the time that the GPU is busy"),
    ],
)
def test_it_says_why(explorer, settings, because):
    for name, value in settings.items():
        knob(explorer, name).value = value
    assert because in said(explorer, "because")


def test_engines_that_are_switched_off_leave_the_picture(explorer):
    explorer.controls.engines["dual"].value = False
    explorer.controls.engines["graph-dual"].value = False
    assert [group.label for group in explorer.timeline.groups] == ["async", "graph"]
    assert said(explorer, "question") == "Which engine suits it?"
    assert said(explorer) == "Fastest: graph."
    for engine in ("async", "graph"):
        explorer.controls.engines[engine].value = False
    assert "no engine is chosen" in said(explorer, "answer wrong")


def test_every_workload_and_every_dtype_is_shown_or_refused_in_words(explorer):
    for number, (name, _) in enumerate(explorer.controls.program.options):
        explorer.controls.program.value = dict(explorer.controls.program.options)[name]
        explorer.controls.dtype.value = dtype = ("float16", "as written", "float64")[number % 3]
        assert said(explorer) or "float" in said(explorer, "answer wrong"), (name, dtype)
    explorer.controls.dtype.value = "as written"
    assert said(explorer)


def test_a_run_is_checked_kept_and_compared(explorer):
    finish(explorer)
    assert said(explorer, "source") == "<b>Run 1</b> · simulated times (simulated NVIDIA H200), results checked"
    assert explorer.past[0].comparison["graph"].correct
    assert explorer.past[0].comparison.settings == {"branches": 4, "length": 8, "size": 65_536, "copies": 0}
    knob(explorer, "length").value = 16
    assert "Forecast" in said(explorer, "source")
    finish(explorer)
    assert [value for _, value in explorer.one.options] == [0, 1, 2]
    explorer.one.value, explorer.other.value = 1, 2
    assert said(explorer, "question") == "What differs between run 1 and run 2?"
    assert said(explorer) == "Run 2 has length 16 instead of 8."
    assert said(explorer, "because").startswith("Run 2 is ")
    assert "slower under async" in said(explorer, "because")
    assert [title for title, _ in explorer.one.options[1:]] == [
        "1 · branches: simulated", "2 · branches: length 16, simulated",
    ]  # fmt: skip
    labels = [group.label for group in explorer.timeline.groups]
    assert labels[:4] == ["async · run 1", "async · run 2", "dual · run 1", "dual · run 2"]
    explorer.one.value = 0
    assert "Forecast" in said(explorer, "source")


def test_a_setting_that_is_on_or_off_is_told_so(explorer):
    finish(explorer)
    knob(explorer, "copies").value = True
    finish(explorer)
    explorer.other.value = 1
    assert said(explorer) == "Run 1 has copies off instead of on."
    assert explorer.one.options[2][0] == "2 · branches: copies on, simulated"


def test_runs_of_different_programs_are_said_to_be_so_and_not_compared(explorer):
    finish(explorer)
    explorer.controls.program.value = dict(explorer.controls.program.options)["elementwise-chain"]
    knob(explorer, "length").value = 13
    because = said(explorer, "because").partition(" Fastest")[0]
    finish(explorer)
    assert said(explorer, "because").startswith(because)  # A run is explained as its forecast is.
    explorer.one.value, explorer.other.value = 1, 2
    assert said(explorer) == "Run 2 is of elementwise-chain and run 1 of branches: different programs."
    assert said(explorer, "because") == "Their times are not compared."
    assert not any(group.comparison for group in explorer.timeline.groups)


def test_a_graph_that_pays_where_no_stream_does_is_told(explorer):
    explorer.controls.program.value = dict(explorer.controls.program.options)["elementwise-chain"]
    assert said(explorer) == "No: it uses one stream."
    assert said(explorer, "because") == (
        "Each operation needs the result of the one before, so there is nothing to run beside it. A CUDA graph makes it 3.0× faster. "
        "Fastest: graph and graph-dual, which are the same within 1 %."
    )
    explorer.controls.streams.value = 12
    assert (said(explorer, "question"), said(explorer)) == ("Do 12 streams pay here?", "No: it uses one of them.")
    explorer.controls.streams.value = 1
    assert (said(explorer, "question"), said(explorer)) == ("What pays on one stream?", "A CUDA graph makes it 3.0× faster.")
    explorer.controls.engines["graph"].value = explorer.controls.engines["dual"].value = False
    assert said(explorer, "because").startswith("Under graph-dual it is 3.0× faster than under async.")


def test_the_three_things_to_try_show_what_the_page_says(explorer):
    page = " ".join((Path(__file__).parents[2] / "docs/explore.md").read_text().split())
    sizes, size = [], knob(explorer, "size")
    for _, elements in size.options:
        size.value = elements
        sizes += [elements] if said(explorer).startswith("Yes") else []
        assert said(explorer).startswith(("Yes", "Only inside a CUDA graph"))
    assert sizes == [elements for _, elements in size.options if elements >= 1_048_576]
    assert "From 1,048,576 elements on, when a kernel runs 2.8 µs, it pays without a graph, too." in page
    size.value = sizes[0]
    assert explorer.controls.kernel_length.value == "a kernel runs 2.81 µs"
    size.value = sizes[-1]
    assert said(explorer).startswith("Yes: a second stream makes it 3 % faster")
    assert "two or more kernels run at once for 89 % of the time" in said(explorer, "because")
    assert "a second stream makes it only 3 % faster, although kernels run side by side most of the time" in page
    knob(explorer, "copies").value = True
    assert said(explorer).startswith("Yes: a second stream makes it 18 % faster")
    assert re.search("copies run beside kernels for .* and two or more copies run at once", said(explorer, "because"))
    assert "A second stream makes it 18 % faster again: copies run beside kernels, and in both directions at once." in page


def test_streams_that_let_copies_overlap_are_explained_by_copies(explorer):
    knob(explorer, "branches").value = 8
    knob(explorer, "size").value = 1 << 23
    knob(explorer, "copies").value = True
    explorer.controls.streams.value = 12
    assert (said(explorer, "question"), said(explorer)) == (
        "Do 12 streams pay here?", "Yes: the 8 that it uses make it 1.8× faster, and inside a CUDA graph 1.8× faster.",
    )  # fmt: skip
    assert said(explorer, "because").startswith("Under graph-dual, copies run beside kernels for ")
    assert "two or more copies run at once for " in said(explorer, "because")
    assert "kernels run at once" not in said(explorer, "because")


def test_few_measured_runs_answer_nothing(explorer):
    comparison = explorer._preview[1].comparison(["async", "dual", "graph", "graph-dual"])
    cuda = DeviceInfo("cuda", "NVIDIA H200")
    measured = [replace(run, trace=replace(run.trace, info=replace(run.trace.info, device=cuda))) for run in comparison.values()]
    for streams, question in ((None, "Does a second stream pay here?"), (1, "What pays on one stream?"), (4, "Do 4 streams pay here?")):
        told = words.answer(Comparison("branches", cuda, measured), streams)
        assert (told.question, told.sentence) == (question, "Too few repeats to tell: run 6 or more.")
    few = Comparison("branches", cuda, measured)
    settings = {"program": "branches"}
    told = words.between(few, few, ("run 1", "run 2"), (settings, settings))
    assert told.because == "Too few repeats to tell which is faster under async, dual, graph and graph-dual."
    assert words.answer(Comparison("branches", cuda, measured[:2]), 1).sentence == "Nothing: async and dual do the same then."


def test_the_lanes_fill_while_it_runs(explorer, sent):
    seen = len(sent)
    finish(explorer)
    filled = [[group["label"] for group in header["groups"]] for header, _ in sent[seen:]]
    assert filled[:4] == [["async"], ["async", "dual"], ["async", "dual", "graph"], ["async", "dual", "graph", "graph-dual"]]


def test_a_run_that_is_cancelled_stops_at_its_next_step_and_leaves_the_forecast(sent):
    entered, go = threading.Event(), threading.Event()

    def slow(x):
        if threading.current_thread() is not threading.main_thread():
            entered.set()
            go.wait(30)
        return x + x

    explorer = ss.explore(slow, np.ones(4, np.float32), device="simulated")
    forecast = said(explorer)
    explorer.run()
    assert entered.wait(30)
    assert explorer.controls.streams.disabled
    assert explorer.one.disabled
    assert explorer.other.disabled
    explorer.run()  # There is one already.
    explorer.cancel()
    go.set()
    assert explorer.wait(30)
    assert explorer.past == []
    assert explorer.note.value == "Cancelled."
    assert said(explorer) == forecast
    assert not explorer.controls.streams.disabled
    assert not explorer.one.disabled
    finish(explorer)
    assert len(explorer.past) == 1


def test_a_program_of_the_users_with_its_inputs_and_attributes(sent):
    def scaled(x, *, factor):
        return x * factor

    explorer = ss.explore(scaled, SQUARES[0], factor=2.0, device="simulated", engines="async,graph")
    assert explorer.controls.program.options[0][0] == "scaled"
    explorer.controls.dtype.value = "float16"
    finish(explorer)
    assert list(explorer.past[0].comparison) == ["async", "graph"]
    assert explorer.past[0].comparison["async"].trace.spans.bytes.max() == 2 * 64 * 2


@pytest.mark.parametrize("in_run", [False, True])
def test_an_error_of_the_users_is_told_with_the_line(sent, in_run):
    def wrong(x):
        if in_run and threading.current_thread() is threading.main_thread():
            return x + x
        return x + no_such_name  # noqa: F821

    explorer = ss.explore(wrong, SQUARES[0], device="simulated")
    if in_run:
        assert said(explorer)
        finish(explorer)
    text = explorer.says.value
    assert "NameError: name &#x27;no_such_name&#x27; is not defined" in text
    assert "return x + no_such_name" in text
    assert "test_explorer.py:" in text
    assert not explorer.controls.streams.disabled
    assert explorer.past == []


def test_an_error_leaves_the_last_picture_and_says_what_it_is_of(explorer, sent):
    """So an engine that is switched off by mistake, or a cell that breaks the program, costs nobody what was seen."""
    stale = "ss-x-stale"
    chosen, seen = dict(explorer.controls.engines), len(sent)
    for chip in chosen.values():
        chip.value = False
    assert "no engine is chosen" in said(explorer, "answer wrong")
    of = "forecast of parallel_branches, simulated times (simulated NVIDIA H200)"
    assert said(explorer, "because") == f"Below is still the last picture: {of}."
    assert stale in explorer.stage._dom_classes
    assert len(explorer.timeline.groups) == 1  # that of the engine that was switched off last
    assert len(sent) == seen + 3
    chosen["graph"].value = True
    assert said(explorer, "question") == "What limits it under graph?"
    assert said(explorer).startswith("Mixed: under graph the GPU is busy ")
    assert "last picture" not in explorer.says.value
    assert stale not in explorer.stage._dom_classes
    finish(explorer)
    explorer.failed(ValueError("gone"))
    assert said(explorer, "because").startswith("Below is still the last picture: run 1 of parallel_branches, simulated times")


def test_without_any_picture_an_error_stands_alone(sent):
    explorer = ss.explore(step, SQUARES[0], np.ones((3, 3), np.float32), device="simulated")
    assert "last picture" not in explorer.says.value
    fallback = explorer._fallback()
    assert "matmul" in fallback["text/plain"]
    assert "This is a picture" not in fallback["text/html"]
    assert "recorded run" not in fallback["text/html"]  # no axis without lanes
    explorer.controls.program.value = dict(explorer.controls.program.options)["branches"]
    assert said(explorer)


@pytest.mark.parametrize("driver", [False, True])
def test_a_gpu_is_offered_where_there_is_a_driver(sent, monkeypatch, driver):
    monkeypatch.setattr("streamscope_widgets.exploring.controls.has_driver", lambda: driver)
    found = ss.explore().controls
    assert [name for name, _ in found.device.options] == ["auto", "simulated", *(["cuda"] if driver else [])]
    assert ("no NVIDIA driver" in found.device.tooltip) is not driver
    assert (found.recorder.layout.display is None) is driver
    # Whoever asks for it is told why it cannot be.
    assert ss.explore(device="cuda").controls.asked.device == "cuda"


def test_an_error_of_ours_is_our_sentence(sent):
    explorer = ss.explore(step, SQUARES[0], np.ones((3, 3), np.float32), device="simulated")
    assert "return ss.ops.relu(x @ w)" in explorer.says.value
    assert "matmul" in said(explorer, "answer wrong")


def test_programs_of_the_notebook_find_their_inputs_by_name():
    namespace = {"step": ss.program(step), "x": SQUARES[0], "_hidden": ss.program(step), "other": step}
    found = [subject for subject in subjects(None, namespace) if subject.source == "notebook"]
    assert [subject.name for subject in found] == ["step"]
    with pytest.raises(ProgramError, match="step takes x and w, and the notebook has no arrays of the names w"):
        found[0].outline({}, None)
    namespace["w"] = SQUARES[1]
    assert len(found[0].outline({}, None).operations) == 2
    del namespace["step"]
    with pytest.raises(ProgramError, match="no program 'step' any more"):
        found[0].outline({}, None)


def test_a_function_without_inputs_takes_those_that_the_notebook_has_by_name(sent, notebook):
    namespace, cell_ran = notebook
    namespace["x"] = SQUARES[0]
    explorer = ss.explore(step, device="simulated", engines="async,graph")
    assert "step takes x and w, and the notebook has no arrays of the names w" in said(explorer, "answer wrong")
    namespace["w"] = SQUARES[1]
    cell_ran()
    assert said(explorer) == "Fastest: graph."
    finish(explorer)
    assert repr(explorer) == "<explorer of step: 1 run>"


def test_what_is_offered_changes_and_the_choice_stays(explorer):
    chosen = explorer.controls.asked.subject
    explorer.controls.offer([OwnProgram("step"), *(subject for _, subject in explorer.controls.program.options)])
    assert explorer.controls.program.options[0][0] == "step"
    assert explorer.controls.asked.subject == chosen
    assert explorer.controls.program.value == chosen


def test_programs_are_offered_as_cells_define_them(sent, monkeypatch):
    """What IPython calls after each cell, and no longer than there is the explorer."""
    ran, namespace = [], {}
    events = SimpleNamespace(register=lambda name, function: ran.append(function), unregister=lambda name, function: ran.remove(function))
    shell = SimpleNamespace(user_ns=namespace, events=events)
    monkeypatch.setattr("streamscope_widgets.exploring.explorer.get_ipython", lambda: shell)
    explorer = ss.explore(device="simulated")
    namespace |= {"step": ss.program(step), "x": SQUARES[0], "w": SQUARES[1]}
    ran[0](None)
    offered = dict(explorer.controls.program.options)
    assert "step" in offered
    assert explorer.controls.asked.subject.name == "branches"
    explorer.controls.program.value = offered["step"]
    assert said(explorer)
    explorer.close()
    ran[0](None)
    assert ran == []


@pytest.fixture
def notebook(monkeypatch):
    """The user's names, and what IPython calls after each cell."""
    ran, namespace = [], {}
    events = SimpleNamespace(register=lambda name, function: ran.append(function), unregister=lambda name, function: ran.remove(function))
    monkeypatch.setattr("streamscope_widgets.exploring.explorer.get_ipython", lambda: SimpleNamespace(user_ns=namespace, events=events))
    return namespace, lambda: ran[0](None)


def test_the_forecast_is_of_the_program_as_the_last_cell_left_it(sent, notebook):
    namespace, cell_ran = notebook
    namespace |= {"step": ss.program(step), "x": SQUARES[0], "w": SQUARES[1]}
    explorer = ss.explore(device="simulated", engines="async,graph")
    explorer.controls.program.value = dict(explorer.controls.program.options)["step"]

    def forecast():
        spans = explorer.timeline.groups[0].trace.spans
        return sum(spans.kind == SpanKind.KERNEL), int(spans.bytes.max())

    def longer(x, w):
        for _ in range(20):
            x = step(x, w)
        return x

    assert forecast() == (2, 3 * 64 * 4)
    namespace["step"] = ss.program(longer)
    explorer.controls.streams.value = 3
    assert forecast()[0] == 40
    namespace["step"] = ss.program(step)
    cell_ran()
    assert forecast()[0] == 2
    namespace |= dict.fromkeys("xw", np.ones((16, 16), np.float32))
    cell_ran()
    assert forecast() == (2, 3 * 256 * 4)
    del namespace["w"]
    cell_ran()
    assert "no arrays of the names w" in said(explorer, "answer wrong")
    namespace["w"] = SQUARES[1]
    namespace["x"] = SQUARES[0]
    cell_ran()
    assert said(explorer)


def test_the_forecast_follows_a_function_that_the_program_calls_and_else_a_cell_changes_nothing(sent, notebook):
    _, cell_ran = notebook
    part = {"of": lambda x: x + x}

    def whole(x):
        return part["of"](x)

    explorer = ss.explore(whole, SQUARES[0], device="simulated", engines="async,graph")
    before = len(sent)
    cell_ran()
    assert len(sent) == before
    part["of"] = lambda x: x + x + x
    cell_ran()
    assert sum(explorer.timeline.groups[0].trace.spans.kind == SpanKind.KERNEL) == 2
    finish(explorer)
    part["of"] = lambda x: x
    shown = said(explorer, "source")
    cell_ran()
    assert said(explorer, "source") == shown  # a run that is shown stays


def test_what_is_measured_so_far_stands_under_words_of_its_own(explorer, sent, monkeypatch):
    finish(explorer)
    words_at = []
    found = explorer.found
    monkeypatch.setattr(explorer, "found", lambda runs: (found(runs), words_at.append((said(explorer, "source"), said(explorer)))))
    finish(explorer)
    assert set(words_at) == {("<b>Running</b> · simulated times (simulated NVIDIA H200) so far, not checked", "")}
    assert said(explorer, "source").startswith("<b>Run 2</b>")


def test_exports_are_files_beside_the_notebook(explorer, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(chromium, "pdf_by", lambda write: b"%PDF")
    monkeypatch.setattr(chromium, "png_of", lambda svg: b"PNG")
    assert explorer.write.disabled
    finish(explorer)
    assert not explorer.write.disabled
    for kind in explorer.kind.options:
        explorer.kind.value = kind
        explorer.write.click()
        assert explorer.written.value.startswith("Written: streamscope-branches-1")
    # They have the name that the list of programs has, and "spans" is what `runs.spans` writes.
    assert explorer.written.value == "Written: streamscope-branches-1"
    name = "streamscope-branches-1"
    charts = [f"{name}-{of}{ending}" for of in exports.CHARTS for ending in (".svg", ".png")]
    endings = ("", ".html", ".pdf", ".md", ".svg", ".png", ".csv", ".parquet")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*(name + ending for ending in endings), *charts])
    assert (tmp_path / f"{name}.html").stat().st_size > 50_000
    assert (tmp_path / f"{name}.svg").read_text().startswith("<svg")
    assert (tmp_path / f"{name}.csv").read_text().startswith('"engine","device",')
    assert ss.load_comparison(tmp_path / name).settings["length"] == 8


def test_an_export_takes_the_next_free_name_and_no_file_of_anybody(explorer, tmp_path, monkeypatch):
    """Numbers begin at 1 in each kernel, and two notebooks of a folder write the same names."""
    monkeypatch.chdir(tmp_path)
    name = "streamscope-branches"
    (tmp_path / f"{name}-1.csv").write_text("a stranger's")
    (tmp_path / f"{name}-2.csv").symlink_to("nowhere")
    (tmp_path / f"{name}-1").mkdir()
    (tmp_path / f"{name}-2-launches.svg").write_text("one of four")
    (tmp_path / f"{name}-1-makespans.svg").write_text("another of four")
    finish(explorer)
    said = []
    for kind in ("spans, CSV", "spans, CSV", "folder to open again", "folder to open again", "charts, SVG"):
        explorer.kind.value = kind
        explorer.write.click()
        said.append(explorer.written.value)
    charts = [f"{name}-3-{of}.svg" for of in exports.CHARTS]
    expected = [f"{name}-3.csv", f"{name}-4.csv", f"{name}-2", f"{name}-3", f"{', '.join(charts[:-1])} and {charts[-1]}"]
    assert said == [f"Written: {paths}" for paths in expected]
    assert (tmp_path / f"{name}-1.csv").read_text() == "a stranger's"
    assert list((tmp_path / f"{name}-1").iterdir()) == []
    assert ss.load_comparison(tmp_path / f"{name}-3").settings["length"] == 8
    taken = {f"{name}{end}" for end in ("-1.csv", "-2.csv", "-1", "-2-launches.svg", "-1-makespans.svg", "-3.csv", "-4.csv", "-2", "-3")}
    assert {path.name for path in tmp_path.iterdir()} == {*taken, *charts}


def test_no_name_of_a_program_is_too_long_for_a_file(explorer, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    finish(explorer)
    (past,) = explorer.past
    explorer.past[0] = replace(past, asked=replace(past.asked, subject=OwnProgram("ä" * 300, None)))
    explorer.kind.value = "charts, SVG"
    explorer.write.click()
    assert len([*tmp_path.glob("streamscope-ä*ä-1-*.svg")]) == len(exports.CHARTS)


def test_no_name_of_a_program_leads_out_of_the_folder(explorer, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    finish(explorer)
    (past,) = explorer.past
    explorer.past[0] = replace(past, asked=replace(past.asked, subject=OwnProgram("../../x/<y>", None)))
    explorer.kind.value = "spans, CSV"
    explorer.write.click()
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["streamscope-x-y-1.csv"]
    assert (tmp_path / "here" / "streamscope-x-y-1.csv").exists()


def test_an_export_that_cannot_be_written_says_why(explorer, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(chromium, "BROWSERS", ())
    finish(explorer)
    explorer.kind.value = "report, PDF"
    explorer.write.click()
    assert "Chromium" in explorer.written.value
    assert [*tmp_path.iterdir()] == []


def test_a_run_is_recorded_as_is_chosen(explorer, monkeypatch):
    asked = []
    monkeypatch.setattr("streamscope.measuring.recordings.recorder_of", lambda device, name: asked.append(name) or recorder_of(device))
    assert explorer.controls.recorder.value == "auto"
    explorer.controls.recorder.value = "cupti"
    finish(explorer)
    assert set(asked) == {"cupti"}
    assert ss.explore(device="simulated", recorder="events").controls.asked.recorder == "events"


def test_equal_names_say_where_they_come_from(sent):
    def attention(x, w):
        return x @ w

    explorer = ss.explore(attention, *SQUARES, device="simulated")
    offered = dict(explorer.controls.program.options)
    assert next(iter(offered)) == "attention (passed)"
    assert "attention" not in offered
    explorer.controls.program.value = offered["attention (workload)"]
    explorer.controls.offer([*offered.values(), OwnProgram("step")])  # a cell defines another program
    assert explorer.controls.asked.subject is offered["attention (workload)"]


def test_the_knob_of_sizes_says_what_its_two_numbers_are(explorer):
    size = knob(explorer, "size")
    assert (size.description, size.label) == ("size", "65,536 elements")
    told = explorer.controls.kernel_length
    before = told.value
    assert re.fullmatch(r"a kernel runs [\d.]+ µs", before)
    size.value = 1 << 20
    assert re.fullmatch(r"a kernel runs [\d.]+ µs", told.value)
    assert told.value != before


def test_text_is_escaped(sent):
    def program(x):
        return x + x

    program.__name__ = HOSTILE
    explorer = ss.explore(program, SQUARES[0], device="simulated")
    finish(explorer)
    finish(explorer)
    explorer.other.value = 1

    def wrong(x):
        raise ValueError(HOSTILE)

    broken = ss.explore(wrong, SQUARES[0], device="simulated")
    assert "&lt;img" in broken.says.value
    for html in (explorer.says, explorer.note, explorer.written, broken.says):
        assert "<img" not in html.value


def test_what_explore_refuses():
    with pytest.raises(ProgramError, match="inputs without a program"):
        ss.explore(None, SQUARES[0])
    with pytest.raises(ProgramError, match=r"wants a function or a program, not a str \(.*ss\.workload\(name\)\.build"):
        ss.explore("branches")
    with pytest.raises(EngineError, match="unknown engine 'grap'"):
        ss.explore(engines="grap")
    with pytest.raises(EngineError, match="streams=0"):
        ss.explore(streams=0)
    with pytest.raises(RecordingError, match="recorder='tape' is unknown"):
        ss.explore(recorder="tape")
    with pytest.raises(DeviceError, match="unknown device 'gpu'"):
        ss.explore(device="gpu")


FASTER, SLOWER, SAME = Ranking.FASTER, Ranking.SLOWER, Ranking.SAME


@pytest.mark.parametrize(
    ("alone", "inside", "sentence"),
    [
        (FASTER, FASTER, "Yes: a second stream makes it 2.0× faster, and inside a CUDA graph 2.0× faster."),
        (SAME, FASTER, ("Only inside a CUDA graph: there a second stream makes it 2.0× faster. "
                        "Launched one by one, it is neither faster nor slower (same within 1 %).")),
        (FASTER, SLOWER, "Only without a CUDA graph: there a second stream makes it 2.0× faster. Inside a graph, it is 2.0× slower."),
        (SAME, Ranking.WITHIN_NOISE, "No: a second stream makes it neither faster nor slower, with a CUDA graph or without."),
        (SLOWER, SAME, "No: a second stream makes it 2.0× slower, and inside a CUDA graph neither faster nor slower (same within 1 %)."),
        (SLOWER, None, "No: a second stream makes it 2.0× slower."),
        (None, FASTER, "Yes: a second stream inside a CUDA graph makes it 2.0× faster."),
    ],
)  # fmt: skip
def test_the_answer_in_every_case(alone, inside, sentence):
    changes = [
        Change(engine, base, ranking, 2.0) for (engine, base), ranking in zip(words.OF_STREAMS, (alone, inside), strict=True) if ranking
    ]
    assert words.streams_sentence(changes, dict.fromkeys(("dual", "graph-dual"), "a second stream")) == sentence


def test_the_answer_says_what_each_engine_spread_captured_code_over():
    comparison = Preview(captured("mixture_of_experts")).comparison(["async", "dual", "graph", "graph-dual"])
    used = comparison["graph-dual"].trace.info.plan["streams"]
    assert used > 2
    assert words.answer(comparison, None).question == "Do further streams pay here?"
    assert words.answer(comparison, None).sentence.startswith(f"Only inside a CUDA graph: there {used} streams make it")
    assert f"{used} streams inside a graph make the graph" in comparison.verdict
    # The order with the fewest edges is on no streams.
    graph, dual = comparison["graph"], comparison["graph-dual"]
    info = replace(dual.trace.info, plan={**dual.trace.info.plan, "streams": 9, "branches": 9})
    inside = Comparison("experts", comparison.device, [graph, replace(dual, trace=replace(dual.trace, info=info))])
    assert words.answer(inside, None).question == "Do 9 branches pay here?"
    assert words.answer(inside, None).sentence.startswith("Yes: 9 branches inside a CUDA graph make it")


def test_the_forecast_of_captured_code_takes_the_order_that_a_comparison_takes():
    found = Preview(captured("googlenet")).comparison(["graph-dual"])["graph-dual"].trace
    compared = ss.compare(ss.load_captured(RECORDED / "googlenet.captured.json"), engines="graph-dual", progress=False)["graph-dual"].trace
    assert found.info.plan["streams"] == compared.info.plan["streams"] <= 12
    assert "branches" not in found.info.plan


def captured(name):
    return ss.load_captured(RECORDED / f"{name}.captured.json").program
