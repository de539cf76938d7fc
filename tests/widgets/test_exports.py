"""A comparison as files for others: reports, pictures, spans. Each is whole or not there, and what is missing is said."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pandas as pd
import pytest

from streamscope.analysis.table import device_words
from streamscope.capturing.saved import load_captured
from streamscope.comparing.compare import compare
from streamscope.comparing.comparison import Comparison, Run
from streamscope.errors import OutputError, TraceError
from streamscope.trace.info import DeviceInfo
from streamscope.trace.spans import SpanBuilder, SpanKind
from streamscope.workloads import WORKLOADS
from streamscope_widgets.show import palette

pytestmark = pytest.mark.usefixtures("bundle")
HOSTILE = 'a,"b"\n|<img src=x onerror=alert(1)> `c` [d](e) *f*'
CAPTURED = Path(__file__).parents[2] / "notebooks/recorded/captured/mixture_of_experts.captured.json"
SVG = "{http://www.w3.org/2000/svg}"
CHARTS = {
    "makespans": "Under async",
    "speedups": "graph-dual is",
    "overlaps": "Kernels overlap most under graph-dual",
    "launches": "From launch",
    "memory": "Every engine holds",
}


@pytest.fixture(scope="module")
def branches():
    """A workload whose kernels overlap under graph-dual."""
    program, inputs = WORKLOADS["branches"].build(length=4)
    return compare(program, *inputs, device="simulated", progress=False, name="branches")


@pytest.fixture
def hostile(make_trace):
    """A comparison all of whose names are somebody else's."""
    builder = SpanBuilder(["host", HOSTILE])
    builder.add(SpanKind.LAUNCH, HOSTILE, "host", 0, 10, operation=0, correlation=0)
    builder.add(SpanKind.KERNEL, HOSTILE, HOSTILE, 20, 40, operation=0, correlation=0)
    trace = make_trace(HOSTILE, builder.build(), device=DeviceInfo("cuda", HOSTILE), program=HOSTILE)
    run = Run(HOSTILE, np.full(8, 50.0), float("nan"), float("nan"), trace)
    return Comparison(HOSTILE, trace.info.device, [run])


def cells(line):
    """Return the cells of a row of a Markdown table."""
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def test_markdown_says_the_verdict_and_has_every_number(branches, tmp_path):
    text = branches.report(tmp_path / "r.md").read_text(encoding="utf-8")
    assert text.startswith(f"# branches · {device_words(branches.device)}\n\n")
    assert branches.verdict in text
    table = [cells(line) for line in text.splitlines() if line.startswith("|")]
    assert [row[0] for row in table] == ["engine", "---", *branches]
    assert len({len(row) for row in table}) == 1
    makespans = {row[0]: float(row[1]) for row in table[2:]}
    assert makespans == {engine: pytest.approx(run.metrics.makespan_us, rel=0.005) for engine, run in branches.items()}
    assert all(f"- {line}" in text for line in branches.assessment.evidence)


def test_names_in_markdown_stay_text(hostile, tmp_path):
    text = hostile.report(tmp_path / "r.md").read_text(encoding="utf-8")
    assert not re.search(r"(?<!\\)[<>`\[]", text)
    heads, _, row = (cells(line) for line in text.splitlines() if line.startswith("|"))
    assert len(row) == len(heads)
    assert row[0].startswith(r'a,"b" \|\<img')


def test_a_picture_is_of_the_timelines(branches, tmp_path):
    root = ET.fromstring(branches.picture(tmp_path / "t.svg").read_text(encoding="utf-8"))
    texts = {text.text for text in root.iter(f"{SVG}text")}
    assert set(branches) <= texts
    assert any("simulated time" in text for text in texts)


@pytest.mark.parametrize(("of", "title"), CHARTS.items())
def test_a_picture_is_of_a_chart(branches, tmp_path, of, title):
    root = ET.fromstring(branches.picture(tmp_path / "c.SVG", of=of).read_text(encoding="utf-8"))
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert texts[0].startswith(title)
    assert set(branches) <= {text.split(" (")[0] for text in texts}
    assert root.find(f"{SVG}rect").get("fill") == palette.CARD
    right = float(root.get("width"))
    assert all(0 <= float(mark.get("x", 0)) <= right for mark in root.iter(f"{SVG}text"))


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_spans_of_all_engines_are_one_table(branches, tmp_path, suffix):
    path = branches.save(tmp_path / f"spans{suffix}")
    found = pd.read_csv(path) if suffix == ".csv" else pd.read_parquet(path)
    assert set(found.device) == {"simulated NVIDIA H200"}
    for engine, run in branches.items():
        wanted = run.trace.to_pandas().astype(dict.fromkeys(("kind", "name", "lane", "basis"), str))
        rows = found[found.engine == engine].drop(columns=["engine", "device"]).reset_index(drop=True)
        told = [rows.pop(name).astype(object).fillna("").tolist() for name in ("operator", "module", "line")]
        words = run.trace.origins.words()
        assert told == [
            ["" if each < 0 else words[each].get(name, "") for each in rows.operation] for name in ("operator", "module", "line")
        ]
        rows, wanted = (table.assign(symbol=table.symbol.astype(object)) for table in (rows, wanted))  # unknown in all of them
        pd.testing.assert_frame_equal(rows, wanted, check_dtype=False)


def test_names_in_a_table_come_back_as_they_were(hostile, tmp_path):
    for path in (hostile.save(tmp_path / "a.csv"), hostile[HOSTILE].trace.to_csv(tmp_path / "b.csv")):
        found = pd.read_csv(path)
        assert set(found.name) == set(found.engine) == set(found.device) == {HOSTILE}


@pytest.mark.parametrize(
    ("write", "name", "use"),
    [
        (Comparison.report, "r.docx", ".html, .pdf or .md"),
        (Comparison.picture, "t.gif", ".svg or .png"),
        (Comparison.picture, "t", ".svg or .png"),
        (Comparison.save, "s.xlsx", ".html, .pdf, .md, .json, .svg, .png, .csv, .parquet or .jsonl"),
        (lambda runs, path: runs["sync"].trace.to_csv(path), "s.parquet", ".csv"),
    ],
)
def test_another_ending_is_refused_and_the_right_ones_are_named(branches, tmp_path, write, name, use):
    with pytest.raises(OutputError, match="its name ends with" if "." in name else "its name has no ending") as caught:
        write(branches, tmp_path / name)
    assert caught.value.hint == f"use {use}"
    assert list(tmp_path.iterdir()) == []


def test_a_picture_that_there_is_not(branches, make_trace, tmp_path):
    for of in ("pie", "", ["timeline"]):
        with pytest.raises(OutputError, match="there is no picture of") as caught:
            branches.picture(tmp_path / "p.svg", of=of)
    assert "makespans" in caught.value.hint
    builder = SpanBuilder(["host", "main"])
    builder.add(SpanKind.KERNEL, "relu", "main", 20, 40, operation=0)
    trace = make_trace("graph", builder.build())
    unlaunched = Comparison("p", trace.info.device, [Run("graph", np.full(8, 50.0), float("nan"), float("nan"), trace)])
    with pytest.raises(TraceError, match="no launch latency to draw"):
        unlaunched.picture(tmp_path / "p.svg", of="launches")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["r.html", "r.md", "r.pdf", "t.svg", "t.png", "s.csv", "s.parquet"])
def test_a_folder_that_is_not_there(branches, tmp_path, name):
    write = {"r": branches.report, "t": branches.picture, "s": branches.save}[name[0]]
    with pytest.raises(OutputError, match="cannot write"):
        write(tmp_path / "none" / name)


@pytest.fixture
def chromium(tmp_path, monkeypatch):
    """Put a program in the place of Chromium; without one, there is none."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def place(script):
        (folder / "chromium").write_text(f"#!/bin/sh\n{script}\n")
        (folder / "chromium").chmod(0o755)

    return place


@pytest.mark.parametrize("name", ["r.pdf", "t.png"])
def test_without_chromium_it_says_what_to_install_and_leaves_the_file(branches, chromium, tmp_path, name):
    (tmp_path / name).write_text("mine")
    write = branches.report if name.endswith("pdf") else branches.picture
    with pytest.raises(OutputError, match="is made by Chromium or Chrome, and neither is on PATH") as caught:
        write(tmp_path / name)
    assert "apt install chromium" in caught.value.hint
    chromium("echo one; echo 'no usable sandbox' >&2; exit 1")
    with pytest.raises(OutputError, match="no usable sandbox"):
        write(tmp_path / name)
    chromium("exit 0")
    with pytest.raises(OutputError, match="it wrote no file"):
        write(tmp_path / name)
    (tmp_path / "bin" / "chromium").write_text("#!/nowhere\n")
    with pytest.raises(OutputError, match="it does not start"):
        write(tmp_path / name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bin", name]
    assert (tmp_path / name).read_text() == "mine"


def test_a_chromium_that_hangs_is_stopped(branches, chromium, tmp_path, monkeypatch):
    chromium("exec /bin/sleep 60")
    monkeypatch.setattr("streamscope_widgets.chromium.PATIENCE_S", 0.2)
    with pytest.raises(OutputError, match="did not finish within"):
        branches.report(tmp_path / "r.pdf")


@pytest.mark.browser
@pytest.mark.usefixtures("chromium_path")
def test_a_png_is_twice_as_large_as_the_svg_and_whole(branches, tmp_path):
    data = branches.picture(tmp_path / "t.png").read_bytes()
    root = ET.fromstring(branches.picture(tmp_path / "t.svg").read_text(encoding="utf-8"))
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert data.endswith(b"IEND\xaeB`\x82")
    assert struct.unpack(">II", data[16:24]) == (2 * int(root.get("width")), 2 * int(root.get("height")))


@pytest.mark.browser
@pytest.mark.usefixtures("chromium_path")
def test_a_pdf_is_the_page_on_paper(branches, tmp_path):
    data = branches.report(tmp_path / "r.pdf").read_bytes()
    assert data.startswith(b"%PDF-")
    assert data.rstrip().endswith(b"%%EOF")
    assert 1 <= len(re.findall(rb"/Type\s*/Page\b", data)) <= 5


WRITERS = {
    ".html": Comparison.report,
    ".md": Comparison.report,
    ".svg": Comparison.picture,
    ".csv": Comparison.save,
    ".parquet": lambda comparison, path: comparison["sync"].trace.to_parquet(path),
    ".json": lambda comparison, path: comparison["sync"].trace.to_kineto(path),
    ".json.gz": lambda comparison, path: comparison["sync"].trace.to_kineto(path),
    ".pftrace": lambda comparison, path: comparison["sync"].trace.to_perfetto(path),
    ".captured.json": lambda comparison, path: load_captured(CAPTURED).save(path),
}


@pytest.mark.parametrize("ending", WRITERS)
def test_every_writer_follows_links_and_takes_the_longest_names(branches, tmp_path, ending):
    (tmp_path / "there").mkdir()
    place = tmp_path / "there" / f"{'a' * (255 - len(ending))}{ending}"
    link = tmp_path / f"link{ending}"
    link.symlink_to(place)
    assert WRITERS[ending](branches, link) == link
    assert link.is_symlink()
    assert place.stat().st_size > 100
    assert [path.name for path in place.parent.iterdir()] == [place.name]
