"""Files of ranks: which rank each is of, what is missing, and what is refused."""

from __future__ import annotations

import gzip
import json

import pytest
from tests.formats.kineto_files import call, content, dumps, event, kernel

import streamscope as ss
from streamscope.cli.main import main
from streamscope.errors import TraceError
from streamscope.ranks.file_names import ranks_of_names

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def rank_file(number, *, world=None, shift_ns=0, late_ns=0, steps=4, base_ns=1_763_000_000_000_000_000, seq=True):
    """Return a Kineto file: in each step of 200 µs a kernel of 100 µs and an all-reduce that ends at 180 µs, on a late rank 8 % of the
    transfer later.
    """
    events = []
    for step in range(steps):
        at = shift_ns + 200_000 * step
        begin = at + 100_000 + late_ns
        said = {"Collective name": "allreduce", "In msg nelems": 1024, "Out msg nelems": 1024, "dtype": "Float", "Group size": 2}
        said |= {"Process Group Name": "0", "Process Group Ranks": "[0, 1]"} | ({"Seq": step} if seq else {})
        events += [
            call("cudaLaunchKernel", at, at + 3000, 2 * step + 1),
            call("cudaLaunchKernel", at + 4000, at + 6000, 2 * step + 2),
            kernel("gemm", at + 10_000, begin - 1000, 2 * step + 1),
            kernel(NCCL, begin, at + 180_000 + number * 100 + 5_200 * (late_ns > 0), 2 * step + 2, stream=20, **said),
        ]
    beside = {} if world is None else {"distributedInfo": {"rank": number, "world_size": world}}
    return dumps(content(events, baseTimeNanoseconds=base_ns, **beside))


def written(folder, **files):
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        path = folder / name.replace("__", ".")
        path.write_bytes(gzip.compress(text.encode())) if path.suffix == ".gz" else path.write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("names", "ranks"),
    [
        (["rank3.json", "rank_10.json"], [3, 10]),
        (["a-rank-0.pt.trace.json.gz", "a-rank-1.pt.trace.json.gz"], [0, 1]),
        (["worker0.parquet", "worker1.parquet"], [0, 1]),
        (["node1_local_rank0_rank4.json", "node1_local_rank1_rank5.json"], [4, 5]),
        (["host_4711.rank0.json", "host_4712.rank1.json"], [0, 1]),
        (["trace_3.json", "trace_2.json"], [3, 2]),
        (["9.3.pt.trace.json", "9.0.pt.trace.json"], [3, 0]),
        (["TP0-DP1-PP0.json", "TP1-DP0-PP0.json", "TP0-DP0-PP0.json", "TP1-DP1-PP0.json"], [2, 1, 0, 3]),
        (["host_4711.json", "host_4712.json"], None),
        (["a.json", "b.json"], None),
        (["a1.json", "b1.json"], None),
    ],
)
def test_ranks_by_names_in_the_usual_forms(names, ranks):
    assert ranks_of_names(names) == ranks


def test_a_folder_a_pattern_a_list_and_a_mapping_are_one_job(tmp_path, capsys):
    folder = written(tmp_path / "run", a__json=rank_file(0, world=2), b__json__gz=rank_file(1, world=2, shift_ns=7_000, late_ns=20_000))
    (folder / "notes.txt").write_text("mine", encoding="utf-8")
    one = ss.read_ranks(folder, progress=False)
    files = [folder / "b.json.gz", folder / "a.json"]
    for given in (str(folder / "*.json*"), files, {0: files[1], 1: files[0]}, iter(files)):
        assert ss.read_ranks(given, progress=False).to_dict() == one.to_dict()
    assert one.to_dict()["collectives"] == {"matched": 4, "unmatched": 0, "by": {"sequence": 4}}
    assert one.warnings == ()
    assert one.to_dict()["ranks"][1]["offset_us"] == pytest.approx(7, abs=0.2)  # Ends differ by 100 ns.
    assert one.to_dict()["ranks"][0]["waiting_us"] == pytest.approx(4 * 20, abs=1)
    assert main(["ranks", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == one.to_dict()
    assert main(["ranks", *map(str, files), "--host", "a=0-1", "--save", str(tmp_path / "saved")]) == 0
    assert "2 ranks" in capsys.readouterr().out
    assert ss.read_ranks(tmp_path / "saved", progress=False).ranks[1].host == "a"
    assert main(["ranks", str(folder), "--host", "a"]) == 2


def test_what_is_missing_or_without_work_is_named(tmp_path):
    idle = dumps(content([event("cpu_op", "a", 0, 1000)], distributedInfo={"rank": 3, "world_size": 4}))
    job = ss.read_ranks(written(tmp_path, a__json=rank_file(0, world=4), b__json=rank_file(2, world=4), c__json=idle), progress=False)
    assert [rank.number for rank in job.ranks] == [0, 2, 3]
    assert job.warnings[0].startswith("missing: rank 1;")
    assert job.warnings[1] == "rank 3 has no work of a GPU (c.json)"
    assert job.to_dict()["ranks"][2]["busy_us"] == 0


def test_a_file_that_is_given_as_another_rank_is_named(tmp_path):
    written(tmp_path, a__json=rank_file(0, world=2), b__json=rank_file(1, world=2))
    first, second = tmp_path / "a.json", tmp_path / "b.json"
    assert ss.read_ranks({0: first, 1: second}, progress=False).warnings == ()
    job = ss.read_ranks({0: second, 1: first}, progress=False)
    assert [(rank.number, rank.path) for rank in job.ranks] == [(0, "b.json"), (1, "a.json")]
    assert job.warnings == (
        "b.json is given as rank 0, and says that it is rank 1",
        "a.json is given as rank 1, and says that it is rank 0",
    )


def test_a_file_that_is_cut_short_is_refused_or_named(tmp_path):
    whole = rank_file(1, world=2)
    folder = written(tmp_path, a__json=rank_file(0, world=2), b__json=whole[: int(0.6 * len(whole))])
    with pytest.raises(TraceError, match=r"b\.json"):
        ss.read_ranks(folder, progress=False)
    job = ss.read_ranks(folder, damaged="skip", progress=False)
    assert any("rank 1 is not whole (b.json)" in warning for warning in job.warnings)
    assert any(warning.startswith("rank 1 ends") for warning in job.warnings)


DAY_NS = 86_400 * 10**9
REFUSED = {
    "no trace": ({"a__txt": "x"}, "no ranks to read"),
    "twice": ({"a__json": rank_file(1, world=2), "b__json": rank_file(1, world=2)}, r"rank 1 is there 2 times: a\.json, b\.json"),
    "two sizes": ({"a__json": rank_file(0, world=2), "b__json": rank_file(1, world=4)}, "jobs of 2 and 4 ranks"),
    "another day": (
        {"a__json": rank_file(0, world=2), "b__json": rank_file(1, world=2, base_ns=1_763_000_000_000_000_000 + DAY_NS)},
        r"'b\.json' was recorded 24\.0 hours after 'a\.json'",
    ),
    "one recording": ({"rank0__json": rank_file(0), "rank1__json": rank_file(0)}, "ranks 0 and 1 are one recording under two names"),
    "too large a rank": ({"a__json": rank_file(0, world=2), "b__json": rank_file(5, world=2)}, "is rank 5, and the job has 2 ranks"),
    "no rank": ({"one__json": rank_file(0), "two__json": rank_file(1)}, "which rank is which cannot be told: one.json, two.json"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_mixture_is_refused_by_name(tmp_path, case):
    files, message = REFUSED[case]
    with pytest.raises(TraceError, match=message):
        ss.read_ranks(written(tmp_path, **files), progress=False)


def test_one_file_is_one_rank_also_of_a_model(tmp_path):
    function, inputs = ss.workload("data-parallel").build(gpus=2, layers=1, width=16, rows=16)
    trace = ss.compare(function, *inputs, engines=["graph"], gpus=2, device="simulated", progress=False)["graph"].trace
    files = [trace.of_gpu(gpu).to_parquet(tmp_path / f"rank{gpu}.parquet") for gpu in trace.gpus]
    assert len(ss.read_ranks(files, progress=False).ranks) == 2
    for twice in ([files[0], files[0]], {0: files[0], 1: files[0]}, [files[0], tmp_path / "." / "rank0.parquet", files[1]]):
        with pytest.raises(TraceError, match=r"'rank0\.parquet' is given 2 times"):
            ss.read_ranks(twice, progress=False)
    (tmp_path / "rank2.parquet").write_bytes(files[1].read_bytes())
    with pytest.raises(TraceError, match=r"ranks 1 and 2 are one recording under two names: rank1\.parquet, rank2\.parquet"):
        ss.read_ranks(tmp_path, progress=False)


@pytest.mark.parametrize("gpus", [1, 2])
def test_runs_of_several_engines_are_no_job(tmp_path, capsys, gpus):
    workload = "data-parallel" if gpus > 1 else "elementwise-chain"
    function, inputs = ss.workload(workload).build(**({"gpus": gpus} if gpus > 1 else {}))
    ss.compare(function, *inputs, engines=["dual", "graph"], gpus=gpus, device="simulated", progress=False).save(tmp_path)
    files = sorted(tmp_path.glob("*.parquet"))
    for several in (tmp_path, files, dict(enumerate(files))):
        with pytest.raises(TraceError, match="runs of several engines of one comparison: dual, graph") as caught:
            ss.read_ranks(several, progress=False)
        assert caught.value.hint == f"give the files of one of them, for example '{files[0]}'"
    assert main(["ranks", str(tmp_path)]) == 1
    assert "runs of several engines" in capsys.readouterr().err
    assert len(ss.read_ranks(files[0], progress=False).ranks) == gpus


def test_hosts_are_those_of_ranks(tmp_path):
    folder = written(tmp_path, a__json=rank_file(0, world=2), b__json=rank_file(1, world=2))
    assert ss.read_ranks(folder, hosts={0: "a", 1: "a", 5: "a"}, progress=False).warnings == ("not here: rank 5, which hosts= names",)
    for wrong in ("a", ["a"], {"0": "a"}, {0: 1}):
        with pytest.raises(TraceError, match="does not say which ranks are on which host"):
            ss.read_ranks(folder, hosts=wrong, progress=False)


def test_hosts_are_options_in_a_terminal(tmp_path, capsys):
    folder = str(written(tmp_path, a__json=rank_file(0, world=2), b__json=rank_file(1, world=2)))
    assert main(["ranks", folder, "--host", "a=0-1", "--host", "a=1,4-5"]) == 0
    assert "Not here: ranks 4, 5, which --host names" in capsys.readouterr().out
    assert main(["ranks", folder, "--host", "a=0", "--host", "b=0-1"]) == 2
    assert capsys.readouterr().err.startswith("error: --host has rank 0 on 'a' and on 'b'\n")


def test_files_of_one_name_are_told_with_their_folders(tmp_path):
    for run in ("one", "two"):
        (tmp_path / run).mkdir()
        written(tmp_path / run, rank1__json=rank_file(1, world=2))
    with pytest.raises(TraceError, match=r"rank 1 is there 2 times: one/rank1\.json, two/rank1\.json"):
        ss.read_ranks(sorted(tmp_path.glob("*/*.json")), progress=False)


@pytest.mark.parametrize("given", [3, None, [], {}, {-1: "a"}, "no/such/*.json", "no-such.json"])
def test_what_is_no_path_is_told(given):
    with pytest.raises(TraceError):
        ss.read_ranks(given, progress=False)


@pytest.mark.parametrize("name", ["merged_like_sglang", "merged_ranks", "two_gpus"])
def test_each_gpu_of_a_merged_file_is_a_rank(repository, name):
    job = ss.read_ranks(repository / "tests" / "data" / "cases" / f"{name}.json", progress=False)
    assert [rank.number for rank in job.ranks] == [0, 1]
    assert all(len(rank.work) >= 5 for rank in job.ranks)


def test_notes_beside_the_files_are_no_ranks(tmp_path):
    folder = written(tmp_path / "job", rank0__json=rank_file(0), rank1__json=rank_file(1))
    path = folder / "rank1.json"
    ss.read(path).with_note("slow", 3).save_notes(path)
    for paths in (folder, str(folder / "*.json")):
        job = ss.read_ranks(paths)
        assert [[note.text for note in rank.trace.user_notes] for rank in job.ranks] == [[], ["slow"]]
        assert not any("notes.json" in warning for warning in job.warnings)


def test_a_saved_folder_says_what_is_gone_and_what_is_new(tmp_path):
    job = ss.read_ranks(written(tmp_path / "files", a__json=rank_file(0, world=2), b__json=rank_file(1, world=2)), progress=False)
    folder = written(job.save(tmp_path / "saved"), rank2__json=rank_file(1), notes__txt="mine", other__json="{}")
    assert ss.read_ranks(folder, progress=False).warnings == ("left out, since ranks.json does not name it: rank2.json",)
    (folder / "rank1.parquet").unlink()
    for path in (folder, folder / "ranks.json"):
        with pytest.raises(TraceError, match=r"ranks\.json' names 1 trace that is not there: rank1\.parquet") as caught:
            ss.read_ranks(path, progress=False)
        assert "copy the whole folder" in caught.value.hint
