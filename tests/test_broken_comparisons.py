"""Comparisons whose files were cut off, edited, or written by something else: they are shown, or a `TraceError` says what is wrong."""

from __future__ import annotations

import copy
import json
import os

import numpy as np
import pytest

import streamscope as ss
from streamscope.analysis import MedianInterval
from streamscope.choosing.choice import Candidate, Choice, Standing
from streamscope.comparison import Comparison, Run
from streamscope.errors import TraceError
from streamscope.trace.stored import with_digest

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
    content = json.loads((folder / "comparison.json").read_text(encoding="utf-8"))
    del content["digest"]
    content["engines"] = {"sync": content["engines"]["sync"]}
    (folder / "comparison.json").write_text(json.dumps(with_digest(content)), encoding="utf-8")
    return folder


@pytest.fixture
def broken(saved, tmp_path):
    """Return a copy of the saved comparison, to be damaged."""
    for name in ("comparison.json", "sync.parquet"):
        (tmp_path / name).write_bytes((saved / name).read_bytes())
    return tmp_path


def write(folder, content):
    """Write a comparison as it was before there were digests, so that any change is up to the checks of its values."""
    older = {key: value for key, value in content.items() if key not in ("schema", "digest")}
    (folder / "comparison.json").write_text(json.dumps(older), encoding="utf-8")


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
    content = json.loads((broken / "comparison.json").read_text(encoding="utf-8"))
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


def test_a_value_that_was_changed_by_hand_is_told(broken):
    content = json.loads((broken / "comparison.json").read_text(encoding="utf-8"))
    for place in places(content):
        if place[-1] not in ("schema", "digest"):
            (broken / "comparison.json").write_text(json.dumps(changed(content, place, "zz")), encoding="utf-8")
            with pytest.raises(TraceError, match="it was changed after it was written"):
                ss.load_comparison(broken)


def test_a_file_of_a_newer_version_is_told(broken):
    content = json.loads((broken / "comparison.json").read_text(encoding="utf-8"))
    (broken / "comparison.json").write_text(json.dumps(content | {"schema": 3}), encoding="utf-8")
    with pytest.raises(TraceError, match="it has schema 3, and this Streamscope reads up to 2"):
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


@pytest.mark.parametrize("name", ["comparison.json", "sync.parquet"])
def test_only_ordinary_files_that_are_not_too_large_are_opened(broken, name):
    (broken / name).unlink()
    os.mkfifo(broken / name)
    with pytest.raises(TraceError, match=rf"{name}.*not an ordinary file"):
        ss.load_comparison(broken)
    (broken / name).unlink()
    with (broken / name).open("wb") as file:
        file.truncate(8 << 30)
    with pytest.raises(TraceError, match=rf"{name}.*8,589,934,592 bytes"):
        ss.load_comparison(broken)


def test_json_never_holds_nan(saved):
    found = ss.load_comparison(saved)["sync"]
    unknown = Run("sync", found.makespans_ns, np.nan, np.inf, found.trace)
    ratio = MedianInterval(np.inf, 0.0, np.nan, 3, "minimum and maximum")
    candidate = Candidate("sync", Standing.SLOWER, "it is slower", ratio, ratio)
    device = found.trace.info.device
    choice = Choice("sync", "it is the only one", (candidate,), "relu", device)
    content = Comparison("relu", device, [unknown], choice=choice).to_json()
    json.dumps(content, allow_nan=False)
    assert content["engines"]["sync"]["tolerance"] is None
    assert content["choice"]["candidates"][0]["ratio"]["median"] is None


def test_any_truncation_is_told(broken):
    whole = (broken / "comparison.json").read_bytes()
    for length in range(0, len(whole) - 1, 37):
        (broken / "comparison.json").write_bytes(whole[:length])
        with pytest.raises(TraceError, match="is not a comparison of ours"):
            ss.load_comparison(broken)


@pytest.mark.parametrize("raw", [b"", b"PAR1PAR1PAR1", b"a,b\n1,2\n"])
def test_a_broken_trace_is_told_by_its_name(broken, raw):
    (broken / "sync.parquet").write_bytes(raw)
    with pytest.raises(TraceError, match=r"sync\.parquet"):
        ss.load_comparison(broken)


def test_the_trace_of_another_engine_is_told(broken):
    content = json.loads((broken / "comparison.json").read_text(encoding="utf-8"))
    for part in ("engines", "makespans_ns"):
        content[part]["graph"] = content[part]["sync"]
    write(broken, content)
    (broken / "graph.parquet").write_bytes((broken / "sync.parquet").read_bytes())
    with pytest.raises(TraceError, match=r"graph\.parquet is the trace of 'sync', not of 'graph'"):
        ss.load_comparison(broken)


def test_missing_files_and_folders_are_told(broken):
    (broken / "sync.parquet").unlink()
    with pytest.raises(TraceError, match=r"no trace file '.*sync\.parquet'"):
        ss.load_comparison(broken)
    with pytest.raises(TraceError, match="No such file"):
        ss.load_comparison(broken / "none")
    with pytest.raises(TraceError, match="Not a directory"):
        ss.load_comparison(broken / "comparison.json")
