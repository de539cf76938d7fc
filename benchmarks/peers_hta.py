"""Holistic Trace Analysis and TraceLens on the same Kineto files: their numbers beside ours, and how long each takes.

    python -m venv hta && hta/bin/pip install HolisticTraceAnalysis==0.5.0 'pandas<3'
    python benchmarks/peers_hta.py --hta hta/bin/python [FILE...]
    python benchmarks/peers_hta.py --hta hta/bin/python --tracelens tracelens/bin/python --ranks [FOLDER...]

Without files: those in tests/data/kineto, which PyTorch's profiler recorded on an H200, a generated one with communication, and a recorded
trace of ours that `Trace.to_kineto` wrote. Each side runs in a process of its own, one after the other. Results: results/peers_hta.json.

With ``--ranks``, of jobs of several ranks, by default those in tests/data/ranks and generated ones: results/peers_ranks.json. TraceLens
0.1.0 is installed from its sources. Its packages: pandas, orjson, tqdm, openpyxl, tabulate, PyYAML and matplotlib.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
ROOT = HERE.parents[1]
ROUNDING_US = 0.011
"""HTA rounds idle times to 0.01 µs, and each time is a double of a µs since the start of the machine."""
LAUNCHES = ("cudaLaunchKernel", "cudaLaunchKernelExC", "cudaMemcpyAsync", "cudaMemsetAsync")
"""The calls that HTA's launch statistics accept."""
REPEATS = 3
"""Runs of each side in turns, of which the quickest counts."""
CAUSES = ("host_wait", "kernel_wait", "other")
OF_SPANS = (
    "activity", "average_concurrency", "late_kernels", "launch_overhead_ns", "queue_full_ns", "short_kernels", "stream_overlap",
    "work_split",
)  # fmt: skip
"""What is timed beside the summary, the critical path and the length of each queue."""
QUEUED = (*LAUNCHES, "cuLaunchKernel")
"""Those that its queue length accepts."""


# ---- Holistic Trace Analysis, in its own interpreter ----------------------------------------------------------------------------------


def measured_by_hta(path: str) -> dict[str, Any]:
    import logging
    import warnings

    os.environ["HTA_DISABLE_NS_ROUNDING"] = "1"
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    from hta.trace_analysis import TraceAnalysis

    begun = time.process_time()
    analysis = TraceAnalysis(trace_files={0: path}, trace_dir="/")
    loaded = time.process_time()
    idle = analysis.get_idle_time_breakdown(ranks=[0], visualize=False)[0]
    temporal = analysis.get_temporal_breakdown(visualize=False)
    launches = analysis.get_cuda_kernel_launch_stats(ranks=[0], visualize=False)[0]
    queue = analysis.get_queue_length_time_series(ranks=[0]).get(0)
    overlap = analysis.get_comm_comp_overlap(visualize=False)
    done = time.process_time()
    return {
        "idle": {f"{row.stream} {row.idle_category}": row.idle_time for row in idle.itertuples()},
        "busy": float((temporal["kernel_time(us)"] - temporal["idle_time(us)"])[0]),
        "compute": float(temporal["compute_time(us)"][0]),
        "launch count": len(launches),
        "launch delay median": _or_none(launches["launch_delay"].median()),
        "launch delay p95": _or_none(launches["launch_delay"].quantile(0.95)),
        "queue": {} if queue is None else {str(stream): int(rows.queue_length.max()) for stream, rows in queue.groupby("stream")},
        "communication overlap": _or_none(overlap["comp_comm_overlap_pctg"][0]),
        **_cost(begun, loaded, done),
    }


def _or_none(value: float) -> float | None:
    return None if value != value else float(value)  # noqa: PLR0124 — NaN


def _cost(begun: float, loaded: float, done: float) -> dict[str, float]:
    """Return what a side took: processor time, since others may use this machine meanwhile, and its largest memory."""
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"load_s": loaded - begun, "metrics_s": done - loaded, "peak_mib": peak_mib}


# ---- ours ------------------------------------------------------------------------------------------------------------------------------


def measured_by_us(path: str) -> dict[str, Any]:
    """Measure a file with everything that we have, and again by HTA's definitions, outside the time that is taken."""
    from streamscope import analysis
    from streamscope.formats.kineto import reader  # noqa: F401 — imports are left out of the time on both sides
    from streamscope.formats.read import read

    begun = time.process_time()
    trace = read(path)
    loaded = time.process_time()
    spans = trace.spans
    found = analysis.summary(trace).to_dict()
    for name in OF_SPANS:
        getattr(analysis, name)(spans)
    analysis.critical_path(trace)
    for stream in found["streams"]:
        analysis.queue_length(spans, stream["name"])
    done = time.process_time()
    return {"ours": _ours(found), "by its definitions": _by_its_definitions(trace), **_cost(begun, loaded, done)}


def _ours(found: dict[str, Any]) -> dict[str, Any]:
    """Return the numbers of our summary that stand for HTA's."""
    idle = {f"{stream['name']} {cause}": stream["idle_us"][cause] for stream in found["streams"] for cause in CAUSES}
    return {
        "idle": idle,
        "busy": found["gpu_busy_us"],
        "launch delay median": found["queue_time_us"]["median"],
        "overlap": found["overlap"],
    }


def _by_its_definitions(trace: Any) -> dict[str, Any]:
    import numpy as np

    from streamscope import analysis
    from streamscope.analysis.intervals import union
    from streamscope.formats.kineto.writer import is_call
    from streamscope.trace.joins import call_rows
    from streamscope.trace.spans import DEVICE_KINDS, SpanKind
    from streamscope.trace.tracks import numbered, tracks_of

    spans = trace.spans
    tracks, _ = tracks_of(spans)
    number = {track.lane: number for track, number in zip(tracks, numbered(tracks), strict=True) if track.device and not track.level}
    device = np.flatnonzero(spans.is_kind(DEVICE_KINDS))
    # A launch of ours has the name of its operation, and in a file that of a call.
    queued = np.array([name in QUEUED or not is_call(name) for name in spans.names])[spans.name]
    counted = np.array([name in LAUNCHES or not is_call(name) for name in spans.names])[spans.name] & (spans.kind == SpanKind.LAUNCH)
    call = call_rows(spans, device)
    accepted = (call >= 0) & counted[call]
    delay_us = np.maximum(spans.start_ns[device[accepted]] - spans.end_ns[call[accepted]], 0) / 1e3
    compute = device[analysis.work_of(spans)[device] == analysis.Work.COMPUTE]
    known = spans.select(~spans.is_kind((SpanKind.LAUNCH, SpanKind.GRAPH_LAUNCH)) | (queued & (spans.kind == SpanKind.LAUNCH)))
    queue = {lane: analysis.queue_length(known, lane).value for lane in number}
    shared = analysis.work_split(spans).communication_overlap
    idle = analysis.idle_by_stream(spans, launch_ns=0).items()
    return {
        "idle": {f"{number[lane]} {cause}": getattr(split, f"{cause}_ns") / 1e3 for lane, split in idle for cause in CAUSES},
        "busy": union(spans.start_ns[device], spans.end_ns[device]).length_ns / 1e3,
        "compute": union(spans.start_ns[compute], spans.end_ns[compute]).length_ns / 1e3,
        "launch count": int(accepted.sum()),
        "launch delay median": float(np.median(delay_us)) if len(delay_us) else None,
        "launch delay p95": float(np.quantile(delay_us, 0.95)) if len(delay_us) else None,
        "queue": {str(number[lane]): int(value.max()) for lane, value in queue.items() if len(value)},
        "communication overlap": None if shared is None else round(shared * 100, 2),
    }


# ---- all ranks of a job ----------------------------------------------------------------------------------------------------------------


def ranks_by_hta(folder: str, *, whole: bool = False) -> dict[str, Any]:
    """Load all ranks, and make the breakdowns of all; ``whole``: with the last step, which it leaves out."""
    import logging
    import warnings

    os.environ["HTA_DISABLE_NS_ROUNDING"] = "1"
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    from hta.common.trace import Trace
    from hta.trace_analysis import TraceAnalysis

    if whole:
        Trace._filter_irrelevant_gpu_kernels = lambda *_: None  # noqa: SLF001
    begun = _clocks()
    files = {rank: str(path) for rank, path in rank_files(folder).items()}
    analysis = TraceAnalysis(trace_files=files, trace_dir="/")
    loaded = _clocks()
    temporal = analysis.get_temporal_breakdown(visualize=False).set_index("rank")
    overlap = analysis.get_comm_comp_overlap(visualize=False).set_index("rank")["comp_comm_overlap_pctg"]
    idle = analysis.get_idle_time_breakdown(ranks=[*files], visualize=False)[0]
    analysis.get_gpu_kernel_breakdown(visualize=False)
    try:
        stragglers = analysis.get_potential_stragglers(num_candidates=1)
    except ValueError as error:
        stragglers = str(error)
    done = _clocks()
    ranks = {
        rank: {
            "busy": float((temporal["kernel_time(us)"] - temporal["idle_time(us)"])[rank]),
            "compute": float(temporal["compute_time(us)"][rank]),
            "communication overlap": _or_none(overlap[rank]),
            **{f"idle {row.stream} {row.idle_category}": row.idle_time for row in idle[idle["rank"] == rank].itertuples()},
        }
        for rank in files
    }
    return {"ranks": ranks, "stragglers": stragglers, **_costs(begun, loaded, done)}


def ranks_by_tracelens(folder: str) -> dict[str, Any]:
    """Load all ranks, and tell waiting, transfer and bus bandwidth of their collectives."""
    import logging

    logging.disable(logging.CRITICAL)
    from TraceLens.NcclAnalyser.nccl_analyser import NcclAnalyser

    begun = _clocks()
    files = rank_files(folder)
    analysis = NcclAnalyser([str(path) for path in files.values()], len(files), use_multiprocessing=True)
    loaded = _clocks()
    frame = analysis.build_df_nccl_implicit_sync_cat(detailed=True, strict_metadata_check=False)
    late = analysis.build_df_straggler_summary(strict_metadata_check=False)
    done = _clocks()
    ranks: dict[int, dict[str, list[float]]] = {}
    for rank in files if len(frame) else ():
        if f"rank_{rank}_ts" in frame:
            own = frame[frame[f"rank_{rank}_ts"].notna()].sort_values(f"rank_{rank}_ts")
            columns = {"wait": f"rank_{rank}_wait_time", "transfer": "comm_latency", "bus": "bus bw (GB/s)"}
            ranks[rank] = {name: own[column].tolist() for name, column in columns.items()}
    stragglers = [int(late.iloc[0]["rank"])] if len(late) else []
    return {"collectives": ranks, "stragglers": stragglers, **_costs(begun, loaded, done)}


def ranks_by_us(folder: str) -> dict[str, Any]:
    """Read all ranks, and tell all that a job tells; then again by the definitions of both peers, outside the time that is taken."""
    import streamscope as ss
    from streamscope import analysis

    begun = _clocks()
    job = ss.read_ranks(rank_files(folder), executor="processes", progress=False)
    loaded = _clocks()
    found = job.to_dict()
    job.imbalance()
    for rank in job.ranks:
        if len(rank.work):
            analysis.idle_by_stream(rank.trace.spans)
    done = _clocks()
    ranks = {rank.number: numbers(_by_its_definitions(rank.trace)) for rank in job.ranks if len(rank.work)}
    said = {"verdict": job.verdict, "late": [late["rank"] for late in found["late"]], "warnings": found["warnings"]}
    return {"ranks": ranks, "collectives": _collectives(job), **said, **_costs(begun, loaded, done)}


def _collectives(job: Any) -> dict[int, dict[str, list[float]]]:
    """Return our waiting, transfer and bus bandwidth of each rank's collectives, and, as TraceLens has them, on clocks as recorded."""
    import numpy as np

    from streamscope.ranks.matching import TOGETHER

    frame, parts = job.to_pandas(), job.matched.parts
    frame["start"], frame["took"] = parts.start_ns / 1e3, (parts.end_ns - parts.start_ns) / 1e3
    frame = frame[frame["kind"].isin(TOGETHER - {"barrier"} | {"all_to_all"}) & (frame["operation"] >= 0)]
    same = frame.groupby("operation")
    frame["raw wait"], frame["least"] = same["start"].transform("max") - frame["start"], same["took"].transform("min")
    ranks = same["rank"].transform("size")
    factor = np.where(frame["kind"] == "all_reduce", 2, 1) * (ranks - 1) / ranks
    frame["raw bus"] = frame["bytes"] * factor / 2**30 / (frame["least"] / 1e6)
    names = {"wait": "raw wait", "transfer": "least", "bus": "raw bus", "our wait": "waiting_us", "our transfer": "transfer_us"}
    names |= {"our bus": "bus_gbs"}
    return {
        int(rank): {name: own.sort_values("start")[column].tolist() for name, column in names.items()}
        for rank, own in frame.groupby("rank")
    }


def rank_files(folder: str | Path) -> dict[int, Path]:
    """Return the files of ``rank0.json``, ``rank1.json`` and so on, in the order of the ranks."""
    files = sorted(Path(folder).glob("rank*.json*"), key=lambda path: int(path.name.split(".")[0].removeprefix("rank")))
    return dict(enumerate(files))


def _clocks() -> tuple[float, float]:
    """Return the processor time of this process and of those that it has waited for, and the wall clock."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used), time.perf_counter()


def _costs(begun: tuple[float, float], loaded: tuple[float, float], done: tuple[float, float]) -> dict[str, float]:
    """Return what a side took, with the processes that it started."""
    return {
        "load_processor_s": loaded[0] - begun[0], "tell_processor_s": done[0] - loaded[0],
        "load_wall_s": loaded[1] - begun[1], "tell_wall_s": done[1] - loaded[1],
    }  # fmt: skip


def compare_ranks(options: argparse.Namespace) -> None:
    """Compare both peers with us on jobs, and keep a row for each."""
    from many_ranks import make

    from streamscope.trace.info import library_versions

    with tempfile.TemporaryDirectory() as generated_jobs:
        make(8, 1_000, Path(generated_jobs, "generated", "clocks 1 s off"))
        folders = options.files or sorted(path.parent for path in (ROOT / "tests" / "data" / "ranks").rglob("rank0.json.gz"))
        rows = [of_job(options, path) for path in (*folders, *Path(generated_jobs, "generated").iterdir())]
        large = Path(generated_jobs, "large")
        make(8, options.kernels, large)
        repeats = [(side(options.hta, "ranks-hta", large), side(sys.executable, "ranks-ours", large)) for _ in range(2)]
        lens = side(options.tracelens, "ranks-tracelens", large)
    theirs, ours = (
        min(each, key=lambda found: found["load_processor_s"] + found["tell_processor_s"]) for each in zip(*repeats, strict=True)
    )
    speed: dict[str, Any] = {
        name: {key: value for key, value in found.items() if key.endswith("_s")}
        for name, found in (("hta", theirs), ("tracelens", lens), ("ours", ours))
    }
    for what in ("processor", "wall"):
        sums = {name: sum(value for key, value in times.items() if key.endswith(f"{what}_s")) for name, times in speed.items() if times}
        speed[f"times_faster_{what}"] = {name: sums[name] / sums["ours"] for name in ("hta", "tracelens")}
    print(json.dumps(speed, indent=2))
    content = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": library_versions() | {"HolisticTraceAnalysis": "0.5.0", "TraceLens": "0.1.0, 171dd747"},
        "machine": {"platform": sys.platform, "processor": platform.machine(), "cores": os.cpu_count()},
        "jobs": rows,
        "speed": {"ranks": 8, "kernels": options.kernels, **speed},
    }
    (HERE.parent / "results" / "peers_ranks.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def of_job(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Return what differs between the peers and us on one job."""
    hta, lens = side(options.hta, "ranks-hta-whole", folder), side(options.tracelens, "ranks-tracelens", folder)
    ours = side(sys.executable, "ranks-ours", folder)
    pairs = [
        (f"rank {rank} {name}", value, ours["ranks"][rank].get(name)) for rank, row in hta["ranks"].items() for name, value in row.items()
    ]
    wrong = [f"{name}: {value}, here {other}" for name, value, other in pairs if not _equal(value, other)]
    row: dict[str, Any] = {"job": f"{folder.parent.name}/{folder.name}"}
    row["hta"] = {"numbers": len(pairs), "differ": wrong, "names as late": hta["stragglers"]}
    row["tracelens"] = {"names as late": lens["stragglers"], **_beside(lens["collectives"], ours["collectives"])}
    row["ours"] = {"late": ours["late"], "verdict": ours["verdict"], "warnings": ours["warnings"]}
    print(json.dumps(row), flush=True)
    return row


def _beside(theirs: dict[str, Any], ours: dict[str, Any]) -> dict[str, Any]:
    """Count the collectives whose numbers are equal by one definition, and tell how far the definitions are apart."""
    found: dict[str, Any] = {"parts": sum(len(row["wait"]) for row in theirs.values())}
    found["parts here"] = sum(len(row["wait"]) for row in ours.values())
    rows = [(row, ours[rank]) for rank, row in theirs.items() if rank in ours and len(ours[rank]["wait"]) == len(row["wait"])]
    for name in ("wait", "transfer", "bus"):
        same, own = ([pair for one, other in rows for pair in zip(one[name], other[key], strict=True)] for key in (name, f"our {name}"))
        known = [(one, other) for one, other in same if one == one]  # noqa: PLR0124 — NaN: without a size, there is no bandwidth.
        equal = sum(abs(one - other) <= ROUNDING_US + 1e-4 * abs(one) for one, other in known)
        apart = sorted(abs(one - other) for one, other in own if one == one and other == other)  # noqa: PLR0124
        middle_and_most = [apart[len(apart) // 2], apart[-1]] if apart else None
        found[name] = {"known": len(known), "equal": equal, "by our definition apart: median, most": middle_and_most}
    return found


# ---- files and tables ------------------------------------------------------------------------------------------------------------------


ROW = """\
{"ph": "X", "cat": "cuda_runtime", "name": "%(call)s", "pid": 77, "tid": 77, "ts": %(begun).3f, "dur": %(took).3f, \
"args": {"External id": %(index)d, "cbid": 211, "correlation": %(index)d}},
{"ph": "X", "cat": "%(category)s", "name": "%(name)s", "pid": 0, "tid": %(stream)d, "ts": %(start).3f, "dur": %(length).3f, \
"args": {"External id": %(index)d, "device": 0, "context": 1, "stream": %(stream)d, "correlation": %(index)d, %(size)s}},
{"ph": "s", "id": %(index)d, "cat": "ac2g", "name": "ac2g", "pid": 77, "tid": 77, "ts": %(begun).3f},
{"ph": "f", "bp": "e", "id": %(index)d, "cat": "ac2g", "name": "ac2g", "pid": 0, "tid": %(stream)d, "ts": %(start).3f}"""
"""One launch and its work, as PyTorch's profiler writes them."""


def generated(path: Path, kernels: int, streams: int = 4) -> Path:
    """Write a file as PyTorch's profiler would: kernels, copies and sets on several streams, the last one's kernels communicate."""
    import numpy as np

    rng = np.random.default_rng(0)
    stream = rng.integers(streams, size=kernels)
    kind = rng.choice(3, size=kernels, p=(0.9, 0.07, 0.03))
    call_ns, gap_ns, device_ns = (rng.lognormal(mean, 0.5, kernels).astype(int) for mean in (8.3, 6.5, 9.0))
    call_start = np.cumsum(call_ns + gap_ns) - call_ns
    free = [0] * streams
    rows = ['{"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "args": {"name": "python"}}']
    for index, (one, what, begun, took, length) in enumerate(
        zip(stream.tolist(), kind.tolist(), call_start.tolist(), call_ns.tolist(), device_ns.tolist(), strict=True), 1
    ):
        start = max(free[one] + 900, begun + took + 1_500)
        free[one] = start + length
        call = ("cudaLaunchKernel", "cudaMemcpyAsync", "cudaMemsetAsync")[what]
        category = ("kernel", "gpu_memcpy", "gpu_memset")[what]
        name = (
            "ncclDevKernel_AllReduce_Sum_f16_RING_LL" if one == streams - 1 else f"gemm_{index % 40}",
            "Memcpy DtoD",
            "Memset (Device)",
        )[what]
        size = '"grid": [132, 1, 1], "block": [256, 1, 1], "registers per thread": 32, "shared memory": 0' if what == 0 else '"bytes": 4096'
        common = {"index": index, "begun": begun / 1e3, "took": took / 1e3, "stream": one + 7, "start": start / 1e3, "length": length / 1e3}
        rows.append(ROW % (common | {"call": call, "category": category, "name": name, "size": size}))
    head = '{"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "generated", "numSms": 132}], "traceEvents": [\n'
    path.write_text(head + ",\n".join(rows) + "\n]}\n", encoding="utf-8")
    return path


def exported(folder: Path) -> list[Path]:
    """Write traces of ours as Kineto files: copies beside kernels under every engine, on the simulated device."""
    import streamscope as ss
    from streamscope.workloads import workload

    function, inputs = workload("pipeline").build()
    runs = ss.compare(function, *inputs, device="simulated", progress=False)
    return [runs[engine].trace.to_kineto(folder / f"exported-{engine}.json") for engine in runs]


def without_waits(path: Path, folder: Path) -> Path:
    """Write a file without its rows of ``cuda_sync``: waits, which HTA takes for kernels of their streams."""
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    content = json.loads(text)
    content["traceEvents"] = [row for row in content["traceEvents"] if row.get("cat") != "cuda_sync"]
    target = folder / f"without-waits-{path.name.removesuffix('.gz')}"
    target.write_text(json.dumps(content), encoding="utf-8")
    return target


def side(interpreter: str, which: str, path: Path) -> dict[str, Any]:
    """Measure a file in a process of its own."""
    command = [interpreter, str(HERE), "--side", which, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{which} failed on {path.name}: {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def least(*repeats: tuple[dict[str, Any], dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield each side's quickest repeat."""
    for side in zip(*repeats, strict=True):
        yield min(side, key=lambda found: found["load_s"] + found["metrics_s"])


def numbers(found: dict[str, Any]) -> dict[str, float | None]:
    """Return the numbers that are compared, by name."""
    names = ("busy", "compute", "launch count", "launch delay median", "launch delay p95", "communication overlap")
    inner = {f"{name} {key}": value for name in ("idle", "queue") for key, value in found[name].items()}
    return {name: found[name] for name in names} | inner


def differences(theirs: dict[str, Any], same: dict[str, Any]) -> list[str]:
    """Name the numbers of HTA that ours by its definitions are not."""
    ours = numbers(same)
    pairs = ((name, value, ours.get(name)) for name, value in numbers(theirs).items())
    return [f"{name}: {value} here {other}" for name, value, other in pairs if not _equal(value, other)]


def _equal(one: float | None, other: float | None) -> bool:
    return one is other or (one is not None and other is not None and abs(one - other) <= ROUNDING_US + 1e-6 * abs(one))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--hta", help="the Python that has HTA")
    parser.add_argument("--kernels", type=int, default=100_000)
    parser.add_argument("--many", type=int, default=1_000_000)
    parser.add_argument("--tracelens", help="the Python that has TraceLens")
    parser.add_argument("--ranks", action="store_true", help="the files are folders of jobs")
    parser.add_argument("--side", choices=tuple(SIDES))
    options = parser.parse_args()
    if options.side:
        print(json.dumps(SIDES[options.side](str(options.files[0]))))
        return
    if options.hta is None:
        parser.error("--hta is needed: the Python that has HolisticTraceAnalysis")
    if options.ranks and options.tracelens is None:
        parser.error("--tracelens is needed: the Python that has TraceLens")
    (compare_ranks if options.ranks else compare)(options)


SIDES: dict[str, Callable[[str], dict[str, Any]]] = {
    "hta": measured_by_hta, "ours": measured_by_us, "ranks-hta": ranks_by_hta, "ranks-tracelens": ranks_by_tracelens,
    "ranks-hta-whole": partial(ranks_by_hta, whole=True), "ranks-ours": ranks_by_us,
}  # fmt: skip


def compare(options: argparse.Namespace) -> None:
    from streamscope.trace.info import library_versions

    with tempfile.TemporaryDirectory() as folder:
        files = options.files or sorted((ROOT / "tests" / "data" / "kineto").glob("*.json.gz"))
        files += [generated(Path(folder, "generated.json"), 5_000), *exported(Path(folder))]
        same: dict[str, Any] = {}
        for path in files:
            theirs, ours = side(options.hta, "hta", path), side(sys.executable, "ours", path)
            wrong = differences(theirs, ours["by its definitions"])
            same[path.name] = {"hta": theirs, **ours, "compared": len(numbers(theirs)), "differs": wrong}
            if wrong:
                again = side(options.hta, "hta", without_waits(path, Path(folder)))
                same[path.name]["differs without cuda_sync"] = differences(again, ours["by its definitions"])
            print(f"{path.name}: {'equal' if not wrong else '; '.join(wrong)} {same[path.name].get('differs without cuda_sync', '')}")
        large = generated(Path(folder, "large.json"), options.kernels)
        theirs, ours = least(*[(side(options.hta, "hta", large), side(sys.executable, "ours", large)) for _ in range(REPEATS)])
        times = {"kernels": options.kernels, "mib": large.stat().st_size / 2**20, "repeats": REPEATS}
        times |= {name: {key: side[key] for key in ("load_s", "metrics_s", "peak_mib")} for name, side in (("hta", theirs), ("ours", ours))}
        both = [sum(times[name][key] for key in ("load_s", "metrics_s")) for name in ("hta", "ours")]
        times["times_faster"] = both[0] / both[1]
        times["differs"] = differences(theirs, ours["by its definitions"])
        print(json.dumps(times, indent=2))
        large.unlink()
        many = generated(Path(folder, "many.json"), options.many)
        found = side(sys.executable, "ours", many)
        million = {"kernels": options.many, "mib": many.stat().st_size / 2**20} | {k: found[k] for k in ("load_s", "metrics_s", "peak_mib")}
        print(json.dumps(million, indent=2))
    content = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": library_versions() | {"HolisticTraceAnalysis": "0.5.0"},
        "machine": {"platform": sys.platform, "processor": platform.machine(), "cores": os.cpu_count()},
        "files": same,
        "speed": times,
        "many": million,
    }
    (HERE.parent / "results" / "peers_hta.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
