"""What branches cost in a CUDA graph: graphs of spinning kernels that stamp when they start and end, beside the simulated device.

    python benchmarks/graph_laws.py measure MEASURED.json       (on a GPU, with CuPy; a second)
    python benchmarks/graph_laws.py score MEASURED.json         (anywhere; writes results/graph_laws.json)

The simulated device's `graph_crossing_ns`, `graph_dispatch_ns`, `graph_root_ns` and `graph_leaf_ns` are read off the regular graphs. The
random ones are held out. On an H200:

- Behind one root, a node starts 0.72 µs after the last of those that it comes after: within a branch, across, behind one or behind many.
- Nodes that become ready together start 0.18 to 0.25 µs apart. Behind a node with more than six successors, the first starts 1 µs later.
- The host puts one root after the other on the device, one each 0.73 µs, within the launch call, and takes 0.17 µs for each leaf.
- A node that comes right after nodes of other roots starts 1.1 µs later than that, also where they were done long before.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from streamscope.devices.simulated import SimulatedDevice
from streamscope.files import written_whole
from streamscope.program.launch import Cost, Launch, LaunchKind

RESULT = Path(__file__).parent / "results" / "graph_laws.json"
ROUNDS, WARM = 24, 4
MOST_NODES = 400
Edges = list[list[int]]

CODE = r"""
extern "C" __global__ void spin(unsigned long long* out, long long ns, int node) {
  unsigned long long start, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
  now = start;
  while ((long long)(now - start) < ns) asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  if (threadIdx.x == 0) { out[2 * node] = start; out[2 * node + 1] = now; }
}
"""


def chains(count: int, length: int) -> Edges:
    return [[] if node < count else [node - count] for node in range(count * length)]


def behind_one(count: int, length: int) -> Edges:
    """Return chains between a first node and a last one."""
    edges: Edges = [[], *([max(0, 1 + node - count)] for node in range(count * length))]
    return [*edges, list(range(len(edges) - count, len(edges)))]


def fans(count: int, stages: int) -> Edges:
    edges: Edges = [[]]
    for _ in range(stages):
        first = len(edges)
        edges += [[first - 1] for _ in range(count)]
        edges.append(list(range(first, first + count)))
    return edges


def two(length: int, every: int, *, chained: bool) -> Edges:
    """Return a chain whose nodes, one of so many, also come after one of another chain, or after a root of their own."""
    edges: Edges = []
    main = side = -1
    for number in range(length):
        if number % every == 0:
            edges.append([side] if chained and side >= 0 else [])
            side = len(edges) - 1
        edges.append([one for one in (main, side if number % every == 0 and number else -1) if one >= 0])
        main = len(edges) - 1
    return edges


def leaves(length: int) -> Edges:
    """Return a chain with a leaf at each node."""
    return [[], *([max(0, node - 2 + node % 2)] for node in range(1, 2 * length))]


def randomly(nodes: int, seed: int, width: int) -> Edges:
    random, edges = np.random.default_rng(seed), Edges()
    for node in range(nodes):
        low = max(0, node - width)
        count = min(node - low, int(random.integers(0, 3)))
        edges.append(sorted(map(int, random.choice(np.arange(low, node), count, replace=False))) if count else [])
    return edges


def cases() -> Iterator[tuple[str, Edges, list[int]]]:
    """Yield graphs: of which sort, their edges, and for how many ns each node spins."""
    made: list[tuple[str, Edges]] = [("chain", chains(1, 40))]
    made += [("chains", chains(count, 12)) for count in (2, 4, 8, 16, 32)]
    made += [("behind one root", behind_one(count, 12)) for count in (2, 4, 6, 8, 16)]
    made += [("fans", fans(count, 8)) for count in (2, 4, 6, 8, 16)]
    made += [("meeting", two(30, every, chained=chained)) for every in (1, 2, 4) for chained in (True, False)]
    made += [("leaves", leaves(40))]
    for sort, edges in made:
        for ns in (2000, 5000):
            yield sort, edges, [ns] * len(edges)
    for seed in range(16):
        edges = randomly(*((80, seed, 6) if seed < 8 else (120, seed, 16)))
        yield "random", edges, np.random.default_rng(100 + seed).integers(500, 8000, len(edges)).tolist()


def measure(target: Path) -> None:
    import cupy
    from provenance import provenance

    import streamscope as ss

    spin = cupy.RawModule(code=CODE).get_function("spin")
    origin, *streams = (cupy.cuda.Stream(non_blocking=True) for _ in range(MOST_NODES + 1))
    out = cupy.zeros((MOST_NODES, 2), cupy.uint64)
    pair = cupy.cuda.Event(), cupy.cuda.Event()

    def graph(edges: Edges, lengths: Sequence[int]) -> Any:
        events = [cupy.cuda.Event(disable_timing=True) for _ in range(len(edges) + 1)]
        followed = {earlier for before in edges for earlier in before}
        origin.begin_capture()
        events[-1].record(origin)
        for node, before in enumerate(edges):  # A stream for each node, so that there are no other edges than these.
            for earlier in before or [-1]:
                streams[node].wait_event(events[earlier])
            with streams[node]:
                spin((1,), (32,), (out, np.int64(lengths[node]), np.int32(node)))
            events[node].record(streams[node])
        for node in range(len(edges)):
            if node not in followed:
                origin.wait_event(events[node])
        return origin.end_capture()

    rows = []
    for sort, edges, lengths in cases():
        made = graph(edges, lengths)
        calls, spans, stamps, both = [], [], [], []
        for _ in range(WARM + ROUNDS):
            origin.synchronize()
            pair[0].record(origin)
            start = _now_ns()
            made.launch(origin)
            calls.append(_now_ns() - start)
            pair[1].record(origin)
            origin.synchronize()
            both.append(1e6 * cupy.cuda.get_elapsed_time(*pair))
            stamp = out.get()[: len(edges)].astype(np.int64)
            stamps.append(stamp - stamp.min())
            spans.append(stamps[-1].max())
        ns = {name: round(float(np.median(each[WARM:]))) for name, each in (("call", calls), ("span", spans), ("events", both))}
        rows.append(
            {"sort": sort, "edges": edges, "spin_ns": lengths, **ns, "stamps": np.median(stamps[WARM:], axis=0).astype(int).tolist()}
        )
    content = {"what": "graphs of spinning kernels: launch call, first start to last end, pair of events, stamps; medians in ns"}
    with written_whole(target) as path:
        path.write_text(json.dumps(content | provenance(ss.open_device("cuda")) | {"rows": rows}), encoding="utf-8")


def _now_ns() -> int:
    import time

    return time.perf_counter_ns()


def simulated_ns(edges: Edges, alone_ns: Sequence[float]) -> tuple[float, float]:
    """Return what the simulated device says: the launch call, and from the first start to the last end."""
    device = SimulatedDevice()
    device.log.enabled = True
    origin = device.stream("origin")
    begin, streams = device.event(), [device.stream(str(node)) for node in range(len(edges))]
    ends = [device.event() for _ in edges]
    device.begin_capture(origin)
    origin.record(begin)
    for node, before in enumerate(edges):
        for event in [ends[one] for one in before] or [begin]:
            streams[node].wait(event)
        cost = Cost(0, blocks=1, threads=32, alone_ns=alone_ns[node])
        device.bind(Launch(node, 0, "spin", LaunchKind.KERNEL, (), (), cost, lambda _: []), [], [], streams[node])()
        streams[node].record(ends[node])
    for event in ends:
        origin.wait(event)
    graph = device.end_capture(origin)
    start_ns = device.now_ns()
    graph.launch(origin)
    call_ns = device.now_ns() - start_ns
    device.synchronize()
    return call_ns, max(one.end_ns for one in device.log) - min(one.start_ns for one in device.log)


def score(source: Path) -> None:
    read = json.loads(source.read_text(encoding="utf-8"))
    model = SimulatedDevice().model
    # A kernel takes what it spins, and to start and to end: as long as the chain says, whose gaps are the model's.
    chain = min((row for row in read["rows"] if row["sort"] == "chain"), key=lambda row: row["span"])
    steps = len(chain["edges"])
    around_ns = (chain["span"] - sum(chain["spin_ns"])) / (steps - 1) - model.graph_node_gap_ns
    base_ns = chain["call"] - model.graph_launch_ns(steps)  # This host's
    errors: dict[str, list[float]] = {}
    calls: dict[str, list[float]] = {}
    for row in read["rows"]:
        taken_ns = np.diff(row["stamps"], axis=1)[:, 0] + around_ns
        call_ns, span_ns = simulated_ns(row["edges"], taken_ns.tolist())
        errors.setdefault(row["sort"], []).append((span_ns - around_ns) / row["span"] - 1)
        calls.setdefault(row["sort"], []).append((call_ns + base_ns - row["call"]) / 1e3)
    content = {key: value for key, value in read.items() if key != "rows"}
    content["what"] = "simulated against measured: first start to last end (relative errors), launch call (errors in µs), by sort of graph"
    names = ("graph_node_gap_ns", "graph_crossing_ns", "graph_dispatch_ns", "graph_root_ns", "graph_leaf_ns")
    content["model"] = {name: getattr(model, name) for name in names}
    content["span"] = {sort: _told(each) for sort, each in errors.items()}
    content["call_us"] = {sort: _told(each) for sort, each in calls.items()}
    with written_whole(RESULT) as path:
        path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    for sort, told in content["span"].items():
        print(
            f"{sort:18} {told['count']:3} graphs: median {told['median']:.1%}, worst {told['worst']:.1%}; call {content['call_us'][sort]}"
        )


def _told(errors: Sequence[float]) -> dict[str, float]:
    size = np.abs(errors)
    return {"count": len(size), "median": round(float(np.median(size)), 4), "worst": round(float(size.max()), 4)}


if __name__ == "__main__":
    {"measure": measure, "score": score}[sys.argv[1]](Path(sys.argv[2]))
