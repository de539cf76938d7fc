"""A transformer, encoder and decoder of any depth: forward, and a training step. Weights have the names of PyTorch's modules."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streamscope.differentiating.gradients import value_and_grad
from streamscope.ops import embedding, greater_equal, layer_norm, relu, softmax, split, where
from streamscope.program.symbol import Symbol
from streamscope.tracing import program
from streamscope.workloads.models import by_head, joined_heads
from streamscope.workloads.training import LOSS_SCALE, AdamW, cross_entropy
from streamscope.workloads.workload import Described, Drawn, Setting, Workload, counting, normal, uniform, whole_numbers, zeros

VOCABULARY = 1000

Moments = Mapping[str, tuple[Symbol, Symbol]]


@dataclass(frozen=True)
class Transformer:
    """The network: tokens of a source and of a target in, scores of the next token of the target out.

    Weights are those of ``torch.nn.Transformer``, with ``transformer.`` before their names, and ``source.weight``, ``target.weight`` and
    ``positions.weight`` of three ``torch.nn.Embedding``, ``head.weight`` and ``head.bias`` of a ``torch.nn.Linear``.
    How many layers there are, follows from them.
    """

    weights: Mapping[str, Symbol]
    heads: int
    norm_first: bool = False
    """Normalize what goes into attention and into the linear layers, instead of each sum behind them."""
    dtype: str = "float16"
    """In which it is computed."""

    def __call__(self, source: Symbol, target: Symbol, positions: Symbol) -> Symbol:
        """Return the scores (batch, length, vocabulary).

        Parameters
        ----------
        source, target : variable
            Tokens, whole numbers of shape (batch, length); the lengths may differ.
        positions : variable
            The numbers from 0 to the longer length - 1, at least.
        """
        x = self._embedded("source", source)
        for name in self._layers("encoder"):
            x = self._with_attention(x, None, f"{name}.self_attn", f"{name}.norm1")
            x = self._with_linear(x, name, f"{name}.norm2")
        memory = self._normalised(x, "transformer.encoder.norm")
        y, own = self._embedded("target", target), positions[: target.shape[1]]
        earlier = greater_equal(own.reshape(-1, 1), own)
        for name in self._layers("decoder"):
            y = self._with_attention(y, None, f"{name}.self_attn", f"{name}.norm1", earlier)
            y = self._with_attention(y, memory, f"{name}.multihead_attn", f"{name}.norm2")
            y = self._with_linear(y, name, f"{name}.norm3")
        return self._linear(self._normalised(y, "transformer.decoder.norm"), "head")

    def _layers(self, part: str) -> list[str]:
        names = {name[: name.index(".linear1.")] for name in self.weights if name.startswith(f"transformer.{part}") and ".linear1." in name}
        return sorted(names, key=lambda name: int(name.rpartition(".")[2]))

    def _weight(self, name: str) -> Symbol:
        return self.weights[name].astype(self.dtype, copy=False)

    def _embedded(self, name: str, tokens: Symbol) -> Symbol:
        rows = embedding(self.weights[f"{name}.weight"], tokens) + self.weights["positions.weight"][: tokens.shape[1]]
        return rows.astype(self.dtype, copy=False)

    def _normalised(self, x: Symbol, name: str) -> Symbol:
        return layer_norm(x, self._weight(f"{name}.weight"), self._weight(f"{name}.bias"))

    def _linear(self, x: Symbol, name: str) -> Symbol:
        return x @ self._weight(f"{name}.weight").T + self._weight(f"{name}.bias")

    def _with_attention(self, x: Symbol, memory: Symbol | None, name: str, norm: str, allowed: Symbol | None = None) -> Symbol:
        """Add the attention of x to a memory, or to itself; ``allowed`` says to which positions."""
        if self.norm_first:
            return x + self._attention(self._normalised(x, norm), memory, name, allowed)
        return self._normalised(x + self._attention(x, memory, name, allowed), norm)

    def _attention(self, x: Symbol, memory: Symbol | None, name: str, allowed: Symbol | None) -> Symbol:
        w, b, width = self._weight(f"{name}.in_proj_weight"), self._weight(f"{name}.in_proj_bias"), x.shape[-1]
        if memory is None:
            projected = list(split(x @ w.T + b, 3, axis=-1))
        else:
            projected = [x @ w[:width].T + b[:width], *split(memory @ w[width:].T + b[width:], 2, axis=-1)]
        q, k, v = (by_head(each, self.heads) for each in projected)
        scores = q @ k.mT * (1 / math.sqrt(q.shape[-1]))
        if allowed is not None:
            scores = where(allowed, scores, -math.inf)
        return self._linear(joined_heads(softmax(scores) @ v), f"{name}.out_proj")

    def _with_linear(self, x: Symbol, name: str, norm: str) -> Symbol:
        def through(x: Symbol) -> Symbol:
            return self._linear(relu(self._linear(x, f"{name}.linear1")), f"{name}.linear2")

        return x + through(self._normalised(x, norm)) if self.norm_first else self._normalised(x + through(x), norm)


def train_transformer(
    network: Transformer,
    source: Symbol,
    target: Symbol,
    labels: Symbol,
    numbers: Symbol,
    moments: Moments,
    step: Symbol,
    optimizer: AdamW = AdamW(),  # noqa: B008 — frozen
) -> Symbol:
    """Do a training step: update the network's weights, their moments and the number of steps in place, and return the loss.

    Parameters
    ----------
    network : Transformer
    source, target, labels : variable
        Tokens (batch, length): of the source, of the target, and the target's next ones.
    numbers : variable
        The numbers from 0 on, as many as there are words, and at least as many as positions.
    moments : mapping of str to pair of variables
        Two for each weight, by name.
    step : variable
        How many steps were done: float32, of shape (1,).
    optimizer : AdamW
    """
    scale = LOSS_SCALE if network.dtype == "float16" else 1.0

    def loss(weights: Mapping[str, Symbol]) -> tuple[Symbol, Symbol]:
        scores = Transformer(weights, network.heads, network.norm_first, network.dtype)(source, target, numbers)
        value = cross_entropy(scores, labels, numbers[: scores.shape[-1]])
        return value * scale if scale != 1 else value, value

    value: Symbol
    (_, value), gradients = value_and_grad(loss, has_aux=True)(dict(network.weights))
    optimizer.update(network.weights, gradients, moments, step, 1 / scale)
    return value


def _weights(layers: int, width: int, length: int, dtype: str) -> dict[str, Drawn]:
    """Describe random weights by PyTorch's names."""
    found: dict[str, Drawn] = {}

    def linear(name: str, outputs: int, inputs: int, weight: str = ".weight", bias: str = ".bias") -> None:
        found[f"{name}{weight}"] = normal(outputs, inputs, scale=inputs**-0.5, dtype=dtype)
        found[f"{name}{bias}"] = normal(outputs, scale=0.1, dtype=dtype)

    def norm(name: str) -> None:
        found[f"{name}.weight"] = uniform(0.9, 1.1, width, dtype=dtype)
        found[f"{name}.bias"] = normal(width, scale=0.1, dtype=dtype)

    for name, rows in (("source", VOCABULARY), ("target", VOCABULARY), ("positions", length)):
        found[f"{name}.weight"] = normal(rows, width, dtype=dtype)
    for part, attentions in (("encoder", ["self_attn"]), ("decoder", ["self_attn", "multihead_attn"])):
        for layer in range(layers):
            name = f"transformer.{part}.layers.{layer}"
            for attention in attentions:
                linear(f"{name}.{attention}", 3 * width, width, ".in_proj_weight", ".in_proj_bias")
                linear(f"{name}.{attention}.out_proj", width, width)
            linear(f"{name}.linear1", 4 * width, width)
            linear(f"{name}.linear2", width, 4 * width)
            for number in range(len(attentions) + 1):
                norm(f"{name}.norm{number + 1}")
        norm(f"transformer.{part}.norm")
    linear("head", VOCABULARY, width)
    return found


def _transformer(layers: int, heads: int, depth: int, length: int, batch: int, prenorm: int, training: int, half: int) -> Described:
    dtype = "float16" if half else "float32"
    weights = _weights(layers, heads * depth, length, "float32" if training else dtype)
    given: dict[str, Any] = {"heads": heads, "norm_first": bool(prenorm), "dtype": dtype}
    tokens, numbers = whole_numbers(VOCABULARY, batch, length), counting(max(VOCABULARY, length))

    @program
    def transformer(source: Symbol, target: Symbol, positions: Symbol, *arrays: Symbol) -> Symbol:
        return Transformer(dict(zip(weights, arrays, strict=True)), **given)(source, target, positions)

    @program
    def transformer_step(
        source: Symbol, target: Symbol, labels: Symbol, numbers: Symbol, step: Symbol, *arrays: Symbol
    ) -> tuple[Symbol, ...]:
        own, firsts, seconds = (arrays[part * len(weights) : (part + 1) * len(weights)] for part in range(3))
        network = Transformer(dict(zip(weights, own, strict=True)), **given)
        moments = dict(zip(weights, zip(firsts, seconds, strict=True), strict=True))
        return train_transformer(network, source, target, labels, numbers, moments, step), *own

    if not training:
        return transformer, (tokens, tokens, numbers, *weights.values())
    moments = [zeros(*each.spec.shape) for each in weights.values()]
    return transformer_step, (tokens, tokens, tokens, numbers, zeros(1), *weights.values(), *moments, *moments)


TRANSFORMER = Workload(
    "transformer",
    "a transformer, encoder and decoder: forward, or a training step with cross-entropy and AdamW",
    {
        "layers": Setting(6, 1, 96, "layers of the encoder, and of the decoder"),
        "heads": Setting(8, 1, 128, "heads"),
        "depth": Setting(64, 1, 256, "numbers of a head at a position"),
        "length": Setting(64, 1, 8192, "positions of the source, and of the target"),
        "batch": Setting(1, 1, 1024, "pairs of a source and a target"),
        "prenorm": Setting(0, 0, 1, "1: normalize before attention and linear layers; 0: after each, as in the first paper"),
        "training": Setting(0, 0, 1, "1: a training step"),
        "half": Setting(1, 0, 1, "1: float16, in training with weights in float32; 0: float32"),
    },
    _transformer,
)
