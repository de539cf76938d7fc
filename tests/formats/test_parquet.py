"""Traces in Parquet files: what is written comes back exactly, and what is no trace is told apart."""

import json
import os
import re
import resource
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamscope.errors import OutputError, TraceError
from streamscope.formats import pages
from streamscope.trace import Basis, Collectives, DeviceInfo, Origins, PeerCopies, SpanBuilder, SpanKind, SpanTable, Trace, TraceInfo
from streamscope.trace.file_checks import with_digest
from streamscope.trace.spans import COLUMN_DTYPES, MOST_SPANS

DEVICE = DeviceInfo("simulated", "simulated NVIDIA H200", {"multiprocessors": 132})
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)


times = st.just(0) | st.floats(1, 2**53)


@st.composite
def traces(draw):
    """Traces at the limits of what `SpanTable` allows."""
    names = tuple(draw(st.lists(texts, min_size=1, max_size=4, unique=True)))
    lanes = tuple(draw(st.lists(texts, min_size=1, max_size=4, unique=True)))
    count = draw(st.integers(0, 6))
    values = {
        "kind": st.sampled_from([int(kind) for kind in SpanKind]),
        "basis": st.sampled_from([Basis.DERIVED, Basis.PLACED]),
        "name": st.integers(0, len(names) - 1),
        "lane": st.integers(0, len(lanes) - 1),
        "start_ns": st.integers(-(2**53), 2**52),
        "end_ns": st.integers(0, 2**50),  # how long each takes
        "operation": st.integers(-1, 2**31 - 1),
        "correlation": st.integers(-1, 2**31 - 1),
        "symbol": st.integers(-1, len(names) - 1),
        "graph_node": st.integers(-1, 2**63 - 1),
    }
    columns = {
        column: np.array(draw(st.lists(values.get(column, st.integers(0, np.iinfo(dtype).max)), min_size=count, max_size=count)), dtype)
        for column, dtype in COLUMN_DTYPES.items()
    }
    columns["start_ns"].sort()
    columns["end_ns"] += columns["start_ns"]
    info = TraceInfo(
        draw(texts), draw(texts), replace(DEVICE, details=draw(st.dictionaries(texts, json_values, max_size=3))),
        calibration=draw(st.dictionaries(texts, json_values, max_size=2)),
        ledger=draw(st.dictionaries(texts, times, max_size=2)),
        notes=tuple(draw(st.lists(texts, max_size=3))),
        memory=draw(st.dictionaries(texts, st.integers(0, 2**40), max_size=2)),
    )  # fmt: skip
    gpus = draw(st.lists(st.integers(0, 2) | st.just(2**31 - 1), min_size=len(lanes), max_size=len(lanes)))
    spans = SpanTable(**columns, names=names, lanes=lanes, gpus=tuple(gpus) if draw(st.booleans()) else ())
    work = np.flatnonzero(spans.kind >= SpanKind.KERNEL)
    chosen = work[draw(st.lists(st.booleans(), min_size=len(work), max_size=len(work)))]
    return Trace(spans, info, draw(origins()), collectives=draw(collectives(chosen)), peers=PeerCopies(chosen, chosen % 3, chosen % 2))


@st.composite
def collectives(draw, rows):
    """Collectives at the limits of what `Collectives` allows."""
    limits = {
        "instance": (-1, 2**31 - 1), "nbytes": (0, 2**62), "ranks": (0, 2**31 - 1), "sequence": (-1, 2**63 - 1),
    }  # fmt: skip
    columns = {
        name: np.array(draw(st.lists(st.integers(*each), min_size=len(rows), max_size=len(rows))), np.int64)
        for name, each in limits.items()
    }
    said = {name: draw(st.lists(texts, min_size=len(rows), max_size=len(rows))) for name in ("kind", "op", "communicator")}
    return Collectives.from_columns(rows, **columns, **said)


@st.composite
def origins(draw):
    """Labels and waits at the limits of what `Origins` allows."""
    known = tuple(draw(st.lists(texts, max_size=3)))
    codes = st.lists(st.integers(-1, len(known) - 1), min_size=(length := draw(st.integers(0, 3))), max_size=length)
    waits, launches, dependencies, row_waits = (
        np.array(draw(st.lists(st.tuples(*[st.integers(0, 2**31 - 1)] * width), max_size=3)), np.int32).reshape(-1, width)
        for width in (4, 4, 4, 2)
    )
    columns = [np.array(draw(codes), np.int32) for _ in range(3)]
    return Origins(known, *columns, waits, draw(st.booleans()), launches, dependencies, row_waits)


@pytest.fixture
def trace():
    builder = SpanBuilder(["host", "main"])
    builder.add(SpanKind.LAUNCH, "launch", "host", 0, 3_000, operation=0, correlation=7)
    builder.add(SpanKind.KERNEL, "relu", "main", 5_000, 6_500, operation=0, correlation=7, basis=Basis.DERIVED, blocks=132, threads=256)
    device = replace(DEVICE, details=dict(DEVICE.details))
    return Trace(builder.build(), TraceInfo("async", "step", device, notes=("one note",)))


def rewrite(path, *, table=None, **changes):
    """Write the file again, with another table or with changed metadata, whose digest agrees."""
    table = pq.read_table(path) if table is None else table
    metadata = {key: value for key, value in (pq.read_schema(path).metadata or {}).items() if key == b"streamscope"}
    if changes:
        layout = {key: value for key, value in json.loads(metadata[b"streamscope"]).items() if key != "digest"}
        metadata = {b"streamscope": json.dumps(with_digest(layout | changes)).encode()}
    pq.write_table(table.replace_schema_metadata(metadata), path)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(original=traces())
def test_round_trip_is_exact(tmp_path, original):
    read = Trace.from_parquet(original.to_parquet(tmp_path / "trace.parquet"))
    for column, dtype in COLUMN_DTYPES.items():
        values = getattr(read.spans, column)
        assert values.dtype == dtype
        np.testing.assert_array_equal(values, getattr(original.spans, column))
    assert (read.spans.names, read.spans.lanes, read.spans.gpus) == (original.spans.names, original.spans.lanes, original.spans.gpus)
    assert (read.collectives, read.peers) == (original.collectives, original.peers)
    assert read.info == original.info
    assert read.origins.to_dict() == original.origins.to_dict()


@pytest.mark.parametrize(
    "change",
    [
        {"label": [1]}, {"label": [0.5]}, {"line": [0, 0]}, {"waits": [[0, 0, 0]]}, {"waits": [[0, 0, 0, -1]]}, {"texts": [1]},
        {"texts": "text"}, {"complete": 1}, {"waits": [[0, 0, 0, 2**31]]}, {"arguments": {}}, {"label": [["a"]]},
        {"launches": [[0, 0]]}, {"launches": [[0, 0]] * 2}, {"dependencies": [[0, 0, -1, 0]]}, {"row_waits": [1, 2]},
        {"captured": [[0, -1]]},
    ],
)  # fmt: skip
def test_damaged_origins_are_refused(tmp_path, trace, change):
    whole = {"texts": ["a"], "label": [0], "line": [0], "arguments": [-1], "waits": [[0, 0, 1, 0]], "complete": True}
    path = trace.to_parquet(tmp_path / "t.parquet")
    whole |= {"launches": [[0, 0, 1, 900]], "dependencies": [[0, 0, 1, 0]], "row_waits": [[0, 1]], "captured": [[0, 1]]}
    rewrite(path, origins=whole)
    assert Trace.from_parquet(path).origins.to_dict() == whole
    rewrite(path, origins=whole | change)
    with pytest.raises(TraceError):
        Trace.from_parquet(path)


def test_any_reader_sees_plain_columns(tmp_path, trace):
    rows = pq.read_table(trace.to_parquet(tmp_path / "t.parquet")).to_pylist()
    assert [(row["kind"], row["name"], row["lane"], row["basis"]) for row in rows] == [
        ("launch", "launch", "host", "measured"),
        ("kernel", "relu", "main", "derived"),
    ]
    assert (rows[1]["start_ns"], rows[1]["end_ns"], rows[1]["operation"]) == (5_000, 6_500, 0)


def test_reads_a_file_that_another_tool_wrote_without_dictionaries(tmp_path, trace):
    path = trace.to_parquet(tmp_path / "t.parquet")
    table = pq.read_table(path)
    plain = pa.table(
        {name: table[name].cast(pa.string()) if name in ("kind", "name", "lane", "basis") else table[name] for name in table.column_names}
    )
    rewrite(path, table=plain)
    np.testing.assert_array_equal(Trace.from_parquet(path).spans.name, trace.spans.name)


def test_numpy_numbers_in_details_are_written_as_numbers(tmp_path, trace):
    info = replace(trace.info, device=replace(DEVICE, details={"multiprocessors": np.int64(132)}))
    path = Trace(trace.spans, info).to_parquet(tmp_path / "t.parquet")
    assert Trace.from_parquet(path).info.device.details == {"multiprocessors": 132}


def test_an_older_file_is_replaced(tmp_path, trace):
    path = tmp_path / "t.parquet"
    path.write_text("older")
    trace.to_parquet(path)
    assert len(Trace.from_parquet(path).spans) == 2
    assert [entry.name for entry in tmp_path.iterdir()] == ["t.parquet"]


@pytest.mark.parametrize("unwritable", ["missing/t.parquet", "file/t.parquet", "folder"])
def test_an_unwritable_place_is_an_output_error_and_leaves_nothing(tmp_path, trace, unwritable):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    with pytest.raises(OutputError, match="cannot write"):
        trace.to_parquet(tmp_path / unwritable)
    assert sorted(entry.name for entry in tmp_path.rglob("*")) == ["file", "folder"]


def test_what_json_cannot_say_is_refused_and_leaves_the_older_file(tmp_path, trace):
    path = tmp_path / "t.parquet"
    path.write_text("older")
    with pytest.raises(TraceError, match=r"calibration=.* is not a mapping of names to finite JSON values"):
        Trace(trace.spans, replace(trace.info, calibration={"object": object()}))
    trace.info.device.details["object"] = object()
    with pytest.raises(TraceError, match="cannot be written"):
        trace.to_parquet(path)
    assert path.read_text() == "older"


FULL_DISK = """
import sys, resource
import numpy as np
from streamscope.errors import OutputError
from streamscope.trace import DeviceInfo, SpanTable, Trace, TraceInfo
from streamscope.trace.spans import COLUMN_DTYPES
times = np.sort(np.random.default_rng(0).integers(0, 2**53, 200_000))
columns = {column: np.zeros(len(times), np.int64) for column in COLUMN_DTYPES} | {"start_ns": times, "end_ns": times}
trace = Trace(SpanTable(**columns, names=("a",), lanes=("b",)), TraceInfo("async", "p", DeviceInfo("cuda", "card")))
assert sys.dont_write_bytecode, "what is imported from here on would be cut to 100,000 bytes, for every later process"
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    trace.to_parquet(sys.argv[1])
except OutputError as error:
    print(error)
"""


@pytest.mark.skipif(not hasattr(resource, "RLIMIT_FSIZE"), reason="this system cannot limit the size of files")
def test_a_disk_that_fills_while_writing_leaves_nothing(tmp_path):
    done = subprocess.run([sys.executable, "-B", "-c", FULL_DISK, str(tmp_path / "t.parquet")], capture_output=True, text=True, check=False,
                          env={"PYTHONPATH": ":".join(sys.path), "PATH": ""})  # fmt: skip
    assert "cannot write" in done.stdout, done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_missing_file(tmp_path):
    with pytest.raises(TraceError, match="there is no trace file"):
        Trace.from_parquet(tmp_path / "none.parquet")


def test_any_truncation_is_told(tmp_path, trace):
    whole = trace.to_parquet(tmp_path / "t.parquet").read_bytes()
    for length in range(0, len(whole), 97):
        (tmp_path / "cut.parquet").write_bytes(whole[:length])
        with pytest.raises(TraceError, match="not a readable Parquet file"):
            Trace.from_parquet(tmp_path / "cut.parquet")


def test_a_flipped_byte_never_gives_another_kind_of_error(tmp_path, trace):
    whole = trace.to_parquet(tmp_path / "t.parquet").read_bytes()
    for position in range(0, len(whole), 53):
        (tmp_path / "bad.parquet").write_bytes(whole[:position] + bytes([whole[position] ^ 0x55]) + whole[position + 1 :])
        try:
            Trace.from_parquet(tmp_path / "bad.parquet")
        except TraceError:
            continue


def test_a_foreign_parquet_file(tmp_path):
    pq.write_table(pa.table({"a": [1]}), tmp_path / "f.parquet")
    with pytest.raises(TraceError, match="not a Streamscope trace"):
        Trace.from_parquet(tmp_path / "f.parquet")


def test_a_table_of_spans_says_what_to_open_instead(tmp_path):
    pq.write_table(pa.table({"engine": ["sync"], "device": ["simulated"], "kind": ["kernel"]}), tmp_path / "f.parquet")
    with pytest.raises(TraceError, match=r"spans of several engines.*comparison\.json"):
        Trace.from_parquet(tmp_path / "f.parquet")


@pytest.mark.parametrize(
    ("schema", "way_out"), [(4, "upgrade streamscope"), (2, "make it again"), ("x", "upgrade streamscope"), ([], "upgrade streamscope")]
)
def test_another_schema(tmp_path, trace, schema, way_out):
    path = trace.to_parquet(tmp_path / "t.parquet")
    rewrite(path, schema=schema)
    with pytest.raises(TraceError, match=re.escape(f"it has schema {schema!r}, and this Streamscope reads schema 3: {way_out}")):
        Trace.from_parquet(path)


def test_missing_columns_are_named(tmp_path, trace):
    path = trace.to_parquet(tmp_path / "t.parquet")
    rewrite(path, table=pq.read_table(path).drop_columns(["end_ns", "part"]))
    with pytest.raises(TraceError, match="lacks the columns end_ns, part"):
        Trace.from_parquet(path)


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("start_ns", pa.array([0, None], pa.int64()), "missing values"),
        ("kind", pa.array(["kernel", "surprise"]), "does not know"),
        ("operation", pa.array([0, 2**40]), "not a readable|damaged"),
        ("end_ns", pa.array([3_000, 4_999]), "ends 1 ns before it starts"),
        ("part", pa.array(["a", "b"]), "not a readable|damaged"),
    ],
)
def test_wrong_values_are_told(tmp_path, trace, column, values, message):
    path = trace.to_parquet(tmp_path / "t.parquet")
    table = pq.read_table(path)
    rewrite(path, table=table.set_column(table.column_names.index(column), column, values))
    with pytest.raises(TraceError, match=message):
        Trace.from_parquet(path)


def test_damaged_metadata(tmp_path, trace):
    path = trace.to_parquet(tmp_path / "t.parquet")
    rewrite(path, info={"engine": "async"})
    with pytest.raises(TraceError, match="is damaged"):
        Trace.from_parquet(path)


def test_a_number_that_another_program_changed_is_told(tmp_path, trace):
    """Its checksums fit, its digest does not."""
    path = trace.to_parquet(tmp_path / "t.parquet")
    table = pq.read_table(path)
    rewrite(path, table=table.set_column(table.column_names.index("bytes"), "bytes", pa.array([0, 5])))
    with pytest.raises(TraceError, match="its spans do not match its digest"):
        Trace.from_parquet(path)


def test_metadata_that_another_program_changed_is_told(tmp_path, trace):
    path = trace.to_parquet(tmp_path / "t.parquet")
    table = pq.read_table(path)
    changed = table.schema.metadata[b"streamscope"].replace(b"one note", b"ONE note")
    pq.write_table(table.replace_schema_metadata({b"streamscope": changed}), path)
    with pytest.raises(TraceError, match="its metadata is damaged: its digest does not match"):
        Trace.from_parquet(path)


@pytest.mark.parametrize(
    "number", ["NaN", "-Infinity", "1e999", "1" + "0" * 400, "1" + "0" * 5000, "[" * 100_000, '{"a": 1, "a": 2}'], ids=len
)
def test_numbers_that_are_none_in_the_metadata_are_told(tmp_path, trace, number):
    path = trace.to_parquet(tmp_path / "t.parquet")
    rewrite(path, plan={"streams": "here"})
    table = pq.read_table(path)
    changed = table.schema.metadata[b"streamscope"].replace(b'"here"', number.encode())
    pq.write_table(table.replace_schema_metadata({b"streamscope": changed}), path)
    with pytest.raises(TraceError, match="its metadata is damaged"):
        Trace.from_parquet(path)


@pytest.mark.parametrize(
    "changes", [{"info": []}, {"info": {"device": {}}}, {"names": "call"}, {"names": [1, 2]}, {"lanes": None}], ids=str
)
def test_metadata_of_other_types_is_told(tmp_path, trace, changes):
    path = trace.to_parquet(tmp_path / "t.parquet")
    rewrite(path, **changes)
    with pytest.raises(TraceError, match=r"t\.parquet"):
        Trace.from_parquet(path)


def special(kind, path):
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        with path.open("wb") as file:
            file.truncate(8 << 30)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("folder", "is a folder"),
        ("pipe", "not an ordinary file"),
        ("device", "not an ordinary file"),
        ("8 GiB", "8,589,934,592 bytes"),
    ],
)
def test_only_ordinary_files_that_are_not_too_large_are_opened(tmp_path, kind, message):
    special(kind, tmp_path / "t.parquet")
    with pytest.raises(TraceError, match=message):
        Trace.from_parquet(tmp_path / "t.parquet")


def test_a_small_file_of_many_rows_is_told_before_they_are_read(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"kind": np.zeros(MOST_SPANS + 1, np.uint8)}), path)
    assert path.stat().st_size < 50_000
    with pytest.raises(TraceError, match=f"its footer counts {MOST_SPANS + 1:,} rows"):
        Trace.from_parquet(path)


def test_a_small_file_of_large_pages_is_told_before_they_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(pages, "MOST_PAGE_BYTES", 1 << 21)
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"kind": [b"\0" * 2**20, b"\1" * 2**20]}), path, compression="zstd", use_dictionary=False)
    assert path.stat().st_size < 1000
    with pytest.raises(TraceError, match=r"its pages take 2,097,\d+ bytes once they are decompressed, more than the 2,097,152"):
        Trace.from_parquet(path)


def test_a_footer_that_says_that_it_is_longer_than_the_file_is_told(tmp_path, trace):
    path = trace.to_parquet(tmp_path / "t.parquet")
    path.write_bytes(path.read_bytes()[:-8] + (2**31).to_bytes(4, "little") + b"PAR1")
    with pytest.raises(TraceError, match="its footer claims 2,147,483,648 of"):
        Trace.from_parquet(path)


def test_nested_columns_are_told(tmp_path):
    pq.write_table(pa.table({"start_ns": [[0]] * 2}), tmp_path / "t.parquet")
    with pytest.raises(TraceError, match="its columns are nested"):
        Trace.from_parquet(tmp_path / "t.parquet")
