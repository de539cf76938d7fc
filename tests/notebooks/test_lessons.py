"""The lessons run on the simulated device, and what their answers say is so."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

import streamscope as ss
from streamscope.comparing.preview import Preview

pytest.importorskip("anywidget")

LESSONS = sorted((Path(__file__).parents[2] / "notebooks" / "lessons").glob("*.ipynb"))
COPIES = Path(__file__).parents[2] / "notebooks" / "recorded" / "lessons"

OLDER: set[str] = set()
"""Copies of lessons that have changed since, and wait for a GPU to be made again."""
_OLD = pytest.mark.xfail(strict=True, reason="older than its lesson; scripts/execute_notebook.py makes it again on a GPU")


def cells_of(path, kind):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == kind]


@pytest.fixture
def run(monkeypatch, tmp_path):
    """A function that runs a lesson's code, some of it changed, and returns its names and what its cells show."""
    monkeypatch.chdir(LESSONS[0].parent)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("STREAMSCOPE_CACHE_DIR", str(tmp_path / "cache"))

    def run(path, **changed):
        names, shown = {"__name__": "__main__"}, []
        for source in cells_of(path, "code"):
            tree = ast.parse(
                re.sub(r"^([A-Z]+) = (.*)$", lambda found: f"{found[1]} = {changed.get(found[1], found[2])}", source, flags=re.MULTILINE)
            )
            last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
            exec(compile(tree, "lesson", "exec"), names)
            if last is not None and (found := eval(compile(ast.Expression(last.value), "lesson", "eval"), names)) is not None:
                shown.append(found)
        return names, shown

    return run


def test_there_are_nine_and_each_leads_to_the_next(repository):
    assert [path.name[:2] for path in LESSONS] == [f"{number:02}" for number in range(1, 10)]
    assert f"notebooks/lessons/{LESSONS[0].name}" in (repository / "README.md").read_text(encoding="utf-8")
    for number, path in enumerate(LESSONS):
        title, *_, last = texts = cells_of(path, "markdown")
        assert title.startswith(f"# {number + 1}. ")
        assert title.splitlines()[0].endswith("?")
        assert sum("**Question.**" in text and "<summary>Answer</summary>" in text for text in texts) == 1
        if path != LESSONS[-1]:
            assert f"]({LESSONS[number + 1].name})" in last
            assert cells_of(LESSONS[number + 1], "markdown")[0].splitlines()[0][2:] in last


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_a_lesson_runs_and_shows_a_picture(run, path, capsys):
    names, shown = run(path)
    assert any(hasattr(each, "_repr_html_") or hasattr(each, "_repr_mimebundle_") for each in shown)
    if "runs" in names:
        assert all(one.trace.info.device.simulated for one in names["runs"].values())
    capsys.readouterr()


def busy_of(run, number, engine, **changed):
    return run(LESSONS[number - 1], **changed)[0]["runs"].metrics[engine]


def test_kernels_of_two_million_numbers_keep_the_host_waiting(run, capsys):
    short, medium, long = (busy_of(run, 1, "async", SIZE=size) for size in (1_024, 1_000_000, 2_000_000))
    assert short.busy_fraction < 0.4
    assert short.makespan_us == pytest.approx(medium.makespan_us, rel=0.02)  # Launches alone decide.
    assert long.makespan_us > 1.2 * medium.makespan_us
    assert short.api_time_us == pytest.approx(long.api_time_us)
    capsys.readouterr()


def test_kernels_overlap_that_leave_room(run, capsys):
    runs = run(LESSONS[1])[0]["runs"].metrics
    assert runs["graph-dual"].overlap > 0.5
    assert runs["graph"].makespan_us > 1.3 * runs["graph-dual"].makespan_us
    capsys.readouterr()


def test_waits_between_streams_cost_more_than_they_bring(run, capsys):
    often, once = (run(LESSONS[2], MEET=meet)[0]["runs"].metrics for meet in (1, 100))
    assert often["dual"].makespan_us > 1.1 * often["async"].makespan_us
    assert once["dual"].makespan_us == pytest.approx(once["async"].makespan_us, rel=0.03)
    assert once["graph-dual"].makespan_us < 0.7 * once["graph"].makespan_us
    capsys.readouterr()


def test_a_graph_pays_for_few_kernels_too(run, capsys):
    few = run(LESSONS[4], LENGTH=3)[0]["runs"].metrics
    assert few["async"].makespan_us > 1.3 * few["graph"].makespan_us
    capsys.readouterr()


def test_fusion_leaves_one_kernel(run, capsys):
    assert busy_of(run, 6, "async", FUSE=True).kernel_count == 1
    capsys.readouterr()


def test_rows_hide_communication_and_width_exposes_more():
    def metrics(rows, width):
        function, specs = ss.workload("data-parallel").outline(layers=12, rows=rows, width=width)
        return Preview(function.trace(*specs)).comparison(["graph-dual"]).metrics["graph-dual"]

    first, tall, wide = metrics(256, 256), metrics(16_384, 256), metrics(256, 1_024)
    hidden = [each.hidden_us / each.communication_us for each in (wide, first, tall)]
    assert hidden[0] == pytest.approx(1 / 3, abs=0.01)
    assert hidden[2] > 9 / 10
    assert hidden[1] == pytest.approx(0.56, abs=0.03)  # As two H200 recorded.
    assert wide.exposed_us > 5 * first.exposed_us


@pytest.mark.parametrize("path", [pytest.param(path, marks=[_OLD] * (path.name[:2] in OLDER), id=path.stem) for path in LESSONS])
def test_the_executed_copy_is_of_this_lesson_and_of_a_gpu(path):
    copy = COPIES / f"{path.stem}.executed.ipynb"
    assert cells_of(copy, "code") == cells_of(path, "code")
    cells = json.loads(copy.read_text(encoding="utf-8"))["cells"]
    assert "simulated" not in json.dumps([cell.get("outputs", []) for cell in cells])
