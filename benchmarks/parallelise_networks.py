"""Fifteen networks that were never written for us: as `torch.cuda.CUDAGraph` runs them, and in the order that their memory asks for.

Each network is captured twice, by PyTorch (or CuPy) and by `ss.capture`, and runs as it was captured and in its true order. They take
turns. Three networks are measured on the kernels of `torch.compile`, too, and called from end to end.

python benchmarks/parallelise_networks.py [RESULT.json] [--only googlenet,lstm] [--batch 1,8,32] [--inputs 1000] [--compiled googlenet]
python benchmarks/parallelise_networks.py [RESULT.json] --results-of OTHER.json ...

What was measured before and is not asked for stays in the result. Proofs can be made by several processes side by side, each with a result
of its own; the second call takes over all that others hold, with when and where it was made.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import statistics
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import cupy
import numpy as np
import torch
from networks import NETWORKS, Network, large_nasnet
from provenance import provenance

import streamscope as ss
from streamscope.capturing.function import CapturedFunction
from streamscope.files import written_whole
from streamscope.parallelising.proving import prove

REPEATS, STREAMS = 100, 12
COMPILED = "nasnet_like,mixture_of_experts,inception_v3,googlenet"
PEER, CAPTURED, PARALLEL = "torch.cuda.CUDAGraph", "graph", "graph-dual"


def torch_graph(network: Network) -> Callable[[], object]:
    """Return what replays a network as PyTorch captures it, as its documentation says; CuPy captures its own functions."""
    if isinstance(network.inputs[0], cupy.ndarray):
        return _cupy_graph(network)
    side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            network.function(*network.inputs)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        graph.results = network.function(*network.inputs)  # They live as long as the graph.
    replay: Callable[[], object] = graph.replay
    return replay


def _cupy_graph(network: Network) -> Callable[[], object]:
    stream, pool = cupy.cuda.Stream(non_blocking=True), cupy.cuda.MemoryPool()
    with cupy.cuda.using_allocator(pool.malloc), stream:
        for _ in range(3):
            network.function(*network.inputs)
        stream.synchronize()
        stream.begin_capture()
        results = network.function(*network.inputs)
        graph = stream.end_capture()

    def replay(kept: object = (results, pool)) -> None:
        graph.launch(stream)

    return replay


def in_turns_us(calls: Mapping[str, Callable[[], Any]], repeats: int = REPEATS) -> dict[str, float]:
    """Return the median time of each call until the device is done, in µs; they take turns, in random order."""
    random = np.random.default_rng(0)
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(repeats + 5):
        for name in map(str, random.permutation(list(calls))):
            start = time.perf_counter_ns()
            calls[name]()
            torch.cuda.synchronize()
            if turn >= 5:
                times[name].append((time.perf_counter_ns() - start) / 1e3)
    return {name: statistics.median(each) for name, each in times.items()}


@contextlib.contextmanager
def taking(found: dict[str, float], name: str) -> Iterator[None]:
    """Note how long a block takes, in s."""
    start = time.perf_counter()
    yield
    torch.cuda.synchronize()
    found[name] = time.perf_counter() - start


def memory_beyond(captured: CapturedFunction) -> int:
    return int(captured.memory.held_bytes - captured.memory.plain_bytes)


def free_bytes() -> int:
    gc.collect()
    torch.cuda.empty_cache()
    return int(torch.cuda.mem_get_info()[0])


def captured_and_measured(network: Network, name: str) -> tuple[CapturedFunction, dict[str, Any]]:
    """Measure a network in all orders, in turns."""
    seconds: dict[str, float] = {}
    before = free_bytes()
    replay = torch_graph(network)
    between = free_bytes()
    with taking(seconds, "capture and inference"):
        captured = ss.capture(network.function, *network.inputs, name=name)
    after = free_bytes()
    prepared = {}
    with taking(seconds, "scheduling"):
        for engine in (CAPTURED, PARALLEL):
            prepared[engine] = ss.prepare(captured, engine=engine, device="cuda", streams=STREAMS, progress=False)
            for _ in range(3):
                prepared[engine].run()
                prepared[engine].wait()
    certificate = captured.certificate()
    with taking(seconds, "checking"):
        unordered = certificate.unordered()
    us = in_turns_us({PEER: replay} | {engine: one.run for engine, one in prepared.items()})
    found = {
        "us": us,
        "speedup": us[PEER] / us[PARALLEL],
        "nodes": len(captured.nodes),
        "longest_path": certificate.longest_path,
        "edges": certificate.edges,
        "unordered_pairs": len(unordered),
        "not_understood": len(certificate.unknown),
        "why_not_understood": {why: len(numbers) for why, numbers in certificate.reasons.items()},
        "evidence": {evidence.name: count for evidence, count in certificate.evidence.items()},
        "held_bytes": {PEER: before - between, "captured": between - after, "beyond a plain call": memory_beyond(captured)},
        "seconds": seconds,
        "order": prepared[PARALLEL].plan.chosen,
        "notes": prepared[PARALLEL].notes,
    }
    bound = captured.bound()
    found["bound"] = {"text": str(bound), "speedup": bound.speedup, "least_us": bound.least_us, "nothing_to_gain": bound.nothing_to_gain}
    return captured, found


def proof(network: Network, name: str, inputs: int) -> dict[str, Any]:
    """Prove the true order of a network on so many random inputs."""
    captured = ss.capture(network.function, *network.inputs, name=name)
    prepared = ss.prepare(captured, engine=PARALLEL, device="cuda", streams=STREAMS, progress=False)
    return prove(captured, prepared, inputs=inputs).to_dict()


def compiled(network: Network, name: str) -> dict[str, Any]:
    """Measure a network on the kernels of `torch.compile`; then called, with the same inputs, copies and static results."""
    seconds: dict[str, float] = {}
    plain = torch.compile(network.function)
    with taking(seconds, "compiling"):
        plain(*network.inputs)
    _, found = captured_and_measured(Network(plain, network.inputs, network.below), name)
    fast = ss.parallelise(plain, *network.inputs, outputs="static", streams=STREAMS, check=0, progress=False)
    torch.compiler.reset()
    reduced = torch.compile(network.function, mode="reduce-overhead")
    with taking(seconds, "compiling with reduce-overhead"):
        for _ in range(4):
            reduced(*network.inputs)
    called = in_turns_us({"reduce-overhead": lambda: reduced(*network.inputs), "parallelise": lambda: fast(*network.inputs)})
    found["seconds"] |= seconds
    torch.compiler.reset()
    return found | {"called_us": called, "called_speedup": called["reduce-overhead"] / called["parallelise"]}


def attempt(measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return measure()
    except Exception as error:  # noqa: BLE001 — a network that fails is a result, too
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {error}"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("result", nargs="?", type=Path, default=Path(__file__).parent / "results" / "parallelise_networks.json")
    parser.add_argument("--only", default=",".join(make.__name__ for make in NETWORKS.values()), help="functions of networks.py")
    parser.add_argument("--batch", default="1,8,32")
    parser.add_argument("--inputs", type=int, default=1000, help="random inputs on which bits are compared; 0 for none")
    parser.add_argument("--compiled", default=COMPILED, help="functions of networks.py that are measured on the kernels of torch.compile")
    parser.add_argument("--save", type=Path, help="a folder for the captured code of batch 1")
    parser.add_argument("--large", action="store_true", help="measure a network of 5,000 nodes, too")
    parser.add_argument("--results-of", type=Path, nargs="+", help="results that are taken over; nothing else is done")
    options = parser.parse_args()
    if options.results_of:
        take_over(options.result, options.results_of)
        return
    before = json.loads(options.result.read_text()) if options.result.exists() else {}
    results: dict[str, dict[str, Any]] = before.get("results", {})
    large = before.get("large", {})
    for name, make in NETWORKS.items():
        if make.__name__ not in options.only.split(","):
            continue
        found = results.setdefault(name, {})
        found["function"] = make.__name__
        for batch in filter(None, options.batch.split(",")):
            found[batch] = attempt(lambda: measured(make, int(batch), options))  # noqa: B023 — called at once
            print(name, batch, json.dumps(found[batch]), flush=True)
            written(options.result, results, large)
        if make.__name__ in options.compiled.split(","):
            found["compiled"] = attempt(lambda: compiled(make(1), make.__name__))  # noqa: B023 — called at once
            print(name, "compiled", json.dumps(found["compiled"]), flush=True)
            written(options.result, results, large)
        if options.inputs:
            found["proof"] = attempt(lambda: proof(make(1), make.__name__, options.inputs))  # noqa: B023 — called at once
            print(name, "proof", json.dumps(found["proof"]), flush=True)
            written(options.result, results, large)
    if options.large:
        large = attempt(lambda: captured_and_measured(large_nasnet(1), "large_nasnet")[1])
        print("large", json.dumps(large), flush=True)
        written(options.result, results, large)


def take_over(path: Path, others: Sequence[Path]) -> None:
    """Put what other results hold into one, and leave all else as it is; what failed is not taken."""
    content = json.loads(path.read_text())
    for other in (json.loads(each.read_text()) for each in others):
        made = {key: other[key] for key in ("device", "versions", "date")}
        for name, found in other["results"].items():
            entry = content["results"].setdefault(name, {"function": found["function"]})
            entry |= {key: made | one for key, one in found.items() if key != "function" and "error" not in one}
        content["large"] = made | other["large"] if "nodes" in other["large"] else content["large"]
    with written_whole(path) as temporary:
        temporary.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def measured(make: Callable[[int], Network], batch: int, options: argparse.Namespace) -> dict[str, Any]:
    captured, found = captured_and_measured(make(batch), make.__name__)
    if options.save and batch == 1:
        captured.save(options.save / f"{captured.name}.captured.json")
    return found


def written(path: Path, results: Mapping[str, Any], large: Mapping[str, Any]) -> None:
    content = {
        "what": "captured networks, in their own order and in the order that memory asks for; median of repeats, taking turns, in µs",
        "repeats": REPEATS,
        "streams": STREAMS,
        "results": {name: results[name] for name in NETWORKS if name in results},
        "large": large,
        **provenance(ss.open_device("cuda"), torch=torch.__version__, torchvision=metadata.version("torchvision")),
    }
    with written_whole(path) as temporary:
        temporary.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
