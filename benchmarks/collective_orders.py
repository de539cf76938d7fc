"""Steps with collectives through `ss.parallelise`, against their capture and against overlap by hand, and stressed with random delays.

``python -m torch.distributed.run --nproc-per-node 2 benchmarks/collective_orders.py --cases dp-4096x8,tp-256:10000 --replays 1000``
prints a line of JSON for each case, and ``--into`` adds it to a file of results. Each process has a time limit, since collectives that
wait for each other never end.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import cupy
import numpy as np
import torch
import torch.distributed as dist
from cuda.bindings import nvml

import streamscope as ss
from streamscope.capturing import function as capturing
from streamscope.devices.cuda.raw_graph import RawGraph
from streamscope.order.collectives import collective_orders

HALF = torch.bfloat16
LOOP_S, TURNS = 0.12, 7
"""Length of a loop of replays, and how often one is timed. A GPU at its power limit has the clocks of the last tenth of a second."""
REST_S = 0.05
"""After such a pause, a GPU at its power limit has its highest clocks again."""
LAPS = 7, 31, 100
"""Replays from the same weights until results are compared: one of these at random."""
Call = Callable[..., Any]
Part = Callable[[torch.Tensor], torch.Tensor]


def data_parallel(width: int, layers: int, rows: int) -> tuple[Call, Call, list[torch.Tensor], tuple[torch.Tensor, ...]]:
    """Return a step that reduces all gradients behind its backward pass, the same by hand, its weights and its input."""
    torch.manual_seed(0)
    weights = [torch.randn(width, width, device="cuda", dtype=HALF) * 0.02 for _ in range(layers)]
    torch.manual_seed(1 + dist.get_rank())
    batch = torch.randn(rows, width, device="cuda", dtype=HALF)
    beside = torch.cuda.Stream()

    def backward(x: torch.Tensor, ready: Callable[[int, torch.Tensor], None]) -> None:
        kept = [x]
        for weight in weights:
            kept.append(torch.relu(kept[-1] @ weight))
        slope = kept[-1] * 1e-3
        for at in range(layers - 1, -1, -1):
            slope = slope * (kept[at + 1] > 0)
            ready(at, kept[at].t() @ slope)
            slope = slope @ weights[at].t()

    def written(x: torch.Tensor) -> torch.Tensor:
        found: dict[int, torch.Tensor] = {}
        backward(x, found.__setitem__)
        for at in range(layers):
            dist.all_reduce(found[at])
        for at in range(layers):
            weights[at].sub_(found[at], alpha=1e-3)
        return weights[0].sum()

    def by_hand(x: torch.Tensor) -> torch.Tensor:
        main, found = torch.cuda.current_stream(), {}

        def ready(at: int, gradient: torch.Tensor) -> None:
            found[at] = gradient
            beside.wait_stream(main)
            with torch.cuda.stream(beside):
                dist.all_reduce(gradient)

        backward(x, ready)
        main.wait_stream(beside)
        for at in range(layers):
            weights[at].sub_(found[at], alpha=1e-3)
        return weights[0].sum()

    return written, by_hand, weights, (batch,)


def tensor_parallel(tokens: int, width: int = 4096, blocks: int = 4) -> tuple[Call, Call, list[torch.Tensor], tuple[torch.Tensor, ...]]:
    """Return two micro-batches through tensor-parallel blocks, one after the other, the same by hand, no weights and the inputs.

    A block is attention and a multilayer perceptron, and each of them ends with an all-reduce.
    """
    torch.manual_seed(1 + dist.get_rank())
    heads = width // 128 // dist.get_world_size()
    beside = torch.cuda.Stream()

    def weight(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, device="cuda", dtype=HALF) * 0.01

    def attention() -> Part:
        come, go = weight(width, 3 * 128 * heads), weight(128 * heads, width)

        def part(x: torch.Tensor) -> torch.Tensor:
            query, key, value = (x @ come).view(1, tokens, 3, heads, 128).permute(2, 0, 3, 1, 4)
            found = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
            return found.transpose(1, 2).reshape(tokens, 128 * heads) @ go

        return part

    def perceptron() -> Part:
        up, down = weight(width, 4 * 128 * heads), weight(4 * 128 * heads, width)
        return lambda x: torch.relu(x @ up) @ down

    parts = [part() for _ in range(blocks) for part in (attention, perceptron)]
    torch.manual_seed(7)
    batches = tuple(torch.randn(tokens, width, device="cuda", dtype=HALF) for _ in range(2))

    def written(*inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found = []
        for x in inputs:
            y = x
            for part in parts:
                h = part(y)
                dist.all_reduce(h)
                y = y + h
            found.append(y)
        return tuple(found)

    def by_hand(*inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        main, current = torch.cuda.current_stream(), list(inputs)
        done, sums = [torch.cuda.Event() for _ in inputs], list(inputs)
        for number, part in enumerate(parts):
            for at in range(2):
                if number:
                    main.wait_event(done[at])
                    current[at] = current[at] + sums[at]
                sums[at] = part(current[at])
                beside.wait_stream(main)
                with torch.cuda.stream(beside):
                    dist.all_reduce(sums[at])
                    done[at].record(beside)
        for at in range(2):
            main.wait_event(done[at])
            current[at] = current[at] + sums[at]
        return tuple(current)

    return written, by_hand, [], batches


def resnet18() -> tuple[Call, Call, list[torch.Tensor], tuple[torch.Tensor, ...]]:
    """Return a training step of a network that reduces each gradient, the same by hand, its weights and its input."""
    import torchvision

    torch.backends.cudnn.deterministic = True
    torch.manual_seed(0)
    model = torchvision.models.resnet18().cuda()
    parameters, beside = list(model.parameters()), torch.cuda.Stream()
    torch.manual_seed(1 + dist.get_rank())
    batch = torch.randn(32, 3, 224, 224, device="cuda")

    def update(gradients: Sequence[torch.Tensor]) -> None:
        for one, gradient in zip(parameters, gradients, strict=True):
            one.data.sub_(gradient, alpha=1e-4)

    def written(x: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            loss = model(x).square().mean()
            gradients = torch.autograd.grad(loss, parameters)
        for one in gradients:
            dist.all_reduce(one)
        update(gradients)
        return loss.detach()

    def by_hand(x: torch.Tensor) -> torch.Tensor:
        def reduce(parameter: torch.Tensor) -> None:
            beside.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(beside):
                dist.all_reduce(parameter.grad)

        hooks = [one.register_post_accumulate_grad_hook(reduce) for one in parameters]
        with torch.enable_grad():
            loss = model(x).square().mean()
            loss.backward()
        torch.cuda.current_stream().wait_stream(beside)
        update([one.grad for one in parameters])
        for one, hook in zip(parameters, hooks, strict=True):
            one.grad = None
            hook.remove()
        return loss.detach()

    return written, by_hand, [*(one.data for one in parameters), *model.buffers()], (batch,)


def fsdp2() -> tuple[Call, Call, list[torch.Tensor], tuple[torch.Tensor, ...]]:
    """Return a training step with FSDP2, which overlaps by itself, twice, its weights and its input."""
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(2048, 2048) for _ in range(6))).cuda()
    for layer in (*model, model):
        fully_shard(layer)
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-3)
    torch.manual_seed(1 + dist.get_rank())
    batch = torch.randn(512, 2048, device="cuda")

    def written(x: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            optimiser.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimiser.step()
            return loss.detach()

    return written, written, [one.to_local().data for one in model.parameters()], (batch,)


CASES: dict[str, Callable[[], Any]] = {
    "dp-4096x8": lambda: data_parallel(4096, 8, 1024),
    "dp-2048x8": lambda: data_parallel(2048, 8, 4096),
    "dp-1024x16": lambda: data_parallel(1024, 16, 1024),
    "dp-8192x8": lambda: data_parallel(8192, 8, 2048),
    "tp-256": lambda: tensor_parallel(256),
    "tp-1024": lambda: tensor_parallel(1024),
    "tp-4096": lambda: tensor_parallel(4096),
    "resnet18": resnet18,
    "fsdp2": fsdp2,
}


def graph_of(function: Call, inputs: Sequence[torch.Tensor]) -> tuple[Call, Any]:
    """Return the replay of PyTorch's own graph of a function, and its results."""
    side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            function(*inputs)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local"):
        results = function(*inputs)
    return graph.replay, (graph, results)


@cache
def nvml_handle() -> int:
    """Return NVML's handle of the current GPU."""
    nvml.init_v2()
    return int(nvml.device_get_handle_by_uuid(f"GPU-{torch.cuda.get_device_properties(torch.cuda.current_device()).uuid}"))


def clock_and_power() -> tuple[float, float, float]:
    """Return the clock of the multiprocessors in MHz, the power of the last second in W, and 1 if a limit of power holds the clock down."""
    handle = nvml_handle()
    held = nvml.device_get_current_clocks_event_reasons(handle) & nvml.ClocksEventReasons.EVENT_REASON_SW_POWER_CAP
    return nvml.device_get_clock_info(handle, nvml.ClockType.CLOCK_SM), nvml.device_get_power_usage(handle) / 1e3, float(bool(held))


def loop_of(call: Call) -> int:
    """Return how many replays take `LOOP_S`, by the slowest rank."""
    torch.cuda.synchronize()
    dist.barrier()
    start = time.perf_counter()
    call()
    torch.cuda.synchronize()
    took_s = torch.tensor(time.perf_counter() - start, device="cuda")
    dist.all_reduce(took_s, dist.ReduceOp.MAX)
    return max(1, int(LOOP_S / took_s.item()))


def medians(calls: dict[str, Call], replays: int, pause_s: float = 0.0) -> dict[str, dict[str, float]]:
    """Return medians of time in µs, clock and power of calls, in turns: so many replays are timed behind ``pause_s`` and as many others."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    found: dict[str, list[tuple[float, ...]]] = {name: [] for name in calls}
    for _ in range(TURNS):
        for name, call in calls.items():
            torch.cuda.synchronize()
            time.sleep(pause_s)
            dist.barrier()
            replayed(call, replays)
            start.record()
            replayed(call, replays)
            end.record()
            start.synchronize()
            seen = clock_and_power()
            end.synchronize()
            found[name].append((1e3 * start.elapsed_time(end) / replays, *seen))
    names = "us", "MHz", "W", "at the limit of power"
    return {name: dict(zip(names, np.median(seen, axis=0).round(1).tolist(), strict=True)) for name, seen in found.items()}


def bits_of(values: torch.Tensor) -> torch.Tensor:
    """Return values as whole numbers, of which NaN is equal to itself."""
    return values.contiguous().view({2: torch.int16, 4: torch.int32, 8: torch.int64}[values.itemsize])


def replayed(call: Call, times: int, drawn: np.random.Generator | None = None) -> None:
    """Replay a graph, with random delays in one of ten replays where ``drawn`` is given."""
    for _ in range(times):
        if drawn is not None and drawn.random() < 0.1:
            torch.cuda._sleep(int(drawn.integers(1, 400_000)))  # noqa: SLF001 — no public way
        call()


def wrong_laps(
    right: Call, call: Call, put_back: Call, looked_at: Sequence[Sequence[torch.Tensor]], replays: int, until_s: float
) -> tuple[int, int]:
    """Replay a graph with random delays on random ranks, in laps from the same weights.

    Return how many laps have left other bits than the capture, and the number of replays.

    ``looked_at``: results and weights of the capture, and those of the other graph.
    ``until_s``: when to stop, by ``time.monotonic()``; fewer replays are done then.
    """
    put_back()
    expected, done = {}, 0
    for length in LAPS:
        replayed(right, length - done)
        expected[length], done = [one.clone() for one in looked_at[0]], length
    delays, lengths = np.random.default_rng(1 + dist.get_rank()), np.random.default_rng(0)  # Laps are as long on each rank.
    wrong, done = 0, 0
    late = torch.zeros((), device="cuda")
    while done < replays and not late:
        length = int(lengths.choice(LAPS))
        put_back()
        replayed(call, length, delays)
        wrong += any(not torch.equal(bits_of(one), bits_of(other)) for one, other in zip(expected[length], looked_at[1], strict=True))
        done += length
        late.fill_(time.monotonic() > until_s)
        dist.all_reduce(late)  # All ranks stop behind the same lap.
    return wrong, done


def measured(name: str, replays: int, check: int, until_s: float) -> dict[str, Any]:
    """Parallelise a case, time it, and compare it bit by bit with its capture."""
    written, by_hand, weights, inputs = CASES[name]()
    with torch.no_grad():
        before = [one.clone() for one in weights]

        def put_back() -> None:
            for one, values in zip(weights, before, strict=True):
                one.copy_(values)

        begun = time.monotonic()
        fast = ss.parallelise(written, *inputs, progress=False, outputs="static", check=check)
        made_s = time.monotonic() - begun
        put_back()
        (captured, kept), (hand, _) = graph_of(written, inputs), graph_of(by_hand, inputs)
        call = fast._captures[0].call  # noqa: SLF001 — its graph alone, as the others are
        stream = torch.cuda.current_stream().cuda_stream

        def ours() -> None:
            call.graph.launch_on(stream)

        for slot, value in zip(call.slots, inputs, strict=True):
            slot.memory.copy_(value)
        results = [one if isinstance(one, torch.Tensor) else torch.as_tensor(one) for one in fast.captured.results]
        theirs = kept[1] if isinstance(kept[1], tuple) else (kept[1],)
        looked_at = (*theirs, *weights), (*results, *weights)
        wrong, done = wrong_laps(captured, ours, put_back, looked_at, replays, until_s)
        calls = {"captured": captured, "ours": ours, "by hand": hand}
        loop, rested = medians(calls, loop_of(captured)), medians(calls, 1, REST_S)
        times = {name: one["us"] for name, one in loop.items()}
        put_back()
    facts = {"case": name, "gpus": dist.get_world_size(), "device": torch.cuda.get_device_name(), "made_s": round(made_s, 1), **times}
    unknown = fast.gain.certificate.unknown
    gains = {"gain": round(times["captured"] / times["ours"], 3), "of_hand": round(times["by hand"] / times["ours"], 3)}
    return {
        **facts,
        **gains,
        "in a loop": loop,
        "after pauses": rested,
        "bit_equal": not wrong,
        "replays": done,
        "unknown": dict(list(unknown.items())[:3]),
        "verdict": fast.verdict,
        "captured code": fast.captured,
    }


def planted(name: str) -> dict[str, Any]:
    """Return the refusals of this rank: the last rank has another order of collectives first, then other edges, and then nothing wrong."""
    written, _, _, inputs = CASES[name]()
    last = dist.get_rank() == dist.get_world_size() - 1
    orders, made = collective_orders, RawGraph._made  # noqa: SLF001

    def swapped(units: Sequence[int], *given: Any) -> dict[str, list[int]]:
        found = {order: list(nodes) for order, nodes in orders(units, *given).items()}
        for nodes in found.values():
            first, second = [at for at, node in enumerate(nodes) if units[node] >= 0][:2]
            nodes[first], nodes[second] = nodes[second], nodes[first]
        return found

    def one_edge_more(self: RawGraph, edges: tuple[tuple[int, ...], ...], *given: Any) -> Any:
        return made(self, (*edges[:-1], (*edges[-1], 0)), *given)

    planted = {"collectives": (capturing, "collective_orders", swapped), "edges": (RawGraph, "_made", one_edge_more)}
    told = {}
    for what, place in planted.items():
        with patch.object(*place) if last else nullcontext():
            try:
                with torch.no_grad():
                    ss.parallelise(written, *inputs, progress=False, outputs="static", check=2)
            except ss.StreamscopeError as error:
                told[what] = f"{type(error).__name__}: {error.message}"
    with torch.no_grad():
        told["nothing"] = ss.parallelise(written, *inputs, progress=False, outputs="static", check=2).verdict
    return {"case": name, "planted": told}


def added(results: Sequence[dict[str, Any]], found: dict[str, Any]) -> list[dict[str, Any]]:
    """Return results with a run's, whose times replace earlier ones of the case on such GPUs; replays are summed, and kept by day."""
    alike = [one for one in results if all(one[key] == found[key] for key in ("case", "gpus", "device"))]
    days = Counter({datetime.now(UTC).date().isoformat(): found["replays"]})
    for one in alike:
        days.update(one["days"])
    now = {"bit_equal": all(one["bit_equal"] for one in (*alike, found)), "replays": days.total(), "days": dict(days)}
    cases = [*CASES]
    rows = [*(one for one in results if one not in alike), found | now]
    return sorted(rows, key=lambda one: (one["gpus"], cases.index(one["case"]), one["device"]))


def main() -> None:
    """Measure the cases that were asked for."""
    options = argparse.ArgumentParser()
    options.add_argument("--cases", default=",".join(CASES))
    options.add_argument("--replays", type=int, default=1000)
    options.add_argument("--check", type=int, default=20, help="inputs of the proof")
    options.add_argument("--save", help="a folder for the captures")
    options.add_argument("--into", type=Path, help="a file of results, to which those of rank 0 are added")
    options.add_argument("--limit", type=int, default=120, help="seconds until the process gives up")
    options.add_argument("--planted", action="store_true", help="print the refusal of each rank, where the last one has another order")
    given = options.parse_args()
    faulthandler.dump_traceback_later(given.limit, exit=True)
    until_s = time.monotonic() + given.limit - 15
    rank = int(os.environ["RANK"])
    torch.cuda.set_device(rank)
    cupy.cuda.Device(rank).use()
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    for name, _, replays in (one.partition(":") for one in given.cases.split(",")):
        try:
            found = planted(name) if given.planted else measured(name, int(replays or given.replays), given.check, until_s)
        except Exception as error:  # noqa: BLE001 — told, and the next case is measured
            traceback.print_exc()
            found = {"case": name, "error": f"{type(error).__name__}: {error}"}
        code = found.pop("captured code", None)
        if given.save and code is not None:
            code.save(f"{given.save}/{name}.rank{rank}.captured.json")
        if rank == 0 or not found.get("bit_equal"):
            print(json.dumps({"rank": rank, **found}, ensure_ascii=False), flush=True)
        if rank == 0 and given.into and "replays" in found:
            results = added(json.loads(given.into.read_text("utf-8")), found)
            given.into.write_text(json.dumps(results, ensure_ascii=False, indent=1) + "\n", "utf-8")
    sys.stdout.flush()
    os._exit(0)  # A graph that holds a communicator may wait for peers that have gone.


if __name__ == "__main__":
    main()
