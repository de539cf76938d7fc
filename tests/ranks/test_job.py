"""What a job tells: waiting and transfer by hand, steps, a path that adds up, JSON, folders, pictures."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from tests.ranks.jobs import REDUCE, planted, rows_of, with_rows

import streamscope as ss
from streamscope.errors import OutputError, TraceError
from streamscope.ranks.job import Job
from streamscope.ranks.rank import Rank
from streamscope.trace import Collectives, DeviceInfo, SpanTable, Trace, TraceInfo


def by_hand() -> Job:
    """Return two ranks in µs on one clock: rank 1 begins its all-reduces 30 µs late."""
    ranks = []
    for number, (begin, long) in enumerate(((30, 60), (60, 30))):
        rows = []
        for at in range(0, 400, 100):
            rows += [("kernel", "gemm", "main", at, at + begin), ("kernel", "ncclAllReduce", "comm", at + begin, at + begin + long)]
        rows.append(("kernel", "tail", "main", 40, 50)) if number == 0 else None
        rows = sorted(rows, key=lambda row: row[3])
        spans = SpanTable.of(*((kind, name, lane, at * 1000, end * 1000) for kind, name, lane, at, end in rows))
        reduces = np.flatnonzero(spans.name == spans.names.index("ncclAllReduce"))
        found = Collectives.from_columns(reduces, "all_reduce", nbytes=3_000_000, ranks=2, communicator="w", sequence=range(4))
        info = TraceInfo("kineto", f"r{number}", DeviceInfo("cuda", "NVIDIA H100"), "kineto", rank=number, zero_ns=0)
        ranks.append(Rank(number, f"{number}.json", Trace(spans, info, collectives=found), host="n"))
    return Job.of(ranks)


def test_waiting_transfer_and_bandwidth_by_hand():
    job = by_hand()
    frame = job.to_pandas()
    assert frame["waiting_us"].tolist() == [30] * 4 + [0] * 4
    assert frame["transfer_us"].tolist() == [30] * 8
    assert frame["exposed_waiting_us"].tolist() == [20, 30, 30, 30, 0, 0, 0, 0]  # A kernel hides 10 µs of the first.
    assert set(frame["last_rank"]) == {1}
    assert frame["bus_gbs"].tolist() == [100.0] * 8
    first, second = job.to_dict()["ranks"]
    assert (first["busy_us"], first["waiting_us"], first["transfer_us"], first["exposed_us"]) == (360, 120, 120, 230)
    assert (second["busy_us"], second["waiting_us"], second["transfer_us"], second["exposed_us"]) == (360, 0, 120, 120)
    assert first["host"] == "n"
    assert first["gpu"] == "NVIDIA H100"


def test_the_path_goes_through_the_rank_that_began_last_and_adds_up_to_the_step():
    job = by_hand()
    assert job.steps.by == "repetition"
    step_us = job.to_dict()["step_us"]["median"]
    path = job.path_of_step()
    assert sum(row["us"] for row in path) == pytest.approx(step_us) == 100
    assert {(row["rank"], row["where"]): row["us"] for row in path if row["kind"] == "kernels"}[1, "gemm"] == 60


def test_time_of_the_host_before_a_call_is_that_of_the_range_that_ended_there():
    """Of 900 µs between two launches, `load batch` takes 600; `zero` is shorter, `forward` goes on, and a step is no cause."""
    rows = [("range", "forward", 850, 1000), ("range", "step 1", 0, 940), ("range", "load batch", 20, 700), ("range", "zero", 700, 800)]
    spans = SpanTable.of(
        ("launch", "first", "host", 0, 100_000, 1), ("launch", "second", "host", 1_000_000, 1_100_000, 2),
        ("kernel", "a", "main", 1_200_000, 1_300_000, 2),
        *((kind, name, "ranges", 1000 * low, 1000 * high) for kind, name, low, high in rows),
    )  # fmt: skip
    job = Job.of([Rank(0, "0.json", Trace(spans, TraceInfo("kineto", "r", DeviceInfo("cuda", "NVIDIA H100"), "kineto")))])
    found = [(row["kind"], row["where"], row["us"]) for row in job.path.rows(job.ranks)]
    assert found == [("host", "load batch", 900), ("launches", "a", 200), ("host", "first", 100), ("kernels", "a", 100)]


@pytest.mark.parametrize("late", [False, True])
def test_the_path_of_each_step_adds_up(late):
    job = Job.of(planted(3, slow=lambda step, at: (2, 200) if late and at == 0 else None).ranks)
    assert len(job.steps) == 11
    for step, length_ns in enumerate(job.steps.length_ns):
        rows = job.path_of_step(step)
        assert sum(row["us"] for row in rows) == pytest.approx(length_ns / 1e3, abs=0.002)
        assert sum(row["share"] for row in rows) == pytest.approx(1)
    if late:
        slow = next(row for row in job.path_of_step() if row["where"] == "k0")
        assert slow["rank"] == 2
        assert slow["us"] == pytest.approx(400, abs=30)


@pytest.mark.parametrize(("names", "title"), [
    (("GPU 0", "GPU 1"), "2 ranks · 2 × GPU"),
    (("NVIDIA H100", "GPU 1"), "2 ranks · 1 × NVIDIA H100 and 1 × GPU"),
])  # fmt: skip
def test_gpus_without_a_name_are_not_told_apart_in_the_title(names, title):
    ranks = [replace(rank, trace=replace(rank.trace, info=replace(rank.trace.info, device=DeviceInfo("cuda", name))))
             for rank, name in zip(by_hand().ranks, names, strict=True)]  # fmt: skip
    assert Job.of(ranks).title == title


def test_a_step_that_is_not_there_is_refused():
    job = Job.of(planted(2, 6).ranks)
    assert len(job.path_of_step(len(job.steps) - 1)) > 1
    for wrong in (len(job.steps), 99, -1, "first"):
        with pytest.raises(TraceError, match=rf"the job has no step .* \(it has {len(job.steps)} steps, 0 to {len(job.steps) - 1}\)"):
            job.path_of_step(wrong)
    with pytest.raises(TraceError, match="it has 0 steps"):
        Job.of(planted(1, 1).ranks).path_of_step(0)


def test_steps_are_those_of_the_profiler():
    job = planted(2, 6, offset_s=0.2)
    marked = []
    for rank in job.ranks:
        rows = rows_of(rank)
        begins = [row[3] for row in rows if row[1] == "k0"]
        ranges = [("RANGE", f"ProfilerStep#{at + 7}", "host", begin - 50, begin + 300_000) for at, begin in enumerate(begins)]
        marked.append(with_rows(rank, rows + ranges))
    found = Job.of(marked)
    assert found.steps.by == "ProfilerStep"
    assert len(found.steps) == 6
    assert found.steps.length_ns[:5] == pytest.approx(np.full(5, 1_000_000), rel=0.05)


def test_json_has_what_the_command_promises():
    job = Job.of(planted(3, slow=lambda step, at: (2, 310) if at == 1 else None).ranks)
    found = json.loads(json.dumps(job.to_dict(), allow_nan=False))
    assert list(found) == ["verdict", "ranks", "collectives", "late", "critical_path", "step_us", "warnings"]
    assert list(found["ranks"][0]) == [
        "rank", "host", "gpu", "offset_us", "offset_error_us", "drift_ppm", "busy_us", "waiting_us", "transfer_us", "exposed_us",
    ]  # fmt: skip
    assert found["collectives"] == {"matched": 36, "unmatched": 0, "by": {"sequence": 36}}
    assert list(found["late"][0]) == ["rank", "times", "of", "median_us", "share_of_step", "cause", "where", "under", "pattern"]
    assert found["late"][0]["pattern"] == "persistent"
    assert found["verdict"] == job.verdict
    assert found["late"][0]["rank"] == 2
    assert found["late"][0]["times"] == 12
    assert found["late"][0]["of"] == 36
    assert list(found["step_us"]) == ["median", "p95"]
    assert job.verdict.startswith("Rank 2 is late in 12 of 36 collectives, by 3")


def test_a_job_comes_back_from_its_folder(tmp_path):
    job = Job.of([replace(rank, host="node" + "ab"[rank.number // 2]) for rank in planted(4, 4, offset_s=0, ppm=0).ranks])
    folder = job.save(tmp_path / "job")
    for path in (folder, folder / "ranks.json"):
        assert ss.read_ranks(path, progress=False).to_dict() == job.to_dict()
    assert sorted(path.name for path in folder.iterdir()) == [
        "rank0.parquet",
        "rank1.parquet",
        "rank2.parquet",
        "rank3.parquet",
        "ranks.json",
    ]
    Job.of(job.ranks[:2]).save(folder)  # Files of ranks that are gone go.
    assert len(list(folder.iterdir())) == 3
    (folder / "ranks.json").write_text("{}", encoding="utf-8")
    with pytest.raises(TraceError, match="no schema number"):
        ss.read_ranks(folder, progress=False)
    with pytest.raises(OutputError, match="no job of ours"):
        job.save(folder)


@pytest.mark.parametrize("workload", ["tensor-parallel", "expert-parallel"])
def test_gpus_of_one_recording_share_a_clock(repository, tmp_path, workload):
    """Recorded on two H100: the true offset is 0. An all-to-all alone would bound nothing."""
    (path,) = (repository / "notebooks/recorded" / workload).glob("graph-dual-*.parquet")
    job = ss.read_ranks(path, progress=False)
    assert job.clocks.low_ns[1] <= 0 <= job.clocks.high_ns[1]
    assert abs(job.clocks.offset_ns[1]) < 10_000
    assert job.waits.known.all()
    assert ss.read_ranks(job.save(tmp_path / "job"), progress=False).to_dict() == job.to_dict()


def test_every_form_shows_the_verdict(tmp_path):
    job = Job.of(planted(3, 6, slow=lambda step, at: (2, 310) if at == 1 else None).ranks)
    for suffix in (".html", ".md"):
        assert "Rank 2 is late" in job.save(tmp_path / f"job{suffix}").read_text(encoding="utf-8")
    assert "Rank 2 is late" in job._repr_html_()
    assert len(job._repr_html_()) < 200_000
    assert job.save(tmp_path / "waiting.svg").read_text(encoding="utf-8").startswith("<svg")
    assert len(job.save(tmp_path / "job.csv").read_text(encoding="utf-8").splitlines()) == 1 + 3 * 18
    assert job.waiting_by_step().shape == (3, 5)
    first = job.imbalance()[0]
    assert (first["kernel"], first["rank"]) == ("k1", 2)


def test_the_kernels_of_a_rank_are_compared_with_those_of_the_others():
    more = planted(2, 4, slow=lambda step, at: (1, 310) if at == 1 else None).ranks
    first = Job.of(more).imbalance()[0]
    assert (first["kernel"], first["rank"], first["count"], first["median_count"]) == ("k1", 1, 4, 4)
    assert first["us"] - first["median_us"] == pytest.approx(4 * 310, rel=0.05)
    assert Job.of(more[:1]).imbalance() == []


def test_names_of_a_file_are_escaped():
    job = Job.of(planted(2, 4).ranks)
    evil = [
        replace(rank, trace=replace(rank.trace, info=replace(rank.trace.info, device=DeviceInfo("cuda", "<script>")))) for rank in job.ranks
    ]
    assert "<script>" not in replace(job, ranks=tuple(evil), warnings=("<script>",))._repr_html_()


def test_all_ranks_are_one_trace_with_the_waiting_of_the_job(tmp_path):
    job = Job.of(planted(3, 4, slow=lambda step, at: (2, 310) if at == 1 else None).ranks)
    trace = job.trace()
    assert trace.gpus == (0, 1, 2)
    times = ss.analysis.collective_times(trace)
    assert times.known.all()
    waited_us = [times.waiting_ns[times.gpu == gpu].sum() / 1e3 for gpu in trace.gpus]
    assert waited_us == pytest.approx([rank["waiting_us"] for rank in job.to_dict()["ranks"]], abs=0.1)
    assert ss.analysis.bus_bandwidth(trace) > 0
    assert len(job.trace([0, 2]).spans) == 2 * 24
    assert [path.name for path in (job.save(tmp_path / "job.pftrace"), job.save(tmp_path / "job.json.gz"))] == [
        "job.pftrace",
        "job.json.gz",
    ]
    again = ss.read_ranks(tmp_path / "job.json.gz", progress=False)
    assert [rank["waiting_us"] for rank in again.to_dict()["ranks"]] == pytest.approx(waited_us, abs=0.1)
    with pytest.raises(TraceError, match="no rank 7"):
        job.trace([7])


def test_launches_and_ranges_stay_with_their_ranks():
    job = by_hand()
    for number, rank in enumerate(job.ranks):
        mine = job.trace().of_gpu(number).spans
        assert mine.duration_ns.tolist() == rank.trace.spans.duration_ns.tolist()
        assert [mine.names[code] for code in mine.name.tolist()] == [
            rank.trace.spans.names[code] for code in rank.trace.spans.name.tolist()
        ]


def test_the_heat_map_of_many_ranks_and_steps_stays_small(monkeypatch):
    waiting_us, awaited_us = np.random.default_rng(0).random((2, 1000, 500))
    monkeypatch.setattr(Job, "waiting_by_step", lambda self: waiting_us)
    monkeypatch.setattr("streamscope_widgets.ranks_view.awaited_by_step", lambda job: awaited_us)
    monkeypatch.setattr(Job, "late", ())
    drawn = ss.results.views.pictures(replace(by_hand(), ranks=by_hand().ranks * 500))["waiting"]()
    assert len(drawn) < 140_000
    assert "step 499" in drawn


def test_a_late_rank_of_many_has_a_row_of_its_own_and_comes_first():
    """Of 65 ranks, neighbours share a row, and the one that waits most counts: rank 41 would not be seen."""
    job = Job.of(planted(65, 3, kernels_us=(300,), slow=lambda step, at: (41, 100)).ranks)
    drawn = ss.results.views.pictures(job)["waiting"]()
    assert ">rank 41<" in drawn
    assert not re.search("rank 4[02]<", drawn)
    assert [row[0] for row in job.table_rows()[:3]] == ["41", "0", "1"]


def test_the_heat_map_is_blue_in_the_row_of_the_rank_that_others_wait_for_and_red_in_theirs():
    job = Job.of(planted(3, 4, kernels_us=(300,), slow=lambda step, at: (1, 100)).ranks)
    drawn = ss.results.views.pictures(job)["waiting"]()
    rows = {
        colour: {
            round(float(top)) for path in re.findall(rf'd="([^"]*)" fill="{colour}"', drawn) for top in re.findall(r"M\S+ (\S+?)h", path)
        }
        for colour in ("#b2182b", "#2166ac")
    }
    assert rows == {"#b2182b": {22, 58}, "#2166ac": {40}}  # Rows are 18 pixels high, the first one's top is 22.


def repeated(seed: int, *, waits: bool, kernels: int = 1) -> Job:
    """Return six steps of two ranks without ranges: three products with an all-reduce behind each, on another stream.

    Starts on the GPU are shuffled a little, launches are not. The host waits once in each step, or kernels of one name stand before each
    all-reduce in numbers that do not repeat.
    """
    ranks = []
    for number in range(2):  # Both have the same times.
        rng, rows, call = np.random.default_rng(seed), [], 0
        for step in range(6):
            for at in range(3):
                begin = 1000 * step + 250 * at
                for name, lane, delay in (*[("gemm", "main", 5)] * (kernels or int(rng.integers(1, 7))), (REDUCE, "comm", 40)):
                    start, long = begin + delay + int(rng.integers(0, 20)), {"main": 3, "comm": 30}[lane]
                    rows += [
                        ("launch", "cudaLaunchKernel", "host", begin, begin + 1, call),
                        ("kernel", name, lane, start, start + long, call),
                    ]
                    begin, call = begin + 25, call + 1
            if waits:
                rows.append(("sync", "cudaDeviceSynchronize", "host", 1000 * step + 800, 1000 * step + 990))
        rows = sorted(rows, key=lambda row: row[3])
        spans = SpanTable.of(*((kind, name, lane, at * 1000, end * 1000, *rest) for kind, name, lane, at, end, *rest in rows))
        reduces = np.flatnonzero(spans.name == spans.names.index(REDUCE))
        found = Collectives.from_columns(reduces, "all_reduce", nbytes=64, ranks=2, communicator="w", sequence=range(18))
        info = TraceInfo("kineto", f"r{number}", DeviceInfo("cuda", "NVIDIA H100"), "kineto", rank=number, zero_ns=0)
        ranks.append(Rank(number, f"{number}.json", Trace(spans, info, collectives=found)))
    return Job.of(ranks)


@pytest.mark.parametrize("seed", range(3))
def test_the_host_ends_a_step_that_repeats_where_it_waits(seed):
    steps = repeated(seed, waits=True).steps
    assert steps.by == "repetition"
    assert len(steps) == 5
    assert steps.length_ns == pytest.approx(np.full(5, 1_000_000), abs=31_000)


def test_equal_collectives_alone_are_no_steps():
    assert len(repeated(0, waits=False, kernels=0).steps) == 0
