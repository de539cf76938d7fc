from __future__ import annotations

import reprlib

import numpy as np
import pytest
from tests.ops.conftest import has_reference

import streamscope as ss
from streamscope.errors import DeviceError, ProgramError
from streamscope.measuring.case import Case, largest_error
from streamscope.program.reference import run_reference

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def one(operator):
    """Return a function of one variable that applies an operator to it."""

    def step(x):
        return operator(x)

    return step


@ss.operator(reads=["x", "y"], writes=["y", "z"], reference=lambda x, y: (y + x, x * 2), flops=7)
def update(x, z, y):
    """Has its results in another order than it declares them in."""


def test_reads_follow_the_parameters_and_writes_their_declaration():
    assert (update.reads, update.writes) == (("x", "y"), ("y", "z"))
    program = ss.program(update).trace(X, X)
    assert program.operations[0].reads == (0, 1)
    assert program.operations[0].writes == (1, 2)
    assert program.changes_inputs


def test_the_reference_gives_results_in_the_order_of_the_writes(evaluate):
    total, double = evaluate(update, X, X + 1)
    np.testing.assert_array_equal(total, 2 * X + 1)
    np.testing.assert_array_equal(double, 2 * X)


def test_results_are_like_the_first_argument_by_default():
    copy = ss.operator(lambda x, y: None, reads=["x"], writes=["y"])
    program = ss.program(copy).trace(X.astype(np.int32))
    assert str(program.variables[1].spec) == "int32[2, 3]"


def test_declared_shapes(evaluate):
    @ss.operator(
        reads=["x"],
        writes=["total", "count"],
        shapes=lambda x: {"total": ((x.shape[0],), x.dtype), "count": ((), "int64")},
        reference=lambda x: (x.sum(axis=1), np.int64(x.size)),
    )
    def sums(x, total, count):
        pass

    total, count = evaluate(sums, X)
    np.testing.assert_array_equal(total, [3, 12])
    assert (count, count.dtype) == (6, np.int64)


@pytest.mark.parametrize("name", ["totl", "x"])
def test_shapes_of_what_it_does_not_make(name):
    wrong = ss.operator(lambda x, total: None, reads=["x"], writes=["total"], shapes=lambda x: {name: ((1,), "float32")})
    with pytest.raises(ProgramError, match=rf"shapes= gives '{name}'.*\(it is asked for total\)"):
        ss.program(wrong).trace(X)


@pytest.mark.parametrize("declared", [(3,), 3, ("three", "float32"), ((2,), "float32", 1)])
def test_what_shapes_says_is_no_shape_and_dtype(declared):
    @ss.operator(reads=["x"], writes=["y"], shapes=lambda x: {"y": declared})
    def kernel(x, y):
        raise AssertionError

    with pytest.raises(ProgramError, match=r"kernel: shapes= gives .* for 'y'.*\(shape, dtype\)|shape .* is not a tuple of whole numbers"):
        ss.program(one(kernel)).trace(X)


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        (lambda x: x[:1], r"float32\[1, 3\]"),
        (lambda x: x + 1j, r"complex64\[2, 3\]"),
        (lambda x: (x, x), "2 arrays for 1 variable"),
    ],
)
def test_a_reference_that_does_not_fit_is_told_of_shapes(reference, said):
    @ss.operator(reads=["x"], writes=["y"], reference=reference)
    def kernel(x, y):
        raise AssertionError

    program = ss.program(one(kernel)).trace(X)
    with pytest.raises(ProgramError, match=rf"^kernel \(operation 0, test_custom.py:\d+\) returned .*{said}.* shapes="):
        run_reference(program, [X])
    prepared = ss.prepare(program, engine="async", device="simulated")
    prepared.load([X])
    prepared.run()
    with pytest.raises(DeviceError, match=rf"kernel \(operation 0, test_custom.py:\d+\) failed: .*{said}"):
        prepared.wait()


def test_nothing_to_tell_the_shape_from():
    source = ss.operator(lambda y: None, reads=[], writes=["y"])
    with pytest.raises(ProgramError, match=r"the shape of 'y' is unknown.*give shapes="):
        ss.program(lambda x: source()).trace(X)


@pytest.mark.parametrize(
    ("reads", "writes"),
    [(["x"], ["z"]), (["x"], ["y", "z"]), (["x", "y"], ["q"]), ([], ["x"])],
)
def test_declared_names_are_the_parameters(reads, writes):
    with pytest.raises(ProgramError, match=r"kernel has parameters \(x, y\), but declares .*name each parameter in reads, writes or both"):

        @ss.operator(reads=reads, writes=writes)
        def kernel(x, y):
            pass


def test_something_must_be_written():
    with pytest.raises(ProgramError, match="writes nothing"):
        ss.operator(lambda x: None, reads=["x"], writes=[])


@pytest.mark.parametrize("count", [0, 1, 3])
def test_wrong_number_of_arguments(count):
    with pytest.raises(ProgramError, match=rf"update reads 2 variables \(x, y\), got {count}"):
        ss.program(lambda x: update(*[x] * count)).trace(X)


def test_one_variable_in_two_places_that_are_written():
    swap = ss.operator(lambda x, y: None, reads=["x", "y"], writes=["x", "y"])
    with pytest.raises(ProgramError, match="writes 'a' twice"):
        ss.program(lambda a: swap(a, a)).trace(X)


def test_outside_a_program():
    with pytest.raises(ProgramError, match="update was called outside a program"):
        update(X, X)


def test_in_place_of_what_nothing_has_written():
    with pytest.raises(ProgramError, match=r"update at .* reads 'empty', which nothing has written"):
        ss.program(lambda x: update(x, ss.empty(x.shape))).trace(X)


def test_cost_and_capture():
    held = ss.operator(lambda x, y: None, reads=["x"], writes=["y"], capturable=False, flops=12)
    (launch,) = ss.program(held).trace(X).launches()
    assert (launch.cost.bytes, launch.cost.flops) == (2 * 24, 12)
    assert not launch.capturable
    assert launch.why_not
    (launch,) = ss.program(update).trace(X, X).launches()
    assert launch.capturable
    assert launch.cost.flops == 7


def test_without_a_reference_it_runs_on_cuda_only():
    mystery = ss.operator(lambda x, y: None, reads=["x"], writes=["y"])
    program = ss.program(mystery).trace(X)
    assert not has_reference(program)
    with pytest.raises(DeviceError, match="reference"):
        ss.prepare(program, engine="async", device=ss.open_device("simulated"))


def test_an_auxiliary_stream_outside_an_operator():
    with pytest.raises(ProgramError, match=r"ss\.auxiliary_stream was used outside an operator"), ss.auxiliary_stream():
        pass


def test_the_function_gets_each_array_by_name():
    got = {}

    @ss.operator(reads=["x", "y"], writes=["y", "z"])
    def spy(z, x, y):
        got.update(x=x, y=y, z=z)

    class Bench:
        def function(self, call):
            return call

    (launch,) = ss.program(spy).trace(X, X).launches()
    arrays = {0: "a", 1: "b", 2: "new"}
    launch.cuda(Bench(), [arrays[v] for v in launch.reads], [arrays[v] for v in launch.writes])()
    assert got == {"x": "a", "y": "b", "z": "new"}


WRONG = {
    "function": [5, "kernel"],
    "reads": [5, None, "x", [["x"]], [5], (name for name in "x")],
    "writes": [5, None, "y", [["y"]]],
    "shapes": [5, {"y": ((2,), "float32")}],
    "reference": [5, "copy"],
    "capturable": [5, "no"],
    "stateful": [5, None, "no"],
    "flops": ["a", None, 1.5, True, -(10**18), np.nan],
}


@pytest.mark.parametrize(("argument", "value"), [(argument, value) for argument, values in WRONG.items() for value in values])
def test_what_is_no_argument(argument, value):
    arguments = {"function": lambda x, y: None, "reads": ["x"], "writes": ["y"]} | {argument: value}
    with pytest.raises(ProgramError, match=rf"^ss\.operator: {argument}=.* is (not|out of range)") as caught:
        ss.operator(arguments.pop("function"), **arguments)
    assert caught.value.hint
    assert reprlib.repr(value) in caught.value.message


class Unknown:
    """Does not say what it takes."""

    __signature__ = "x, y"

    def __call__(self, x, y):
        raise AssertionError


@pytest.mark.parametrize("function", [5, Unknown()])
def test_what_has_no_parameters_to_name(function):
    with pytest.raises(ProgramError, match=r"ss\.operator: the parameters of .* are unknown"):
        ss.operator(reads=["x"], writes=["y"])(function)


@pytest.mark.parametrize("declared", [None, 5, "y", [("y", (2,))]])
def test_shapes_that_returns_no_shapes_by_name(declared):
    wrong = ss.operator(lambda x, y: None, reads=["x"], writes=["y"], shapes=lambda x: declared)
    with pytest.raises(ProgramError, match=r"<lambda>: shapes= gives .*\(return \{name: \(shape, dtype\)\}\)"):
        ss.program(one(wrong)).trace(X)


def test_numbers_and_truth_values_of_numpy_are_taken():
    held = ss.operator(lambda x, y: None, reads=("x",), writes=("y",), capturable=np.bool_(False), flops=np.int64(3))
    (launch,) = ss.program(held).trace(X).launches()
    assert (launch.capturable, launch.cost.flops) == (False, 3)


def test_a_variable_is_no_attribute():
    @ss.operator(reads=["x"], writes=["y"], reference=lambda x, *, p: x * p)
    def scaled(x, y, *, p):
        raise AssertionError("it runs on a GPU only")

    with pytest.raises(ProgramError, match=r"scaled was given the variable 'relu_0' for p=, which is an attribute.*name p in reads="):
        ss.program(lambda x: scaled(x, p=ss.ops.relu(x))).trace(np.ones(4, np.float32))


@pytest.mark.parametrize("wrong", [lambda attributes: attributes["nope"], lambda attributes: attributes.p, lambda *, p: True])
def test_a_predicate_that_fails_names_the_operator(wrong):
    @ss.operator(reads=["x"], writes=["y"], capturable=wrong)
    def scaled(x, y, *, p=1):
        raise AssertionError("it runs on a GPU only")

    with pytest.raises(ProgramError, match=r"scaled: capturable= failed: \w+Error: .*capturable=lambda attributes"):
        ss.program(lambda x: scaled(x * 1.0)).trace(np.ones(4, np.float32))


def test_a_comparison_without_a_reference_says_that_results_were_not_checked():
    @ss.operator(reads=["x"], writes=["y"], reference=lambda x: x, stateful=True)
    def noisy(x, y):
        raise AssertionError("it runs on a GPU only")

    runs = ss.compare(ss.program(lambda x: noisy(x * 1.0)), np.ones(4, np.float32), engines="async", device="simulated", progress=False)
    assert runs.verdict.endswith("Results were not checked: an operation has no NumPy reference, or is stateful.")


def test_one_stateful_operator_leaves_the_other_outputs_checked(tmp_path):
    @ss.operator(reads=["x"], writes=["y"], reference=lambda x: x, stateful=True)
    def noisy(x, y):
        raise AssertionError("it runs on a GPU only")

    def step(x):
        noise = noisy(x * 2.0)
        return noise + 1.0, x * 3.0

    runs = ss.compare(step, np.ones(4, np.float32), engines="async,graph", device="simulated", progress=False)
    assert runs.not_checked == ("outputs[0] (add_2)",)
    assert all(run.tolerance > 0 and run.correct for run in runs.values())
    said = "Not checked: outputs[0] (add_2), which depends on an operation that has no NumPy reference, or is stateful."
    assert runs.verdict.endswith(said)
    assert ss.load_comparison(runs.save(tmp_path)).verdict == runs.verdict


def test_a_wrong_output_shows_beside_one_that_is_not_checked():
    mystery = ss.operator(lambda x, y: None, reads=["x"], writes=["y"])
    case = Case.of(ss.program(lambda x: (mystery(x), x + x)), [np.ones(4, np.float32)], "ss.compare").with_reference()
    wrong = [np.zeros(4, np.float32), np.full(4, 3.0, np.float32)]
    assert largest_error(wrong, case.expected, case.allowed)[0] == 1.0
