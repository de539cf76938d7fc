"""Parallelised functions of PyTorch and CuPy are called like the functions, and give what they give."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest

import streamscope as ss
from streamscope.errors import EngineError, KeywordError, ProgramError

pytestmark = pytest.mark.gpu


def parallelise(function, *inputs, **keywords):
    return ss.parallelise(function, *inputs, progress=False, check=0, **keywords)


def branches(x):
    return [(x * k).tanh() + (x - k).sigmoid() for k in range(4)]


@pytest.fixture
def x(torch):
    return torch.linspace(-2, 2, 4096, device="cuda").reshape(64, 64)


def test_it_gives_what_the_function_gives_and_leaves_its_inputs_alone(torch, x):
    fast = parallelise(branches, x)
    before = x.clone()
    for factor in (1.0, 3.0, -0.5):
        y = x * factor
        for found, wanted in zip(fast(y), branches(y), strict=True):
            assert torch.equal(found, wanted)
    assert torch.equal(x, before)
    assert isinstance(fast(x), list)


def test_results_are_fresh_or_static_as_asked(torch, x):
    fresh, static = parallelise(branches, x), parallelise(branches, x, outputs="static")
    kept, shared = fresh(x)[1], static(x)[1]
    wanted = branches(x)[1]
    fresh(x + 1)
    static(x + 1)
    assert torch.equal(kept, wanted)
    assert torch.equal(shared, branches(x + 1)[1])


class Pair(NamedTuple):
    left: object
    right: object


@dataclass
class Batch:
    image: object
    scale: float = 1.0


def test_trees_of_inputs_and_results(torch, x):
    def function(batch, others, *, shift, training=False):
        y = batch["a"].image * batch["a"].scale + others[0] - shift
        return {"pair": Pair(y, (y + 1, None)), "batch": Batch(y * 2, 3.0), "training": training}

    batch = {"a": Batch(x, 0.5)}
    fast = parallelise(function, batch, (x + 1,), shift=x * 2)
    other = {"a": Batch(x * 7, 0.5)}
    found, wanted = (call(other, (x - 3,), shift=x) for call in (fast, function))
    assert type(found["pair"]) is Pair
    assert found["pair"].right[1] is None
    assert (found["batch"].scale, found["training"]) == (3.0, False)
    for one, two in [(found["pair"].left, wanted["pair"].left), (found["batch"].image, wanted["batch"].image)]:
        assert torch.equal(one, two)
    with pytest.raises(ProgramError, match=r"batch\['a'\].scale is 2.0, not 0.5"):
        fast({"a": Batch(x, 2.0)}, (x,), shift=x)
    with pytest.raises(ProgramError, match="training is True, not False"):
        fast(batch, (x,), shift=x, training=True)


def test_other_shapes_and_dtypes_are_refused_by_name_or_captured_anew(torch, x):
    fast = parallelise(branches, x)
    with pytest.raises(ProgramError, match=r"branches: x is float32\[3, 64\] on cuda:0, and float32\[64, 64\] on cuda:0 was captured"):
        fast(x[:3])
    with pytest.raises(ProgramError, match=r"x is float64\[64, 64\]"):
        fast(x.double())
    with pytest.raises(ProgramError, match=r"x is float32\[64, 64\] on cpu"):
        fast(x.cpu())
    again = parallelise(branches, x, shapes="recapture")
    for y in (x, x[:3], x[:5], x[:3] + 1, x.double()):
        assert torch.equal(again(y)[2], branches(y)[2])
    assert again.captures == 4


def test_a_module_uses_its_parameters_where_they_are(torch, x):
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 8)).cuda()
    fast = parallelise(model, x)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.5)
    assert torch.equal(fast(x), model(x))
    assert not fast(x).requires_grad
    model.load_state_dict({name: value * 3 for name, value in model.state_dict().items()})
    assert torch.equal(fast(input=x + 1), model(x + 1))


def test_what_is_made_without_gradients_is_called_without_them_in_either_mode_and_refused_or_captured_anew_with_them(torch, x):
    model = torch.nn.Linear(64, 8).cuda()
    with torch.inference_mode():
        fast, anew = parallelise(model, x), parallelise(model, x, shapes="recapture")
    for mode in (torch.inference_mode, torch.no_grad):
        with mode():
            assert torch.equal(fast(x + 1), model(x + 1))
    with pytest.raises(ProgramError, match=r"torch.is_grad_enabled\(\) is True, and False was captured"):
        fast(x)
    assert torch.equal(anew(x + 1), model(x + 1))
    assert anew.captures == 2


def test_partial_functions_and_methods(torch, x):
    class Scaler:
        def __init__(self):
            self.weight = x * 0.1

        def scaled(self, y, power=1):
            return y @ self.weight**power

    scaler = Scaler()
    fast = parallelise(scaler.scaled, x, power=2)
    assert torch.equal(fast(x + 1, power=2), scaler.scaled(x + 1, power=2))
    bound = functools.partial(scaler.scaled, power=2)
    again = parallelise(bound, x)
    scaler.weight.mul_(2)
    assert torch.equal(again(x), bound(x))
    weights = x.clone()
    held = parallelise(functools.partial(torch.addmm, weights), x, x)
    weights.zero_()
    assert torch.equal(held(x, x), torch.addmm(weights, x, x))


def test_an_input_that_is_changed_is_changed_where_it_is(torch, x):
    def step(y, cache, position):
        cache.index_copy_(0, position, y[:1])
        return cache.sum(0), cache

    cache, position = torch.zeros(64, 64, device="cuda"), torch.tensor([3], device="cuda")
    fast = parallelise(step, x, cache, position)
    assert not cache.any()  # As if it had never been called.
    total, returned = fast(x, cache, position)
    assert returned is cache
    assert torch.equal(cache[3], x[0])
    assert torch.equal(total, cache.sum(0))
    other = torch.ones_like(cache)
    fast(x + 1, other, position + 1)
    assert torch.equal(other[4], x[0] + 1)
    assert other[3, 0] == 1
    assert torch.equal(cache[3], x[0])
    assert not cache[4].any()


TABLES = """
extern "C" __global__ void noted(unsigned long long* table, float* x) { table[0] = (unsigned long long)x; }
extern "C" __global__ void clipped(const unsigned long long* table, int size)
{
    float* x = (float*)table[0];
    if (threadIdx.x < size && x[threadIdx.x] < 0) x[threadIdx.x] = 0;
}
"""


def test_an_input_that_only_an_address_in_memory_leads_to_is_changed_as_in_a_plain_call(torch):
    """What was captured changes nothing: a later call does."""
    cupy = pytest.importorskip("cupy")
    module = cupy.RawModule(code=TABLES)
    noted, clipped = map(module.get_function, ("noted", "clipped"))

    def clip(x):
        table = cupy.empty(1, np.uint64)
        noted((1,), (1,), (table, x))
        clipped((1,), (64,), (table, np.int32(64)))
        return x * 2

    fast = parallelise(clip, cupy.ones(64, np.float32))
    x, y = cupy.linspace(-1, 1, 64, dtype=np.float32), cupy.linspace(-1, 1, 64, dtype=np.float32)
    found, wanted = fast(x), clip(y)
    assert bool((found == wanted).all())
    assert bool((x == y).all())
    assert float(x.min()) == 0


def test_the_memory_of_the_capture_can_be_filled_and_is_then_not_copied(torch, x):
    fast = parallelise(branches, x)
    fast.inputs["x"].copy_(x + 5)
    assert torch.equal(fast(**fast.inputs)[3], branches(x + 5)[3])


def test_arguments_of_any_size_and_alignment_are_copied_together(torch):
    counts = (1, 7, 4096, 100_003, 3_000_000, 0)
    inputs = [torch.arange(count, device="cuda", dtype=torch.uint8) for count in counts]
    fast = parallelise(lambda *given: [one + 1 for one in given], *inputs)
    for at in (0, 1, 4, 16):
        others = [torch.randint(0, 99, (count + at,), device="cuda", dtype=torch.uint8)[at:] for count in counts]
        others[at % 3] = next(iter(fast.inputs.values()))[at % 3]  # One that is where it was captured.
        for _ in range(2):
            assert all(torch.equal(found, one + 1) for found, one in zip(fast(*others), others, strict=True))
    assert "the launch of its graph" in fast.verdict
    turned = torch.rand(6, 4, device="cuda").t()
    square = parallelise(lambda x: x * x, turned)
    for x in (turned + 1, turned.contiguous(), torch.rand(8, 6, device="cuda")[::2], turned.half().float()):
        assert torch.equal(square(x), x * x)


def test_it_runs_on_the_current_stream_and_after_its_last_run(torch, x):
    fast = parallelise(branches, x)
    streams = [torch.cuda.Stream() for _ in range(3)]
    wanted = [branches(x + number)[2] for number in range(30)]
    torch.cuda.synchronize()
    found = []
    for number in range(30):
        with torch.cuda.stream(streams[number % 3]):
            y = x + number
            torch.cuda._sleep(100_000)
            found.append(fast(y)[2])
    torch.cuda.synchronize()
    assert all(torch.equal(*pair) for pair in zip(found, wanted, strict=True))


def test_a_cupy_function(cupy):
    a = cupy.linspace(-1, 1, 64 * 64, dtype=cupy.float32).reshape(64, 64)

    def without_product(a, b, *, power):
        return cupy.tanh(a) * b, {"sum": (a**power).sum(axis=0)}

    fast = parallelise(without_product, a, a.T, power=2)
    for one, two in [(a, a.T), (a + 1, a.T * 2), (a.T, a)]:
        found, wanted = (call(one, two, power=2) for call in (fast, without_product))
        np.testing.assert_array_equal(found[0].get(), wanted[0].get())
        np.testing.assert_array_equal(found[1]["sum"].get(), wanted[1]["sum"].get())
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        moved = fast(a + 3, a, power=2)[0]
    stream.synchronize()
    np.testing.assert_array_equal(moved.get(), (cupy.tanh(a + 3) * a).get())


def test_what_cannot_be_captured_names_the_line(torch, x):
    def impatient(y):
        z = y * 2
        if z.sum().item() > 0:
            return z
        return -z

    with pytest.raises(EngineError, match=r"impatient cannot be captured at test_parallelise_on_cuda.py:\d+, if z.sum\(\).item\(\) > 0:"):
        parallelise(impatient, x + 3)
    assert parallelise(branches, x)(x)  # The device is as good as new.


def test_a_capture_that_cuda_breaks_leaves_random_numbers_and_memory_as_they_were(torch, x):
    own = torch.Generator("cuda")
    drawing, y = torch.cuda.CUDAGraph(), torch.empty_like(x)
    with torch.cuda.graph(drawing):
        y.uniform_()

    def decomposed(z):
        noisy = z + torch.rand_like(z) + torch.empty_like(z).normal_(generator=own)
        return torch.linalg.cholesky(noisy @ noisy.mT + 64 * torch.eye(len(z), device="cuda"))

    def impatient(z):
        return z * 2 if (z + torch.rand_like(z)).sum().item() > 0 else z

    for function in (decomposed, impatient):
        with pytest.raises(EngineError, match="cannot be captured"):
            parallelise(function, x + 1)
        torch.manual_seed(3)
        first = torch.randn(8, device="cuda")
        torch.manual_seed(3)
        assert torch.equal(torch.randn(8, device="cuda"), first)
        torch.empty(8, device="cuda").normal_(generator=own)
        drawing.replay()
        before = y.clone()
        drawing.replay()
        assert not torch.equal(y, before)
    assert all(map(torch.equal, parallelise(branches, x)(x), branches(x)))


@pytest.mark.parametrize("sparse", [False, True])
def test_weights_that_only_other_inputs_change_are_left_as_they_were(torch, sparse):
    """The proof draws other rows of the table, and other units are alive behind a ReLU."""
    torch.manual_seed(0)
    table, layer = torch.nn.Embedding(1000, 64, device="cuda"), torch.nn.Linear(64, 64, device="cuda")
    with torch.no_grad():
        layer.bias.fill_(-3.0)  # Few units are alive.
    weights = [table.weight, layer.weight, layer.bias]

    def step(ids, scale):
        loss = (layer(table(ids) * scale).relu() ** 2).sum()
        gradients = torch.autograd.grad(loss, weights)
        with torch.no_grad():
            if sparse:
                table.weight.index_add_(0, ids, table(ids), alpha=-1e-3)
            for weight, gradient in zip(weights, gradients, strict=True):
                weight.sub_(1e-3 * gradient)
        return loss.detach()

    ids, scale = torch.tensor([1, 2, 900] * 8, device="cuda"), torch.linspace(0, 2, 24, device="cuda")[:, None]
    before = [weight.detach().clone() for weight in weights]
    fast = parallelise(step, ids, scale)
    assert all(map(torch.equal, before, weights))
    assert "was not proven" not in fast.verdict


def test_wrong_arguments_are_told_before_anything_is_captured(torch, x):
    with pytest.raises(ProgramError, match=r"branches: x lies in host memory: float32\[64, 64\] on cpu"):
        parallelise(branches, x.cpu())
    with pytest.raises(ProgramError, match="cannot be called like this: missing a required argument: 'x'"):
        parallelise(branches)
    with pytest.raises(KeywordError, match="has no keyword 'shape'"):
        parallelise(branches, x, shape="recapture")
    with pytest.raises(ProgramError, match="'anew' is not 'refuse' or 'recapture'"):
        parallelise(branches, x, shapes="anew")
    with pytest.raises(ProgramError, match="its result lies in host memory"):
        parallelise(lambda y: (y + 1, torch.ones(3))[1], x)
    calls = iter(range(100))
    with pytest.raises(ProgramError, match=r"returned something else when it was called again: its result\[1\] is 1, not 0"):
        parallelise(lambda y: (y + 1, next(calls)), x)


def test_it_is_not_called_while_its_stream_is_captured(torch, x):
    fast = parallelise(branches, x)
    stream = torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        graph.capture_begin()
        x + 1
        with pytest.raises(EngineError, match="while its stream is captured"):
            fast(x)
        graph.capture_end()
    assert torch.equal(fast(x)[0], branches(x)[0])


def test_random_numbers_are_fresh_in_each_call_and_those_of_a_plain_call(torch, x):
    dropout = torch.nn.functional.dropout

    def noisy(y):
        return dropout(y, 0.5), dropout(y * 2, 0.1) + torch.rand_like(y)

    fast = parallelise(noisy, x)
    torch.manual_seed(7)
    wanted = [each for _ in range(3) for each in noisy(x + 1)]
    torch.manual_seed(7)
    found = [each for _ in range(3) for each in fast(x + 1)]
    assert all(torch.equal(*pair) for pair in zip(found, wanted, strict=True))
    assert not torch.equal(found[0], found[2])
    torch.manual_seed(2**64 - 5)
    (wanted, _), after = noisy(x), torch.rand(3, device="cuda")
    torch.manual_seed(2**64 - 5)
    assert torch.equal(fast(x)[0], wanted)
    assert torch.equal(torch.rand(3, device="cuda"), after)
    other = torch.cuda.CUDAGraph()
    with torch.cuda.graph(other):
        dropout(x, 0.5)
    other.replay()
    torch.manual_seed(7)
    assert torch.equal(fast(x + 1)[0], found[0])


def test_generators_of_ones_own_draw_as_in_plain_calls_beside_pytorchs(torch, x):
    generators = [torch.Generator("cuda") for _ in range(2)]

    def noisy(y):
        first = torch.rand(y.shape, device="cuda", generator=generators[0])
        return (
            y + first,
            torch.empty_like(y).normal_(generator=generators[1]),
            torch.rand_like(y),
            torch.rand(7, device="cuda", generator=generators[0]),
        )

    fast = parallelise(noisy, x)
    rounds = []
    for call in (noisy, fast):
        torch.cuda.manual_seed(7)
        for number, generator in enumerate(generators):
            generator.manual_seed(11 + number)
        rounds.append([each for _ in range(3) for each in call(x)])
    assert all(torch.equal(one, other) for one, other in zip(*rounds, strict=True))
    assert not torch.equal(rounds[1][0], rounds[1][4])


def test_pytorchs_own_generator_may_be_passed(torch, x):
    def noisy(y):
        return y + torch.rand(y.shape, device="cuda", generator=torch.cuda.default_generators[0])

    fast = parallelise(noisy, x)
    rounds = []
    for call in (noisy, fast):
        torch.cuda.manual_seed(7)
        rounds.append([*(call(x) for _ in range(3)), torch.rand(3, device="cuda")])
    assert all(torch.equal(one, other) for one, other in zip(*rounds, strict=True))


@pytest.mark.parametrize("how", ["fresh", "static"])
def test_a_weight_that_is_returned_stays_as_it_is(torch, x, how):
    weight = torch.randn(64, 64, device="cuda")
    held = weight.clone()
    fast = ss.parallelise(lambda y: (y * weight, weight), x, progress=False, check=3, outputs=how)
    assert torch.equal(weight, held)
    for factor in (1, 2):
        weight.mul_(factor)
        found, returned = fast(x)
        assert torch.equal(found, x * weight)
        assert torch.equal(returned, weight)


def test_making_it_leaves_the_random_numbers_of_later_code_as_plain_calls_would(torch, x):
    generator = torch.cuda.default_generators[0]
    torch.manual_seed(11)
    parallelise(torch.nn.Dropout(0.5), x)
    assert generator.initial_seed() == 11
    own = torch.Generator("cuda").manual_seed(5)
    before = own.get_state()
    parallelise(lambda y: y + torch.rand(y.shape, device="cuda", generator=own), x)
    assert torch.equal(own.get_state(), before)


def test_arguments_that_share_memory(torch, x):
    def sums(a, b):
        return a + b

    fast = parallelise(sums, x, x.T)
    for a, b in [(x, x.T), (x + 1, x * 2), (x.T, x)]:
        assert torch.equal(fast(a, b), a + b)

    def scaled(a, b):
        return a.mul_(2) + b

    base = torch.ones(64, 65, device="cuda")
    fast = parallelise(scaled, base[:, :-1], base[:, 1:])
    found = fast(base[:, :-1], base[:, 1:])
    assert (float(found[0, 0]), float(found[0, -1]), float(base[0, 0]), float(base[0, -1])) == (4.0, 3.0, 2.0, 1.0)
    with pytest.raises(ProgramError, match="a and b shared memory with another argument"):
        fast(x, x + 1)


def test_it_is_proven_on_other_inputs(torch, x):
    fast = ss.parallelise(branches, x, progress=False, check=3)
    assert fast.gain.proof is None or fast.gain.proof.bit_equal
    assert torch.equal(fast(x)[0], branches(x)[0])


def test_both_orders_are_compared_and_the_gain_is_told(torch, x):
    fast = parallelise(branches, x)
    gain = fast.gain
    assert gain.engine in ("graph", "graph-dual")
    assert gain.before_ns.median > 0
    assert (gain.speedup is None) == (gain.engine == "graph")
    assert gain.nodes == len(fast.captured.nodes)
    assert "NumPy" not in f"{fast} {fast!r}"
    runs = ss.compare(fast, engines="graph,graph-dual", repeats=5, progress=False)
    assert all(run.correct for run in runs.values())
    assert set(fast.comparison) == {"graph", "graph-dual"}


def test_a_model_that_was_trained_stays_trained_when_its_orders_are_shown_and_compared(torch, x):
    model = torch.nn.Linear(64, 64).cuda()

    def step(batch):
        with torch.no_grad():
            model.weight.add_(batch, alpha=0.125)

    fast = parallelise(step, x)
    for _ in range(3):
        fast(x)
    trained = model.weight.detach().clone()
    assert "graph" in fast.comparison
    ss.compare(fast, engines="graph", repeats=2, progress=False)
    assert torch.equal(model.weight, trained)


def training_step(torch, **options):
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.BatchNorm1d(32), torch.nn.Dropout(0.3), torch.nn.Linear(32, 8)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, capturable=True) if options else torch.optim.SGD(model.parameters(), lr=0.1)

    def step(y):
        optimizer.zero_grad(set_to_none=True)
        loss = model(y).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def test_a_training_step_goes_on_as_if_it_had_never_been_called(torch, x):
    (model, step), (other, plain) = training_step(torch), training_step(torch)
    torch.manual_seed(5)
    fast = parallelise(step, x)
    assert fast.gain.note == ""
    assert all(torch.equal(*pair) for pair in zip(model.state_dict().values(), other.state_dict().values(), strict=True))
    found = [fast(x + number) for number in range(4)]
    torch.manual_seed(5)
    assert all(torch.equal(loss, plain(x + number)) for number, loss in enumerate(found))
    assert all(torch.equal(*pair) for pair in zip(model.state_dict().values(), other.state_dict().values(), strict=True))


def test_a_training_step_whose_state_the_first_call_makes_goes_on_after_it(torch, x):
    (model, step), (other, plain) = training_step(torch, adam=True), training_step(torch, adam=True)
    torch.manual_seed(5)
    fast = parallelise(step, x)
    assert "as after one call" in fast.verdict
    plain(x)
    assert all(torch.equal(*pair) for pair in zip(model.state_dict().values(), other.state_dict().values(), strict=True))
    torch.manual_seed(5)
    found = [fast(x + number) for number in range(4)]
    torch.manual_seed(5)
    assert all(torch.equal(loss, plain(x + number)) for number, loss in enumerate(found))


def test_state_of_a_cupy_function_is_put_back(cupy):
    total = cupy.zeros(100, cupy.float32)

    def gather(values):
        total[...] += values
        return total.sum()

    values = cupy.ones(100, cupy.float32)
    fast = parallelise(gather, values)
    assert float(total.sum()) == 0
    assert [float(fast(values * number)) for number in (1, 2)] == [100.0, 300.0]


@pytest.mark.parametrize("phase", ["capturing", "preparing graph-dual", "timing"])
def test_an_interrupt_leaves_the_function_as_it_was(torch, x, phase):
    (model, step), (other, _) = training_step(torch), training_step(torch)

    def stop(what, number, steps):
        if what.startswith(phase):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ss.parallelise(step, x, progress=stop, check=0)
    assert all(torch.equal(*pair) for pair in zip(model.state_dict().values(), other.state_dict().values(), strict=True))
    assert not torch.cuda.is_current_stream_capturing()
    assert torch.isfinite(parallelise(step, x)(x))


def test_an_interrupt_in_the_function_while_it_is_captured_ends_the_capture(torch, x):
    calls = []

    def interrupted(y):
        calls.append(torch.cuda.is_current_stream_capturing())
        if calls[-1]:
            raise KeyboardInterrupt
        return y + 1

    with pytest.raises(KeyboardInterrupt):
        parallelise(interrupted, x)
    assert calls[-1]
    assert not torch.cuda.is_current_stream_capturing()
    assert torch.equal(parallelise(branches, x)(x)[0], branches(x)[0])
