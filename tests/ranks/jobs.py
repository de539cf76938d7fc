"""Jobs of many ranks for tests, made by a model: kernels, all-reduces, and clocks that are off by a known amount."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from streamscope.ranks.rank import Rank
from streamscope.trace import Collectives, DeviceInfo, SpanKind, SpanTable, Trace, TraceInfo

REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
Slow = Callable[[int, int], tuple[int, float] | None]


@dataclass(frozen=True)
class Planted:
    """A job whose clocks are known."""

    ranks: list[Rank]
    offset_ns: np.ndarray = field(repr=False)
    drift: np.ndarray = field(repr=False)
    length_ns: float

    def off_by_ns(self, middle_ns):
        """Return what has to be added to each rank's own ``middle_ns``, so that it is the first rank's time."""
        half = self.length_ns / 2
        true = (middle_ns + self.offset_ns - half) * (1 + self.drift) + half - middle_ns
        return true - true[0]


def planted(
    count: int = 4,
    steps: int = 12,
    *,
    seed: int = 0,
    kernels_us=(200, 400, 300),
    jitter_us: float = 3.0,
    pause_us: float = 0.0,
    slow: Slow = lambda step, at: None,
    idle: Slow = lambda step, at: None,
    missing: dict[int, int] | None = None,
    numbered: bool = True,
    offset_s: float = 1.0,
    ppm: float = 50.0,
    groups: tuple[tuple[int, ...], ...] = (),
    transfer_us: float = 30.0,
    buffered_us: float = 0.0,
) -> Planted:
    """Return a job: in each step, kernels of these lengths, each with an all-reduce behind it on a second stream.

    ``slow``, ``idle``: for a step and a kernel, which rank takes so many µs longer, or begins so many µs later.
    ``missing``: how many of its first all-reduces a rank's file lacks. ``groups``: ranks that reduce together; by default all.
    ``transfer_us``: from when the last rank begins until all end. ``buffered_us``: how much later the last one ends, if it began so much
    later: what others sent lies in its buffers.
    """
    rng = np.random.default_rng(seed)
    offset_ns, drift = rng.uniform(-offset_s, offset_s, count) * 1e9, rng.uniform(-ppm, ppm, count) * 1e-6
    offset_ns[0] = drift[0] = 0
    rows: list[list[tuple[str, str, float, float]]] = [[] for _ in range(count)]
    now = np.zeros(count)
    groups = groups or (tuple(range(count)),)
    for step in range(steps):
        for at, kernel_us in enumerate(kernels_us):
            begin, length = now + 500, kernel_us * 1e3 + rng.normal(0, jitter_us * 1e3, count)
            for late, into in ((slow(step, at), length), (idle(step, at), begin)):
                if late:
                    into[late[0]] += late[1] * 1e3
            end = begin + length
            for group in groups:
                members = list(group)
                start = end[members] + 1000 + rng.uniform(0, 500, len(members))
                done = start.max() + transfer_us * 1e3 + rng.normal(0, 500, len(members))
                done[start.argmax()] += min(buffered_us * 1e3, start.max() - np.sort(start)[-2:][0])
                for rank, one, other in zip(members, start, done, strict=True):
                    rows[rank] += [(f"k{at}", "main", begin[rank], end[rank]), (REDUCE, "nccl", one, other)]
                    now[rank] = other
        now = now + pause_us * 1e3
    length_ns = float(now.max())
    ranks = []
    for rank in range(count):
        lacking = (missing or {}).get(rank, 0)

        def own(time, rank=rank):
            return round((time - length_ns / 2) / (1 + drift[rank]) + length_ns / 2 - offset_ns[rank])

        spans = [("kernel", name, lane, own(begin), own(end)) for name, lane, begin, end in rows[rank][2 * lacking :]]
        table = SpanTable.of(*spans)
        reduces = np.flatnonzero(table.name == table.names.index(REDUCE))
        numbers = np.arange(lacking, lacking + len(reduces))
        group = next(each for each in groups if rank in each)
        found = Collectives.from_columns(
            reduces, "all_reduce", nbytes=1 << (20 + numbers % len(kernels_us)), ranks=len(group),
            communicator=str(list(group)), sequence=numbers if numbered else -1,
        )  # fmt: skip
        info = TraceInfo("kineto", f"rank {rank}", DeviceInfo("cuda", "NVIDIA H100"), "kineto", rank=rank, world_size=count, zero_ns=0)
        ranks.append(Rank(rank, f"rank{rank}.json", Trace(table, info, collectives=found)))
    return Planted(ranks, offset_ns, drift, length_ns)


def with_info(rank: Rank, **fields) -> Rank:
    """Return a rank whose trace has other facts."""
    return replace(rank, trace=replace(rank.trace, info=replace(rank.trace.info, **fields)))


def rows_of(rank: Rank) -> list[tuple[str, str, str, int, int]]:
    """Return the spans of a rank as the rows of `SpanTable.of`."""
    spans = rank.trace.spans
    columns = (spans.kind, spans.name, spans.lane, spans.start_ns, spans.end_ns)
    return [
        (SpanKind(kind).name, spans.names[name], spans.lanes[lane], begin, end)
        for kind, name, lane, begin, end in zip(*(column.tolist() for column in columns), strict=True)
    ]


def with_rows(rank: Rank, rows) -> Rank:
    """Return a rank with other spans, and the same all-reduces."""
    table = SpanTable.of(*sorted(rows, key=lambda row: row[3]), gpus={row[2]: 0 for row in rows if not row[2].startswith("host")})
    reduces = np.flatnonzero(table.name == table.names.index(REDUCE))
    return replace(rank, trace=replace(rank.trace, spans=table, collectives=replace(rank.trace.collectives, span=reduces)))


def pipeline(slow_us: float = 0, *, told: bool = True, steps: int = 10, parts: int = 4, seed: int = 0) -> list[Rank]:
    """Return two stages of one host: in each step all forward passes of a batch's parts, then all backward passes.

    The second stage takes ``slow_us`` longer for each. ``told``: whether messages say which way they go; those in CUDA graphs do not.
    """
    rng = np.random.default_rng(seed)
    rows: list[list[tuple[str, str, str, int, int]]] = [[], []]
    kinds: list[list[str]] = [[], []]
    now = [0, 0]

    def runs(stage: int, name: str, us: float) -> None:
        end = now[stage] + round(1e3 * (us + slow_us * stage + abs(rng.normal(0, 2))))
        rows[stage].append(("kernel", name, "main", now[stage], end))
        now[stage] = end

    def message(source: int) -> None:
        end = max(now) + 30_000
        for stage in (0, 1):
            rows[stage].append(("kernel", "ncclDevKernel_SendRecv", "nccl", now[stage] + 1000, end))
            kinds[stage].append(("send" if stage == source else "recv") if told else "send_recv")
            now[stage] = end

    for _ in range(steps):
        for part in range(parts):
            runs(0, "forward", 200)
            if part:
                runs(1, "forward", 200)
            message(0)
        runs(1, "forward", 200)
        for _ in range(parts):
            runs(1, "backward", 400)
            message(1)
            runs(0, "backward", 400)
    ranks = []
    for stage in (0, 1):
        spans = SpanTable.of(*rows[stage])
        at = np.flatnonzero(spans.name == spans.names.index("ncclDevKernel_SendRecv"))
        found = Collectives.from_columns(at, kinds[stage], nbytes=2**20, communicator="a", peer=1 - stage if told else -1)
        info = TraceInfo("recorded", "step", DeviceInfo("cuda", "NVIDIA H100"), "cupti", rank=stage, world_size=2, zero_ns=0)
        ranks.append(Rank(stage, f"{stage}.parquet", Trace(spans, info, collectives=found), host="a"))
    return ranks
