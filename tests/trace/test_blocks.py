"""Blocks of kernels in a trace and in its file."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamscope.errors import TraceError
from streamscope.trace import Blocks, DeviceInfo, SpanBuilder, SpanKind, Trace, TraceInfo

ROWS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3), st.integers(0, 131), st.integers(-5, 2**40), st.integers(0, 2**30)))


def of_rows(rows) -> Blocks:
    operation, part, multiprocessor, start, length = np.array(sorted(rows, key=lambda row: row[3]), np.int64).reshape(-1, 5).T
    return Blocks(operation, part, multiprocessor, start, start + length)


def trace_with(found: Blocks) -> Trace:
    builder = SpanBuilder(["host", "main"])
    builder.add(SpanKind.KERNEL, "a", "main", 0, 10, operation=0)
    return Trace(builder.build(), TraceInfo("graph", "step", DeviceInfo("cuda", "NVIDIA H200"), "stamps"), blocks=found)


@given(ROWS)
def test_blocks_come_back_from_their_json_values(rows):
    found = of_rows(rows)
    assert Blocks.from_dict(found.to_dict()) == found
    assert len(found) == len(rows)


def test_blocks_are_kept_in_parquet(tmp_path):
    found = of_rows([(0, 0, 5, 1, 3), (0, 0, 77, 2, 8)])
    read = Trace.from_parquet(trace_with(found).to_parquet(tmp_path / "with.parquet"))
    assert read.blocks == found
    assert read.blocks.multiprocessor.dtype == np.int16
    assert len(Trace.from_parquet(trace_with(Blocks()).to_parquet(tmp_path / "without.parquet")).blocks) == 0


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"operation": [0]}, "operation of blocks must be 1 whole numbers|part of blocks must be 1 whole numbers"),
        ({"multiprocessor": [0, -1]}, "multiprocessor of blocks must be from 0 to 32,767"),
        ({"start_ns": [2, 1]}, "sorted by their starts"),
        ({"end_ns": [0, 0]}, "none may end before it starts"),
        ({"part": [0.0, 0.5]}, "part of blocks must be 2 whole numbers, not float64"),
    ],
)
def test_columns_that_are_no_blocks_are_refused(changed, message):
    columns = {"operation": [0, 0], "part": [0, 0], "multiprocessor": [0, 1], "start_ns": [1, 2], "end_ns": [3, 4]}
    with pytest.raises(TraceError, match=message):
        Blocks(**{name: np.array(values) for name, values in (columns | changed).items()})


def test_more_blocks_than_a_trace_keeps_are_refused(monkeypatch):
    monkeypatch.setattr(Blocks, "MOST", 2)
    with pytest.raises(TraceError, match="3 blocks are too many: a trace keeps 2"):
        of_rows([(0, 0, 0, 0, 1)] * 3)


@pytest.mark.parametrize("stored", [3, {"operation": [1]}, {**Blocks().to_dict(), "part": 7}])
def test_other_values_are_no_blocks(stored):
    with pytest.raises((TypeError, LookupError, ValueError, TraceError)):
        Blocks.from_dict(stored)


def test_blocks_are_told_apart_by_their_columns():
    one = of_rows([(0, 0, 5, 1, 3)])
    assert one != dataclasses.replace(one, end_ns=np.array([5]))
    assert one != "blocks"
