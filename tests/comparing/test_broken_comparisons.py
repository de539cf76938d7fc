"""Comparisons whose files were cut off, edited, or written by something else: they are shown, or a `TraceError` says what is wrong."""

from __future__ import annotations

import copy
import json
import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.combinations import THOROUGH

import streamscope as ss
from streamscope.comparing.comparison import Comparison, Run
from streamscope.errors import OutputError, TraceError
from streamscope.trace.file_checks import with_digest

X = np.ones((8, 8), np.float32)
WRONG_VALUES = [None, "zz", 5, -1, 0.5, [], {}, [None], "removed"]


@ss.program
def relu(x):
    return ss.ops.relu(x)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Save a comparison, of which one engine's run is kept, so that it loads quickly."""
    folder = tmp_path_factory.mktemp("saved")
    ss.compare(relu, X, device="simulated", progress=False).save(folder)
    content = read(folder)
    del content["digest"]
    content["engines"] = {"sync": content["engines"]["sync"]}
    (folder / "comparison.json").write_text(json.dumps(with_digest(content)), encoding="utf-8")
    return folder


@pytest.fixture
def broken(saved, tmp_path):
    """Return a copy of the saved comparison, to be damaged."""
    for path in (saved / "comparison.json", *saved.glob("sync-*.parquet")):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def read(folder):
    return json.loads((folder / "comparison.json").read_text(encoding="utf-8"))


def write(folder, content):
    """Write what was changed, with a digest that agrees, so that it is not found by that alone."""
    with suppress(TypeError, ValueError):
        content = with_digest({key: value for key, value in content.items() if key != "digest"})
    (folder / "comparison.json").write_text(json.dumps(content), encoding="utf-8")


def trace_of(folder, engine):
    (found,) = folder.glob(f"{engine}-*.parquet")
    return found


def shown(folder):
    """Load a comparison and show it in every way that a user does."""
    found = ss.load_comparison(folder)
    return repr(found), found._repr_html_(), json.dumps(found.to_dict(), allow_nan=False), found.to_pandas()


def places(content, before=()):
    """Yield where there is a value, as keys from the outermost one on."""
    if before:
        yield before
    keys = list(content) if isinstance(content, dict) else range(len(content)) if isinstance(content, list) else ()
    for key in keys:
        yield from places(content[key], (*before, key))


def changed(content, place, value):
    """Return the content with another value at a place, or without what is there."""
    content = copy.deepcopy(content)
    inner = content
    for key in place[:-1]:
        inner = inner[key]
    if value == "removed":
        del inner[place[-1]]
    else:
        inner[place[-1]] = value
    return content


def test_it_is_shown(broken):
    assert "relu" in shown(broken)[0]


@pytest.mark.parametrize("value", WRONG_VALUES, ids=repr)
def test_any_value_may_be_wrong(broken, value):
    """Some wrong values do not show, such as another makespan; all others are told. A place has "zz" and half of the others."""
    content = read(broken)
    told = []
    for number, place in enumerate(places(content), WRONG_VALUES.index(value)):
        if number % 2 and value != "zz" and not THOROUGH:
            continue
        write(broken, changed(content, place, value))
        try:
            shown(broken)
        except TraceError as error:
            told.append(error)
        except Exception as error:
            raise AssertionError(f"{place} = {value!r}") from error
    assert len(told) > 5
    assert all(error.hint and "comparison.json" in error.message for error in told)


@pytest.mark.parametrize("raw", [b"", b"null", b"[]", b"1", b"{}", b'"a"', bytes(range(256)), b"[" * 100_000, b'{"device": {}}'], ids=len)
def test_what_is_no_comparison(broken, raw):
    (broken / "comparison.json").write_bytes(raw)
    with pytest.raises(TraceError, match=r"comparison\.json is not a comparison of ours"):
        ss.load_comparison(broken)


@pytest.mark.parametrize(("name", "wanted"), [("device", "a mapping"), ("engines", "a mapping with an engine at least")])
def test_what_a_part_must_be_is_told(broken, name, wanted):
    write(broken, read(broken) | {name: []})
    with pytest.raises(TraceError, match=rf"{name}=\[\] is not {wanted}"):
        ss.load_comparison(broken)


def test_a_value_that_was_changed_by_hand_is_told(broken):
    content = json.loads((broken / "comparison.json").read_text(encoding="utf-8"))
    for place in places(content):
        if place[-1] not in ("schema", "digest"):
            (broken / "comparison.json").write_text(json.dumps(changed(content, place, "zz")), encoding="utf-8")
            with pytest.raises(TraceError, match="it was changed after it was written"):
                ss.load_comparison(broken)


def test_a_file_of_a_newer_version_is_told(broken):
    content = json.loads((broken / "comparison.json").read_text(encoding="utf-8"))
    (broken / "comparison.json").write_text(json.dumps(content | {"schema": 4}), encoding="utf-8")
    with pytest.raises(TraceError, match="it has schema 4, and this Streamscope reads schema 3"):
        ss.load_comparison(broken)


@pytest.mark.parametrize(
    "number", ["NaN", "Infinity", "1e999", "1" + "0" * 400, "1" + "0" * 5000, "true", '"5"', "-1", "0.5", "1e17"], ids=len
)
def test_makespans_that_are_no_times_are_told(broken, number):
    content = json.loads((broken / "comparison.json").read_text(encoding="utf-8"))
    write(broken, changed(content, ("makespans_ns", "sync"), ["here"] * 3))
    text = (broken / "comparison.json").read_text(encoding="utf-8")
    (broken / "comparison.json").write_text(text.replace('"here"', number), encoding="utf-8")
    with pytest.raises(TraceError, match=r"comparison\.json is not a comparison of ours"):
        ss.load_comparison(broken)


@pytest.mark.parametrize(
    "number", ["NaN", "Infinity", "-1e999", "1" + "0" * 400, "[" * 100_000, '{"a": 1, "a": 1}', "[" * 99 + "]" * 99], ids=len
)
def test_details_that_are_not_json_are_told(broken, number):
    content = json.loads((broken / "comparison.json").read_text(encoding="utf-8"))
    write(broken, changed(content, ("device", "details"), {"a": "here"}))
    text = (broken / "comparison.json").read_text(encoding="utf-8")
    (broken / "comparison.json").write_text(text.replace('"here"', number), encoding="utf-8")
    with pytest.raises(TraceError, match=r"comparison\.json is not a comparison of ours"):
        ss.load_comparison(broken)


def test_two_hundred_thousand_makespans_are_shown_and_more_are_told(broken):
    content = json.loads((broken / "comparison.json").read_text(encoding="utf-8"))
    write(broken, changed(content, ("makespans_ns", "sync"), list(range(1000, 201_000))))
    assert ss.load_comparison(broken)["sync"].metrics.repeats == 200_000
    shown(broken)
    write(broken, changed(content, ("makespans_ns", "sync"), [5] * 200_001))
    with pytest.raises(TraceError, match=r"makespans_ns=.* is not a list of 1 to 200,000 times in ns"):
        ss.load_comparison(broken)


@pytest.mark.parametrize("name", ["comparison.json", "sync-*.parquet"])
def test_only_ordinary_files_that_are_not_too_large_are_opened(broken, name):
    (path,) = broken.glob(name)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(TraceError, match=rf"{path.name}.*not an ordinary file"):
        ss.load_comparison(broken)
    path.unlink()
    with path.open("wb") as file:
        file.truncate(8 << 30)
    with pytest.raises(TraceError, match=rf"{path.name}.*8,589,934,592 bytes"):
        ss.load_comparison(broken)


def test_json_never_holds_nan(saved):
    found = ss.load_comparison(saved)["sync"]
    unknown = Run("sync", found.makespans_ns, np.nan, np.inf, found.trace)
    content = Comparison("relu", found.trace.info.device, [unknown]).to_dict()
    json.dumps(content, allow_nan=False)
    assert content["engines"]["sync"]["tolerance"] is None


def test_any_truncation_is_told(broken):
    whole = (broken / "comparison.json").read_bytes()
    for length in range(0, len(whole) - 1, 37):
        (broken / "comparison.json").write_bytes(whole[:length])
        with pytest.raises(TraceError, match="is not a comparison of ours"):
            ss.load_comparison(broken)


@pytest.mark.parametrize("raw", [b"", b"PAR1PAR1PAR1", b"a,b\n1,2\n"])
def test_a_broken_trace_is_told_by_its_name(broken, raw):
    trace_of(broken, "sync").write_bytes(raw)
    with pytest.raises(TraceError, match=r"sync-[0-9a-f]{12}\.parquet"):
        ss.load_comparison(broken)


def test_the_trace_of_another_engine_is_told(broken):
    content = read(broken)
    for part in (content["engines"], content["makespans_ns"], content["traces"]):
        part["graph"] = part.pop("sync")
    write(broken, content)
    trace_of(broken, "sync").rename(broken / trace_of(broken, "sync").name.replace("sync", "graph"))
    with pytest.raises(TraceError, match=r"graph-.*\.parquet is the trace of 'sync', not of 'graph'"):
        ss.load_comparison(broken)


def test_a_trace_copied_from_another_comparison_is_told(saved, broken, tmp_path):
    """Though its engine, its program and its device are the same."""
    other = ss.compare(relu, np.ones((9, 9), np.float32), device="simulated", engines="sync", progress=False).save(tmp_path / "other")
    trace_of(broken, "sync").write_bytes(trace_of(other, "sync").read_bytes())
    with pytest.raises(TraceError, match=r"sync-.*\.parquet is not the trace that comparison\.json was saved with"):
        ss.load_comparison(broken)


def test_what_is_shown_of_a_trace_is_what_was_checked(saved, broken, tmp_path, monkeypatch):
    """Though the right file takes the wrong one's place as soon as that is open."""
    other = ss.compare(relu, np.ones((9, 9), np.float32), device="simulated", engines="sync", progress=False).save(tmp_path / "other")
    path, whole = trace_of(broken, "sync"), Path.open

    def opening(self, *args, **options):
        file = whole(self, *args, **options)
        if self == path:
            path.unlink()
            path.symlink_to(trace_of(saved, "sync"))
        return file

    path.write_bytes(trace_of(other, "sync").read_bytes())
    monkeypatch.setattr(Path, "open", opening)
    with pytest.raises(TraceError, match="is not the trace that"):
        ss.load_comparison(broken)


@pytest.mark.parametrize("kind", ["cuda", "tpu"])
def test_simulated_times_under_the_name_of_a_gpu_are_refused(broken, kind):
    content = read(broken)
    content["device"]["kind"] = kind
    write(broken, content)
    with pytest.raises(TraceError, match=kind):
        ss.load_comparison(broken)


@pytest.mark.parametrize("engine", ["../evil", "/evil", "a/b", "a\\b", "", "a\0b", "a\ud800", "a\nb", "e" * 101])
def test_engines_that_are_paths_are_refused(broken, engine):
    content = read(broken)
    run = ss.load_comparison(broken)["sync"]
    for part in (content["engines"], content["makespans_ns"], content["traces"]):
        part[engine] = part.pop("sync")
    write(broken, content)
    with pytest.raises(TraceError, match=r"cannot be the name of an engine|not a mapping of names to texts"):
        ss.load_comparison(broken)
    evil = Comparison("relu", run.trace.info.device, [replace(run, engine=engine)])
    with pytest.raises(OutputError, match="cannot be the name of an engine"):
        evil.save(broken / "new")
    assert not (broken / "new").exists()


def test_missing_files_and_folders_are_told(broken):
    trace_of(broken, "sync").unlink()
    with pytest.raises(TraceError, match=r"comparison\.json names a trace that is not there: sync-"):
        ss.load_comparison(broken)
    with pytest.raises(TraceError, match="No such file"):
        ss.load_comparison(broken / "none")
    with pytest.raises(TraceError, match="Not a directory"):
        ss.load_comparison(broken / "comparison.json" / "comparison.json")
    (broken / "file").touch()
    with pytest.raises(TraceError, match="Not a directory"):
        ss.load_comparison(broken / "file")


def test_the_file_of_a_comparison_stands_for_its_folder(tmp_path):
    runs = ss.compare(lambda x: x + x, np.ones(4, np.float32), engines="sync", device="simulated", progress=False)
    folder = runs.save(tmp_path / "doubled")
    assert str(ss.load_comparison(folder / "comparison.json")) == str(ss.load_comparison(folder))
