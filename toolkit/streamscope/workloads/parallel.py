"""Programs over several GPUs, as people train and serve models: data, tensor, pipeline and expert parallelism."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from streamscope.arrays import Array
from streamscope.differentiating.gradients import vjp
from streamscope.ops import all_reduce, all_to_all, relu, to_gpu
from streamscope.program.symbol import Symbol
from streamscope.program.tracer import gpu
from streamscope.program.variable import ArraySpec
from streamscope.tracing import program
from streamscope.workloads.workload import Described, Drawn, Setting, Workload, half

_GPUS = Setting(2, 2, 8, "GPUs")
_RATE = 2.0**-10
"""Learning rate: a power of two, so that rounding is that of the gradients."""
_MOST_PIECES = 32
"""Into which the gradient of a layer is cut."""


def _weights(width: int, columns: int, seed: int) -> Drawn:
    """Describe weights that are the same each time they are drawn: all GPUs that hold a layer begin with the same."""

    def draw(_: np.random.Generator) -> Array:
        values: Array = np.random.default_rng(seed).standard_normal((width, columns)) / width**0.5
        return values

    return Drawn(ArraySpec((width, columns), np.dtype("float16")), draw)


def _by_gpu(values: Sequence[Symbol], gpus: int) -> Iterator[Sequence[Symbol]]:
    """Yield the inputs of each GPU, which follow each other."""
    each = len(values) // gpus
    return (values[number * each : (number + 1) * each] for number in range(gpus))


def _layer(x: Symbol, w: Symbol) -> Symbol:
    return relu(x @ w)


def _data_parallel(gpus: int, layers: int, width: int, rows: int, bucket: int, priority: int, overlap: int) -> Described:
    @program
    def data_parallel(*values: Symbol) -> tuple[Symbol, ...]:
        flows, weights = list(values[:gpus]), list(_by_gpu(values[gpus:], gpus))
        pullbacks: dict[tuple[int, int], Any] = {}
        for layer in range(layers):
            for number in range(gpus):
                with gpu(number):
                    flows[number], pullbacks[layer, number] = vjp(_layer, flows[number], weights[number][layer])
        gradients: dict[int, Sequence[Symbol]] = {}
        # Half the sum of squares is the loss: its gradient is the last layer's result. Layer by layer, so that reducing can begin.
        for layer in reversed(range(layers)):
            found = [pullbacks[layer, number](flow) for number, flow in enumerate(flows)]
            flows, gradients[layer] = (list(each) for each in zip(*found, strict=True))
            if overlap:
                gradients[layer] = reduced(gradients[layer], layer)
        if not overlap:
            gradients = {layer: reduced(found, layer) for layer, found in gradients.items()}
        return tuple(own[layer] - gradients[layer][number] * _RATE for number, own in enumerate(weights) for layer in range(layers))

    def reduced(gradient: Sequence[Symbol], layer: int) -> list[Symbol]:
        # The next step needs the first layer first.
        return all_reduce(gradient, "mean", bucket=size, priority=(layers - layer) * priority)

    # Thousands of pieces would take longer to trace than anybody waits.
    size = max(bucket << 10, width * width * 2 // _MOST_PIECES) if bucket else None
    data = [half(rows, width) for _ in range(gpus)]
    return data_parallel, (*data, *(_weights(width, width, layer) for _ in range(gpus) for layer in range(layers)))


DATA_PARALLEL = Workload(
    "data-parallel",
    "a training step on each GPU with rows of its own, and gradients that are averaged over all",
    {
        "gpus": _GPUS,
        "layers": Setting(4, 1, 64, "layers of a matrix product and relu"),
        "width": Setting(1024, 16, 16_384, "rows and columns of a layer's weights"),
        "rows": Setting(1024, 1, 65_536, "rows of data on each GPU"),
        "bucket": Setting(0, 0, 1 << 20, f"KiB that are reduced at once, at least 1/{_MOST_PIECES} of a layer; 0: a layer at a time"),
        "priority": Setting(0, 0, 1, "1: gradients of the first layers go first, which the next step needs first"),
        "overlap": Setting(1, 0, 1, "1: each gradient is reduced as soon as it is there; 0: all of them after the backward pass"),
    },
    _data_parallel,
)


def _tensor_parallel(gpus: int, blocks: int, width: int, tokens: int, batches: int) -> Described:
    @program
    def tensor_parallel(*values: Symbol) -> tuple[Symbol, ...]:
        inputs, weights = values[: gpus * batches], list(_by_gpu(values[gpus * batches :], gpus))
        states = [list(inputs[batch * gpus : (batch + 1) * gpus]) for batch in range(batches)]
        for block in range(blocks):
            for batch in range(batches):
                parts = []
                for number in range(gpus):
                    with gpu(number):
                        into, out = weights[number][2 * block : 2 * block + 2]
                        parts.append(relu(states[batch][number] @ into) @ out)
                states[batch] = all_reduce(parts)
        return tuple(state[0] for state in states)

    hidden = 4 * width // gpus
    # All GPUs hold the same tokens, so each micro-batch is drawn alike for all.
    data = [_weights(tokens, width, batch) for batch in range(batches) for _ in range(gpus)]
    layers = [shape for number in range(gpus) for block in range(blocks) for shape in _halves(width, hidden, 2 * (block * gpus + number))]
    return tensor_parallel, (*data, *layers)


def _halves(width: int, hidden: int, seed: int) -> tuple[Drawn, Drawn]:
    """Describe one GPU's columns of the first matrix of a block, and its rows of the second."""
    return _weights(width, hidden, 1000 + seed), _weights(hidden, width, 1001 + seed)


TENSOR_PARALLEL = Workload(
    "tensor-parallel",
    "blocks of two matrix products, split over the GPUs, whose parts are added up; micro-batches that do not depend on each other",
    {
        "gpus": _GPUS,
        "blocks": Setting(2, 1, 64, "blocks"),
        "width": Setting(1024, 64, 16_384, "width of the model; four times that inside a block"),
        "tokens": Setting(256, 1, 65_536, "tokens of a micro-batch"),
        "batches": Setting(2, 1, 8, "micro-batches; with one, nothing is there to hide communication"),
    },
    _tensor_parallel,
)


def _one_forward_one_backward(stages: int, stage: int, batches: int) -> list[tuple[str, int]]:
    """Return the order in which a stage handles its micro-batches: one backward pass after each forward pass, once the pipeline is full."""
    ahead = min(batches, stages - stage)
    order = [("forward", batch) for batch in range(ahead)]
    for batch in range(batches):
        order.append(("backward", batch))
        if ahead + batch < batches:
            order.append(("forward", ahead + batch))
    return order


def _all_forward_then_backward(stages: int, stage: int, batches: int) -> list[tuple[str, int]]:
    return [("forward", batch) for batch in range(batches)] + [("backward", batch) for batch in range(batches)]


def _pipeline_parallel(gpus: int, layers: int, width: int, rows: int, batches: int, interleaved: int) -> Described:
    order = _one_forward_one_backward if interleaved else _all_forward_then_backward

    @program
    def pipeline_parallel(*values: Symbol) -> tuple[Symbol, ...]:
        inputs, weights = values[:batches], list(_by_gpu(values[batches:], gpus))
        states: dict[tuple[int, int], Symbol] = {}
        flows: dict[tuple[int, int], Symbol] = {}
        pullbacks: dict[tuple[int, int], Any] = {}
        sums: dict[int, Sequence[Symbol]] = {}

        def layers_of(x: Symbol, own: Sequence[Symbol]) -> Symbol:
            for w in own:
                x = _layer(x, w)
            return x

        def forward(stage: int, batch: int) -> None:
            with gpu(stage):
                x = to_gpu(states[stage - 1, batch], stage) if stage else inputs[batch]
                states[stage, batch], pullbacks[stage, batch] = vjp(layers_of, x, weights[stage])

        def backward(stage: int, batch: int) -> None:
            with gpu(stage):
                flow = to_gpu(flows[stage + 1, batch], stage) if stage < gpus - 1 else states[stage, batch]
                flows[stage, batch], gradients = pullbacks[stage, batch](flow)
                sums[stage] = [a + b for a, b in zip(sums[stage], gradients, strict=True)] if stage in sums else gradients

        done: set[tuple[str, int, int]] = set()
        waiting = [list(order(gpus, stage, batches)) for stage in range(gpus)]
        while any(waiting):
            for stage, rest in enumerate(waiting):
                if rest and _needed(rest[0], stage, gpus) <= done:
                    what, batch = rest.pop(0)
                    (forward if what == "forward" else backward)(stage, batch)
                    done.add((what, stage, batch))
        return tuple(own[layer] - sums[stage][layer] * _RATE for stage, own in enumerate(weights) for layer in range(layers))

    data = [half(rows, width) for _ in range(batches)]
    return pipeline_parallel, (*data, *(_weights(width, width, stage * layers + layer) for stage in range(gpus) for layer in range(layers)))


def _needed(step: tuple[str, int], stage: int, stages: int) -> set[tuple[str, int, int]]:
    """Return the steps of other stages that one needs."""
    what, batch = step
    if what == "forward":
        return {(what, stage - 1, batch)} if stage else set()
    return {(what, stage + 1, batch)} if stage < stages - 1 else {("forward", stage, batch)}


PIPELINE_PARALLEL = Workload(
    "pipeline-parallel",
    "a training step with some layers on each GPU; micro-batches go from GPU to GPU, and their gradients back",
    {
        "gpus": _GPUS,
        "layers": Setting(2, 1, 64, "layers on each GPU"),
        "width": Setting(512, 16, 16_384, "rows and columns of a layer's weights"),
        "rows": Setting(512, 1, 65_536, "rows of a micro-batch"),
        "batches": Setting(4, 1, 64, "micro-batches"),
        "interleaved": Setting(1, 0, 1, "1: a backward pass after each forward pass (1F1B); 0: all forward passes first (GPipe)"),
    },
    _pipeline_parallel,
)


def _expert_parallel(gpus: int, blocks: int, width: int, tokens: int, batches: int) -> Described:
    @program
    def expert_parallel(*values: Symbol) -> tuple[Symbol, ...]:
        inputs, weights = values[: gpus * batches], list(_by_gpu(values[gpus * batches :], gpus))
        states = [list(inputs[batch * gpus : (batch + 1) * gpus]) for batch in range(batches)]
        for block in range(blocks):
            for batch in range(batches):
                there = all_to_all(states[batch])
                for number, part in enumerate(there):
                    with gpu(number):
                        into, out = weights[number][2 * block : 2 * block + 2]
                        there[number] = relu(part @ into) @ out
                back = all_to_all(there)
                states[batch] = [state + found for state, found in zip(states[batch], back, strict=True)]
        return tuple(state for each in states for state in each)

    data = [half(tokens * gpus, width, scale=0.1) for _ in range(batches * gpus)]
    layers = [
        shape for number in range(gpus) for block in range(blocks) for shape in _halves(width, 4 * width, 2 * (block * gpus + number))
    ]
    return expert_parallel, (*data, *layers)


EXPERT_PARALLEL = Workload(
    "expert-parallel",
    "tokens that go to the GPU of their expert and back, all to all; micro-batches that do not depend on each other",
    {
        "gpus": _GPUS,
        "blocks": Setting(2, 1, 64, "blocks of experts, one on each GPU"),
        "width": Setting(512, 16, 16_384, "width of a token; four times that inside an expert"),
        "tokens": Setting(128, 1, 65_536, "tokens of a micro-batch that each GPU sends to each expert"),
        "batches": Setting(2, 1, 8, "micro-batches; with one, nothing is there to hide communication"),
    },
    _expert_parallel,
)
