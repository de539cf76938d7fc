"""Kineto files that are damaged, or not quite JSON: what is whole is read where you ask for it, and what was left out is counted."""

import gzip
import json
import re
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.formats.kineto_files import call, content, dumps, event, kernel, rows
from tests.formats.test_hostile_files import GOOD, TEXTS

import streamscope as ss
from streamscope.errors import TraceError
from streamscope.formats.kineto import damage as kineto_damage
from streamscope.formats.kineto import events as kineto_events

KERNELS = [f"k{number:02d}" for number in range(12)]
LINES = [json.dumps(json.loads(dumps(kernel(name, 1000 * row, 1000 * row + 500, row + 1)))) for row, name in enumerate(KERNELS)]
HEAD, TAIL = '{"schemaVersion": 1, "traceEvents": [\n', "\n]}"
WHOLE = (HEAD + ",\n".join(LINES) + TAIL).encode()


@pytest.fixture
def case(repository):
    return lambda name: repository / "tests" / "data" / "cases" / f"{name}.json"


def kernels(trace):
    return [(name, start, end) for kind, name, start, end in rows(trace, "kind", "name", "start_ns", "end_ns") if kind == "KERNEL"]


def five():
    """Return the kernels that most of the cases have, from their first launch on."""
    return [("k", 10_000 + 20_000 * row, 15_000 + 20_000 * row) for row in range(5)]


@pytest.mark.parametrize(
    ("name", "notes"),
    [
        ("inf_bandwidth", ("inf or nan, which JSON does not know, in values that nobody reads: 1 place",)),
        ("not_utf8", ("bytes that are not UTF-8, now �: 2 places", "texts with control characters, now �: 1 place")),
        ("ts_strings", ()),
        ("stream_strings", ()),
    ],
)
def test_what_nobody_reads_may_be_anything_and_numbers_may_be_texts(case, name, notes):
    for damaged in ("refuse", "skip"):
        trace = ss.read(case(name), damaged=damaged)
        assert kernels(trace) == five()
        assert trace.info.notes == notes
        assert "stream 7" in trace.spans.lanes


def test_an_event_that_is_damaged_is_told_with_its_place_or_left_out(case):
    path = case("unescaped_quote")
    at = path.read_bytes().index(b'device": "cpu"}(12)')
    with pytest.raises(TraceError, match=f"is damaged: its JSON is not .*, at byte {at:,}: .*expected ',' or '}}'") as error:
        ss.read(path)
    assert 'damaged="skip"' in error.value.hint
    trace = ss.read(path, damaged="skip")
    assert kernels(trace) == five()
    assert trace.info.notes == ("left out: 1 damaged event, 114 bytes in all, from byte 1,432 on",)
    assert trace.info.ledger == {"lost_records": 1.0}
    assert ss.analysis.summary(trace).at_least == {"kernel_count", "gpu_busy_us", "overlap"}  # It may have been a kernel.


def test_a_file_that_ends_too_early_is_read_as_far_as_it_goes(case):
    path = case("truncated")
    with pytest.raises(TraceError, match="at byte 872: it ends in the middle of an event"):
        ss.read(path)
    trace = ss.read(path, damaged="skip")
    assert kernels(trace) == five()[:3]
    assert trace.info.notes == (
        "left out: 1 event without an end, from byte 872 on",
        "the file ends at byte 961 before its events do: what came behind that, if anything, is missing",
    )


@settings(max_examples=60, deadline=None)
@given(
    at=st.integers(len(HEAD), len(WHOLE) - 1),
    put=st.sampled_from([b"", b'"', b"\\", b"\\x", b"{", b"}", b"]", b",", b"\xff", b"\0", b"NaN", b'"a"b"']),
    instead=st.integers(0, 3),
    piece_bytes=st.sampled_from([150, 1000, 1 << 20]),
    packed=st.booleans(),
)
def test_no_damage_costs_more_than_what_it_touches(tmp_path_factory, at, put, instead, piece_bytes, packed):
    data = WHOLE[:at] + put + WHOLE[at + instead :]
    path = tmp_path_factory.mktemp("damaged") / "t.json"
    path.write_bytes(gzip.compress(data, 1) if packed else data)
    ends = [WHOLE.index(line.encode()) + len(line) for line in LINES]
    touched = next((row for row, end in enumerate(ends) if at <= end), len(LINES))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kineto_events, "PIECE_BYTES", piece_bytes)
        found = kernels(ss.read(path, damaged="skip"))
    first_ns = min(start for _, start, _ in found) - 1000 * min(int(name[1:3]) for name, *_ in found if name in KERNELS)
    wanted = [(name, first_ns + 1000 * row, first_ns + 1000 * row + 500) for row, name in enumerate(KERNELS) if abs(row - touched) > 1]
    assert set(found) >= set(wanted)


@pytest.mark.parametrize("packed", [False, True])
def test_a_cut_file_holds_all_that_ended_before(tmp_path, packed, monkeypatch):
    monkeypatch.setattr(kineto_events, "PIECE_BYTES", 400)
    path = tmp_path / "t.json"
    for length in range(len(HEAD) + len(LINES[0]), len(WHOLE) - 3, 61):
        path.write_bytes(gzip.compress(WHOLE[:length]) if packed else WHOLE[:length])
        ended = sum(WHOLE.index(line.encode()) + len(line) <= length for line in LINES)
        trace = ss.read(path, damaged="skip")
        assert [name for name, *_ in kernels(trace)] == KERNELS[:ended]
        assert any(f"the file ends at byte {length:,} before its events do" in note for note in trace.info.notes)


def test_compressed_data_that_are_cut_or_damaged_are_read_as_far_as_they_go(tmp_path):
    data = gzip.compress(WHOLE)
    path = tmp_path / "t.json.gz"
    path.write_bytes(data[: len(data) * 3 // 4])
    with pytest.raises(TraceError, match="compressed data are damaged or truncated: they end too early") as error:
        ss.read(path)
    assert 'damaged="skip"' in error.value.hint
    trace = ss.read(path, damaged="skip")
    assert 2 < len(kernels(trace)) < 12
    assert trace.info.notes[0] == "the compressed data are damaged or truncated: they end too early"
    path.write_bytes(data[:-6] + bytes([data[-6] ^ 1]) + data[-5:])  # its checksum
    trace = ss.read(path, damaged="skip")
    assert len(kernels(trace)) == 12
    assert "incorrect data check" in trace.info.notes[0]
    path.write_bytes(gzip.compress(WHOLE[:500]) + gzip.compress(WHOLE[500:]) + b"\0" * 512)  # two parts, and a block filled up
    assert ss.read(path).info.notes == ("12 of 12 device spans without a launch call: launch latency unknown",)


def test_the_place_of_a_fault_is_that_in_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(kineto_events, "PIECE_BYTES", 700)
    for row in (0, 5, 11):
        at = WHOLE.index(f'"{KERNELS[row]}"'.encode()) + 3
        (tmp_path / "t.json").write_bytes(b"\xef\xbb\xbf \n" + WHOLE[:at] + b"\\q" + WHOLE[at:])
        with pytest.raises(TraceError, match=r"at byte [\d,]+: .*invalid escape") as error:
            ss.read(tmp_path / "t.json")
        place = int(re.search(r"at byte ([\d,]+)", error.value.message)[1].replace(",", ""))
        assert at + 5 <= place <= at + 7
        (tmp_path / "u.json").write_bytes(WHOLE.replace(f'"{KERNELS[row]}"'.encode(), b"[1]"))
        with pytest.raises(TraceError, match=f"at byte {WHOLE.index(LINES[row].encode()):,}: Expected `str`, got `array`"):
            ss.read(tmp_path / "u.json")


def test_a_fault_in_a_large_file_is_told_where_it_is_met(tmp_path, monkeypatch):
    """Not once all the memory that an event may take is full."""
    monkeypatch.setattr(kineto_events, "PIECE_BYTES", 1 << 12)
    monkeypatch.setattr(kineto_events, "MOST_PIECE_BYTES", 1 << 14)
    lines = [dumps(kernel("k", 10 * row, 10 * row + 5, row + 1)) for row in range(300)]
    path = tmp_path / "t.json"
    path.write_bytes((HEAD + ",".join([*lines, '{"ph": "X", "name": "a"b"}', LINES[11]]) + TAIL).encode())
    with pytest.raises(TraceError, match=r"at byte [\d,]+: .*expected ',' or '}'"):
        ss.read(path)
    trace = ss.read(path, damaged="skip")
    assert len(kernels(trace)) == 301
    assert trace.info.notes[0].startswith("left out: 1 damaged event, 27 bytes in all, from byte ")


def test_values_of_the_wrong_kind_cost_their_event_alone(tmp_path):
    wrong = [
        kernel("time", 0, 5, 1) | {"ts": "soon"}, kernel("nan", 0, 5, 1) | {"ts": "@@NaN@@"}, kernel("stream", 0, 5, 1, stream={}),
        kernel("half", 0, 5, 1.5), kernel("size", 0, 5, 1, grid=[1, 2]), kernel("name", 0, 5, 1) | {"name": ["a"]},
        kernel("device", 0, 5, 1, device="a"), kernel("infinite", 0, 5, "@@-inf@@"),
    ]  # fmt: skip
    path = tmp_path / "t.json"
    path.write_text(dumps(content([call("cudaLaunchKernel", 0, 2, 1), *wrong[:4], kernel("good", 5, 9, 1), *wrong[4:]])))
    with pytest.raises(TraceError, match="not as PyTorch's profiler writes it"):
        ss.read(path)
    trace = ss.read(path, damaged="skip")
    assert kernels(trace) == [("good", 5, 9)]
    assert any(note.startswith("left out: 5 damaged events, ") for note in trace.info.notes)
    assert trace.info.notes[2] == "left out: 3 events whose values are not as PyTorch's profiler writes them"


def test_every_way_to_write_what_is_no_number_is_read_where_nobody_reads_it(tmp_path):
    words = ["NaN", "nan", "-nan", "Infinity", "-Infinity", "inf", "-inf", "INF", "-nan(ind)", "1.#INF", "-1.#IND"]
    others = [event("cpu_op", f"op, nan, {word}", 0, 5, tid=1, bandwidth=f"@@{word}@@", more=[1, f"@@{word}@@"]) for word in words]
    (tmp_path / "t.json").write_text(dumps(content([kernel("k", 0, 5, 1), *others], odd="@@nan@@")))
    trace = ss.read(tmp_path / "t.json")
    assert [name for kind, name in rows(trace, "kind", "name") if kind == "RANGE"] == [f"op, nan, {word}" for word in words]
    assert trace.info.notes[0] == f"inf or nan, which JSON does not know, in values that nobody reads: {2 * len(words) + 1} places"


def test_texts_may_hold_anything(tmp_path):
    names = [b"\xff\xfe", b"tab\there", b"line\nbreak", b"\\ud83d half", b"\\\\ud800 whole", b"\\ud83d\\ude00"]
    events = b",".join(b'{"ph":"X","cat":"cpu_op","name":"%b","pid":1,"tid":1,"ts":%d,"dur":1}' % each for each in enumerate_names(names))
    (tmp_path / "t.json").write_bytes(b'{"traceEvents":[' + events + b"," + LINES[0].encode() + b"]}")
    trace = ss.read(tmp_path / "t.json")
    found = [name for kind, name in rows(trace, "kind", "name") if kind == "RANGE"]
    assert found == ["��", "tab�here", "line�break", "� half", r"\ud800 whole", "😀"]
    assert trace.info.notes[:3] == (
        "bytes that are not UTF-8, now �: 2 places",
        "halves of characters, now �: 1 place",
        "texts with control characters, now �: 2 places",
    )


def enumerate_names(names):
    return [(name, 10 * row) for row, name in enumerate(names)]


def test_times_that_are_texts_have_all_their_digits(tmp_path):
    late = [kernel("a", 0, 0, 1) | {"ts": "1763000000000000.001", "dur": "2.5"}, kernel("b", 0, 0, 2) | {"ts": 1763000000000003, "dur": 1}]
    (tmp_path / "t.json").write_text(dumps(content(late)))
    assert kernels(ss.read(tmp_path / "t.json")) == [("a", 0, 2500), ("b", 2999, 3999)]


def test_a_list_of_events_without_an_end_is_read_as_chrome_allows(tmp_path):
    for end in ("", ",", ",\n"):
        (tmp_path / "t.json").write_text("[" + ",\n".join(LINES) + end)
        trace = ss.read(tmp_path / "t.json")
        assert [name for name, *_ in kernels(trace)] == KERNELS
        assert "before its events do" in trace.info.notes[0]


def test_a_file_of_ours_that_is_damaged_keeps_its_spans_and_says_nothing_of_rows(tmp_path):
    function, inputs = ss.workload("branches").build(size=256)
    trace = ss.compare(function, *inputs, engines="dual", device="simulated", progress=False)["dual"].trace
    path = trace.to_kineto(tmp_path / "t.json")
    data = path.read_bytes()
    middle = data.index(b'"cat"', len(data) // 2)
    path.write_bytes(data[:middle] + b'"' + data[middle:])
    with pytest.raises(TraceError, match="is damaged"):
        ss.read(path)
    found = ss.read(path, damaged="skip")
    assert len(trace.spans) - 2 <= len(found.spans) < len(trace.spans)
    assert found.info.device.simulated
    assert not found.origins.complete
    assert found.info.ledger["lost_records"] == 1
    assert any(note.startswith("left out: ") for note in found.info.notes)


def test_damage_before_the_events_costs_what_stands_there_but_never_that_times_are_simulated(tmp_path):
    path = tmp_path / "t.json"
    path.write_bytes(b'{"deviceProperties": [{"id": 0, "name": "a\\q"}], ' + WHOLE[1:])
    with pytest.raises(TraceError, match=r"at byte 4\d: .*invalid escape"):
        ss.read(path)
    trace = ss.read(path, damaged="skip")
    assert [name for name, *_ in kernels(trace)] == KERNELS
    assert trace.info.notes[0].startswith("left out: what stands before the events")
    path.write_bytes(b'{"deviceProperties": [{"id": 0, "name": "a\\q"}], "streamscope": {}, ' + WHOLE[1:])
    with pytest.raises(TraceError, match="invalid escape"):
        ss.read(path, damaged="skip")


@pytest.mark.parametrize("case", TEXTS)
def test_what_cannot_be_read_is_told_or_left_out(tmp_path, case):
    text, _ = TEXTS[case]
    (tmp_path / "t.json").write_text(text, encoding="utf-8")
    try:
        notes = ss.read(tmp_path / "t.json", damaged="skip").info.notes
    except TraceError as error:
        notes = (str(error),)
    assert any("left out" in note or "missing" in note or "t.json" in note for note in notes)


@pytest.mark.parametrize("unit", [b'},{"a":[', b'},{"ph":"X","a":"', b"},{", b'},{"ph"', b'{"ph":{', b'"},{"ph":"X"'])
def test_looking_for_what_is_whole_ends_soon_and_takes_little_memory(tmp_path, monkeypatch, unit):
    limit = 1 << 19
    monkeypatch.setattr(kineto_events, "PIECE_BYTES", limit // 4)
    monkeypatch.setattr(kineto_events, "MOST_PIECE_BYTES", limit)
    monkeypatch.setattr(kineto_events, "MOST_DECODED_BYTES", 16 * limit)
    monkeypatch.setattr(kineto_damage, "MOST_SEARCHED_BYTES", 8 * limit)
    monkeypatch.setattr(kineto_damage, "MOST_TRIES", 1000)
    (tmp_path / "t.json.gz").write_bytes(gzip.compress(b'{"traceEvents":[{"ph":"X","a' + unit * (limit // 2 // len(unit)), 1))
    tracemalloc.start()
    try:
        with pytest.raises(TraceError, match=r"t\.json\.gz"):
            ss.read(tmp_path / "t.json.gz", damaged="skip")
        assert tracemalloc.get_traced_memory()[1] < 8 * limit
    finally:
        tracemalloc.stop()


def test_only_two_words_say_what_to_do_with_damage(tmp_path):
    (tmp_path / "t.json").write_text(GOOD)
    with pytest.raises(TraceError, match=r"damaged='ignore' is unknown \(one of 'refuse' and 'skip'\)"):
        ss.read(tmp_path / "t.json", damaged="ignore")


def test_a_hint_of_a_damaged_file_is_not_which_formats_can_be_read(tmp_path):
    (tmp_path / "t.db").write_bytes(b"SQLite format 3\0" + bytes(100))
    with pytest.raises(TraceError, match="is damaged: ") as caught:
        ss.read(tmp_path / "t.db")
    assert caught.value.hint is None
