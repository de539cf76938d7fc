"""Gradients of programs: against differences, and by hand."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.drawn_gradients import INDICES, drawn_gradients, error_of

import streamscope as ss
from streamscope.engine_entry import ENGINES
from streamscope.errors import ProgramError
from streamscope.program.reference import peak_bytes, run_reference

RANDOM = np.random.default_rng(3)


def drawn(*shapes, dtype="float64"):
    return [RANDOM.standard_normal(shape).astype(dtype) for shape in shapes]


def names(program):
    return [operation.name for operation in program.operations]


def error_at(seed):
    """Return `error_of` a random program, whose gradients have the shapes and dtypes of its inputs."""
    case = drawn_gradients(seed)
    inputs = [INDICES, *case.inputs, *case.upstream]
    gradients = run_reference(ss.program(case.gradients).trace(*inputs), inputs)[len(case.upstream) :]
    assert [(each.shape, each.dtype) for each in gradients] == [(each.shape, each.dtype) for each in case.inputs]
    return error_of(case, gradients, seed)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 100_000))
def test_gradients_of_random_programs_are_their_slopes(seed):
    error = error_at(seed)
    assert error is None or error <= 1


def test_most_random_programs_are_smooth():
    assert sum(error_at(seed) is not None for seed in range(10)) >= 9


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_gradients_have_the_dtype_of_their_arguments(evaluate, dtype):
    def loss(w, x):
        return ss.ops.softmax(np.tanh(x @ w)[:, :3]).max(axis=1).astype("float32").sum()

    arrays = drawn((4, 5), (6, 4), dtype=dtype)
    found = evaluate(ss.grad(loss, (0, 1)), *arrays)
    exact = evaluate(ss.grad(loss, (0, 1)), *(each.astype("float64") for each in arrays))
    assert [each.dtype.name for each in found] == [dtype] * 2
    for one, other in zip(found, exact, strict=True):
        np.testing.assert_allclose(one, other, atol={"float16": 5e-3, "float32": 1e-6}[dtype])


def test_the_gradients_of_attention_take_no_more_operations_than_by_hand():
    program, specs = ss.workload("attention").outline()
    found = names(program.trace(*specs))
    assert [found.count(name) for name in ("matmul", "softmax", "softmax_gradient")] == [5 + 12, 1, 1]
    assert len(found) <= 19 + 2 + 4 + 2  # By hand, the scale both ways, copies of heads, and sums in two steps.


@pytest.mark.parametrize(
    ("reduce", "dtype", "count"),
    [
        (np.max, "float16", 1),
        (np.min, "float32", 1),
        (partial(ss.ops.norm, order=np.inf), "float16", 1),
        (ss.ops.norm, "float32", 1),
        (ss.ops.norm, "float16", 2),  # The result is rounded to half: the gradient takes one that is not.
    ],
)
def test_a_gradient_takes_a_reduction_s_result_and_does_not_reduce_again(reduce, dtype, count):
    found = names(ss.value_and_grad(lambda x: reduce(x, axis=1).sum()).trace(np.ones((2, 3), dtype)))
    name = next(iter(found))
    assert found.count(name) == count
    assert found.count(f"{name}_gradient") == 1


def test_a_reduction_whose_result_is_written_since_is_done_again(evaluate):
    def loss(x):
        y = x.max(axis=1)
        z = y * 3
        ss.ops.multiply(y, 2, out=y)
        return (y * z).sum()

    (x,) = drawn((3, 4))
    largest = x.max(axis=1, keepdims=True)
    np.testing.assert_allclose(evaluate(ss.grad(loss), x), np.where(x == largest, 12 * largest, 0))


def test_argnums_say_which_arguments(evaluate):
    def loss(x, y, z):
        return (x * y).sum() + z.sum()

    x, y, z = drawn((3,), (3,), (2,))
    np.testing.assert_array_equal(evaluate(ss.grad(loss), x, y, z), y)
    np.testing.assert_array_equal(evaluate(ss.grad(loss, -1), x, y, z), [1, 1])
    found = evaluate(ss.grad(loss, (2, 0)), x, y, z)
    np.testing.assert_array_equal(np.concatenate(found), [1, 1, *y])
    np.testing.assert_array_equal(evaluate(ss.grad(loss, [0]), x, y, z), [y])


def test_the_value_comes_before_the_gradients_and_further_results_behind_it(evaluate):
    def loss(x, y):
        return (x * y).sum(), (x + y, y)

    x, y = drawn((3,), (3,))
    value, total, same, dx, dy = evaluate(ss.value_and_grad(loss, (0, 1), has_aux=True), x, y)
    assert value == pytest.approx((x * y).sum())
    np.testing.assert_array_equal([total, same, dx, dy], [x + y, y, y, x])
    dx, total, same = evaluate(ss.grad(loss, has_aux=True), x, y)
    np.testing.assert_array_equal([total, same, dx], [x + y, y, y])


def test_in_a_program_arguments_may_be_trees(evaluate):
    def loss(weights, x):
        return (x * weights["scale"] + weights["rest"][0] * weights["rest"][1]).sum()

    def step(a, b, c, x):
        value, gradients = ss.value_and_grad(loss)({"scale": a, "rest": [b, c], "bias": None}, x)
        assert list(gradients) == ["scale", "rest", "bias"]
        assert gradients["bias"] is None
        return value, gradients["scale"], *gradients["rest"]

    a, b, c, x = drawn((3,), (3,), (3,), (3,))
    _, da, db, dc = evaluate(step, a, b, c, x)
    np.testing.assert_array_equal([da, db, dc], [x, c, b])


def test_views_of_one_variable_and_one_variable_given_twice_have_gradients_of_their_own(evaluate):
    def product(a, b):
        return (a * b * b).sum()

    w = RANDOM.standard_normal((2, 3))
    found = evaluate(lambda w: ss.grad(product, (0, 1))(w[0], w[1]), w)
    np.testing.assert_allclose(found, [w[1] ** 2, 2 * w[0] * w[1]])
    np.testing.assert_allclose(evaluate(lambda w: ss.grad(product, (0, 1))(w, w), w), [w**2, 2 * w**2])
    np.testing.assert_allclose(evaluate(lambda w: ss.grad(lambda v: (v * w).sum())(w), w), w)  # w is of outside, as in JAX


def test_a_copy_of_a_view_from_before_does_not_hide_an_argument(evaluate):
    def step(x):
        before = ss.ops.layer_norm(x.T)  # copies the view
        return before, ss.grad(lambda x: (ss.ops.layer_norm(x.T) * before).sum())(x)

    x = RANDOM.standard_normal((3, 4))
    before, found = evaluate(step, x)
    np.testing.assert_array_equal(found, evaluate(ss.vjp(lambda x: ss.ops.layer_norm(x.T)), x, before)[0])


def test_what_the_result_does_not_depend_on_has_a_gradient_of_zeros(evaluate):
    x, y = drawn((2, 3), (4,))
    found = evaluate(ss.grad(lambda x, y: np.floor(x).sum(), (0, 1)), x, y)
    np.testing.assert_array_equal(found[0], np.zeros((2, 3)))
    np.testing.assert_array_equal(found[1], np.zeros(4))
    assert evaluate(ss.grad(lambda x, y: x.sum(), 1), x, np.zeros((0, 2))).shape == (0, 2)


def test_fan_out_is_summed_once_and_parts_are_joined_once():
    def loss(x):
        i, f, g, o = np.split(x, 4, axis=1)
        return (i * f + g * o).sum() + (x * x).sum()

    x = np.ones((2, 8))
    assert names(ss.grad(lambda x: (x * x).sum()).trace(x)).count("add_n") == 1
    only_parts = ss.grad(lambda x: sum((part * part * part).sum() for part in np.split(x, 4, axis=1))).trace(x)
    assert names(only_parts).count("concatenate") == 1
    assert "copy" not in names(only_parts)
    (found,) = run_reference(ss.grad(loss).trace(x), [x])
    np.testing.assert_array_equal(found, np.full((2, 8), 3))


def test_only_what_a_gradient_needs_is_computed():
    def loss(x, w):
        return np.tanh(x @ w).sum()

    x, w = drawn((3, 4), (4, 2))
    assert names(ss.grad(loss, 1).trace(x, w)) == ["matmul", "where", "tanh_gradient", "matmul"]
    assert names(ss.value_and_grad(loss, 1).trace(x, w)).count("matmul") == 2
    # Of a linear function nothing is kept, and the user's own unused operations stay.
    assert names(ss.grad(lambda x: (2 * x).sum()).trace(x)) == ["where", "multiply_gradient_b"]
    assert "exp" in names(ss.program(lambda x: (np.exp(x), ss.grad(lambda x: (2 * x).sum())(x))[1]).trace(x))


def test_only_the_wanted_gradient_of_a_convolution_is_computed(evaluate):
    x, w = drawn((1, 4, 4, 2), (3, 3, 3, 2))
    function = partial(ss.ops.convolution, padding=1)
    dy = RANDOM.standard_normal((1, 4, 4, 3))
    dx, dw = evaluate(partial(ss.ops.convolution_backward, padding=1), x, w, dy)

    def loss(x, w, dy):
        return (function(x, w) * dy).sum()

    for argnums, name, right in ((0, "convolution_data_gradient", dx), (1, "convolution_weight_gradient", dw)):
        assert name in names(ss.grad(loss, argnums).trace(x, w, dy))
        np.testing.assert_allclose(evaluate(ss.grad(loss, argnums), x, w, dy), right)


def test_the_loss_may_have_another_dtype_than_the_arguments_and_is_not_computed():
    program = ss.grad(lambda x: (x * x).sum().astype("float64")).trace(np.ones(3, "float32"))
    assert "sum" not in names(program)
    np.testing.assert_array_equal(run_reference(program, [np.ones(3, "float32")])[0], [2, 2, 2])


def test_in_place_operations_are_differentiated_as_what_they_write(evaluate, slopes):
    def function(x, y):
        z = x * 2.0
        z += y
        z[1:] *= 3.0
        z[:1] += y[1:2]
        x += y  # an argument: its gradient is that before
        return z * y + x

    def out(x, y):
        z = ss.empty(x.shape, x.dtype)
        ss.ops.add(x, y, out=z)
        ss.ops.multiply(x, y, out=z, request="add")
        return z * z

    x, y, dy = drawn((3,), (3,), (3,))
    for each in (function, out):
        for found, right in zip(evaluate(ss.vjp(each), x, y, dy), slopes(each, dy, x, y), strict=True):
            np.testing.assert_allclose(found, right, atol=1e-6)


def test_a_value_that_was_written_over_is_refused_by_name_unless_it_is_computed_again(evaluate):
    def loss(x, y):
        z = np.exp(x)
        z *= y
        return z.sum()

    x, y = drawn((3,), (3,))
    np.testing.assert_allclose(evaluate(ss.grad(loss), x, y), y * np.exp(x))
    with pytest.raises(
        ProgramError, match=r"gradient of multiply at test_gradients.py:\d+: z \*= y needs 'exp_0', which was written in place"
    ):
        ss.grad(loss, 1).trace(x, y)
    np.testing.assert_allclose(evaluate(ss.grad(loss, 1, recompute="exp"), x, y), np.exp(x))


def test_recomputing_keeps_less_and_changes_nothing(evaluate):
    def loss(x):
        for number in range(6):
            with ss.label(f"layer{number}"):
                x = ss.ops.mish(np.tanh(x) * 2)
        return (x * x).sum()

    x = RANDOM.standard_normal(1000)
    kept, again, one = (ss.value_and_grad(loss, recompute=each).trace(x) for each in (False, True, ["layer3", "tanh"]))
    assert len(kept.operations) < len(one.operations) < len(again.operations)
    for program in (again, one):
        np.testing.assert_array_equal(run_reference(program, [x])[1], run_reference(kept, [x])[1])

    def wide(x, w):
        return sum((np.exp(part).sum(axis=0) @ w).sum() for part in [np.tanh(x * float(number)) for number in range(1, 6)])

    x, w = drawn((100, 4), (4,))
    assert peak_bytes(ss.value_and_grad(wide, recompute=True).trace(x, w)) < peak_bytes(ss.value_and_grad(wide).trace(x, w))


def test_the_way_back_may_be_taken_later_and_twice(evaluate):
    def step(x, dy):
        y, pullback = ss.vjp(lambda x: (np.tanh(x), x * 2), x)
        return (*pullback((dy, dy)), *pullback((dy * 2, dy * 0)), y[0])

    x, dy = drawn((3,), (3,))
    first, second, y = evaluate(step, x, dy)
    np.testing.assert_allclose(first, dy / np.cosh(x) ** 2 + 2 * dy)
    np.testing.assert_allclose(second, 2 * dy / np.cosh(x) ** 2)
    np.testing.assert_array_equal(y, np.tanh(x))


def test_gradients_may_be_written_in_place(evaluate):
    def step(x, y, dy):
        _, pullback = ss.vjp(lambda x, y: x + y, x, y)
        dx, other = pullback(dy)
        dx += 1.0
        return dx, other, dy

    x, y, dy = drawn((3,), (3,), (3,))
    np.testing.assert_array_equal(evaluate(step, x, y, dy), [dy + 1, dy, dy])


def test_a_program_with_gradients_runs_the_same_under_every_engine():
    @ss.program(fuse=True)
    def loss(w, x):
        with ss.label("layer"):
            h = ss.ops.softmax(np.tanh(x @ w) * 2)
        return (h[:, 1:] * h[:, :-1]).mean()

    w, x = drawn((8, 4), (5, 8), dtype="float32")
    runs = ss.compare(ss.grad(loss), w, x, engines=list(ENGINES), device="simulated", progress=False)
    assert all(run.correct for run in runs.values())
    backward = [each for each in ss.grad(ss.program(loss.function)).trace(w, x).operations if each.label.startswith("backward")]
    assert {each.label for each in backward} == {"backward", "backward/layer"}
    assert all(each.where.startswith("test_gradients.py:") for each in backward)


def test_pushed_gradients_are_those_of_a_program():
    step = ss.value_and_grad(lambda x: (np.exp(x[1:]) * x[:-1]).sum())
    values = RANDOM.standard_normal(4)
    with ss.Engine(device="simulated") as engine:
        x, loss, dx = engine.variable(values), engine.variable(np.zeros(())), engine.variable(np.zeros(4))
        engine.push(step, reads=(x,), writes=(loss, dx))
        right = engine.run(step, values)
        np.testing.assert_array_equal(engine.read(loss), right[0])
        np.testing.assert_array_equal(engine.read(dx), right[1])


COLLECTIVES = {
    "all_reduce": lambda u, v: ss.ops.all_reduce([u, v]),
    "mean": lambda u, v: ss.ops.all_reduce([u, v], "mean"),
    "in slices": lambda u, v: ss.ops.all_reduce([u, v], bucket=8),
    "all_gather": lambda u, v: ss.ops.all_gather([u, v]),
    "reduce_scatter": lambda u, v: ss.ops.reduce_scatter([u, v]),
    "mean of parts": lambda u, v: ss.ops.reduce_scatter([u, v], "mean"),
    "all_to_all": lambda u, v: ss.ops.all_to_all([u, v]),
    "broadcast": lambda u, v: [one * other for one, other in zip(ss.ops.broadcast(u, [0, 1]), [u, v], strict=True)],
    "send": lambda u, v: [u, v + ss.ops.send(u, 1)],
    "to_gpu": lambda u, v: [u + ss.ops.to_gpu(v, 0), v],
}


@pytest.mark.parametrize("name", COLLECTIVES)
@pytest.mark.parametrize("both", [True, False])
def test_gradients_go_through_collectives(evaluate, slopes, name, both):
    def function(u, v):
        with ss.gpu(1):
            v = v * 2.0
        with ss.gpu(0):
            u = u * 3.0
        ends = COLLECTIVES[name](u, v)
        first, second = (each.reshape(-1)[:2] for each in ends)
        second = ss.ops.to_gpu(second * second, 0)
        return first * first + second if both else second

    u, v, dy = drawn((4,), (4,), (2,))
    for found, right in zip(evaluate(ss.vjp(function), u, v, dy), slopes(function, dy, u, v), strict=True):
        np.testing.assert_allclose(found, right, atol=1e-6)


def test_gradients_go_through_copies_to_the_host_and_back():
    def loss(x, unused):
        return ss.ops.to_host((np.exp(ss.ops.to_device(x[1:])) * ss.ops.to_device(x)[:2]).sum())

    x = RANDOM.standard_normal(3)
    with ss.Engine(device="simulated") as engine:
        found, zeros = engine.run(ss.grad(loss, (0, 1)), x, np.ones(2))
        (again, _) = engine.run(ss.vjp(loss), x, np.ones(2), np.array(2.0))
    right = [np.exp(x[1]), np.exp(x[1]) * x[0] + np.exp(x[2]), np.exp(x[2]) * x[1]]
    np.testing.assert_allclose(found, right)
    np.testing.assert_allclose(again, np.multiply(right, 2))
    np.testing.assert_array_equal(zeros, [0, 0])


@ss.operator(
    reads=["x", "w"], writes=["y"], reference=lambda x, w, scale: x * w * scale, gradient=lambda w, dy, scale: {"x": w * dy * scale}
)
def scaled(x, w, y, *, scale=2.0):
    pass


@ss.operator(reads=["x"], writes=["y"], reference=np.exp, gradient=lambda y, dy: {"x": y * dy})
def exponential(x, y):
    pass


def test_operators_of_ones_own_have_the_gradient_that_they_say(evaluate):
    x, w = drawn((3,), (3,))
    np.testing.assert_allclose(evaluate(ss.grad(lambda x, w: scaled(x, w, scale=3.0).sum()), x, w), 3 * w)
    np.testing.assert_allclose(evaluate(ss.grad(lambda x: exponential(x * 2).sum()), x), 2 * np.exp(2 * x))
    with pytest.raises(ProgramError, match=r"the gradient of 'w', which is float64\[3\], is none at test_gradients.py:\d+"):
        ss.grad(lambda x, w: scaled(x, w).sum(), 1).trace(x, w)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"reads": ["x"], "writes": ["y"], "gradient": lambda z: {}}, "gradient= is not possible: it names z.*it may name x, y and dy"),
        ({"reads": ["x", "y"], "writes": ["y"], "gradient": lambda dy: {}}, "'y' is updated in place"),
        ({"reads": ["x"], "writes": ["y"], "gradient": 3}, "gradient=3 is not a function of variables"),
    ],
)
def test_wrong_gradients_of_ones_own_are_refused(arguments, said):
    def function(x, y):
        pass

    with pytest.raises(ProgramError, match=said):
        ss.operator(function, **arguments)


def test_what_a_gradient_of_ones_own_returns_is_checked():
    wrong = ss.operator(lambda x, y: None, reads=["x"], writes=["y"], gradient=lambda dy: {"y": dy})
    with pytest.raises(ProgramError, match=r"gradient= gives .*return {name: gradient} of x"):
        ss.grad(lambda x: wrong(x).sum()).trace(np.ones(3))
    narrow = ss.operator(lambda x, y: None, reads=["x"], writes=["y"], gradient=lambda dy: {"x": dy[:1]})
    with pytest.raises(ProgramError, match=r"'x', which is float64\[3\], is float64\[1\]"):
        ss.grad(lambda x: narrow(x).sum()).trace(np.ones(3))


@ss.host_function
def on_host(x):
    return 2 * x


@ss.operator(reads=["x"], writes=["y"], reference=lambda x: x)
def of_mine(x, y):
    pass


squared_by_line = ss.elementwise("y = x * x * a", gradient={"x": "2 * x * a * dy"})


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda x: ss.ops.to_device(on_host(ss.ops.to_host(x))).sum(), r"on_host at .*:\d+.*a host function, which has no gradient"),
        (lambda x: of_mine(x * 2).sum(), r"of_mine at test_gradients.py:\d+: .*, which has no gradient"),
        (lambda x: (x // 2).sum(), r"floor_divide at test_gradients.py:\d+: .*, which has no gradient"),
        (lambda x: squared_by_line(x, x).sum(), r"y: it has no gradient of a at test_gradients.py:\d+"),
        (lambda x: ss.grad(lambda x: np.tanh(x).sum())(x).sum(), r"tanh_gradient at .*, which has no gradient"),
        (lambda x: x, r"returns float64\[3\], not a scalar"),
        (lambda x: (x.sum(), x), r"returns a tuple, not one scalar"),
        (np.argmax, r"the result of .* is int64, which has no gradient"),
        (lambda x: ss.ops.all_reduce([x, ss.ops.to_gpu(x, 1)], "max")[0].sum(), r"op='max' has no gradient at test_gradients.py:\d+"),
    ],
)
def test_what_has_no_gradient_is_refused_by_name(function, said):
    with pytest.raises(ProgramError, match=said):
        ss.grad(function).trace(np.ones(3))


def test_what_does_not_depend_on_an_argument_needs_no_gradient(evaluate):
    x, y = drawn((3,), (3,))
    found = evaluate(ss.grad(lambda x, y: (x * ss.ops.to_device(on_host(ss.ops.to_host(y // 1)))).sum()), x, y)
    np.testing.assert_array_equal(found, 2 * (y // 1))
    chosen = evaluate(ss.grad(lambda x: ss.ops.where(x > 0, x, 2 * x).sum()), x)
    np.testing.assert_array_equal(chosen, np.where(x > 0, 1, 2))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: ss.grad(3), "wants a function or a program, not an int"),
        (lambda: ss.grad(np.tanh, "x"), "argnums='x' must be the place of an argument"),
        (lambda: ss.grad(np.tanh, ()), "must be the place"),
        (lambda: ss.grad(np.tanh, (0, 0)), r"argnums=\(0, 0\) has one place twice"),
        (lambda: ss.grad(np.tanh, True), "must be the place"),
        (lambda: ss.grad(np.tanh, recompute=3), "recompute=3 names no operations"),
        (lambda: ss.grad(lambda x: x.sum(), recompute="max").trace(np.ones(3)), "name or the label 'max'.*there are sum"),
        (lambda: ss.grad(lambda x: x.sum(), 1).trace(np.ones(3)), "argnums=1, and .* got 1 argument"),
        (lambda: ss.grad(lambda x: x.sum()).trace(np.arange(3)), "'x' of .* is int64, which has no gradient"),
        (lambda: ss.grad(lambda x: x.sum(), has_aux=True).trace(np.ones(3)), "must return a pair, not a"),
        (lambda: ss.grad(lambda x: x.sum())(np.ones(3)), "called outside a program"),
        (lambda: ss.vjp(lambda x: x, np.ones(3)), "ss.vjp was called outside a program"),
        (lambda: ss.vjp(lambda x: x).trace(np.ones(3)), "takes the gradient of the result, too"),
        (lambda: ss.vjp(lambda x, w: x * w).trace(np.ones(3), np.ones(3)), r"(?s)missing a required argument: 'w'.*, last, the gradient"),
        (lambda: ss.vjp(lambda x: x).trace(np.ones(3), np.ones(2)), r"is float64\[2\], and the result float64\[3\]"),
    ],
)
def test_wrong_arguments_are_refused(make, said):
    with pytest.raises(ProgramError, match=said):
        make()
