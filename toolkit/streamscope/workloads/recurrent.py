"""LSTMs of several layers, over all steps: forward, and a training step. Weights have the names of PyTorch's modules."""

from __future__ import annotations

from collections.abc import Mapping

from streamscope.differentiating.gradients import value_and_grad
from streamscope.program.symbol import Symbol
from streamscope.tracing import program
from streamscope.workloads.models import lstm_cell
from streamscope.workloads.training import LOSS_SCALE, AdamW
from streamscope.workloads.workload import Described, Drawn, Setting, Workload, half, normal, zeros


def lstm(xs: Symbol, h: Symbol, c: Symbol, weights: Mapping[str, Symbol]) -> tuple[list[Symbol], list[Symbol], list[Symbol]]:
    """Return the last layer's ``h`` at each step, and ``h`` and ``c`` of each layer behind the last step.

    Parameters
    ----------
    xs : variable
        Shape (steps, batch, inputs).
    h, c : variable
        Shape (layers, batch, width): those before the first step.
    weights : mapping of str to variable
        By the names of ``torch.nn.LSTM``; ``bias_hh_l0`` and so on may be left out.
    """
    layers = [_layer(weights, number, xs.dtype.name) for number in range(h.shape[0])]
    hs, cs, outputs = list(h), list(c), []
    # Step by step over all layers: a layer's next step does not wait for the layers above.
    for x in xs:
        for number, (w, u, b) in enumerate(layers):
            hs[number], cs[number] = lstm_cell(hs[number - 1] if number else x, hs[number], cs[number], w, u, b)
        outputs.append(hs[-1])
    return outputs, hs, cs


def _layer(weights: Mapping[str, Symbol], number: int, dtype: str) -> tuple[Symbol, Symbol, Symbol]:
    """Return a layer's weights as `lstm_cell` takes them, in a dtype."""
    w, u, b = (weights[f"{kind}_l{number}"] for kind in ("weight_ih", "weight_hh", "bias_ih"))
    if f"bias_hh_l{number}" in weights:
        b = b + weights[f"bias_hh_l{number}"]
    return w.astype(dtype, copy=False).T, u.astype(dtype, copy=False).T, b.astype(dtype, copy=False)


def train_lstm(
    xs: Symbol,
    h: Symbol,
    c: Symbol,
    target: Symbol,
    weights: Mapping[str, Symbol],
    moments: Mapping[str, tuple[Symbol, Symbol]],
    step: Symbol,
    optimizer: AdamW = AdamW(),  # noqa: B008 — frozen
) -> Symbol:
    """Do a training step: update weights, their moments and the number of steps in place, and return the loss.

    A linear layer makes a prediction of the last layer's last ``h``; the loss is its mean squared distance from the target.

    Parameters
    ----------
    xs, h, c : variable
        As `lstm` takes them.
    target : variable
        Shape (batch, predicted).
    weights : mapping of str to variable
        Those of a ``torch.nn.LSTM`` with ``lstm.`` before their names, and ``linear.weight`` and ``linear.bias``.
    moments : mapping of str to pair of variables
        Two for each weight, by name.
    step : variable
        How many steps were done: float32, of shape (1,).
    optimizer : AdamW
    """
    scale = LOSS_SCALE if xs.dtype == "float16" else 1.0

    def loss(weights: Mapping[str, Symbol]) -> tuple[Symbol, Symbol]:
        layers = {name.removeprefix("lstm."): w for name, w in weights.items()}
        outputs, *_ = lstm(xs, h, c, layers)
        prediction = outputs[-1] @ weights["linear.weight"].astype(xs.dtype, copy=False).T + weights["linear.bias"]
        value = ((prediction - target) ** 2).mean()
        return value * scale if scale != 1 else value, value

    value: Symbol
    (_, value), gradients = value_and_grad(loss, has_aux=True)(dict(weights))
    optimizer.update(weights, gradients, moments, step, 1 / scale)
    return value


def _weights(layers: int, width: int, dtype: str, prefix: str = "") -> dict[str, Drawn]:
    """Describe random weights by PyTorch's names, with one bias a layer."""
    found: dict[str, Drawn] = {}
    for layer in range(layers):
        for kind in ("weight_ih", "weight_hh"):
            found[f"{prefix}{kind}_l{layer}"] = normal(4 * width, width, scale=width**-0.5, dtype=dtype)
        found[f"{prefix}bias_ih_l{layer}"] = normal(4 * width, scale=0.1, dtype=dtype)
    return found


def _lstm(steps: int, width: int, batch: int, layers: int, training: int) -> Described:
    inputs, state = half(steps, batch, width), half(layers, batch, width)
    if not training:
        return _forward(_weights(layers, width, "float16"), inputs, state)
    head = {"linear.weight": normal(width, width, scale=width**-0.5), "linear.bias": normal(width, scale=0.1)}
    return _step({**_weights(layers, width, "float32", "lstm."), **head}, inputs, state, normal(batch, width))


def _forward(weights: Mapping[str, Drawn], inputs: Drawn, state: Drawn) -> Described:
    @program
    def lstm_forward(xs: Symbol, h: Symbol, c: Symbol, *arrays: Symbol) -> tuple[Symbol, ...]:
        _, hs, cs = lstm(xs, h, c, dict(zip(weights, arrays, strict=True)))
        return *hs, *cs

    return lstm_forward, (inputs, state, state, *weights.values())


def _step(weights: Mapping[str, Drawn], inputs: Drawn, state: Drawn, target: Drawn) -> Described:
    @program
    def lstm_step(xs: Symbol, h: Symbol, c: Symbol, target: Symbol, step: Symbol, *arrays: Symbol) -> tuple[Symbol, ...]:
        own, firsts, seconds = (arrays[part * len(weights) : (part + 1) * len(weights)] for part in range(3))
        moments = dict(zip(weights, zip(firsts, seconds, strict=True), strict=True))
        return train_lstm(xs, h, c, target, dict(zip(weights, own, strict=True)), moments, step), *own

    moments = [zeros(*each.spec.shape) for each in weights.values()]
    return lstm_step, (inputs, state, state, target, zeros(1), *weights.values(), *moments, *moments)


LSTM = Workload(
    "lstm",
    "steps of an LSTM in float16: products with the input, which wait for nobody, and with the state, which wait for the step before",
    {
        "steps": Setting(16, 1, 1024, "steps"),
        "width": Setting(256, 1, 8192, "numbers of the input and of the state"),
        "batch": Setting(8, 1, 4096, "sequences"),
        "layers": Setting(1, 1, 64, "layers; a layer's next step does not wait for the layers above"),
        "training": Setting(0, 0, 1, "1: a training step with AdamW; weights are float32"),
    },
    _lstm,
)
