"""Random PyTorch and CuPy functions in their true order, disturbed, against the capture: none may come out wrong.

    python benchmarks/random_functions.py [--torch 500] [--cupy 200] [--first 0] [--processes 3] [--seconds 150] [--show torch:17]

Each function is a text that a seed writes, line by line; a line that fails on the CPU is left out. It is captured and proved (see
`parallelising.proving`), and some necessary edges are taken away one by one, which the certificate must refuse.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import statistics
import sys
import time
import traceback
import types
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from functools import cache
from importlib import metadata
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any

import numpy as np

ROWS, COLUMNS = 16, 24
STEPS = 14
INPUTS = 3
EDGES_TRIED = 4
LATE_S = 20
"""How long a function that has begun is waited for after the last one may begin."""
RESULT = Path(__file__).parent / "results" / "random_functions.json"

# {x} are floats of any shape, {m} and {k} two matrices of the inputs' shape; {n} is a new name.
COMMON = (
    "{n} = {x} * 0.5 + 1",
    "{n} = {m} + {k}",
    "{n} = {m} * {k} - {m}",
    "{x} *= 0.75",
    "{m} += {k} * 0.5",
    "{m}[1:] += {k}[:-1]",
    "{m}[:, ::2] = {k}[:, 1::2]",
    "{m}[2:9] *= 0.5",
    "{n} = {m}[3:, :-2]",
    "{n} = {x}[1:]",
    "{n} = {x}.reshape(-1)[5:69]",
    "{n} = {m}.T",
    "{n} = {x}.sum()",
    "{n} = {m} - {m}.mean(axis=0)",
    "{n} = {m}.cumsum(axis=1)",
    "{n} = {x}.max() + {x}",
    "{n} = {m}[order]",
    "{m}[order] = {k} * 0.25",
)
TORCH = (
    *COMMON,
    "{n} = torch.relu({x})",
    "{x}.mul_(0.5).add_(0.1).clamp_(-3, 3)",
    "{m}[1:].copy_({m}[:-1].clone())",
    "{n} = torch.cat([{m}, {k}, {m}], dim=1)[:, 5:29]",
    "{n}, {n}_2, {n}_3 = torch.split({m}, 6)",
    "{n} = torch.stack([{m}, {k}]).amax(dim=0)",
    "{n} = {m} @ {k}.t() @ {m}",
    "{n} = torch.addmm({k}, {m}[:, :16], {m})",
    "{n} = ({m}.half() @ {k}.half().t()).float() @ {m}",
    "{n} = F.conv2d({m}[None, None], {k}[None, None, :3, :3], padding=1)[0, 0]",
    "{n} = F.conv1d({m}[None], {k}[:, :16, None].expand(16, 16, 3) * 0.1, padding=1)[0]",
    "{n} = torch.sort({m}, dim=1).values",
    "{n} = torch.topk({m}, 5, dim=1).values",
    "{n} = torch.softmax({m}, dim=1)",
    "{n} = F.layer_norm({m}, (24,))",
    "{n} = {m}.std(dim=1, keepdim=True) * {k}",
    "{m}.index_add_(0, order, {k}, alpha=0.5)",
    "{m}.scatter_(0, order[:, None].expand(16, 24), {k} * 0.5)",
    "{n} = torch.where({m} > 0, {k}, {m} * 0.1)",
    "{n} = torch.zeros_like({x}); {n} += {x}",
    "{n} = torch.full_like({m}, 0.5); {n}[::2] -= {m}[::2]",
    "{n} = torch.empty_like({m}); torch.mul({m}, {k}, out={n})",
    "{n} = F.dropout({x}, 0.5)",
    "{n} = {x} + torch.rand_like({x})",
    "torch._foreach_add_([{m}, {k}], 0.5)",
    "{n}, {n}_2 = torch._foreach_mul([{m}, {k}], [0.5, 2.0])",
    "{n} = F.embedding(order, {m})",
    "{n} = {m}.double().cumsum(0).float()",
    "w = {m}.detach().clone().requires_grad_(); {n}, = torch.autograd.grad((w.tanh() @ {k}.detach().t()).sum() + (w * w).mean(), w)",
    "w = {m}.detach().clone().requires_grad_(); F.layer_norm(w * {k}.detach(), (24,)).square().sum().backward(); {n} = w.grad",
    "fork(1)\n    with on(1):\n        {n} = torch.sin({m}) @ {k}.t()\n    {n}_2 = torch.cos({m}) * {k}\n    join(1); {n}_2 += {n}.sum()",
    "fork(1); fork(2)\n    with on(1):\n        {n} = {m} * 2\n    with on(2):\n        {n}_2 = {m} + 1; {n}_2 *= 3\n    join(1); join(2)",
)
CUPY = (
    *COMMON,
    "{n} = xp.tanh({x})",
    "xp.multiply({m}, {k}, out={m})",
    "{m}[1:] = {m}[:-1].copy()",
    "{n} = xp.concatenate([{m}, {k}], axis=1)[:, 5:29]",
    "{n}, {n}_2 = xp.split({m}, 2)",
    "{n} = xp.where({m} > 0, {k}, 0.5)",
    "{n} = xp.zeros_like({m}); {n} += {k}",
    "{n} = xp.take({m}, order, axis=0)",
    "{n} = xp.maximum({m}, {k}).min(axis=1)",
    "{n} = xp.clip({x}, -1, 1)",
    "{n} = xp.full({m}.shape, 0.5, np.float32); {n}[::2] -= {m}[::2]",
    "{n} = {m}.astype(np.float64).cumsum(axis=0).astype(np.float32)",
    "{n} = xp.exp(-{x} * {x})",
    "{n} = xp.sqrt(xp.abs({x})) + {x}",
    "{n} = own({m}, {k})",
    "{n} = xp.broadcast_to({m}[:1], (16, 24)) + {k}",
)
TEMPLATES = {"torch": TORCH, "cupy": CUPY}
ALIASES = ("a", "b[1:]", "a.T", "b")


class Written:
    """A random function: its text, and what it makes of CPU arrays, by which its lines were chosen."""

    def __init__(self, library: str, seed: int) -> None:
        self.name = f"{library}:{seed}"
        self._random = np.random.default_rng([seed, len(library)])
        self._library = library
        self._names = dict(cpu_names(library), **dict(zip(("a", "b", "order"), inputs(library, seed, on_gpu=False), strict=True)))
        lines = [line for step in range(STEPS) if (line := self._line(f"v{step}"))]
        made = [name for name in self._names if name.startswith("v") and self._is_float(name)] or ["a"]
        picked = [*made, *self._random.choice(ALIASES, int(self._random.integers(0, 3)), replace=False)]
        self.text = "\n    ".join(["def function(a, b, order):", *lines, f"return {', '.join(picked)},"]) + "\n"

    def _is_float(self, name: str) -> bool:
        value = self._names.get(name)
        return "float32" in str(getattr(value, "dtype", "")) and not getattr(value, "requires_grad", False)

    def _line(self, new: str) -> str:
        """Return a line that runs on the CPU, and run it; nothing after a few that do not."""
        for _ in range(8):
            floats = [name for name in self._names if self._is_float(name)]
            matrices = [name for name in floats if tuple(self._names[name].shape) == (ROWS, COLUMNS)]
            pick = self._random.choice
            # Two names: a kernel that changes one matrix in two places of a list is a race by itself.
            m, k = self._random.choice(matrices, 2, replace=False)
            names = {"n": new, "x": pick(floats), "m": m, "k": k}
            line = str(pick(TEMPLATES[self._library])).format(**names)
            with contextlib.suppress(Exception):
                exec("if True:\n    " + line, self._names)
                return line
        return ""

    def function(self, names: dict[str, Any]) -> Any:
        exec(self.text, names)
        return types.FunctionType(names["function"].__code__, names, self.name)


def cpu_names(library: str) -> dict[str, Any]:
    """Return what the lines name, on the CPU."""
    if library == "cupy":
        return {"xp": np, "np": np, "own": lambda a, b: a * 2 + b}
    import torch

    torch.set_num_threads(1)  # The processes share the machine.

    def nothing(number: int) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    return {"torch": torch, "F": torch.nn.functional, "fork": nothing, "join": nothing, "on": nothing}


@cache
def gpu_names(library: str) -> dict[str, Any]:
    """Return the same on the GPU."""
    import cupy

    if library == "cupy":
        code = 'extern "C" __global__ void own(const float* a, const float* b, float* out, int n)\n'
        code += "{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) out[i] = a[i] * 2 + b[i]; }"
        kernel = cupy.RawKernel(code, "own")

        def own(a: Any, b: Any) -> Any:
            a, b = cupy.ascontiguousarray(a), cupy.ascontiguousarray(b)
            out = cupy.empty_like(a)
            kernel((2,), (256,), (a, b, out, np.int32(a.size)))
            return out

        return {"xp": cupy, "np": np, "own": own}
    import torch

    streams = {number: torch.cuda.Stream() for number in (1, 2)}
    return cpu_names(library) | {
        "fork": lambda number: streams[number].wait_stream(torch.cuda.current_stream()),
        "join": lambda number: torch.cuda.current_stream().wait_stream(streams[number]),
        "on": lambda number: torch.cuda.stream(streams[number]),
    }


def inputs(library: str, seed: int, *, on_gpu: bool = True) -> tuple[Any, ...]:
    """Return two matrices and an order of rows."""
    random = np.random.default_rng(seed)
    arrays = (*random.standard_normal((2, ROWS, COLUMNS), np.float32), random.permutation(ROWS))
    if library == "cupy":
        if not on_gpu:
            return arrays
        import cupy

        return tuple(map(cupy.asarray, arrays))
    import torch

    return tuple(torch.from_numpy(array).cuda() if on_gpu else torch.from_numpy(array) for array in arrays)


def worked(name: str, until: float) -> dict[str, Any] | None:
    """Return what came of the function of a name, whatever goes wrong; nothing after a time."""
    if time.time() > until:
        return None
    library, seed = name.split(":")
    begun, written = time.monotonic(), Written(library, int(seed))
    try:
        result = tried(written, int(seed))
        if result.get("wrong") or result.get("edges_missed"):
            result["text"] = written.text
    except Exception as error:  # noqa: BLE001 — the others go on, and this one is in the result
        result = {"failed": f"{type(error).__name__}: {error}", "at": traceback.format_exc(limit=-4), "text": written.text}
    return result | {"seconds": time.monotonic() - begun}


@cache
def hasten() -> None:
    """Spend no time on which order is the fastest, and none on objects of libraries whenever garbage is collected."""
    from streamscope.devices.cuda import raw_graph

    raw_graph.MOST_TURNS = raw_graph.FEWEST_TURNS = 1
    gc.collect()
    gc.freeze()


def tried(written: Written, seed: int) -> dict[str, Any]:
    """Capture a function, prove its true order, and take edges away; return what came of it."""
    import streamscope as ss
    from streamscope.errors import EngineError, RaceError
    from streamscope.parallelising.proving import prove

    library = written.name.partition(":")[0]
    names = gpu_names(library)
    hasten()
    try:
        captured = ss.capture(written.function(dict(names)), *inputs(library, seed), name=written.name)
    except EngineError as error:
        return {"refused": str(error)}
    certificate = captured.certificate()
    edges = [(earlier, later) for later, direct in enumerate(certificate.order) for earlier in direct]
    random = np.random.default_rng(seed)
    kept = [edges[number] for number in random.permutation(len(edges))[:EDGES_TRIED]]
    missed = 0
    for pair in kept:
        try:
            certificate.check([[one for one in direct if (one, later) != pair] for later, direct in enumerate(certificate.order)])
            missed += 1
        except RaceError:
            pass
    prepared = ss.prepare(captured, engine="graph-dual", device="cuda", progress=False)
    proof = prove(captured, prepared, inputs=INPUTS, seed=seed)
    return {
        "nodes": len(captured.nodes),
        "capture_edges": sum(len(node.after) for node in captured.nodes),
        "edges": len(edges),
        "longest_path": certificate.longest_path,
        "unknown": Counter(certificate.unknown.values()),
        "evidence": {evidence.name.lower(): count for evidence, count in certificate.evidence.items()},
        "edges_tried": len(kept),
        "edges_missed": missed,
        "runs": proof.runs,
        "bit_equal": proof.bit_equal,
        "self_difference": proof.self_difference,
        "wrong": "" if proof.holds else proof.text,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--torch", type=int, default=500)
    parser.add_argument("--cupy", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--processes", type=int, default=3, help="that share the GPU, and so disturb each other")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no function after so long")
    parser.add_argument("--show", default="", help="print a function, as torch:17, and end")
    parser.add_argument("--out", type=Path, default=RESULT)
    given = parser.parse_args()
    if given.show:
        library, seed = given.show.split(":")
        print(Written(library, int(seed)).text)
        return
    import streamscope as ss

    sys.path.insert(0, str(Path(__file__).parent))
    from provenance import provenance

    start, until = time.monotonic(), time.time() + given.seconds
    device = ss.open_device("cuda")
    counts = {"torch": given.torch, "cupy": given.cupy}
    names = [f"{library}:{seed}" for library, count in counts.items() for seed in range(given.first, given.first + count)]
    names.sort(key=lambda name: int(name.partition(":")[2]))  # both libraries by turns
    found = {}
    pool = ProcessPoolExecutor(given.processes, get_context("spawn"))
    waiting = {pool.submit(worked, name, until): name for name in names}
    while waiting and time.time() < until + LATE_S:
        for future in wait(waiting, timeout=1, return_when=FIRST_COMPLETED).done:
            name = waiting.pop(future)
            result = future.result() if future.exception() is None else {"failed": f"its process ended: {future.exception()}", "text": ""}
            if result is None:
                continue
            found[name] = result
            if "text" in result:
                print(f"--- {name}: {result.get('wrong') or result.get('failed')}\n{result.get('at', '')}\n{result['text']}", flush=True)
    for future, name in waiting.items():
        if future.running():
            found[name] = {"failed": "it does not end", "text": Written(name.partition(":")[0], int(name.partition(":")[2])).text}
    summary = summed(found) | {"processes": given.processes, "seconds": round(time.monotonic() - start, 1)}
    given.out.write_text(json.dumps(provenance(device, torch=metadata.version("torch")) | summary, indent=1) + "\n")
    print(json.dumps({key: value for key, value in summary.items() if key != "failures"}, indent=1), flush=True)
    for process in active_children():
        process.kill()
    os._exit(0)  # Whoever waits for a process that hangs would hang as well.


def summed(found: dict[str, Any]) -> dict[str, Any]:
    """Return the sums for each library, why functions were refused, and what went wrong."""
    libraries = {}
    for library in TEMPLATES:
        results = [result for name, result in found.items() if name.startswith(library)]
        ran = [result for result in results if "nodes" in result]
        counts = ("nodes", "capture_edges", "edges", "edges_tried", "edges_missed", "runs")
        unknown, evidence, refused = Counter[str](), Counter[str](), Counter[str]()
        for result in results:
            unknown.update(result.get("unknown", {}))
            evidence.update(result.get("evidence", {}))
            refused.update([result["refused"].partition("\n")[0]] if "refused" in result else [])
        libraries[library] = {
            "functions": len(results),
            "seconds_each": round(statistics.median([result["seconds"] for result in ran]), 3) if ran else 0.0,
            "proved": sum(not result["wrong"] for result in ran),
            "wrong": sum(bool(result["wrong"]) for result in ran),
            "failed": sum("failed" in result for result in results),
            "refused": dict(refused),
            "bit_equal": sum(result["bit_equal"] for result in ran),
            "not_equal_to_itself": sum(result["self_difference"] > 0 for result in ran),
            **{key: sum(result[key] for result in ran) for key in counts},
            "shorter_than_the_capture": sum(result["longest_path"] < result["nodes"] for result in ran),
            "not_understood": dict(unknown.most_common()),
            "evidence": dict(evidence),
        }
    failures = {name: result for name, result in found.items() if "text" in result}
    return {"inputs_each": INPUTS, "libraries": libraries, "failures": failures}


if __name__ == "__main__":
    main()
