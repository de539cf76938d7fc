"""Notes beside a file of another tool: kept, read back on the right times and lanes, and never attached to another file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.formats.databases import nsight
from tests.formats.kineto_files import call, content, dumps, kernel

import streamscope as ss
from streamscope.cli.main import main
from streamscope.errors import OutputError, TraceError
from streamscope.trace import Note

XPLANE = Path(__file__).parents[1] / "data" / "xplane" / "kernels.xplane.pb"


def saved(folder, name="step.json", late_ns=0):
    """Write a Kineto file of two GPUs, of which the second one is called 3 µs later, and return its path."""
    path = folder / name
    first = [call("cudaLaunchKernel", 0, 2_000, 1), kernel("a", 5_000, 25_000, 1)]
    second = [call("cudaLaunchKernel", 3_000, 4_000, 2), kernel("b", 6_000, 26_000 + late_ns, 2, device=1)]
    path.write_text(dumps(content([*first, *second])), encoding="utf-8")
    return path


def noted(path):
    """Keep two notes on lanes, one on a time, and one on the whole, and return the trace."""
    trace = ss.read(path).with_note("whole").with_note("moment ✓", 6)
    for lane in ("GPU 0 stream 7", "GPU 1 stream 7"):
        trace = trace.with_note(lane, 8, 20, lane=lane)
    assert trace.save_notes(path) == path.with_name(f"{path.name}.notes.json")
    return trace


def test_they_are_read_with_the_file_and_replaced(tmp_path):
    path = saved(tmp_path)
    trace = noted(path)
    again = ss.read(path)
    assert again.user_notes == trace.user_notes
    assert again.info.notes == trace.info.notes
    again.without_note(2).save_notes(path)
    assert [note.text for note in ss.read(path).user_notes] == ["whole", "GPU 0 stream 7", "GPU 1 stream 7"]
    ss.read(saved(tmp_path, "other.json")).save_notes(path)
    assert ss.read(path).user_notes == ()
    assert [each for each in tmp_path.iterdir() if "partial" in each.name] == []


def test_a_trace_of_one_gpu_has_them_at_its_own_times_and_lanes(tmp_path):
    path = saved(tmp_path)
    noted(path)
    second = ss.read(path, gpu=1)
    assert [(note.text, note.start_ns, note.end_ns, note.lane) for note in second.user_notes] == [
        ("whole", None, None, ""),
        ("moment ✓", 3_000, 3_000, ""),  # Its zero is the call at 3 µs.
        ("GPU 1 stream 7", 5_000, 17_000, "stream 7"),
    ]
    assert "left out: 1 note of yours on lanes that are not in this trace" in second.info.notes
    with pytest.raises(OutputError, match=r"is not of all GPUs of the file.*without gpu="):
        second.save_notes(path)
    with pytest.raises(OutputError, match="is not of all GPUs of the file"):
        ss.read(path).of_gpu(1).save_notes(path)


@pytest.mark.parametrize("late_ns", [0, 10**6], ids=["same size", "another size"])
def test_notes_never_attach_to_another_file(tmp_path, late_ns):
    path = saved(tmp_path)
    noted(path)
    saved(tmp_path, late_ns=late_ns or 3)
    trace = ss.read(path)
    assert trace.user_notes == ()
    why = "they are on another file of this name, or it was changed since"
    assert f"without your notes in step.json.notes.json: {why}" in trace.info.notes
    with pytest.raises(OutputError, match="it has notes on another file of this name"):
        trace.with_note("x").save_notes(path)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_damaged_file_of_notes_is_said_and_the_trace_is_read(tmp_path, data):
    path = saved(tmp_path)
    (tmp_path / "step.json.notes.json").unlink(missing_ok=True)
    trace = noted(path)
    beside = tmp_path / "step.json.notes.json"
    text = bytearray(beside.read_bytes())
    at = data.draw(st.integers(0, len(text) - 1))
    text[at] ^= data.draw(st.integers(1, 255))
    beside.write_bytes(text[: data.draw(st.integers(1, len(text)))])
    found = ss.read(path)
    assert len(found.spans) == len(trace.spans)
    assert found.user_notes == trace.user_notes or (found.user_notes == () and "without your notes in" in found.info.notes[-1])


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": 3}', "[" * 10_000])
def test_a_file_that_is_not_ours_is_said_and_not_replaced(tmp_path, text):
    path = saved(tmp_path)
    (tmp_path / "step.json.notes.json").write_text(text)
    assert ss.read(path).info.notes[-1].startswith("without your notes in step.json.notes.json: ")
    with pytest.raises(OutputError, match="the one there is not ours"):
        ss.read(path).save_notes(path)
    assert (tmp_path / "step.json.notes.json").read_text() == text


def test_other_formats_have_them_and_conversion_keeps_them(tmp_path):
    xplane = tmp_path / "kernels.xplane.pb"
    xplane.write_bytes(XPLANE.read_bytes())
    database = tmp_path / "report.sqlite"
    nsight(database)
    for path in (xplane, database):
        ss.read(path).with_note("mine", 0).save_notes(path)
        assert ss.read(path).user_notes == (Note("mine", 0, 0),)
        assert main(["convert", str(path), str(tmp_path / "c.parquet")]) == 0
        assert ss.read(tmp_path / "c.parquet").user_notes == (Note("mine", 0, 0),)


def test_a_place_that_cannot_have_notes_is_refused(tmp_path):
    path = saved(tmp_path)
    trace = ss.read(path).with_note("x")
    with pytest.raises(OutputError, match=r"cannot keep notes on .*gone.json: No such file.*name the file that was read"):
        trace.save_notes(tmp_path / "gone.json")
    with pytest.raises(OutputError, match=r"cannot keep notes on .*not an ordinary file"):
        trace.save_notes(tmp_path)
    with pytest.raises(OutputError, match=r"Parquet holds its notes itself.*to_parquet"):
        trace.save_notes(trace.to_parquet(tmp_path / "t.parquet"))
    beside = trace.save_notes(path)
    with pytest.raises(TraceError, match=r"it holds your notes on a trace, not a trace.*whose name has no .notes.json"):
        ss.read(beside)


def test_a_name_that_leaves_no_room_for_the_ending_is_read(tmp_path):
    path = saved(tmp_path, "x" * 250 + ".json")
    trace = ss.read(path)
    assert not any("notes" in note for note in trace.info.notes)
    with pytest.raises(OutputError, match=r"cannot write .*File name too long"):
        trace.with_note("x").save_notes(path)


def test_the_file_says_what_it_is_on(tmp_path):
    path = saved(tmp_path)
    noted(path)
    found = json.loads((tmp_path / "step.json.notes.json").read_text(encoding="utf-8"))
    assert list(found) == ["schema", "notes_on", "clocks", "notes", "digest"]
    assert found["notes_on"]["bytes"] == path.stat().st_size
    assert found["clocks"] == {"0": [5_000, 25_000], "1": [6_000, 26_000]}
    assert found["notes"][1] == {"text": "moment ✓", "start_ns": 6_000, "end_ns": 6_000, "lane": ""}
