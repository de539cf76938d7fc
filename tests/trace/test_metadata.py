"""What a trace says besides its spans has types, and is checked where it is made."""

from __future__ import annotations

import numpy as np
import pytest

from streamscope.errors import TraceError
from streamscope.trace import DeviceInfo, TraceInfo
from streamscope.trace.file_checks import is_time, plain

DEVICE = DeviceInfo("cuda", "card")
DEEP = [[[[[[[[[[[[[[[[[0]]]]]]]]]]]]]]]]]
WRONG = {
    "engine": [None, 5, "\ud800", "x" * 100_001],
    "program": [None, ["p"]],
    "device": [None, "cuda", {"kind": "cuda", "name": "card"}],
    "recorder": [None, 1],
    "calibration": [None, [], {1: 2}, {"a": np.nan}, {"a": 10**400}, {"a": DEEP}, {"a": object()}, {"a": {1, 2}}],
    "ledger": [[], {"a": "b"}, {"a": None}, {"a": -1.0}, {"a": np.inf}, {"a": np.nan}, {"a": 2.0**53 + 2}, {"a": 5e-324}, {"a": True}],
    "notes": [None, "a note", ["a note"], (1,)],
    "versions": [None, {"numpy": 2}, {"numpy": None}],
    "created": [None, 2026],
    "schema": [None, 0, 4, "2", True, 1.5],
    "plan": [None, {"streams": -1}, {"streams": 1.5}, {"streams": True}, {"streams": 2**63}],
    "memory": [None, {"device_bytes": "many"}, {"device_bytes": -1}, {5: 5}],
    "rank": [-1, "0", True],
    "host": [None, 5],
}


@pytest.mark.parametrize(("field", "value"), [(field, value) for field, values in WRONG.items() for value in values])
def test_a_wrong_value_is_told_with_the_field(field, value):
    with pytest.raises(TraceError, match=f"^TraceInfo: {field}=.* is not"):
        TraceInfo(**{"engine": "sync", "program": "p", "device": DEVICE, field: value})


@pytest.mark.parametrize(
    ("values", "field"),
    [(("gpu", "card"), "kind"), ((["cuda"], "card"), "kind"), (("cuda", None), "name"), (("cuda", "card", {"a": float("inf")}), "details")],
)
def test_a_wrong_device_is_told(values, field):
    with pytest.raises(TraceError, match=f"^DeviceInfo: {field}=.* is not"):
        DeviceInfo(*values)


def test_what_recorders_say_is_right():
    TraceInfo(
        "sync", "p", DeviceInfo("simulated", "card", {"model": {"date": "2026", "lengths": [1, np.int64(2), None, True]}}),
        ledger={"recorded_ns": 0, "unrecorded_ns": np.float64(2**53)}, plan={"streams": np.int32(2)}, notes=("µ",),
    )  # fmt: skip


def test_times_have_ratios():
    assert [is_time(value) for value in (0, 0.0, 1, 2.5, 2**53, -0.0)] == [True] * 6
    assert [is_time(value) for value in (0.5, -1, 2**53 + 1, np.inf, np.nan, True, "1", None)] == [False] * 8


def test_json_values_hold_null_for_what_is_not_finite():
    found = plain({"a": (np.float32(0.5), np.nan, float("inf")), "b": {"c": np.int8(3), "d": [None, True, "x"]}})
    assert found == {"a": [0.5, None, None], "b": {"c": 3, "d": [None, True, "x"]}}
    assert type(found["b"]["c"]) is int
