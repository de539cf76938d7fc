"""What the server sends JupyterLab of a file."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import streamscope as ss
from streamscope.engine_entry import ENGINES
from streamscope.errors import ProgramError, TraceError
from streamscope.trace import SpanKind
from streamscope_widgets import tiles
from streamscope_widgets.lab import document as lab
from streamscope_widgets.lab import readers
from streamscope_widgets.payload import as_groups, encode, encode_paths

pytestmark = pytest.mark.usefixtures("bundle")


def run_apart(work):
    """Run a coroutine in a thread of its own: in this one, the browser of another test may keep a loop running."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


def unpacked(data):
    length = int.from_bytes(data[:4], "little")
    assert (8 + length) % 8 == 0  # Typed arrays of the block begin at multiples of eight.
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def drawn(path, name):
    return lab.Document(path, name).whole()


def served(path, name, question=None, lines=()):
    """Return what the program writes for a question and for those that come, as [whether it goes on, answer]."""
    out = io.BytesIO()
    lab.serve(path, name, question or {}, [json.dumps(line) for line in lines], out)
    out.seek(0)
    found = []
    while line := out.readline():
        found.append((line, out.read(int.from_bytes(out.read(8), "little"))))
    return found


def answered(path, name, **question):
    ((line, content),) = served(path, name, question)
    assert line == b"done\n"
    return unpacked(content)


@pytest.fixture(scope="module")
def comparison():
    x = np.ones((2, 8, 8), np.float32)
    return ss.compare(lambda x, w: x @ w, *x, engines="async,graph", device="simulated", progress=False, name="<b>step</b>")


def test_a_trace(five_engines, tmp_path):
    trace = five_engines(20)["graph"]
    content, block = unpacked(drawn(trace.to_parquet(tmp_path / "graph.parquet"), "graph.parquet"))
    expected = encode(as_groups([trace]))
    assert content["title"] == "step · graph · NVIDIA H200 · graph.parquet"
    assert content["finding"].startswith("The GPU is busy ")
    assert content["header"] == expected.header
    assert block == expected.block


def test_a_trace_of_another_profiler_comes_with_its_warnings(repository, tmp_path):
    whole = gzip.decompress((repository / "tests/data/kineto/streams_graph.json.gz").read_bytes())
    path = tmp_path / "streams_graph.json.gz"
    path.write_bytes(gzip.compress(whole.replace(b'"traceEvents": [', b'"traceEvents": [{"ph": "X", "cat": "mine"},', 1)))
    content, block = unpacked(drawn(path, path.name))
    trace = ss.read(path)
    assert content["title"] == "streams_graph · kineto · NVIDIA H200 · streams_graph.json.gz"
    stretched, left_out = content["warnings"]
    assert stretched.startswith("A profiler stretched the recorded run")
    assert left_out == "Left out: 1 event of category 'mine'"
    assert content["header"] == encode(as_groups([trace])).header
    assert block == encode(as_groups([trace])).block


def test_a_comparison_comes_with_its_verdict(comparison, tmp_path):
    content, block = unpacked(drawn(comparison.save(tmp_path) / "comparison.json", "comparison.json"))
    assert content["title"] == "<b>step</b> · simulated NVIDIA H200: all times are simulated"  # JupyterLab is given text.
    assert content["finding"] == comparison.verdict
    assert [group["label"] for group in content["header"]["groups"]] == ["async", "graph"]
    assert block == encode(as_groups(comparison.groups())).block


def test_what_costs_most_and_fills_the_memory_comes_with_a_file(comparison, tmp_path, monkeypatch):
    path = comparison["graph"].trace.to_parquet(tmp_path / "graph.parquet")
    tables = unpacked(drawn(path, "graph.parquet"))[0]["tables"]
    assert "Lines that cost most" in tables
    assert "What held the peak of the memory" in tables
    content, _ = unpacked(drawn(comparison.save(tmp_path / "runs") / "comparison.json", "comparison.json"))
    assert [f"{engine}: what costs most" in content["tables"] for engine in comparison] == [True, True]
    monkeypatch.setattr(tiles, "MOST_WHOLE", 0)
    (_, first), (_, second) = served(path, "graph.parquet", lines=[{"type": "tables"}])
    assert unpacked(first)[0]["tables"] is None
    assert unpacked(second)[0] == {"tables": tables}


def test_notes_are_listed_and_drawn(five_engines, comparison, tmp_path):
    trace = five_engines(20)["graph"].with_note("Monday").with_note("<b>late</b>", 1, 2)
    content, _ = unpacked(drawn(trace.to_parquet(tmp_path / "graph.parquet"), "graph.parquet"))
    assert content["notes"] == ["Note 1, whole trace: Monday", "Note 2, 1 µs to 2 µs: <b>late</b>"]
    assert content["header"]["details"] == ["counters"]
    noted = comparison.with_note("Monday").with_note("late", "graph", 1)
    content, _ = unpacked(drawn(noted.save(tmp_path) / "comparison.json", "comparison.json"))
    assert content["notes"] == ["Note 1, all, all: Monday", "Note 1, graph, 1 µs: late"]


def test_what_goes_on_in_python_is_told_and_works(repository, five_engines, comparison, tmp_path, monkeypatch):
    captured = repository / "notebooks/recorded/captured/mixture_of_experts.captured.json"
    (tmp_path / captured.name).write_bytes(captured.read_bytes())
    five_engines(20)["graph"].to_parquet(tmp_path / "graph.parquet")
    comparison.save(tmp_path)
    monkeypatch.chdir(tmp_path)
    for name, kind in (("graph.parquet", "Trace"), ("comparison.json", "Comparison"), (captured.name, "LoadedCapture")):
        content, _ = unpacked(drawn(Path(name).absolute(), name))
        before, code, _ = re.split(": | has ", content["further"], maxsplit=2)
        assert before == "In a notebook beside it"
        known = {"ss": ss}
        exec(code, known)
        assert type(known[code.partition(" ")[0]]).__name__ == kind


def test_a_job_comes_with_its_ranks_and_is_asked_for_others(repository, tmp_path):
    folder = repository / "tests/data/ranks/4xH100/tp-graph-shapes"
    kept = ss.read_ranks(folder, progress=False).save(tmp_path / "kept") / "ranks.json"
    files = [str(folder / f"rank{number}.json.gz") for number in (1, 3)]
    for path, name, question, ranks in (
        (folder, "tp", {}, [0, 1, 2, 3]),
        (kept, "ranks.json", {}, [0, 1, 2, 3]),
        (folder, "tp", {"files": files}, [1, 3]),
    ):
        (line, first), (_, other), (_, cell), (_, none) = served(
            path, name, question, [{"ranks": ranks[1:]}, {"type": "cell", "rank": 1, "step": 2, "ranks": ranks[1:]}, {"ranks": [9]}]
        )
        content, _ = unpacked(first)
        assert line == b"more\n"  # Reading all ranks again would take long.
        assert content["header"]["details"][-1] == "ranks"
        assert [gpu["gpu"] for gpu in content["header"]["groups"][0]["gpus"]] == ranks
        assert "Critical path through all ranks" in content["tables"]
        assert [gpu["gpu"] for gpu in unpacked(other)[0]["header"]["groups"][0]["gpus"]] == ranks[1:]
        assert set(unpacked(cell)[0]["header"]["numbers"]) <= set(ranks)
        assert "no rank 9" in unpacked(none)[0]["refused"]


def test_captured_code_is_compared_on_the_simulated_device(repository, tmp_path):
    path = tmp_path / "mine.captured.json"
    path.write_bytes((repository / "notebooks/recorded/captured/mixture_of_experts.captured.json").read_bytes())
    content, _ = answered(path, path.name)
    captured = ss.load_captured(path)
    assert content["title"] == f"{captured.name} · simulated NVIDIA H200: all times are simulated · mine.captured.json"
    assert content["finding"].startswith(f"{captured}.\nSimulated times (simulated NVIDIA H200), not measured. ")
    assert [group["label"] for group in content["header"]["groups"]] == list(ENGINES)
    assert all(group["device"]["kind"] == "simulated" for group in content["header"]["groups"])
    paths, _ = answered(path, path.name, type="paths", stamp=content["stamp"])
    assert all(found["count"] for found in paths["header"]["paths"])


def two_gpus(path, first=3, second=2):
    """Write PyTorch's trace of two GPUs, 0 and 3, each with kernels of 10 µs; every call launches one."""
    events = []
    for number, gpu in enumerate([0] * first + [3] * second):
        times = {"ts": 100 * number, "dur": 5}
        events.append(
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "args": {"correlation": number}} | times
        )
        kernel = {"device": gpu, "context": 1, "stream": 7, "correlation": number}
        events.append(
            {"ph": "X", "cat": "kernel", "name": f"of {gpu}", "pid": 0, "tid": 7, "ts": 100 * number + 20, "dur": 10, "args": kernel}
        )
    properties = [{"id": 0, "name": "first"}, {"id": 3, "name": "second"}]
    path.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": properties, "traceEvents": events}))
    return path


def test_of_a_file_with_several_gpus_all_are_shown_and_each_can_be_had(tmp_path):
    path = two_gpus(tmp_path / "two.pt.trace.json")
    for gpu, shown, name, kernels in ((None, None, "first", 5), (0, 0, "first", 3), (3, 3, "second", 2)):
        content, block = answered(path, path.name, **({} if gpu is None else {"gpu": gpu}))
        assert (content["gpu"], content["gpus"]) == (shown, [0, 3])
        assert f" {name} " in content["title"]
        trace = ss.read(path, gpu=gpu)
        assert content["finding"].startswith("GPU 0 of 2, which has most work, is busy " if gpu is None else "The GPU is busy ")
        assert [each["gpu"] for each in content["header"]["groups"][0]["gpus"]] == ([0, 3] if gpu is None else [shown])
        assert (int(trace.spans.is_kind({SpanKind.KERNEL}).sum()), block) == (kernels, encode(as_groups([trace])).block)
        assert ("gpu=3" in content["further"]) is (gpu == 3)
    refused, _ = answered(path, path.name, gpu=1)
    assert "GPU 1" in refused["refused"]


def test_the_gpus_of_one_long_trace_have_a_program_each(program):
    async def talk():
        kept = readers.Readers()
        answers = [await kept.ask(Path("a"), "a", {"gpu": gpu} if gpu else {}) for gpu in (None, 3, None, 3)]
        for gpu in (None, 3):
            kept.end((Path("a"), gpu))
        return [[int(number) for number in content[8:].split()] for content in answers]

    found = run_apart(talk())
    first, second = (process.pid for process in program)
    assert found == [[first, 0], [second, 0], [first, 1], [second, 1]]


def test_a_long_trace_is_sent_as_an_overview_and_then_in_tiles_by_a_program_that_stays(large_trace, tmp_path, monkeypatch):
    monkeypatch.setattr(tiles, "MOST_WHOLE", 1000)
    monkeypatch.setattr(tiles, "MOST_EXACT", 100)
    path = large_trace(4000).to_parquet(tmp_path / "long.parquet")
    tile = {"type": "tile", "windows": [[0, 16, 2]]}
    lines = served(path, "long.parquet", {}, [tile, {"stamp": "another", **tile}, {}])
    assert [line for line, _ in lines] == 4 * [b"more\n"]
    (first, _), (second, block), (third, _), (again, _) = (unpacked(content) for _, content in lines)
    (group,) = first["header"]["groups"]
    assert group["count"] < 4000
    assert any("4,000 spans" in remark for remark in group["remarks"])
    (group,) = second["header"]["groups"]
    assert group["exact"]
    assert 0 < group["count"] < 100
    assert len(block) < 4000
    assert third == {"changed": True}
    assert again == first


@pytest.mark.parametrize(
    "name",
    ["broken.parquet", "broken.captured.json", "comparison.json", "broken.pt.trace.json", "other.json.gz", "other.sqlite", "other.db"],
)
def test_what_is_not_ours_is_refused(tmp_path, name):
    (tmp_path / name).write_bytes(b"PAR1<img src=x onerror=alert(1)>")
    with pytest.raises((TraceError, ProgramError)):
        drawn(tmp_path / name, name)


def test_critical_paths_are_sent_when_they_are_asked_for(comparison, tmp_path):
    path = comparison.save(tmp_path) / "comparison.json"
    stamp = unpacked(drawn(path, path.name))[0]["stamp"]
    content, block = answered(path, path.name, type="paths", stamp=stamp)
    expected = encode_paths(as_groups(comparison.groups()))
    assert content["header"] == expected.header
    assert block == expected.block


def test_critical_paths_of_a_file_that_was_written_again_are_not_sent(five_engines, tmp_path, monkeypatch):
    traces, path = five_engines(20), tmp_path / "step.parquet"
    traces["graph"].to_parquet(path)
    stamp = answered(path, path.name)[0]["stamp"]
    traces["dual"].to_parquet(path)
    assert answered(path, path.name, type="paths", stamp=stamp) == ({"changed": True}, b"")
    assert answered(path, path.name)[0]["stamp"] != stamp

    def written_meanwhile(place, **_):
        traces["async"].to_parquet(path)
        return ss.read(place)

    monkeypatch.setattr(lab, "read", written_meanwhile)
    stamp = answered(path, path.name)[0]["stamp"]
    monkeypatch.setattr(lab, "read", lambda place, **_: (traces["dual"].to_parquet(path), ss.read(place))[1])
    assert answered(path, path.name, type="paths", stamp=stamp) == ({"changed": True}, b"")


def ask_apart(path, name, **question):
    return readers.Readers().ask(path, name, question)


def test_the_server_has_a_file_read_by_another_process(five_engines, tmp_path):
    path = five_engines(20)["graph"].to_parquet(tmp_path / "graph.parquet")
    assert run_apart(ask_apart(path, "graph.parquet")) == drawn(path, "graph.parquet")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1")
    refused = unpacked(run_apart(ask_apart(tmp_path / "broken.parquet", "broken.parquet")))[0]["refused"]
    assert refused.startswith("cannot read 'broken.parquet': ")
    assert str(tmp_path) not in refused


# Stands for the program: writes which process it is, and how many questions it was asked before; "end" ends it.
PROGRAM = """import itertools, os, sys, time
asked = 0
for line in itertools.chain(['{}'], iter(sys.stdin.readline, '')):
    if 'slow' in line:
        time.sleep(0.4)
    if 'stuck' in line:
        time.sleep(60)
    if 'end' in line:
        sys.exit('no room <b>left</b>')
    said = b'changed' if 'change' in line else b'%d %d' % (os.getpid(), asked)
    said = (b'{"changed": true}' if said == b'changed' else said).ljust(24)
    sys.stdout.buffer.write(b'more\\n' + (8 + len(said)).to_bytes(8, 'little') + len(said).to_bytes(8, 'little') + said)
    sys.stdout.flush()
    asked += 1
"""


@pytest.fixture
def program(monkeypatch):
    real = subprocess.Popen
    started = []

    def start(command, **options):
        first = next((word for word in ("slow", "stuck") if word in command[-1]), "")
        started.append(real([sys.executable, "-c", PROGRAM.replace("{}", first)], **options))
        return started[-1]

    monkeypatch.setattr(readers.subprocess, "Popen", start)
    yield started
    for process in started:
        process.kill()


def test_a_long_trace_is_read_once_and_again_where_the_program_ended_or_the_file_changed(program):
    async def talk():
        kept = readers.Readers()

        async def asked(**question):
            process, count = (await kept.ask(Path("a"), "a.parquet", question))[8:].split()
            return [each.pid for each in program].index(int(process)), int(count)

        found = [await asked(), await asked(type="tile"), await asked()]
        program[0].kill()
        found += [await asked(), await asked(), await asked(change=1), await asked()]
        kept.end((Path("a"), None))
        return found

    assert run_apart(talk()) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (2, 0), (2, 1)]
    assert all(process.poll() is not None for process in program)


def test_many_questions_at_once_have_a_file_read_once(program):
    async def talk():
        kept = readers.Readers()
        answers = await asyncio.gather(*(kept.ask(Path("a"), "a", {"find": number}) for number in range(6)))
        kept.end((Path("a"), None))
        return [int(content[8:].split()[1]) for content in answers]

    assert run_apart(talk()) == [0, 1, 2, 3, 4, 5]
    assert len(program) == 1


def test_a_program_that_is_answering_is_not_ended_for_another_file(program, monkeypatch):
    monkeypatch.setattr(readers, "MOST_KEPT", 1)
    monkeypatch.setattr(readers, "IDLE_S", 0.1)

    async def talk():
        kept = readers.Readers()
        await kept.ask(Path("a"), "a", {})
        slow, _ = await asyncio.gather(kept.ask(Path("a"), "a", {"slow": 1}), kept.ask(Path("b"), "b", {}))
        for name in "ab":
            kept.end((Path(name), None))
        return slow[8:].split()

    process, count = run_apart(talk())
    assert (int(process), int(count), len(program)) == (program[0].pid, 1, 2)


def test_a_first_read_that_nobody_waits_for_any_more_is_ended(program):
    async def talk():
        kept = readers.Readers()

        async def started(name, **question):
            asking = asyncio.ensure_future(kept.ask(Path(name), name, question))
            for _ in range(9):
                await asyncio.sleep(0)
            return asking

        # Two of them would keep all others waiting.
        left = [await started(name, stuck=1) for name in "ab"]
        for asking in left:
            asking.cancel()
        await kept.ask(Path("c"), "c", {})
        ended = [process.poll() is not None for process in program]
        # Of two who wait for one file, the first one leaves, then both.
        first = await started("d", slow=1)
        second = asyncio.ensure_future(kept.ask(Path("d"), "d", {}))
        await asyncio.sleep(0)
        first.cancel()
        answer = (await second)[8:].split()
        both = [await started("e", stuck=1), asyncio.ensure_future(kept.ask(Path("e"), "e", {}))]
        await asyncio.sleep(0)
        for asking in both:
            asking.cancel()
        await asyncio.gather(*both, return_exceptions=True)
        await kept.ask(Path("c"), "c", {})
        for name in "cd":
            kept.end((Path(name), None))
        return ended, [each.pid for each in program].index(int(answer[0])), int(answer[1])

    assert run_apart(talk()) == ([True, True, False], 3, 1)
    assert len(program) == 5
    assert all(process.poll() is not None for process in program)


def test_a_read_that_takes_too_long_is_ended_and_said(program, monkeypatch):
    monkeypatch.setattr(readers, "LONGEST_S", 0.2)
    error = run_apart(refusal_of(readers.Readers().ask(Path("a"), "a.parquet", {"stuck": 1})))
    assert (error.status_code, error.log_message) == (504, "reading a.parquet took longer than 0.2 s and was given up")
    assert [process.poll() is not None for process in program] == [True]


async def refusal_of(asked):
    with pytest.raises(readers.web.HTTPError) as refused:
        await asked
    return refused.value


def test_few_long_traces_are_kept_and_none_that_nobody_asks_for(program, monkeypatch):
    async def talk():
        kept = readers.Readers()
        for name in ("a", "b", "a", "c", "d"):
            await kept.ask(Path(name), name, {})
        alive = [process.poll() is None for process in program]
        monkeypatch.setattr(readers, "IDLE_S", 0.0)
        await kept.ask(Path("d"), "d", {})
        await asyncio.sleep(0.1)
        late = program[3].poll() is None
        for name in ("a", "c"):
            kept.end((Path(name), None))
        return alive, late

    assert run_apart(talk()) == ([True, False, True, True], False)


def test_the_oldest_programs_end_where_together_they_hold_too_much(program, monkeypatch):
    """With room for two of them, the third one ends the first. One that alone holds too much stays, for its questions."""

    async def talk():
        kept = readers.Readers()
        await kept.ask(Path("a"), "a", {})
        one = kept._kept[Path("a"), None].resident_bytes
        monkeypatch.setattr(readers, "MOST_KEPT_BYTES", 5 * one // 2)
        await kept.ask(Path("b"), "b", {})
        both = [process.poll() is None for process in program]
        await kept.ask(Path("a"), "a", {})
        await kept.ask(Path("c"), "c", {})
        three = [process.poll() is None for process in program]
        monkeypatch.setattr(readers, "MOST_KEPT_BYTES", one // 2)
        process, count = (await kept.ask(Path("c"), "c", {}))[8:].split()
        alone = [process.poll() is None for process in program]
        kept.end((Path("c"), None))
        return one, both, three, alone, (int(process) == program[2].pid, int(count))

    one, both, three, alone, last = run_apart(talk())
    assert 1 << 20 < one < 1 << 28
    assert both == [True, True]
    assert three == [True, False, True]
    assert alone == [False, False, True]
    assert last == (True, 1)


def test_a_program_that_has_ended_holds_nothing(program):
    async def talk():
        kept = readers.Readers()
        await kept.ask(Path("a"), "a", {})
        reader = kept._kept[Path("a"), None]
        kept.end((Path("a"), None))
        return reader.resident_bytes

    assert run_apart(talk()) == 0


def test_two_files_are_read_at_one_time_and_what_ends_without_an_answer_is_an_error(monkeypatch):
    lock, now, most = threading.Lock(), [0], [0]
    two = threading.Barrier(2)

    class Dead:
        returncode = -9

        def __init__(self, command, stdin, stdout, stderr):
            self.stdin, self.stdout = io.BytesIO(), self

        def readline(self):
            with lock:
                now[0] += 1
                most[0] = max(most[0], now[0])
            two.wait(30)
            with lock:
                now[0] -= 1
            return b""

        def read(self, length):
            return b""

        def wait(self):
            return -9

        def kill(self):
            pass

        def close(self):
            pass

    async def six():
        kept = readers.Readers()
        return await asyncio.gather(*(kept.ask(Path(str(number)), "a.parquet", {}) for number in range(6)), return_exceptions=True)

    monkeypatch.setattr(readers.subprocess, "Popen", Dead)
    errors = run_apart(six())
    assert most == [2]
    assert {(error.status_code, error.log_message) for error in errors} == {(500, "reading a.parquet failed with code -9")}


def test_a_refusal_says_why():
    assert unpacked(lab.refusal("no <b>trace</b>")) == ({"refused": "no <b>trace</b>"}, b"")


LOADED = """
import sys
from pathlib import Path
from streamscope_widgets.lab.document import serve
serve(Path(sys.argv[1]), sys.argv[2], {}, [], sys.stdout.buffer)
print(*sorted({"pandas", "scipy", "plotly", "IPython", "typer", "streamscope.comparing.compare"} & {*sys.modules}), file=sys.stderr)
"""


@pytest.mark.parametrize("name", ["comparison.json", "graph.parquet"])
def test_a_small_file_loads_nothing_that_takes_longer_than_to_show_it(five_engines, comparison, tmp_path, name):
    """A program of its own shows each file, and pandas alone was most of the time that a double click took."""
    comparison.save(tmp_path)
    five_engines(20)["graph"].to_parquet(tmp_path / "graph.parquet")
    done = subprocess.run([sys.executable, "-c", LOADED, tmp_path / name, name], capture_output=True, check=True, timeout=120)
    assert done.stdout.startswith(b"done\n")
    assert done.stderr.decode().split() == []
