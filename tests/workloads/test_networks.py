"""Whole networks: against networks in NumPy, gradients against differences of these, training steps by hand."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special
from tests.ops.conftest import evaluate  # noqa: F401 — a fixture
from tests.workloads.test_models import numpy_lstm

import streamscope as ss
from streamscope.program.reference import run_reference
from streamscope.workloads import recurrent, resnet, transformer
from streamscope.workloads.training import AdamW, Sgd, cross_entropy

BY_GRADIENT = Sgd(rate=1.0, momentum=0.0, decay=0.0)
"""A step by which each weight loses its gradient."""
CHANGE = 1e-5


def drawn(weights, seed=3):
    random = np.random.default_rng(seed)
    return {name: each.draw(random).astype(np.float64) for name, each in weights.items()}


def as_program(function, names, given):
    """Make a program of a function of inputs and of weights by name."""

    def with_arrays(*arrays):
        return function(*arrays[:given], dict(zip(names, arrays[given:], strict=True)))

    return with_arrays


def assert_slopes(loss, weights, gradients, names):
    """Compare gradients with differences of a loss, at an element of each of some weights."""
    random = np.random.default_rng(5)
    for name in names:
        place = tuple(random.integers(0, extent) for extent in weights[name].shape)
        values = []
        for change in (CHANGE, -CHANGE):
            changed = weights[name].copy()
            changed[place] += change
            values.append(loss({**weights, name: changed}))
        slope = (values[0] - values[1]) / (2 * CHANGE)
        np.testing.assert_allclose(gradients[name][place], slope, rtol=1e-4, atol=1e-7, err_msg=f"{name}{list(map(int, place))}")


def negative_log_likelihood(scores, labels):
    logs = scores - scipy.special.logsumexp(scores, axis=-1, keepdims=True)
    return -np.mean([row[label] for row, label in zip(logs.reshape(-1, logs.shape[-1]), labels.ravel(), strict=True)])


# ResNet-50 v2

RESNET = drawn(resnet._weights(1, 4, "float32"))
TWO_BLOCKS = drawn(resnet._weights(2, 4, "float32"))
IMAGES = np.random.default_rng(0).standard_normal((2, 33, 33, resnet.IMAGE_CHANNELS))
LABELS = np.array([7, 900], np.int32)
CLASSES = np.arange(resnet.CLASSES, dtype=np.int32)


def windows(x, extent, stride, fill):
    """Return the windows (N, P, Q, C, R, S) of images, with a border that keeps the size at stride 1."""
    edge = extent // 2
    padded = np.pad(x, ((0, 0), (edge, edge), (edge, edge), (0, 0)), constant_values=fill)
    return np.lib.stride_tricks.sliding_window_view(padded, (extent, extent), axis=(1, 2))[:, ::stride, ::stride]


def numpy_resnet(images, weights, *, training=False, statistics=None):
    """Each block as the paper has it; the stride is that of the middle filter."""

    def convolved(x, name, stride=1):
        w = weights[f"{name}.weight"]
        return np.einsum("npqcrs,krsc->npqk", windows(x, w.shape[1], stride, 0), w, optimize=True)

    def activated(x, name):
        mean, variance = weights[f"{name}.running_mean"], weights[f"{name}.running_var"]
        if training:
            mean, variance = x.mean((0, 1, 2)), x.var((0, 1, 2))
            if statistics is not None:
                statistics[name] = mean, x.reshape(-1, x.shape[-1]).var(0, ddof=1)
        normal = (x - mean) / np.sqrt(variance + 1e-5)
        return np.maximum(normal * weights[f"{name}.weight"] + weights[f"{name}.bias"], 0)

    x = windows(convolved(images, "stem.conv", 2), 3, 2, -np.inf).max((-2, -1))
    for stage in range(4):
        for block in range(sum(w.startswith(f"stages.{stage}.") and w.endswith("conv1.weight") for w in weights)):
            name, stride = f"stages.{stage}.blocks.{block}", 1 if stage == 0 or block else 2
            h = activated(x, f"{name}.norm1")
            shortcut = x if block else convolved(h, f"{name}.downsample.conv", stride)
            h = activated(convolved(h, f"{name}.conv1"), f"{name}.norm2")
            h = activated(convolved(h, f"{name}.conv2", stride), f"{name}.norm3")
            x = convolved(h, f"{name}.conv3") + shortcut
    return activated(x, "norm").mean((1, 2)) @ weights["head.fc.weight"][:, 0, 0].T + weights["head.fc.bias"]


@pytest.mark.parametrize("weights", [RESNET, TWO_BLOCKS], ids=["one", "two"])
def test_resnets_scores_are_numpys(evaluate, weights):  # noqa: F811
    found = evaluate(as_program(resnet.resnet50_v2, weights, 1), IMAGES, *weights.values())
    np.testing.assert_allclose(found, numpy_resnet(IMAGES, weights), rtol=1e-9, atol=1e-9)


def trained_resnet(weights, velocities, optimizer, images=IMAGES):
    """Return the loss and the weights and velocities after a training step."""
    names, trained = list(weights), list(velocities)

    def step(images, labels, classes, *arrays):
        own, moving = dict(zip(names, arrays, strict=False)), dict(zip(trained, arrays[len(names) :], strict=True))
        return resnet.train_resnet50_v2(images, labels, classes, own, moving, optimizer), *own.values(), *moving.values()

    inputs = [images, LABELS, CLASSES, *weights.values(), *velocities.values()]
    loss, *arrays = run_reference(ss.program(step).trace(*inputs), inputs)
    return loss, dict(zip(names, arrays, strict=False)), dict(zip(trained, arrays[len(names) :], strict=True))


def still(weights):
    return {name: np.zeros_like(w) for name, w in weights.items() if resnet.is_trained(name)}


def test_resnets_loss_running_statistics_and_gradients():
    loss, after, _ = trained_resnet(RESNET, still(RESNET), BY_GRADIENT)
    statistics = {}
    expected = negative_log_likelihood(numpy_resnet(IMAGES, RESNET, training=True, statistics=statistics), LABELS)
    np.testing.assert_allclose(loss, expected, rtol=1e-9)
    for name, (mean, variance) in statistics.items():
        for part, new in (("running_mean", mean), ("running_var", variance)):
            moved = 0.9 * RESNET[f"{name}.{part}"] + 0.1 * new
            np.testing.assert_allclose(after[f"{name}.{part}"], moved, rtol=1e-9, atol=1e-12, err_msg=f"{name}.{part}")
    gradients = {name: RESNET[name] - after[name] for name in still(RESNET)}
    chosen = [
        "stem.conv.weight",
        "stages.1.blocks.0.downsample.conv.weight",
        "stages.2.blocks.0.conv2.weight",
        "stages.3.blocks.0.norm2.weight",
    ]
    chosen += ["stages.0.blocks.0.norm1.bias", "norm.weight", "head.fc.weight", "head.fc.bias"]
    assert_slopes(lambda w: negative_log_likelihood(numpy_resnet(IMAGES, w, training=True), LABELS), RESNET, gradients, chosen)


def test_two_steps_of_sgd_by_hand():
    optimizer, (first, _) = Sgd(rate=0.5, momentum=0.75, decay=0.25), (trained_resnet(RESNET, still(RESNET), BY_GRADIENT)[1:])
    velocities = {name: np.full_like(w, 0.125) for name, w in RESNET.items() if resnet.is_trained(name)}
    _, after, moved = trained_resnet(RESNET, velocities, optimizer)
    for name in ("stem.conv.weight", "norm.bias", "head.fc.bias"):
        gradient = RESNET[name] - first[name]
        velocity = 0.75 * 0.125 + gradient + 0.25 * RESNET[name]
        np.testing.assert_allclose(moved[name], velocity, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(after[name], RESNET[name] - 0.5 * velocity, rtol=1e-9, atol=1e-12)


def test_training_in_half_has_weights_and_gradients_in_float32():
    weights = {name: w.astype(np.float32) for name, w in RESNET.items()}
    exact, others, _ = trained_resnet(RESNET, still(RESNET), BY_GRADIENT)
    loss, after, _ = trained_resnet(weights, still(weights), BY_GRADIENT, IMAGES.astype(np.float16))
    assert loss.dtype == np.float32
    np.testing.assert_allclose(loss, exact, rtol=2e-3)
    for name in ("stem.conv.weight", "stages.3.blocks.0.conv3.weight", "head.fc.weight"):
        right, found = RESNET[name] - others[name], weights[name] - after[name]
        assert after[name].dtype == np.float32
        # A channel of the last stage has 8 numbers: its statistics, and so all gradients, feel each rounding.
        assert np.linalg.norm(found - right) < 0.25 * np.linalg.norm(right)


def test_weights_of_timm_are_copied_channels_last_and_have_more_image_channels():
    state = {
        "stem.conv.weight": np.arange(2 * 3 * 49.0).reshape(2, 3, 7, 7),
        "stages.0.blocks.0.conv2.weight": np.arange(36.0).reshape(2, 2, 3, 3),
        "norm.running_var": np.ones(2),
        "norm.num_batches_tracked": np.array(3),
    }
    found = resnet.from_timm(state)
    assert list(found) == list(state)[:3]
    assert found["stem.conv.weight"].shape == (2, 7, 7, 8)
    np.testing.assert_array_equal(found["stem.conv.weight"][1, 2, 3], [*state["stem.conv.weight"][1, :, 2, 3], 0, 0, 0, 0, 0])
    np.testing.assert_array_equal(found["stages.0.blocks.0.conv2.weight"][0, 1, 2], state["stages.0.blocks.0.conv2.weight"][0, :, 1, 2])
    found["norm.running_var"][:] = 0
    assert state["norm.running_var"].tolist() == [1, 1]


def test_the_workload_has_the_weights_of_the_network():
    assert len([name for name in resnet._weights(6, 64, "float16") if resnet.is_trained(name)]) == 1 + 16 * 9 + 4 + 2 + 2
    program, specs = ss.workload("resnet50-v2").outline()
    traced = program.trace(*specs)
    assert [operation.name for operation in traced.operations].count("convolution") == 1 + 16 * 3 + 4
    assert traced.variables[traced.outputs[0]].spec.shape == (1, resnet.CLASSES)


# Transformer

HEADS, LENGTH = 2, 5
NETWORK = drawn(transformer._weights(1, 6, LENGTH, "float32"))
SOURCE = np.array([[3, 999, 0, 4, 4], [1, 2, 3, 4, 5]], np.int32)
TARGET = SOURCE[::-1, :4].copy()
NEXT = np.array([[5, 6, 7, 8], [999, 0, 3, 2]], np.int32)
NUMBERS = np.arange(transformer.VOCABULARY, dtype=np.int32)


def numpy_transformer(source, target, weights, *, norm_first=False):
    """Head by head, position by position."""

    def linear(x, name):
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def normal(x, name):
        return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * weights[f"{name}.weight"] + weights[
            f"{name}.bias"
        ]

    def attention(x, memory, name, *, causal):
        w, b = weights[f"{name}.in_proj_weight"], weights[f"{name}.in_proj_bias"]
        width, joined = x.shape[-1], np.empty_like(x)
        q, k, v = (of @ w[n * width : (n + 1) * width].T + b[n * width : (n + 1) * width] for n, of in enumerate((x, memory, memory)))
        depth = width // HEADS
        for pair, row in np.ndindex(x.shape[:2]):
            for head in range(HEADS):
                part, seen = slice(head * depth, (head + 1) * depth), row + 1 if causal else memory.shape[1]
                scores = k[pair, :seen, part] @ q[pair, row, part] / depth**0.5
                joined[pair, row, part] = scipy.special.softmax(scores) @ v[pair, :seen, part]
        return linear(joined, f"{name}.out_proj")

    def around(x, name, through):
        return x + through(normal(x, name)) if norm_first else normal(x + through(x), name)

    def layers(x, part, memory=None):
        name = f"transformer.{part}.layers.0"
        x = around(x, f"{name}.norm1", lambda x: attention(x, x, f"{name}.self_attn", causal=memory is not None))
        if memory is not None:
            x = around(x, f"{name}.norm2", lambda x: attention(x, memory, f"{name}.multihead_attn", causal=False))
        last = f"{name}.norm{2 if memory is None else 3}"
        x = around(x, last, lambda x: linear(np.maximum(linear(x, f"{name}.linear1"), 0), f"{name}.linear2"))
        return normal(x, f"transformer.{part}.norm")

    x, y = (
        weights[f"{name}.weight"][t] + weights["positions.weight"][: t.shape[1]] for name, t in (("source", source), ("target", target))
    )
    return linear(layers(y, "decoder", layers(x, "encoder")), "head")


def network(weights, **options):
    return transformer.Transformer(weights, HEADS, dtype="float64", **options)


@pytest.mark.parametrize("norm_first", [False, True])
def test_the_transformers_scores_are_numpys(evaluate, norm_first):  # noqa: F811
    def scores(source, target, numbers, weights):
        return network(weights, norm_first=norm_first)(source, target, numbers)

    found = evaluate(as_program(scores, NETWORK, 3), SOURCE, TARGET, NUMBERS, *NETWORK.values())
    np.testing.assert_allclose(found, numpy_transformer(SOURCE, TARGET, NETWORK, norm_first=norm_first), rtol=1e-9, atol=1e-9)


def trained_by_adamw(step, inputs, weights, moments, steps):
    """Return the loss, and weights, first and second moments by name after a training step with AdamW."""
    names = list(weights)

    def program(*arrays):
        count, given = arrays[len(inputs)], arrays[: len(inputs)]
        groups = [dict(zip(names, arrays[len(inputs) + 1 + n * len(names) :], strict=False)) for n in range(3)]
        pairs = {name: (groups[1][name], groups[2][name]) for name in names}
        return step(*given, groups[0], pairs, count), count, *(each for group in groups for each in group.values())

    arrays = [*inputs, np.full(1, steps, np.float64), *weights.values(), *(w for part in moments for w in part.values())]
    loss, count, *after = run_reference(ss.program(program).trace(*arrays), arrays)
    assert count.tolist() == [steps + 1]
    return loss, *(dict(zip(names, after[n * len(names) :], strict=False)) for n in range(3))


def numpy_adamw(w, gradient, first, second, step, optimizer):
    """As the paper has it: decay apart from the gradient."""
    first = optimizer.first * first + (1 - optimizer.first) * gradient
    second = optimizer.second * second + (1 - optimizer.second) * gradient**2
    unbiased, squared = first / (1 - optimizer.first**step), second / (1 - optimizer.second**step)
    return w - optimizer.rate * optimizer.decay * w - optimizer.rate * unbiased / (np.sqrt(squared) + optimizer.eps), first, second


def test_the_transformers_loss_gradients_and_step_of_adamw():
    optimizer, zero = AdamW(rate=0.25, first=0.5, second=0.75, decay=0.125), {name: np.zeros_like(w) for name, w in NETWORK.items()}
    before = ({name: np.full_like(w, 0.5) for name, w in NETWORK.items()}, {name: np.full_like(w, 0.25) for name, w in NETWORK.items()})

    def step(source, target, labels, numbers, weights, moments, count):
        return transformer.train_transformer(network(weights), source, target, labels, numbers, moments, count, optimizer)

    inputs = [SOURCE, TARGET, NEXT, NUMBERS]
    loss, _, first, _ = trained_by_adamw(step, inputs, NETWORK, (zero, zero), 0)
    np.testing.assert_allclose(loss, negative_log_likelihood(numpy_transformer(SOURCE, TARGET, NETWORK), NEXT), rtol=1e-9)
    gradients = {name: moment / 0.5 for name, moment in first.items()}
    chosen = ["positions.weight", "transformer.encoder.layers.0.self_attn.in_proj_weight", "transformer.encoder.layers.0.norm1.weight"]
    chosen += ["transformer.decoder.layers.0.multihead_attn.in_proj_weight", "transformer.decoder.layers.0.linear2.bias", "head.weight"]
    assert_slopes(lambda w: negative_log_likelihood(numpy_transformer(SOURCE, TARGET, w), NEXT), NETWORK, gradients, chosen)
    _, *after = trained_by_adamw(step, inputs, NETWORK, before, 2)
    for name in ("source.weight", "transformer.decoder.layers.0.linear1.weight"):
        expected = numpy_adamw(NETWORK[name], gradients[name], 0.5, 0.25, 3, optimizer)
        for found, right in zip((group[name] for group in after), expected, strict=True):
            np.testing.assert_allclose(found, right, rtol=1e-9, atol=1e-12)


def test_the_loss_of_rows_by_hand(evaluate):  # noqa: F811
    scores, labels = np.log(np.array([[1.0, 3.0], [4.0, 4.0]])), np.array([1, 0])
    found = evaluate(cross_entropy, scores, labels, np.arange(2))
    np.testing.assert_allclose(found, -(np.log(0.75) + np.log(0.5)) / 2)
    assert evaluate(cross_entropy, scores.astype(np.float16), labels, np.arange(2)).dtype == np.float32


# LSTM

WIDTH, XS = 3, np.random.default_rng(1).standard_normal((4, 2, 3))
STATES = np.random.default_rng(2).standard_normal((2, 2, 2, 3)) / 2
LSTM = drawn({f"lstm.{name}": each for name, each in recurrent._weights(2, WIDTH, "float32").items()})
LSTM |= {"lstm.bias_hh_l1": np.linspace(-1, 1, 4 * WIDTH), "linear.weight": np.linspace(-1, 1, 6).reshape(2, 3), "linear.bias": np.ones(2)}
TO_PREDICT = np.array([[0.5, -0.5], [1.0, 0.25]])


def numpy_layers(weights):
    hs, cs = list(STATES[0]), list(STATES[1])
    for x in XS:
        for layer in range(2):
            w, u, b, more = (weights.get(f"lstm.{kind}_l{layer}", 0) for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
            hs[layer], cs[layer] = numpy_lstm(hs[layer - 1] if layer else x, hs[layer], cs[layer], w.T, u.T, b + more)
    return hs, cs


def test_two_layers_of_an_lstm_are_numpys(evaluate):  # noqa: F811
    def states(xs, h, c, weights):
        outputs, hs, cs = recurrent.lstm(xs, h, c, {name.removeprefix("lstm."): w for name, w in weights.items()})
        assert len(outputs) == len(XS)
        return *hs, *cs

    found = evaluate(as_program(states, LSTM, 3), XS, *STATES, *LSTM.values())
    hs, cs = numpy_layers(LSTM)
    for one, other in zip(found, [*hs, *cs], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)


def test_the_lstms_loss_and_gradients():
    def loss(weights):
        return ((numpy_layers(weights)[0][-1] @ weights["linear.weight"].T + weights["linear.bias"] - TO_PREDICT) ** 2).mean()

    zero = {name: np.zeros_like(w) for name, w in LSTM.items()}
    found, _, first, _ = trained_by_adamw(recurrent.train_lstm, [XS, *STATES, TO_PREDICT], LSTM, (zero, zero), 0)
    np.testing.assert_allclose(found, loss(LSTM), rtol=1e-9)
    assert_slopes(loss, LSTM, {name: moment / (1 - AdamW().first) for name, moment in first.items()}, LSTM)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("resnet50-v2", {"size": 33, "depth": 1, "width": 8, "half": 0}),
        ("transformer", {"layers": 1, "heads": 2, "depth": 3, "length": 4, "prenorm": 1}),
        ("lstm", {"steps": 2, "width": 4, "layers": 2}),
    ],
)
def test_training_steps_are_right_on_several_streams(name, settings):
    function, inputs = ss.workload(name).build(training=1, **settings)
    runs = ss.compare(function, *inputs, engines=["graph-dual"], device="simulated", repeats=1, progress=False)
    assert all(run.correct for run in runs.values())


def test_a_preview_of_resnet_computes_nothing():
    workload = ss.workload("resnet50-v2")
    program, specs = workload.outline(batch=1024, size=1024)
    assert sum(spec.nbytes for spec in specs) > 1 << 34
    assert workload.settings["depth"].default == workload.settings["depth"].most
    assert len(program.trace(*specs).operations) == len(program.trace(*workload.outline()[1]).operations)
