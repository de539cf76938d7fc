"""How far the simulated device is from a GPU: makespans of programs under each engine, and the durations of their launches.

On a GPU, measure:      python benchmarks/cost_model_accuracy.py measure [MEASURED.json] [SECONDS]
Anywhere, compare:      python benchmarks/cost_model_accuracy.py score KERNEL_TIMES.json MEASURED.json ...

The cost model is of `streamscope calibrate`; these programs take no part in it, and launches of `kernel_times.py` that do are left out.
What was measured last is in results/kernel_times_h200.json and results/program_times_h200.json. Hosts of one GPU
differ by a factor of two, and one host does so from minute to minute. So what calls cost the host is measured beside each program, by
small programs that are none of these, and stands in the place of what the model has of the host that it was made on.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from further_programs import FURTHER_PROGRAMS
from kernel_times import matched
from provenance import provenance

import streamscope as ss
from streamscope import ops
from streamscope.advising.break_even import chain, forked
from streamscope.calibrating.measure_costs import ADDITION_SIZES, COPY_BYTES, SMALL_ELEMENTS
from streamscope.calibrating.product_sweep import sweeps, traced_case
from streamscope.calibrating.program_times import HostPrograms
from streamscope.devices.cost_model import CostModel
from streamscope.devices.measured_models import FLAT
from streamscope.devices.simulated import SimulatedDevice
from streamscope.engine_entry import ENGINES
from streamscope.engines.prepared import Prepared, prepare_traced
from streamscope.files import written_whole
from streamscope.measuring.case import run_ns
from streamscope.measuring.simulation import simulated_ns, without_data
from streamscope.program.launch import Cost, Launch
from streamscope.program.operation import Program
from streamscope.program.variable import ArraySpec
from streamscope.tracing import ProgramFunction, program
from streamscope.workloads import WORKLOADS

RESULT = Path(__file__).parent / "results" / "cost_model_accuracy.json"
ROUNDS, HOST_ROUNDS = 100, 8
F16, F32, F64 = "float16", "float32", "float64"
SETTINGS: dict[str, Sequence[dict[str, int]]] = {
    "elementwise-chain": ({}, {"length": 100, "size": 1 << 16}, {"length": 30, "size": 6_000_000}),
    "conv-backward": ({}, {"channels": 32, "size": 28, "batch": 4}, {"channels": 512, "size": 7, "batch": 16}),
    "branches": ({}, {"branches": 6, "length": 6, "size": 1 << 18}, {"copies": 1, "size": 1 << 19}),
    "pipeline": ({}, {"chunks": 8, "size": 1 << 16}, {"chunks": 2, "size": 1 << 19}),
    "cnn": ({}, {"size": 48, "channels": 96, "batch": 2}, {"blocks": 2, "batch": 8}),
    "attention": ({}, {"length": 256, "heads": 4}, {"length": 384, "heads": 12, "batch": 2}),
    "lstm": ({}, {"steps": 10, "width": 512, "batch": 16}, {"steps": 6, "width": 768, "batch": 128}),
    "resnet-block": ({}, {"size": 28, "batch": 4}, {"size": 14, "channels": 256, "batch": 16}),
}
"""Sizes of each workload."""

Made = tuple[ProgramFunction, tuple[ArraySpec, ...]]


def spec(dtype: str, *shape: int) -> ArraySpec:
    return ArraySpec(shape, np.dtype(dtype))


def further() -> Iterator[tuple[str, Made]]:
    """Yield programs that are no workloads: `FURTHER_PROGRAMS`, and more of other dtypes."""
    for name, make in FURTHER_PROGRAMS.items():
        function, inputs = make()
        yield name, (function, tuple(ArraySpec(np.shape(one), one.dtype) for one in inputs))

    @program
    def attention_single(x: Any, wq: Any, wk: Any, wv: Any, wo: Any) -> Any:
        batch, length, width = x.shape
        q, k, v = (ops.matmul(x, w).reshape(batch, length, 4, width // 4).swapaxes(1, 2) for w in (wq, wk, wv))
        y = ops.softmax(q @ k.mT * 0.125) @ v
        return ops.matmul(y.swapaxes(1, 2).reshape(batch, length, width), wo)

    yield "attention, float32", (attention_single, (spec(F32, 2, 256, 256), *[spec(F32, 256, 256)] * 4))

    @program
    def transformer_block(x: Any, scale: Any, shift: Any, w1: Any, b1: Any, w2: Any, b2: Any) -> Any:
        for _ in range(3):
            y = ops.layer_norm(x, scale, shift)
            h = ops.bias_add(y @ w1, b1)
            h = h * ops.sigmoid(h)
            x = x + ops.bias_add(h @ w2, b2)
        return x

    width = 768
    weights = (spec(F16, width), spec(F16, width), spec(F16, width, 4 * width), spec(F16, 4 * width), spec(F16, 4 * width, width))
    yield "transformer blocks, float16", (transformer_block, (spec(F16, 512, width), *weights, spec(F16, width)))

    @program
    def network(x: Any, *weights: Any) -> Any:
        for index, w in enumerate(weights):
            x = ops.relu(ops.convolution(x, w, stride=1 + index % 2, padding=1))
        return ops.mean(ops.max_pool(x, 2), axis=(1, 2))

    layers = [(32, 3, 3, 8), (64, 3, 3, 32), (64, 3, 3, 64), (128, 3, 3, 64), (128, 3, 3, 128)]
    yield "convolutions, float32", (network, (spec(F32, 4, 64, 64, 8), *(spec(F32, *w) for w in layers)))
    yield "convolutions, float16", (network, (spec(F16, 16, 64, 64, 8), *(spec(F16, *w) for w in layers)))

    @program
    def wide(x: Any, *weights: Any) -> Any:
        ends = [ops.tanh(x @ w) for w in weights]
        ends = [ops.softmax(end) * x for end in ends]
        while len(ends) > 1:
            ends = [ops.add(*pair) for pair in zip(ends[::2], ends[1::2], strict=True)]
        return ends[0]

    yield "wide branches", (wide, (spec(F32, 192, 192), *[spec(F32, 192, 192)] * 16))

    @program
    def copied(w: Any, *parts: Any) -> Any:
        return tuple(ops.to_host(ops.relu(ops.to_device(part) @ w)) for part in parts)

    yield "copies and products", (copied, (spec(F32, 512, 512), *[spec(F32, 1024, 512)] * 6))

    @program
    def statistics(x: Any, scale: Any, shift: Any) -> Any:
        z = ops.layer_norm(x, scale, shift)
        deviations = ops.var(x, axis=0)
        best = ops.argmax(z, axis=1)
        return ops.cumsum(ops.sum(z, axis=1), axis=0), deviations + ops.mean(z, axis=0), best

    yield "reductions", (statistics, (spec(F32, 4096, 512), spec(F32, 512), spec(F32, 512)))

    @program
    def products(a: Any, b: Any) -> Any:
        for _ in range(6):
            a = a @ b * 0.01
        return a

    yield "products, float64", (products, (spec(F64, 384, 384), spec(F64, 384, 384)))
    yield "products, float32", (products, (spec(F32, 1024, 1024), spec(F32, 1024, 1024)))


def programs() -> Iterator[tuple[str, Made]]:
    """Yield all programs that the accuracy is of, the default sizes first."""
    most = max(map(len, SETTINGS.values()))
    for number in range(most):
        for name, settings in SETTINGS.items():
            if number < len(settings):
                chosen = settings[number]
                said = ", ".join(f"{key}={value}" for key, value in chosen.items())
                yield f"{name}{f' ({said})' if said else ''}", WORKLOADS[name].outline(**chosen)
        if not number:
            yield from further()


def probes() -> Iterator[tuple[str, Made]]:
    """Yield small programs, whose times show what calls cost."""
    for count in (1, 2, 5, 20, 100):
        function, inputs = chain(count, 4096)
        yield f"chain of {count}", (function, tuple(ArraySpec(x.shape, x.dtype) for x in inputs))
    for blocks, length, columns in ((1, 1, 256), (4, 1, 256), (4, 4, 256), (4, 1, 32_768)):
        function, inputs = forked(blocks, length, columns)
        yield f"forked {blocks} x {length} of {columns}", (function, tuple(ArraySpec(x.shape, x.dtype) for x in inputs))

    def repeated(count: int, apply: Callable[..., Any]) -> ProgramFunction:
        @program
        def repeated(x: Any, w: Any) -> Any:
            for _ in range(count):
                x = apply(x, w)
            return x

        return repeated

    for count in (1, 4, 16):
        for dtype in (F16, F32):
            yield f"{count} products {dtype}", (repeated(count, ops.matmul), (spec(dtype, 128, 128), spec(dtype, 128, 128)))
            yield f"{count} batched products {dtype}", (repeated(count, ops.matmul), (spec(dtype, 8, 64, 64), spec(dtype, 8, 64, 64)))
            yield (
                f"{count} convolutions {dtype}",
                (
                    repeated(count, lambda x, w: ops.convolution(x, w, padding=1)),
                    (spec(dtype, 1, 16, 16, 32), spec(dtype, 32, 3, 3, 32)),
                ),
            )

    @program
    def of_shapes(x: Any, *weights: Any) -> Any:
        return tuple(x @ w for w in weights)

    yield "12 products of shapes", (of_shapes, (spec(F16, 64, 128), *(spec(F16, 128, 64 + 32 * n) for n in range(12))))

    @program
    def mixed(x: Any, w: Any) -> Any:
        for _ in range(8):
            x = ops.relu(ops.matmul(x, w)) * 0.5
        return x

    yield "8 products and 16 kernels", (mixed, (spec(F16, 128, 128), spec(F16, 128, 128)))


def filled(prepared: Prepared) -> Prepared:
    """Fill the inputs with random numbers, on the device where they are there."""
    random = np.random.default_rng(0)
    inputs = []
    for variable in prepared.program.inputs:
        one = prepared.program.variables[variable].spec
        inputs.append((random.standard_normal(one.shape, dtype=np.float32) / max(1, one.shape[-1]) ** 0.5).astype(one.dtype))
    prepared.load(inputs)
    for _ in range(4):
        prepared.run()
        prepared.wait()
    return prepared


def measured(device: Any, traced: Program, host: HostPrograms) -> tuple[dict[str, Any], dict[str, Prepared]]:
    """Return medians of issue time and makespan by engine, in ns, and what calls cost the host meanwhile; and what is prepared.

    The engines take turns of two runs. The second counts: the first finds the caches full of what another engine has used.
    """
    prepared = {engine: filled(prepare_traced(traced, engine, device)) for engine in ENGINES}
    rounds = 1 if device.info.exact else ROUNDS
    before = host.times(HOST_ROUNDS).host_costs(device.working_kernel_ns)
    random, times = np.random.default_rng(0), {engine: list[tuple[int, int]]() for engine in ENGINES}
    for _ in range(rounds):
        for engine in map(str, random.permutation(list(prepared))):
            run_ns(prepared[engine])
            times[engine].append(run_ns(prepared[engine]))
    after = host.times(HOST_ROUNDS).host_costs(device.working_kernel_ns)
    costs = {name: np.mean((value, after[name]), axis=0).tolist() for name, value in before.items()}
    return {"times": {engine: np.median(each, axis=0).tolist() for engine, each in times.items()}, "host": costs}, prepared


def recorded(device: Any, prepared: Mapping[str, Prepared]) -> dict[str, Any]:
    """Return when each launch ran, by CUPTI, in ns from the first: [operation, part, start, end] by engine."""
    from streamscope.recording.cupti import CuptiRecorder
    from streamscope.trace.spans import DEVICE_KINDS, SpanKind

    found: dict[str, Any] = {}
    for engine in ("graph", "graph-dual"):
        everything = CuptiRecorder(device).record(prepared[engine], lambda: None).spans
        spans = everything.of_kind(DEVICE_KINDS)
        found[f"{engine} host functions"] = everything.of_kind([SpanKind.HOST]).duration_ns.tolist()
        first = spans.start_ns.min()
        columns = (spans.operation, spans.part, spans.start_ns - first, spans.end_ns - first)
        found[engine] = np.stack(columns, axis=1).astype(int).tolist()
    return found


def measure(target: Path, seconds: float, kind: str) -> None:
    device: Any = ss.open_device(kind)
    begin, results, kept = time.monotonic(), {}, {}
    host = HostPrograms(device)
    for name, (function, specs) in (*probes(), *programs()):
        if time.monotonic() - begin > 0.7 * seconds:
            print(f"out of time before {name}", flush=True)
            break
        if device.info.simulated and sum(one.nbytes for one in specs) > 1 << 21:
            continue
        try:
            traced = function.trace(*specs)
            results[name], kept[name] = measured(device, traced, host)
        except Exception as error:  # noqa: BLE001 — the others are still worth the machine's time
            print(f"{name}: {type(error).__name__}: {error}", flush=True)
            continue
        times = results[name]["times"].items()
        print(f"{time.monotonic() - begin:5.1f} s {name}: {', '.join(f'{engine} {one[1] / 1e3:.1f}' for engine, one in times)}", flush=True)
    save(target, device, results)
    if not device.info.simulated:  # CUPTI comes last: it makes graph launches dearer from then on.
        for name, prepared in reversed(kept.items()):
            if time.monotonic() - begin > seconds:
                print(f"CUPTI: out of time before {name}", flush=True)
                break
            try:
                results[name]["launches"] = recorded(device, prepared)
            except Exception as error:  # noqa: BLE001
                print(f"CUPTI, {name}: {type(error).__name__}: {error}", flush=True)
        save(target, device, results)


def save(target: Path, device: Any, results: Mapping[str, Any]) -> None:
    content = {"what": "medians of issue time and makespan in ns by engine; launches by CUPTI", "rounds": ROUNDS, **provenance(device)}
    text = ",\n".join(f"{json.dumps(name)}: {json.dumps(one)}" for name, one in results.items())
    with written_whole(target) as path:
        path.write_text(json.dumps(content, indent=1)[:-2] + ',\n "programs": {\n' + text + "\n}}\n")


def scored(found: Mapping[str, Any], traced: Program) -> dict[str, Any]:
    """Return makespans by engine: measured, simulated, simulated with launches as long as CUPTI says; and the launches."""
    device = SimulatedDevice(replace(CostModel.load(), **found.get("host", {})))
    launches = {(one.operation, one.part): one for one in traced.launches()}
    taken: dict[tuple[int, int], float] = {}
    for operation, part, start, end in found.get("launches", {}).get("graph", ()):
        taken[operation, part] = taken.get((operation, part), 0.0) + end - start

    def taken_ns(launch: Launch) -> float:
        return taken.get((launch.operation, launch.part), device.estimate_ns(launch))

    engines = {}
    for engine, (_, makespan_ns) in found["times"].items():
        plan = without_data(ENGINES[engine].plan(traced, device.estimate_ns, streams=2))
        ours_ns = simulated_ns(plan, device.estimate_ns, device.model)[1]
        known_ns = simulated_ns(plan, taken_ns, device.model)[1] if taken else math.nan
        engines[engine] = [round(ns / 1e3, 2) for ns in (makespan_ns, ours_ns, known_ns)]
    kinds = [[_kind(launches[key]), ns, round(device.estimate_ns(launches[key]))] for key, ns in taken.items()]
    return {"engines": engines, "launches": kinds}


def _kind(launch: Launch) -> str:
    product = launch.cost.product
    return launch.name if product is None else f"{product.kind} {product.dtype}"


def of_programs(source: Path) -> dict[str, Any]:
    """Compare all programs of a file with the simulated device."""
    read = json.loads(source.read_text(encoding="utf-8"))
    made = {name: function.trace(*specs) for name, (function, specs) in programs() if name in read["programs"]}
    rows = {name: scored(read["programs"][name], traced) for name, traced in made.items()}
    by_kind: dict[str, list[float]] = {}
    for row in rows.values():
        for kind, true_ns, ours_ns in row.pop("launches"):
            by_kind.setdefault(kind, []).append(ours_ns / true_ns)
    engines = {name: row["engines"] for name, row in rows.items()}
    off = {
        what: {
            engine: _errors([one[column] / one[0] - 1 for row in engines.values() for e, one in row.items() if engine in (e, "all")])
            for engine in (*ENGINES, "all")
        }
        for what, column in {"simulated": 1, "with launches as CUPTI measured them": 2}.items()
    }
    return {
        **{key: read[key] for key in ("device", "details", "versions", "date")},
        "errors": off,
        "launches": {kind: _errors([ratio - 1 for ratio in ratios]) for kind, ratios in sorted(by_kind.items())},
        "programs": engines,
    }


def timed_to_calibrate() -> Iterator[Cost]:
    """Yield what `streamscope calibrate` times itself, which cannot tell how good its model is; generated kernels are others there."""
    for sweep in sweeps():
        for case in sweep.cases:
            yield traced_case(sweep, case)[1].cost
    for size in (SMALL_ELEMENTS, *ADDITION_SIZES):
        yield next(iter(program(ops.add).trace(spec(F32, size), spec(F32, size)).launches())).cost
    for nbytes in COPY_BYTES:
        yield next(iter(program(ops.to_device).trace(spec(F32, nbytes // 4)).launches())).cost


def of_launches(source: Path) -> dict[str, Any]:
    """Compare single launches, timed by `kernel_times`, with the cost model."""
    read = json.loads(source.read_text(encoding="utf-8"))
    model, found, calibrated = CostModel.load(), dict[str, list[float]](), set(timed_to_calibrate())
    for row, launch in matched(read["rows"]):
        if launch.cost in calibrated:
            continue
        gaps_ns = len(launch.cost.kernels) * model.graph_node_gap_ns
        taken_ns = row["in_graph"] - gaps_ns if "in_graph" in row else row["alone"]
        found.setdefault(row["family"], []).append(model.estimate_ns(launch) / taken_ns - 1)
    return {**{key: read[key] for key in ("device", "details", "versions", "date")}, "errors": {k: _errors(v) for k, v in found.items()}}


def _errors(off: Sequence[float]) -> dict[str, float]:
    known = np.abs([one for one in off if not math.isnan(one)])
    if not len(known):
        return {"count": 0}
    return {
        "count": len(known),
        "median": round(float(np.median(known)), 4),
        "p90": round(float(np.percentile(known, 90)), 4),
        "worst": round(float(known.max()), 4),
    }


def score(result: Path, launches: Path, sources: Sequence[Path]) -> None:
    """Compare what was measured with the simulated device, and write the result."""
    content: dict[str, Any] = {
        "what": "programs: makespans in µs by engine: [measured, simulated, simulated with launches as CUPTI measured them]",
        "cost_model": asdict(CostModel.load().provenance) | {"how": "see the model"},
        "launches": of_launches(launches),
        "runs": [of_programs(source) for source in sources],
    }
    text = json.dumps(content, indent=1)
    for _ in range(2):
        text = FLAT.sub(lambda found: " ".join(found[0].split()).replace("[ ", "[").replace(" ]", "]"), text)
    with written_whole(result) as path:
        path.write_text(text + "\n", encoding="utf-8")
    for run in content["runs"]:
        for what, errors in run["errors"].items():
            print(f"{what:40}", *(f"{engine} {one['median']:.1%} / {one['worst']:.0%}  " for engine, one in errors.items()))
    for family, one in content["launches"]["errors"].items():
        print(f"{family:24} {one['count']:4} median {one['median']:.1%}, 90 % within {one['p90']:.0%}, worst {one['worst']:.0%}")


def main() -> None:
    arguments = sys.argv[2:]
    if sys.argv[1] == "measure":
        kind = arguments[2] if len(arguments) > 2 else "cuda"
        measure(Path(arguments[0]), float(arguments[1]), kind)
    else:
        score(RESULT, Path(arguments[0]), [Path(each) for each in arguments[1:]])


if __name__ == "__main__":
    main()
