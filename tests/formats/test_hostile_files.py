"""Files that are broken or made to harm: a clear error that names the file, or a trace whose notes say what is odd. Never a hang."""

import gzip
import json
import sqlite3
import tracemalloc
from contextlib import closing

import pytest
from tests.formats.databases import nsight, rocpd
from tests.formats.kineto_files import call, content, dumps, event, kernel, rows, step

import streamscope as ss
from streamscope.errors import TraceError
from streamscope.formats import database
from streamscope.formats.kineto import events as kineto_events
from streamscope.formats.kineto import reader as kineto
from streamscope.formats.read import read
from streamscope.trace import foreign

DEEP = "RecursionError|recursion|nested|in the middle of an event|holds no events"
"""Python 3.14 reads as deep as there is memory, and then finds no event."""
GOOD = dumps(content(step()))


def refused(path, match):
    with pytest.raises(TraceError, match=match) as caught:
        read(path)
    assert path.name in str(caught.value)


def one(**changes):
    """Return the JSON of a file with one kernel that is odd beside one that is not."""
    return dumps(content([call("cudaLaunchKernel", 0, 10, 1), kernel("k", 20, 30, 1), kernel("k", 40, 50, 2) | changes]))


TEXTS = {
    "nothing": ("", "it is empty"),
    "spaces": (" " * 1000, "its format is unknown"),
    "words": ("hello", "its format is unknown"),
    "a number": ("17", "its format is unknown"),
    "an empty object": ("{}", "cannot read '.*': it is JSON without 'traceEvents'"),
    "an empty list": ("[]", "it holds no events"),
    "no events": ('{"traceEvents": []}', "it holds no events"),
    "events that are none": ('{"traceEvents": [1, 2]}', "not as PyTorch's profiler writes it"),
    "events that are text": ('{"traceEvents": "x"}', "without 'traceEvents'"),
    "two lists of events": (GOOD[:-1] + ', "traceEvents": []}', "'traceEvents' twice"),
    "more behind the end": (GOOD + "{}", "not as PyTorch's profiler writes it"),
    "nested deeply": ('{"traceEvents": [' + '{"args": {"a": ' + "[" * 200_000, DEEP),
    "nested deeply in front": ('{"a": ' + "[" * 200_000 + "]" * 200_000 + ', "traceEvents": []}', DEEP),
    "NaN": (one(ts="@@NaN@@"), r"at byte \d+: it has NaN in the place of a number"),
    "infinity": (one(dur="@@Infinity@@"), r"at byte \d+: it has Infinity in the place of a number"),
    "infinity below 0": (one(dur="@@-Infinity@@"), r"at byte \d+: it has -Infinity in the place of a number"),
    "a correlation that is NaN": (one(args={"stream": 7, "correlation": "@@NaN@@"}), "'NaN' is not a whole number"),
    "a time that is a word": (one(ts="soon"), r"at byte \d+: Invalid decimal string"),
    "a time that is the word NaN": (one(ts="nan"), r"at byte \d+: it has NaN in the place of a number"),
    "a time that no double holds": (one(ts="@@1e999@@"), "not as PyTorch's profiler writes it"),
    "a time with a million digits": (one(ts="@@1" + "0" * 1_000_000 + "@@"), "not as PyTorch's profiler writes it"),
    "a name that is a list": (one(name=["a"]), "Expected `str`, got `array`"),
    "a stream that is an object": (one(args={"stream": {}, "device": 0}), r"\{\} is not the number or the name of a stream"),
    "a device that is a text": (one(args={"stream": 7, "device": "a"}), "is damaged"),
    "a correlation that is half": (one(args={"stream": 7, "device": 0, "correlation": 1.5}), "1.5 is not a whole number"),
    "a correlation of 100 digits": (one(args={"stream": 7, "device": 0, "correlation": "@@" + "1" * 100 + "@@"}), "is damaged"),
    "a grid of two": (one(args={"stream": 7, "device": 0, "grid": [1, 2]}), "Expected `array` of at least length 3, got 2"),
    "a grid that is a text": (one(args={"stream": 7, "device": 0, "grid": "1"}), "'1' is not the size of a grid or a block"),
    "a grid of texts": (one(args={"stream": 7, "device": 0, "grid": ["a", "b", "c"]}), "Expected `int`, got `str`"),
    "a time twice": (GOOD.replace('"dur":', '"ts": 1.0, "dur":', 1), "one name twice"),
    "a correlation twice": (GOOD.replace('"correlation": 11', '"correlation": 11, "correlation": 12', 1), "one name twice"),
    "only the host": (dumps(content([call("cudaMalloc", 0, 1), event("cpu_op", "a", 0, 1)])), "no work of a GPU"),
}


@pytest.mark.parametrize("case", TEXTS)
def test_what_cannot_be_read_is_told(tmp_path, case):
    text, match = TEXTS[case]
    (tmp_path / "t.json").write_text(text, encoding="utf-8")
    refused(tmp_path / "t.json", match)
    (tmp_path / "t.json.gz").write_bytes(gzip.compress(text.encode()))
    refused(tmp_path / "t.json.gz", match)


ODD = {
    "an end before the start": (one(dur=-5.0), "left out: 1 span with an end before the start"),
    "a time far from all others": (one(ts=1e18), "left out: 1 span more than 52 days away from the others"),
    "a negative time far away": (one(ts=-1e300), "left out: 1 span more than 52 days away from the others"),
    "an endless kernel": (one(dur=1e200), "left out: 1 span more than 52 days away from the others"),
    "a grid of too many": (one(args={"stream": 7, "device": 0, "grid": [2**40, 2**40, 1]}), "unknown: blocks of 1 span, impossible"),
    "fewer than no threads": (one(args={"stream": 7, "device": 0, "block": [-1, 1, 1]}), "unknown: threads of 1 span, impossible"),
    "fewer than no bytes": (one(args={"stream": 7, "device": 0, "bytes": -1}), "unknown: bytes of 1 span, impossible"),
    "no time": (one(ts=None), "left out: 1 event of category 'kernel' without a time"),
}  # fmt: skip


@pytest.mark.parametrize("case", ODD)
def test_what_is_odd_is_noted(tmp_path, case):
    text, note = ODD[case]
    (tmp_path / "t.json").write_text(text, encoding="utf-8")
    trace = read(tmp_path / "t.json")
    assert any(each.startswith(note) for each in trace.info.notes), trace.info.notes
    assert ("k", 20, 30) in rows(trace, "name", "start_ns", "end_ns")


@pytest.mark.parametrize(
    "make", [lambda path: path.write_text(GOOD), lambda path: path.write_bytes(gzip.compress(GOOD.encode())), nsight, rocpd]
)
def test_any_truncation_is_told(tmp_path, make):
    make(tmp_path / "t")
    whole = (tmp_path / "t").read_bytes()
    for length in range(0, len(whole) - 1, max(1, len(whole) // 150)):
        (tmp_path / "cut").write_bytes(whole[:length])
        refused(tmp_path / "cut", "cut")


def test_a_name_of_a_million_characters_is_cut_and_noted(tmp_path):
    long = "void ns::f<" + "a, " * 330_000 + ">(int)"
    (tmp_path / "t.json").write_text(dumps(content([kernel(long, 0, 10, 1), kernel(long + "b", 10, 20, 2)])), encoding="utf-8")
    trace = read(tmp_path / "t.json")
    assert max(map(len, trace.spans.names)) == foreign.LONGEST_NAME + 1
    assert "cut: 2 names of more than 10,000 characters" in trace.info.notes


def test_names_that_would_break_a_screen_or_a_file_are_shown_harmless(tmp_path):
    (tmp_path / "t.json").write_text(dumps(content([kernel("a\x1b[2Jb\x00\u202e", 0, 10, 1)])), encoding="utf-8")
    assert "a�[2Jb��" in read(tmp_path / "t.json").spans.names


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (b" ", "its format is unknown"),
        (b'{"a":"' + b"x" * 1_000, "no 'traceEvents' in its first [0-9,]+ bytes"),
        (b'{"traceEvents":[{"name":"' + b"x" * 1_000, "without an event's end"),
        (b'{"traceEvents":[' + b"[" * 1_000, "RecursionError|recursion|nested|not as PyTorch|without an event's end"),
        (b'{"traceEvents":[' + b"{}," * 1_000, "more than 100,000 events"),
    ],
)
def test_a_small_file_that_becomes_large_is_told_without_much_memory(tmp_path, monkeypatch, text, match):
    monkeypatch.setattr(kineto_events, "PIECE_BYTES", 1 << 16)
    monkeypatch.setattr(kineto_events, "MOST_PIECE_BYTES", 1 << 20)
    monkeypatch.setattr(kineto_events, "MOST_EVENTS", 100_000)
    with gzip.open(tmp_path / "t.json.gz", "wb", compresslevel=1) as file:
        file.write(text)
        for _ in range(50):
            file.write((text[-1:] if text[-1:] != b"," else b"{},") * 1_000_000)
    assert (tmp_path / "t.json.gz").stat().st_size < 2_000_000
    tracemalloc.start()
    try:
        refused(tmp_path / "t.json.gz", match)
        assert tracemalloc.get_traced_memory()[1] < 50_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("unit", [b"[],", b"{},", b'"ab",', b"1.5,"])
@pytest.mark.parametrize(
    ("head", "tail"),
    [
        (b'{"traceEvents":[{"ph":"X","cat":"kernel","args":{"correlation":[', b"1]}}]}"),
        (b'{"deviceProperties":[', b'1],"traceEvents":[{}]}'),
        (b'{"traceEvents":[{}],"deviceProperties":[', b"1]}"),
    ],
)
def test_what_would_take_more_memory_than_room_is_told_before_it_is_decoded(tmp_path, monkeypatch, head, unit, tail):
    limit = 1 << 20
    monkeypatch.setattr(kineto_events, "PIECE_BYTES", limit // 4)
    monkeypatch.setattr(kineto_events, "MOST_PIECE_BYTES", limit)
    monkeypatch.setattr(kineto_events, "MOST_DECODED_BYTES", 4 * limit)
    text = head + unit * ((limit - 1000) // len(unit)) + tail
    assert len(text) < limit
    (tmp_path / "t.json.gz").write_bytes(gzip.compress(text))
    tracemalloc.start()
    try:
        refused(tmp_path / "t.json.gz", "too many lists, events or values")
        assert tracemalloc.get_traced_memory()[1] < 8 * limit  # the text, and some copies of it
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("unit", "most"), [(b'{"args":{"ts":1}},', 13_500), (b'{"ts":1234567890123456.5},', 32_000)])
def test_looking_twice_at_events_takes_little_memory(tmp_path, monkeypatch, unit, most):
    """Names inside of arguments count, too, so all is looked through; times of many digits are decoded a second time."""
    limit = 1 << 20
    monkeypatch.setattr(kineto_events, "PIECE_BYTES", limit)
    monkeypatch.setattr(kineto_events, "MOST_PIECE_BYTES", limit)
    monkeypatch.setattr(kineto_events, "MOST_DECODED_BYTES", 4 * limit)
    text = b'{"streamscope":{},"traceEvents":[' + unit * most + b"{}]}"
    (tmp_path / "t.json.gz").write_bytes(gzip.compress(text))
    tracemalloc.start()
    try:
        refused(tmp_path / "t.json.gz", "is damaged|its format is unknown|cannot read")
        assert tracemalloc.get_traced_memory()[1] < 2 * 4 * limit
    finally:
        tracemalloc.stop()


def test_compressed_data_that_are_damaged_are_told(tmp_path):
    data = bytearray(gzip.compress(GOOD.encode()))
    data[-6] ^= 1  # its checksum
    (tmp_path / "t.json.gz").write_bytes(data)
    refused(tmp_path / "t.json.gz", "compressed data are damaged or truncated")
    (tmp_path / "t.json.gz").write_bytes(gzip.compress(GOOD.encode()) + b"more")
    refused(tmp_path / "t.json.gz", "compressed data are damaged or truncated")


def test_kernels_that_all_run_at_one_time_are_told(tmp_path):
    (tmp_path / "t.json").write_text(dumps(content([kernel("k", 0, 100, row) for row in range(100)])), encoding="utf-8")
    refused(tmp_path / "t.json", "more than 64 kernels, copies and sets of it run at one time on one stream")


# --- databases


def changed(path, *statements):
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(";".join(statements))
    return path


def test_what_only_looks_like_a_database_is_told(tmp_path):
    for data in (b"SQLite format 3\0", b"SQLite format 3\0" + bytes(84), b"SQLite format 3\0" + b"\xff" * 5000):
        (tmp_path / "t.db").write_bytes(data)
        refused(tmp_path / "t.db", "is damaged")


ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT"
KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"


def test_views_virtual_tables_and_generated_columns_are_not_run(tmp_path):
    path = nsight(tmp_path / "t.sqlite")
    changed(path, f"DROP TABLE {KERNELS}", f"CREATE VIEW {KERNELS} AS {ENDLESS} x AS start, x AS end FROM n")
    assert "gemm" not in read(path).spans.names
    path = nsight(tmp_path / "u.sqlite")
    changed(
        path, "CREATE VIRTUAL TABLE extra USING fts5(body)", f"CREATE TRIGGER t AFTER INSERT ON StringIds BEGIN {ENDLESS} x FROM n; END"
    )
    changed(path, "DROP TABLE NVTX_EVENTS", "CREATE TABLE NVTX_EVENTS (start INT, text TEXT, end INT AS (abs(-9223372036854775808)))")
    assert "step" not in read(path).spans.names


WRONG = {
    "a text for a time": ("UPDATE {0} SET start = 'soon'", "must hold whole numbers only"),
    "a fraction for a time": ("UPDATE {0} SET start = 0.5", "must hold whole numbers only"),
    "bytes for a time": ("UPDATE {0} SET start = x'00'", "must hold whole numbers only"),
    "no start": ("ALTER TABLE {0} RENAME COLUMN start TO began", "has no column 'start'"),
    "no end": ("ALTER TABLE {0} DROP COLUMN end", "has no column 'end'"),
    "an unknown schema": (
        "PRAGMA writable_schema=ON; UPDATE sqlite_master SET sql = 'CREATE TABLE x' WHERE name = '{0}'",
        "SQLite says of it",
    ),
}


@pytest.mark.parametrize("case", WRONG)
@pytest.mark.parametrize(("make", "table"), [(nsight, KERNELS), (rocpd, "rocpd_kernel_dispatch_0a1b")], ids=["nsys", "rocpd"])
def test_columns_that_are_wrong_are_told(tmp_path, make, table, case):
    statement, match = WRONG[case]
    refused(changed(make(tmp_path / "t.db"), statement.format(table)), match)


def test_odd_numbers_in_a_database_are_noted(tmp_path):
    path = changed(
        nsight(tmp_path / "t.sqlite"),
        f"UPDATE {KERNELS} SET end = start - 1 WHERE correlationId = 11",
        f"UPDATE {KERNELS} SET gridX = 9223372036854775807 WHERE graphNodeId = 100",
        f"UPDATE {KERNELS} SET demangledName = 99 WHERE graphNodeId = 101",
        "UPDATE CUPTI_ACTIVITY_KIND_MEMCPY SET start = -9223372036854775807",
    )
    trace = read(path)
    assert trace.info.notes[1:4] == (
        "left out: 1 span with an end before the start",
        "left out: 1 span more than 52 days away from the others",
        "unknown: blocks of 1 span, impossible in the file",
    )
    assert "#99" in trace.spans.names


def test_a_database_whose_reading_takes_too_long_is_told(tmp_path, monkeypatch):
    path = nsight(tmp_path / "t.sqlite")
    changed(path, f"INSERT INTO StringIds {ENDLESS} x + 1000, x FROM n LIMIT 100000")
    monkeypatch.setattr(database, "MOST_ROWS", 10_000)
    refused(path, "more than 10,000 rows")
    monkeypatch.setattr(database, "MOST_ROWS", 1_000_000)
    monkeypatch.setattr(database, "MOST_STEPS", 1000)
    monkeypatch.setattr(database, "_STEPS_BETWEEN", 100)
    refused(path, "reading it takes more than 1,000 steps")


def test_a_text_that_many_rows_share_is_not_read_for_each(tmp_path, monkeypatch):
    path = nsight(tmp_path / "t.sqlite")
    with closing(sqlite3.connect(path)) as connection, connection:
        strings = [(1000 + row, "x" * 10_000) for row in range(200)]
        connection.executemany("INSERT INTO StringIds VALUES (?, ?)", strings)
    assert len(read(path).spans)
    monkeypatch.setattr(database, "MOST_TEXT", 1_000_000)
    tracemalloc.start()
    refused(path, "its texts take more than 1,000,000 bytes")
    assert tracemalloc.get_traced_memory()[1] < 4_000_000
    tracemalloc.stop()


def test_many_short_texts_take_no_more_memory_than_long_ones(tmp_path, monkeypatch):
    path = nsight(tmp_path / "t.sqlite")
    changed(path, f"INSERT INTO StringIds {ENDLESS} x + 1000, 'a' || x FROM n LIMIT 100000")
    monkeypatch.setattr(database, "MOST_TEXT", 1_000_000)
    tracemalloc.start()
    try:
        refused(path, "its texts take more than 1,000,000 bytes")
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
    finally:
        tracemalloc.stop()


def test_a_long_text_in_the_place_of_a_number_is_not_read(tmp_path):
    path = changed(nsight(tmp_path / "t.sqlite"), *[f"UPDATE {KERNELS} SET gridX = 'x' || hex(zeroblob(2000000)) WHERE correlationId = 11"])
    tracemalloc.start()
    refused(path, "KERNEL.gridX must hold whole numbers only")
    assert tracemalloc.get_traced_memory()[1] < 2_000_000
    tracemalloc.stop()


def test_a_file_with_more_work_than_a_trace_may_have_is_told_before_it_is_read_whole(tmp_path, monkeypatch):
    path = tmp_path / "t.json"
    monkeypatch.setattr(kineto_events, "PIECE_BYTES", 1000)
    monkeypatch.setattr(kineto, "MOST_FOREIGN_SPANS", 50)
    monkeypatch.setattr(kineto, "MOST_KEPT", 300)
    path.write_text(dumps(content([kernel("k", 10 * each, 10 * each + 5, each) for each in range(1, 60)])) + "damaged")
    refused(path, "it has more than the 50 kernels, copies and sets that a trace may have")
    waits = [event("cuda_sync", "Stream Sync", each, each + 1, correlation=each, stream=7) for each in range(1, 302)]
    path.write_text(dumps(content([kernel("k", 0, 5, 1), *waits])) + "damaged")
    refused(path, "it has more than 300 calls, ranges, kernels and copies")


def test_a_database_with_changes_in_another_file_is_told(tmp_path):
    path = nsight(tmp_path / "t.sqlite")
    (tmp_path / "t.sqlite-wal").write_bytes(b"x")
    refused(path, "changes of it stand in 't.sqlite-wal'")


def test_metrics_are_told_from_a_trace(tmp_path):
    path = tmp_path / "step.jsonl"
    (tmp_path / "step.json").write_text(GOOD)
    path.write_text(ss.analysis.json_lines(read(tmp_path / "step.json")))
    refused(path, r"it holds metrics, not a trace \(keep the trace itself")


def test_a_database_is_left_as_it_was(tmp_path):
    path = nsight(tmp_path / "t.sqlite")
    before = path.read_bytes()
    path.chmod(0o400)
    read(path)
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["t.sqlite"]


def test_json_in_the_dress_of_another_format_is_found_by_its_content(tmp_path):
    for name in ("t.sqlite", "t.parquet", "t.db", "t"):
        (tmp_path / name).write_text(json.dumps(json.loads(GOOD)), encoding="utf-8")
        assert "gemm" in read(tmp_path / name).spans.names


@pytest.mark.parametrize(
    ("name", "data", "hint"),
    [
        ("t.nsys-rep", b"\x0b\x01", "nsys export --type sqlite"),
        ("t.pftrace", b"\n\x10", "written, not read"),
        ("comparison.json", b'{"program": "p"}', "ss.load_comparison reads the folder"),
        ("t.txt", b"hello", "these can be read: Kineto JSON"),
    ],
)
def test_what_people_may_have_instead_is_told_with_what_to_do(tmp_path, name, data, hint):
    (tmp_path / name).write_bytes(data)
    refused(tmp_path / name, hint)


def test_the_folder_of_a_comparison_says_how_to_read_it(tmp_path):
    (tmp_path / "comparison.json").write_text("{}")
    with pytest.raises(TraceError, match=r"ss\.load_comparison reads it"):
        read(tmp_path)


def test_the_name_of_a_damaged_file_is_said_once_and_a_comparison_is_named(tmp_path):
    function, inputs = ss.workload("branches").build(length=2)
    runs = ss.compare(function, *inputs, engines="graph", device="simulated", progress=False)
    whole = runs["graph"].trace.to_parquet(tmp_path / "whole.parquet").read_bytes()
    (tmp_path / "bad.parquet").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(TraceError) as caught:
        ss.read(tmp_path / "bad.parquet")
    assert caught.value.message.count("cannot read") == 1
    with pytest.raises(TraceError, match="it is a comparison, of several traces") as caught:
        ss.read(runs.save(tmp_path / "saved") / "comparison.json")
    assert "load_comparison" in caught.value.hint
