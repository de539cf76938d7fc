"""Fusion: which operations become one, and that nothing else changes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.ops.conftest import has_reference

import streamscope as ss
from streamscope.engine_entry import ENGINES
from streamscope.errors import ProgramError
from streamscope.ops.fusion import MOST_ARRAYS, MOST_STEPS
from streamscope.program.reference import run_reference

X = np.arange(-6, 6, dtype=np.float32).reshape(3, 4)
ROW = np.arange(4, dtype=np.float32)
leaky = ss.elementwise("y = x > 0 ? x : a * x", name="leaky")
no_reference = ss.elementwise("y = __sinf(x)")
average = ss.elementwise("y = old + share * (given - old)", operands=["old", "given", "share"], name="average")


def fused(function, *arrays):
    return ss.program(fuse=True)(function).trace(*arrays)


def names(function, *arrays):
    return [operation.name for operation in fused(function, *arrays).operations]


class TestGroups:
    def test_a_chain_becomes_one_operation(self):
        program = fused(lambda x, b: ss.ops.relu(x + b) * 2, X, ROW)
        (operation,) = program.operations
        assert (operation.name, operation.id, operation.reads, operation.writes) == ("add+relu+multiply", 0, (0, 1), (2,))
        (launch,) = operation.launches
        assert (launch.name, launch.reads, launch.writes, launch.operation) == ("add+relu+multiply", (0, 1), (2,), 0)
        assert [variable.name for variable in program.variables] == ["x", "b", "multiply_2"]
        assert (program.inputs, program.outputs) == ((0, 1), (2,))

    def test_it_is_off_unless_asked_for(self):
        assert len(ss.program(lambda x: ss.ops.relu(x + x)).trace(X).operations) == 2

    def test_a_decorator_with_the_option(self):
        @ss.program(fuse=True)
        def doubled_twice(x):
            x = x + x
            return x + x

        program = doubled_twice.trace(X)
        (operation,) = program.operations
        lines = [text.rsplit(":", 1)[1] for text in operation.attributes["fused"]]
        assert [text.split(" at ")[0] for text in operation.attributes["fused"]] == ["add", "add"]
        assert int(lines[1]) == int(lines[0]) + 1
        assert operation.where == operation.launches[0].where == operation.attributes["fused"][0].split(" at ")[1]
        assert "add+add(%0:float32[3, 4])" in str(program)

    def test_many_names_are_shortened(self):
        def function(x):
            for _ in range(4):
                x = ss.ops.tanh(x)
            return ss.ops.relu(x)

        assert names(function, X) == ["tanh+...+relu (5)"]

    def test_bytes_are_those_that_move(self):
        (launch,) = fused(lambda x, b: (x + b) * x - x, X, ROW).launches()
        assert launch.cost.bytes == X.nbytes + ROW.nbytes + X.nbytes
        assert launch.cost.flops == 3 * X.size
        assert launch.cost.blocks == 1

    def test_what_somebody_else_reads_is_written(self):
        def function(x, w):
            y = ss.ops.relu(x + x)
            return ss.ops.tanh(y), y @ w

        assert names(function, X, np.ones((4, 4), np.float32)) == ["add+relu", "tanh", "matmul"]

    def test_an_output_is_written(self):
        def function(x):
            y = x + x
            return y, ss.ops.relu(y)

        assert names(function, X) == ["add", "relu"]

    def test_branches_that_meet_are_one(self):
        def function(x):
            y = x * x
            return (y + x) * ss.ops.tanh(y)

        assert names(function, X) == ["multiply+...+multiply (4)"]

    def test_no_cycle_through_another_operation(self):
        """The sum would need what the matrix product makes of a member of its own group."""

        def function(x):
            y = ss.ops.relu(x)
            return y + (y @ x)

        assert names(function, np.ones((3, 3))) == ["relu", "matmul", "add"]

    def test_another_result_shape_is_another_group(self):
        assert names(lambda x, b: ss.ops.relu(x) + ss.ops.tanh(ss.ops.relu(b)), X, ROW) == ["relu+tanh", "relu+add"]

    def test_operations_between_do_not_matter(self):
        def function(x, w):
            y = x + x
            z = w @ w
            return ss.ops.relu(y), z

        assert names(function, X, np.ones((2, 2), np.float32)) == ["matmul", "add+relu"]

    def test_a_gradient_that_does_not_sum_is_element_wise(self):
        def function(x, b, dy):
            dx, db = ss.ops.multiply.gradient(ss.ops.tanh(dy), x, b)
            return ss.ops.relu(dx), ss.ops.relu(db)

        assert names(function, X, ROW, X) == ["tanh", "multiply_gradient_b", "multiply_gradient_a+relu", "relu"]

    def test_what_is_overwritten_before_the_end_keeps_an_operation_apart(self):
        def function(x, w):
            y = ss.ops.tanh(w)
            ss.ops.relu(x, out=w)
            return y + x, w

        assert names(function, X, X) == ["tanh", "relu", "add"]

    def test_an_input_that_is_changed_is_changed(self):
        program = fused(lambda x: ss.ops.relu(ss.ops.add(x, x, out=x)), X)
        assert program.changes_inputs
        (operation,) = program.operations
        assert operation.writes == (program.inputs[0], program.outputs[0])

    def test_an_optimizer_is_one_kernel_a_weight_that_moves_each_array_once(self):
        def adamw(w, gradient, first, second):
            average(first, gradient, 0.1, out=first)
            average(second, gradient * gradient, 0.01, out=second)
            return ss.ops.subtract(w, first / (np.sqrt(second) + 1e-8), out=w)

        (launch,) = fused(adamw, X, X, X, X).launches()
        assert launch.cost.bytes == (4 + 3) * X.nbytes

    @pytest.mark.parametrize(
        "function",
        [
            lambda x, y: (average(x, y, 0.5, out=x), x @ x, ss.ops.multiply(x, y, out=y))[1:],  # read between
            lambda x, y: (ss.ops.relu(y, out=x), average(x, y, 0.5, out=x), ss.ops.multiply(x, y, out=y))[2],  # written before
            lambda x, y: (average(x, y, 0.5, out=x), ss.ops.multiply(x.T, y, out=y))[1],  # read by other threads
            lambda x, y: (ss.ops.relu(y, out=x), ss.ops.multiply(x, y, out=y))[1],  # not read: no thread holds it
        ],
    )
    def test_an_update_that_others_see_before_the_end_is_apart(self, function):
        square = np.ones((3, 3), np.float32)
        assert max(len(launch.writes) for launch in fused(function, square, square).launches()) == 1

    def test_a_buffer_that_is_used_again_and_again_is_not_needed(self):
        def function(x):
            buffer = ss.empty(X.shape)
            for _ in range(5):
                ss.ops.add(x, x, out=buffer)
                x = ss.ops.tanh(buffer, out=buffer)
            return x

        program = fused(function, X)
        assert [operation.name for operation in program.operations] == ["add+...+tanh (10)"]
        assert len(program.variables) == 2

    def test_groups_have_a_bounded_number_of_steps(self):
        def function(x):
            for _ in range(2 * MOST_STEPS + 3):
                x = x + 1
            return x

        steps = [len(operation.attributes["fused"]) for operation in fused(function, X).operations]
        assert steps == [3, MOST_STEPS, MOST_STEPS]

    def test_groups_have_a_bounded_number_of_arrays(self):
        def function(*arrays):
            total = arrays[0]
            for array in arrays[1:]:
                total = total + array
            return total

        program = fused(function, *[X] * (2 * MOST_ARRAYS))
        assert max(len(operation.reads) for operation in program.operations) == MOST_ARRAYS
        assert len(program.operations) == 3
        np.testing.assert_array_equal(run_reference(program, [X] * (2 * MOST_ARRAYS))[0], 2 * MOST_ARRAYS * X)

    def test_empty_arrays_have_nothing_to_fuse(self):
        program = fused(lambda x: ss.ops.relu(x + x), X[:0])
        assert not list(program.launches())

    def test_an_operator_without_reference_has_none_fused(self):
        assert not has_reference(fused(lambda x: ss.ops.relu(no_reference(x)), X))

    def test_a_function_is_needed(self):
        with pytest.raises(ProgramError, match="wants a function, not an int"):
            ss.program(fuse=True)(3)


FUNCTIONS = {
    "relu": lambda a, b, **to: ss.ops.relu(a, **to),
    "square": lambda a, b, **to: ss.ops.square(a, **to),
    "scaled": lambda a, b, **to: ss.ops.multiply(a, 1.5, **to),
    "reversed": lambda a, b, **to: ss.ops.subtract(2, a, **to),
    "add": ss.ops.add,
    "multiply": ss.ops.multiply,
    "maximum": ss.ops.maximum,
    "less": ss.ops.less,
    "leaky": leaky,
    "gradient": lambda a, b, **to: ss.ops.tanh.gradient(b, a, **to),
    "add_n": lambda a, b, **to: ss.ops.add_n(a, b, a, 3, **{key: value for key, value in to.items() if key == "out"}),
    "sum": lambda a, b, **to: ss.ops.sum(a, axis=0, **{key: value for key, value in to.items() if key == "out"}),
    "softmax": lambda a, b, **to: ss.ops.softmax(a, **{key: value for key, value in to.items() if key == "out"}),
}
INSTRUCTIONS = st.tuples(st.sampled_from(list(FUNCTIONS)), *[st.integers(0, 9)] * 3, st.sampled_from(["new", "new", "out", "out", "add"]))
INPUTS = [
    np.linspace(-2, 2, 9, dtype=np.float16).reshape(3, 3),
    np.linspace(-1, 1.5, 9, dtype=np.float32).reshape(3, 3),
    np.linspace(0.5, -1, 3, dtype=np.float32),
    np.linspace(-3, 3, 9).reshape(3, 3),
    np.array([[1], [-2], [3]], np.int32),
]


def interpreted(instructions, results):
    """Return a function over variables that follows instructions; what does not fit is left out."""

    def function(*inputs):
        pool = list(inputs)
        for name, *indices, how in instructions:
            a, b, target = (pool[-1 - index % len(pool)] for index in indices)
            to = {"new": {}, "out": {"out": target}, "add": {"out": target, "request": "add"}}[how]
            for options in (to, {}):
                try:
                    result = FUNCTIONS[name](a, b, **options)
                except ProgramError:
                    continue
                pool += [result] * (result is not None and all(result is not each for each in pool))
                break
        return tuple(pool[-1 - index % len(pool)] for index in results)

    return function


PROGRAMS = st.builds(
    interpreted, st.lists(INSTRUCTIONS, min_size=1, max_size=14), st.lists(st.integers(0, 9), min_size=1, max_size=3, unique=True)
)


def distinct(function):
    """Tell whether a function's outputs are different variables."""
    outputs = ss.program(function).trace(*INPUTS).outputs
    return len(set(outputs)) == len(outputs)


def after_runs(program, engine, device, times=2):
    prepared = ss.prepare(program, engine=engine, device=device)
    prepared.load(INPUTS)
    for _ in range(times):
        prepared.run()
    prepared.wait()
    return prepared.outputs()


def assert_same_bits(found, expected):
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
        if one.dtype.kind == "f":
            numbers = ~np.isnan(one)
            np.testing.assert_array_equal(np.signbit(one)[numbers], np.signbit(other)[numbers])


@given(PROGRAMS)
def test_a_fused_program_means_the_same(function):
    one, other = fused(function, *INPUTS), ss.program(function).trace(*INPUTS)
    assert_same_bits(run_reference(one, INPUTS), run_reference(other, INPUTS))
    assert sum(launch.cost.bytes for launch in one.launches()) <= sum(launch.cost.bytes for launch in other.launches())
    assert sum(launch.cost.flops for launch in one.launches()) == sum(launch.cost.flops for launch in other.launches())


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(PROGRAMS.filter(distinct))
def test_every_engine_runs_it(function):
    expected = after_runs(ss.program(function).trace(*INPUTS), "sync", ss.open_device("simulated"))
    program = fused(function, *INPUTS)
    for engine in ENGINES:
        assert_same_bits(after_runs(program, engine, ss.open_device("simulated")), expected)


def block(x, w, bias):
    """Softmax, bias, relu and their like, with a matrix product between."""
    h = ss.ops.relu(ss.ops.bias_add(x @ w, bias)) * 0.5
    return ss.ops.softmax(h - ss.ops.tanh(h)) + h


BLOCK = (np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4), np.ones((4, 4), np.float32), ROW)


def test_comparing_and_auditing():
    function = ss.program(fuse=True)(block)
    assert [operation.name for operation in function.trace(*BLOCK).operations] == [
        "matmul", "bias_add+relu+multiply", "tanh+subtract", "softmax", "add",
    ]  # fmt: skip
    runs = ss.compare(function, *BLOCK, device="simulated", repeats=2)
    assert "bias_add+relu+multiply" in set(runs["async"].trace.spans.to_pandas()["name"])
    for engine in ("async", "dual"):
        assert not ss.audit(function, *BLOCK, engine=engine).findings


# Each reads a view of a variable and then writes the variable: in one kernel, a thread would read what another one has written.
OVER_A_VIEW = {
    "reversed": lambda x: ss.ops.relu(x[::-1] + 1.0, out=x),
    "transposed": lambda x: ss.ops.add(x.T * 2.0, x, out=x),
    "a row of it": lambda x: ss.ops.add(np.broadcast_to(x[0], x.shape) * 2.0, x, out=x),
    "a row of it, stretched": lambda x: ss.ops.relu(x[0] + x, out=x),
    "seen twice": lambda x: ss.ops.subtract((x + 1.0) * x.T, x, out=x),
    "updated beside another result": lambda x: ss.ops.relu(average(x, x.T * 2.0, 0.5, out=x)),
}


@pytest.mark.parametrize("function", OVER_A_VIEW.values(), ids=OVER_A_VIEW)
def test_what_is_seen_through_a_view_is_not_written_by_the_same_kernel(function):
    square = np.arange(64.0).reshape(8, 8)
    operations = fused(function, square).operations
    (seen,) = [operation for operation in operations if any(view is not None for _, view in operation.views)]
    assert 0 not in seen.writes
    assert operations[-1].writes[0] == 0
    assert_same_bits(run_reference(fused(function, square), [square]), run_reference(ss.program(function).trace(square), [square]))


def test_other_views_do_not_keep_operations_apart():
    assert names(lambda x, y: ss.ops.relu(y.T + 1.0, out=x), X, X.T.copy()) == ["add+relu"]


def test_no_launch_sees_through_a_view_what_it_writes():
    (launch,) = ss.program(lambda x: x[::-1] + 1.0).trace(X).launches()
    with pytest.raises(
        ProgramError, match=r"add \(operation 0, test_fusion.py:\d+\) reads %0\[::-1\], a view of the variable that it writes"
    ):
        replace(launch, writes=launch.reads)


@pytest.mark.gpu
class TestOnCuda:
    """Bits of the fused and the unfused program, where a contraction between operations would change them."""

    @staticmethod
    def both(function, *arrays, engine="async"):
        device = ss.open_device("cuda")
        found = []
        for program in (fused(function, *arrays), ss.program(function).trace(*arrays)):
            prepared = ss.prepare(program, engine=engine, device=device)
            prepared.load(arrays)
            prepared.run()
            prepared.wait()
            found.append(prepared.outputs())
        return found

    @pytest.mark.parametrize("engine", ENGINES)
    @pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
    @pytest.mark.parametrize("shape", [(1,), (5, 7), (513, 1025)])
    def test_products_and_sums(self, dtype, shape, engine):
        generator = np.random.default_rng(0)
        a, b, c = (generator.standard_normal(shape).astype(dtype) for _ in range(3))
        fma = ss.elementwise("y = a * b + c")

        def function(a, b, c):
            once = ss.ops.relu(a * b)
            total = fma(once, a, c) + a * b
            ss.ops.multiply(a, c, out=total, request="add")
            return ss.ops.tanh(total - once * 3) / (b * b + 1)

        assert_same_bits(*self.both(function, a, b, c, engine=engine))

    def test_contraction_inside_an_operation_is_kept(self):
        fma = ss.elementwise("y = a * b + c")
        a = np.random.default_rng(1).standard_normal(10_000).astype(np.float32)
        (one,), (other,) = self.both(lambda a: fma(fma(a, a, a), a, a), a)
        assert_same_bits([one], [other])
        step = (a.astype(np.float64) * a + a).astype(np.float32)
        exact = (step.astype(np.float64) * a + a).astype(np.float32)
        assert np.mean(one == exact) > 0.99  # rounded once a step; apart it would be in about two of three

    def test_broadcasting_numbers_and_dtypes(self):
        generator = np.random.default_rng(2)
        x, row, column = generator.standard_normal((257, 33)), generator.standard_normal(33), generator.integers(-5, 5, (257, 1))

        def function(x, row, column):
            y = (x * row + column) * 1.25 - row
            return ss.ops.maximum(y, column) * (y < row) + leaky(y, 0.1)

        for dtype in ("float16", "float32"):
            assert_same_bits(*self.both(function, x.astype(dtype), row.astype(dtype), column.astype(np.int8)))

    @pytest.mark.parametrize("function", OVER_A_VIEW.values(), ids=OVER_A_VIEW)
    def test_over_a_view(self, function):
        assert_same_bits(*self.both(function, np.random.default_rng(3).standard_normal((1500, 1500))))

    @settings(max_examples=40)
    @given(PROGRAMS.filter(distinct))
    def test_random_programs(self, function):
        assert_same_bits(*self.both(function, *INPUTS))
