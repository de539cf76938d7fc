"""Tables of jobs of many ranks."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np

from page_tables.parts import data, days, median_and_most, table, worst


def planted_jobs() -> str:
    """Return how often clocks, bounds and causes of planted jobs are right, by set of seeds and by sort of straggler."""
    found = data("rank_truth")
    sets = [found["sets"][name] for name in ("design", "held out", "new")]

    def of(right: str, all_of: str) -> list[str]:
        return [f"{one[right]:,} of {one[all_of]:,}" for one in sets]

    rows = [
        ["offsets inside the certain bounds", *of("within their error", "estimates")],
        ["estimates: median of each job's worst, worst of all", *(median_and_most(one["off_us, median and most"]) for one in sets)],
        [
            "bounds compared with brute force over all pairs; wider by 5 ns",
            *(f"{one['bounds compared with brute force']}; {one['wider by more than 5 ns']} jobs" for one in sets),
        ],
        ["planted rank and cause named first", *of("named first", "planted")],
        ["the same, of stragglers that cost 1 %", *of("of these, named first", "planted, and costs 1 %")],
        ["nothing planted, and nothing named", *of("none named", "not planted")],
        ["refused besides: no clocks fit", *(f"{len(one['refused'])}" for one in sets)],
    ]
    first, *held = ([f"{one['jobs']:,} {what}" for one, what in zip(sets, ("jobs", "held out", "more"), strict=True)], *sets[1:])
    sorts = []
    for sort, words in (
        ("kernel", "a kernel takes longer"),
        ("more", "more kernels"),
        ("host", "the host is late"),
        ("link", "a slow link"),
    ):
        counts = [
            np.sum([one["right and of, by sort"][f"{sort}, {when}"] for one in held], axis=0) for when in ("always", "all", "some", "once")
        ]
        sorts.append([words, *(f"{right} of {of}" for right, of in counts)])
    missed = sum(one["planted"] - one["named first"] for one in held)
    costly = sum(one["planted, and costs 1 %"] - one["of these, named first"] for one in held)
    unmatched = sum(one["and not named, since collectives are not matched"] for one in held)
    return (
        table([f"on {found['date'][:10]}, by a model", *first], rows)
        + "\nBy the sort of straggler, in both held-out sets: named of planted.\n\n"
        + table(["it happens", "in each step, at one place", "at all places", "in every third step", "once"], sorts)
        + f"\nOf the {missed} that are missed, {missed - costly} cost less than 1 % of the time. Of the other {costly}, "
        f"{unmatched} are in jobs where some collectives were not matched: files without numbers lack their first ones, and "
        "steps are so even that several shifts fit.\n"
    )


def recorded_ranks() -> str:
    """Return how often clocks and causes of recorded jobs are right, by host and recorder."""
    rows, told = [], list[bool]()
    for host in data("recorded_jobs")["hosts"]:
        for recorder, by in (("kineto", "PyTorch's profiler"), ("ours", "`ss.record`")):
            jobs = [one for job in host["jobs"].values() if "offsets_us" in (one := job.get(recorder, {}))]
            if not jobs:
                continue
            told += [one["host_known_within_10_us"] for one in jobs if "host_known_within_10_us" in one]
            pairs = [pair for one in jobs for pair in zip(one["offsets_us"], one["errors_us"], strict=True)]
            known = [(abs(offset), error) for offset, error in pairs if offset is not None]
            off = [offset for offset, _ in known]
            planted, others = ([one["right"] for one in jobs if bool(one["planted"]) is late] for late in (True, False))
            batch = " to ".join(f"{size:,}" for size in sorted({np.min(host["rows"]), np.max(host["rows"])}))
            rows.append([
                f"{host['gpus']} × {host['device'].split()[1]}, {batch} rows, {by}",
                str(len(jobs)),
                f"{sum(offset <= error for offset, error in known)} of {len(known)}",
                median_and_most((statistics.median(off), max(off))),
                f"{sum(each <= 10 for each in off)} of {len(off)}",
                f"{sum(planted)} of {len(planted)}",
                f"{sum(others)} of {len(others)}",
            ])  # fmt: skip
    head = [
        "GPUs, batch, recorder",
        "jobs",
        "offsets inside the bounds",
        "off: median, worst",
        "within 10 µs",
        "planted, and named",
        "no plant, none `persistent`",
    ]
    named = f"\nWith `hosts=`, all offsets are within 10 µs in {sum(told)} of the {len(told)} jobs that were asked so.\n"
    return table(head, rows) + named + days(host["date"][:10] for host in data("recorded_jobs")["hosts"])


_TRANSFERS_US = (40, 55, 100, 160, 1_000)
JOB_KINDS = (
    ("`DistributedDataParallel`, repaired", ("ddp",)),
    ("tensor-parallel, repaired", ("tp",)),
    ("tensor-parallel in a CUDA graph, repaired", ("tp-graph",)),
    ("data-parallel in a CUDA graph, repaired", ("dp-graph",)),
    ("data-parallel in a CUDA graph, without overlap", ("dp-graph-serial",)),
    ("pipeline-parallel, without the kernels that make a stage late", ("pp",)),
    ("data-parallel by hand, without overlap", ("dp-serial",)),
    ("the same, beside a program that has no second stream", ("dp-plain",)),
)
"""Jobs that were predicted, by the job that was run so."""


def predicted_ranks() -> str:
    """Return how far predictions of jobs are from runs that took turns with them, recorded and not, beside the noise of these runs."""
    rows = [row for row in _predicted("turns") if "noise" in row]
    every = [run for _, runs in JOB_KINDS for run in runs]
    lines = []
    for name, runs in (*JOB_KINDS, ("all", every)):
        own = [row for row in rows if row["run"] in runs]
        free = [row for row in own if "unrecorded" in row]
        off = [worst([abs(row[what] - 1) for row in some]) for what, some in (("off", own), ("noise", own), ("unrecorded", free))]
        lines.append([name, str(len(own)), *off[:2], _bar(own), _held(own, "off"), off[2], _held(free, "unrecorded")])
    head = [
        "a job, and its change",
        "predictions",
        "off: median, worst",
        "noise",
        "error bar, median",
        "in it",
        "without a recorder",
        "in the bar",
    ]
    like = [row for row in rows if row["run"] != "dp-plain"]
    earlier = [abs(row["off"] - 1) for row in _predicted("made_with") if row["run"] != "dp-plain"]
    blocks = [row for row in _predicted("blocks") if row["run"] != "dp-plain"]
    return (
        table(head, lines)
        + f"\nBut for the program that has no second stream: {_told_off(like, 'off')}. Their speed-ups, beside runs without a recorder: "
        + f"{_told_off(like, 'unrecorded')}.\n\nThe rules were made with {len(earlier)} others that took turns, off by {worst(earlier)}. "
        + f"Of jobs that were recorded one after the other, on any core, by the rules of then: {_told_off(blocks, 'off')}.\n"
        + days(host["date"][:10] for host in data("recorded_jobs")["hosts"])
    )


def what_if_ranks() -> str:
    """Return how far predictions of simulated jobs are from runs with the same plan, and from the changed programs."""
    found = data("what_if_ranks")
    runs = {"the run with the same plan": "run_us", "the changed program, planned anew": "planned_anew_us"}
    rows = [[name, worst([abs(row["predicted_us"] / row[run] - 1) for row in found["rows"]])] for name, run in runs.items()]
    return table([f"on {found['date'][:10]}, by a model: {found['cases']} predictions beside", "off: median, worst"], rows)


def _predicted(kind: str) -> list[Any]:
    """Return predictions of all hosts: of ``turns``, step by step in one recording, or of ``blocks``.

    ``off`` is the prediction over the run, and ``unrecorded`` the predicted share of the job's time over the share without a recorder.
    ``noise`` is the run's share in even steps over that in odd ones, half as far from 1, since a whole recording has twice as many.
    """
    found = []
    for host in data("recorded_jobs")["hosts"]:
        for row in (row for row in host.get(kind, []) if "predicted_us" in row):
            run, job = np.atleast_1d(row["run_us"]), np.atleast_1d(row["recorded_us"])
            more = {"off": row["predicted_us"] / run[0]}
            if len(run) > 1:
                even, odd = (run / job)[1:]
                more["noise"] = 1 + (even / odd - 1) / 2
            free = [host["jobs"].get(f"{row[name]}-{row['rows']}", {}).get("step_us", {}).get("measured") for name in ("run", "job")]
            if all(free):
                more["unrecorded"] = row["predicted_us"] / job[0] * free[1][0] / free[0][0]
            found.append(row | more)
    return found


def _told_off(rows: Sequence[Any], what: str) -> str:
    own = [row for row in rows if what in row]
    off = [abs(row[what] - 1) for row in own]
    far = sum(each > 0.15 for each in off)
    return f"{len(own)}, off by {worst(off)} (median, worst), {far} by more than 15 %; in the error bar, {_bar(own)}: {_held(own, what)}"


def _held(rows: Sequence[Any], what: str) -> str:
    return f"{sum(row['range'][0] <= 1 / row[what] - 1 <= row['range'][1] for row in rows)} of {len(rows)}"


def _bar(rows: Sequence[Any]) -> str:
    low, high = (100 * statistics.median(row["range"][end] for row in rows) for end in (0, 1))
    return f"{low:+.0f} to {high:+.0f} %"


def last_rank_lags() -> str:
    """Return by how much later the last rank to begin a collective ends, by GPUs and by the length of the transfer."""
    found: dict[tuple[int, str, int], list[tuple[float, float]]] = {}
    for host in data("recorded_jobs")["hosts"]:
        for job in host["jobs"].values():
            if one := job.get("kineto", {}).get("last rank"):
                bound = next(at for at, most_us in enumerate(_TRANSFERS_US) if one["transfer_us"] < most_us)
                card = host["device"].removeprefix("NVIDIA ").split()[0]
                found.setdefault((host["gpus"], card, bound), []).append((one["transfer_us"], one["lag_us"]))
    rows = []
    for (gpus, card, _), jobs in sorted(found.items()):
        transfers, lags = zip(*jobs, strict=True)
        between = f"{min(transfers):.0f} to {max(transfers):.0f} µs"
        rows.append(
            [f"{gpus} × {card}", between, f"{len(jobs)}", f"{statistics.median(lags):.1f} µs", f"{min(lags):.1f} to {max(lags):.1f} µs"]
        )
    return table(["GPUs", "transfers, by their median", "jobs", "the last rank ends later by", "from, to"], rows) + "\n"


TABLES = {
    "last-rank-lags": last_rank_lags,
    "planted-jobs": planted_jobs,
    "predicted-ranks": predicted_ranks,
    "recorded-ranks": recorded_ranks,
    "what-if-ranks": what_if_ranks,
}
