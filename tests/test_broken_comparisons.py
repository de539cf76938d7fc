"""Comparisons whose files were cut off, edited, or written by something else: they are shown, or a `TraceError` says what is wrong."""

from __future__ import annotations

import copy
import json
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

import streamscope as ss
from streamscope import comparison
from streamscope.comparison import Comparison
from streamscope.comparison_folder import read_trace, sealed
from streamscope.errors import OutputError, TraceError

X = np.ones((8, 8), np.float32)
WRONG_VALUES = [None, "zz", 5, -1, 0.5, [], {}, [None], "removed"]


@ss.program
def relu(x):
    return ss.relu(x)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Save a comparison with a choice, of which one engine's run is kept, so that it loads quickly."""
    folder = tmp_path_factory.mktemp("saved")
    ss.compare(relu, X, device="simulated", engines="auto", memory_limit="1 GiB", progress=False).save(folder)
    content = read(folder)
    content["engines"] = {"sync": content["engines"]["sync"]}
    write(folder, content)
    return folder


@pytest.fixture
def broken(saved, tmp_path):
    """Return a copy of the saved comparison, to be damaged."""
    for path in (saved / "comparison.json", *saved.glob("sync-*.parquet")):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def read(folder):
    return json.loads((folder / "comparison.json").read_text(encoding="utf-8"))


def write(folder, content, *, seal=True):
    """Write what was changed, with a checksum that agrees, so that it is not found by that alone."""
    with suppress(KeyError, TypeError, ValueError):
        content = sealed(content, content["sha256"]["traces"]) if seal else content
    (folder / "comparison.json").write_text(json.dumps(content), encoding="utf-8")


def trace_of(folder, engine):
    (found,) = folder.glob(f"{engine}-*.parquet")
    return found


def shown(folder):
    """Load a comparison and show it in every way that a user does."""
    found = ss.load_comparison(folder)
    return repr(found), found._repr_html_(), json.dumps(found.to_json(), allow_nan=False), found.to_pandas()


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
    """Some wrong values do not show, such as another makespan; all others are told."""
    content = read(broken)
    told = []
    for place in places(content):
        write(broken, changed(content, place, value))
        try:
            shown(broken)
        except TraceError as error:
            told.append(error)
        except Exception as error:
            raise AssertionError(f"{place} = {value!r}") from error
    assert len(told) > 10
    assert all(error.hint and "comparison.json" in error.message for error in told)


@pytest.mark.parametrize("raw", [b"", b"null", b"[]", b"1", b"{}", b'"a"', bytes(range(256)), b"[" * 100_000, b'{"device": {}}'], ids=len)
def test_what_is_no_comparison(broken, raw):
    (broken / "comparison.json").write_bytes(raw)
    with pytest.raises(TraceError, match=r"comparison\.json is not a comparison of ours"):
        ss.load_comparison(broken)


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
    for part in (content["engines"], content["makespans_ns"], content["sha256"]["traces"]):
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


def test_a_number_changed_by_hand_is_told(broken):
    content = read(broken)
    content["makespans_ns"]["sync"][0] += 1
    write(broken, content, seal=False)
    with pytest.raises(TraceError, match="changed since it was saved"):
        ss.load_comparison(broken)
    content["makespans_ns"]["sync"][0] -= 1
    write(broken, content, seal=False)  # on one line, which changes no value
    shown(broken)


@pytest.mark.parametrize("kind", ["cuda", "tpu"])
def test_simulated_times_under_the_name_of_a_gpu_are_refused(broken, kind):
    content = read(broken)
    content["device"]["kind"] = kind
    write(broken, content)
    with pytest.raises(TraceError, match=kind):
        ss.load_comparison(broken)


@pytest.mark.parametrize("engine", ["../evil", "/evil", "a/b", "a\\b", "", "a\0b", "a\ud800", "a\nb", "e" * 101])
@pytest.mark.parametrize("older", [False, True])
def test_engines_that_are_paths_are_refused(broken, engine, older):
    """In a folder of an older version too, whose traces had no hashes in their names."""
    content = read(broken)
    run = ss.load_comparison(broken)["sync"]
    for part in (content["engines"], content["makespans_ns"], content["sha256"]["traces"]):
        part[engine] = part.pop("sync")
    if older:
        del content["sha256"]
    write(broken, content)
    with pytest.raises(TraceError, match="cannot be the name of an engine"):
        ss.load_comparison(broken)
    evil = Comparison("relu", run.trace.info.device, [replace(run, engine=engine)])
    with pytest.raises(OutputError, match="cannot be the name of an engine"):
        evil.save(broken / "new")
    assert not (broken / "new").exists()


def test_a_folder_of_an_older_version_says_what_it_lacks(broken):
    content = read(broken)
    del content["sha256"]
    write(broken, content)
    trace_of(broken, "sync").rename(broken / "sync.parquet")
    assert "no checksum of this trace" in shown(broken)[0]
    (broken / "sync.parquet").unlink()
    with pytest.raises(TraceError, match=r"not there: sync\.parquet"):
        ss.load_comparison(broken)


def test_a_reader_beside_a_writer_gets_the_newer_comparison(broken, saved, monkeypatch):
    """Another comparison is saved after ``comparison.json`` was read and before its trace is."""
    newer = ss.compare(relu, np.ones((500, 500), np.float32), device="simulated", engines="sync", progress=False)
    monkeypatch.setattr(comparison, "read_trace", lambda *_: (monkeypatch.undo(), newer.save(broken), read_trace(*_))[-1])
    assert ss.load_comparison(broken).to_json() == newer.to_json()
    assert len([*broken.glob("*.parquet")]) == 1


def test_missing_files_and_folders_are_told(broken):
    trace_of(broken, "sync").unlink()
    with pytest.raises(TraceError, match=r"comparison\.json names a trace that is not there: sync-"):
        ss.load_comparison(broken)
    with pytest.raises(TraceError, match="No such file"):
        ss.load_comparison(broken / "none")
    with pytest.raises(TraceError, match="Not a directory"):
        ss.load_comparison(broken / "comparison.json")
