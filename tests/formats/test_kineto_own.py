"""What `Trace.to_kineto` wrote is read back as it was: any trace, and what other programs recorded."""

import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from tests.formats.test_parquet import traces
from tests.formats.test_recorded_by_pytorch import FILES

from streamscope.errors import TraceError
from streamscope.formats.read import read
from streamscope.trace.spans import COLUMN_DTYPES


def assert_same(found, wanted):
    for column in COLUMN_DTYPES:
        one, other = getattr(found.spans, column), getattr(wanted.spans, column)
        if column in ("name", "symbol", "lane"):
            texts = [spans.lanes if column == "lane" else (*spans.names, None) for spans in (found.spans, wanted.spans)]
            one, other = ([text[code] for code in codes] for text, codes in zip(texts, (one, other), strict=True))
        np.testing.assert_array_equal(one, other)
    assert found.info == wanted.info
    assert found.origins.to_dict() == wanted.origins.to_dict()


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(original=traces())
def test_any_trace_comes_back(tmp_path, original):
    for name in ("t.json", "t.json.gz"):
        found = read(original.to_kineto(tmp_path / name))
        assert_same(found, original)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name.partition(".")[0])
def test_a_foreign_trace_comes_back(tmp_path, path):
    original = read(path)
    found = read(original.to_kineto(tmp_path / "t.json"))
    assert_same(found, original)
    assert (found.spans.lanes, found.info.engine) == (original.spans.lanes, "kineto")


CHANGES = {
    "no info": lambda content: content["streamscope"].pop("info"),
    "info of another kind": lambda content: content["streamscope"].update(info=[]),
    "a later schema": lambda content: content["streamscope"]["info"].update(schema=99),
    "no lanes": lambda content: content["streamscope"].update(lanes=[]),
    "a zero that is a text": lambda content: content["streamscope"].update(before_zero_ns="1"),
    "a zero beyond all times": lambda content: content["streamscope"].update(before_zero_ns=2**80),
    "lanes of another kind": lambda content: content["streamscope"].update(lanes=7),
    "an unknown basis": lambda content: content["traceEvents"][-1].setdefault("args", {}).update({"streamscope basis": "guessed"}),
    "an unknown kind": lambda content: content["traceEvents"][-1].setdefault("args", {}).update({"streamscope kind": "guess"}),
    "a size of two": lambda content: content["traceEvents"][-1].setdefault("args", {}).update({"grid": [1, 2]}),
    "a time that is a text": lambda content: content["traceEvents"][-1].update(ts="1.0"),
    "a name that is a number": lambda content: content["traceEvents"][-1].update(name=3),
    "ours behind the events": lambda content: content.update(streamscope=content.pop("streamscope")),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_of_ours_that_was_changed_is_told(tmp_path, change):
    path = read(FILES[0]).to_kineto(tmp_path / "t.json")
    content = json.loads(path.read_text(encoding="utf-8"))
    content["traceEvents"] = [event for event in content["traceEvents"] if event["ph"] == "X"]
    CHANGES[change](content)
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(TraceError, match=r"t\.json"):
        read(path)
