"""Tracing: what a function becomes, and what it is told when it is wrong."""

from __future__ import annotations

import copy
import pickle
import re
import threading

import numpy as np
import pytest

import streamscope as ss
from streamscope.errors import ProgramError
from streamscope.program.variable import MemoryPlace
from streamscope.workloads import WORKLOADS

X = np.ones((2, 4), np.float32)
ROW = np.ones(4, np.float32)


@ss.host_function
def negate(values):
    return -values


def trace(function, *arguments):
    return ss.program(function).trace(*arguments)


def places(program):
    return {variable.name: variable.place for variable in program.variables}


class TestOperations:
    def test_a_function_becomes_a_list_of_operations(self):
        program = trace(lambda x, bias: ss.ops.relu(ss.ops.bias_add(x, bias)), X, ROW)
        assert [(op.name, op.reads, op.writes) for op in program.operations] == [("bias_add", (0, 1), (2,)), ("relu", (2,), (3,))]
        assert [op.id for op in program.operations] == [0, 1]
        assert program.inputs == (0, 1)
        assert program.outputs == (3,)
        assert [variable.name for variable in program.variables] == ["x", "bias", "bias_add_0", "relu_1"]

    def test_python_operators_are_operators(self):
        program = trace(lambda x, w: x @ w + x * x, np.ones((3, 3)), np.ones((3, 3)))
        assert [op.name for op in program.operations] == ["matmul", "multiply", "add"]

    def test_a_variable_read_twice_is_named_once_but_passed_twice(self):
        (operation,) = trace(lambda x: ss.ops.add(x, x), X).operations
        assert operation.reads == (0,)
        assert operation.launches[0].reads == (0, 0)

    def test_out_writes_into_a_variable(self):
        def function(x):
            target = ss.empty(x.shape)
            result = ss.ops.relu(x, out=target)
            assert result is target
            return ss.ops.relu(target)

        program = trace(function, X)
        assert [(op.reads, op.writes) for op in program.operations] == [((0,), (1,)), ((1,), (2,))]
        assert not program.changes_inputs

    def test_in_place_reads_and_writes_one_variable(self):
        program = trace(lambda x, y: ss.ops.add(x, y, out=x), X, X)
        (operation,) = program.operations
        assert (operation.reads, operation.writes) == ((0, 1), (0,))
        assert program.changes_inputs
        assert len(program.variables) == 2

    def test_out_of_several_results_may_leave_some_open(self):
        def function(x, w, dy):
            dw = ss.empty(w.shape)
            dx, same = ss.ops.convolution_backward(x, w, dy, out=(None, dw))
            assert same is dw
            return dx, dw

        image, weights = np.ones((1, 4, 4, 2), np.float32), np.ones((3, 1, 1, 2), np.float32)
        program = trace(function, image, weights, np.ones((1, 4, 4, 3), np.float32))
        assert program.operations[0].writes == (4, 3)
        assert not program.single_output

    def test_what_writes_empty_arrays_only_puts_nothing_on_a_stream(self):
        program = trace(lambda x: (ss.ops.relu(x), ss.ops.sum(x)), X[:0])
        empty, total = program.operations
        assert empty.work == ()
        assert empty.capturable
        assert [launch.name for launch in total.launches] == ["sum"]

    def test_launches_and_host_calls_know_the_users_line(self):
        program = trace(lambda raw: ss.ops.relu(ss.ops.to_device(negate(raw))), X)
        for operation in program.operations:
            for work in operation.launches or (operation.work,):
                assert str(work) == str(operation)

    def test_an_output_may_be_an_input_and_may_be_named_twice(self):
        program = trace(lambda x: (x, x), X)
        assert program.outputs == (0, 0)
        assert program.operations == ()

    def test_a_program_is_the_same_when_traced_twice(self):
        @ss.program
        def step(x, w):
            return ss.ops.softmax(ss.ops.relu(x @ w))

        first, second = (step.trace(X, np.ones((4, 5), np.float32)) for _ in range(2))
        assert str(first) == str(second)
        assert first.variables == second.variables
        for a, b in zip(first.operations, second.operations, strict=True):
            assert (a.id, a.name, a.reads, a.writes, a.attributes, a.where) == (b.id, b.name, b.reads, b.writes, b.attributes, b.where)
            assert [launch.cost for launch in a.launches] == [launch.cost for launch in b.launches]

    def test_other_shapes_give_another_program(self):
        step = ss.program(ss.ops.relu)
        assert step.trace(X).variables[0].spec.shape == (2, 4)
        assert step.trace(ROW).variables[0].spec.shape == (4,)

    def test_attributes_are_kept(self):
        image, weights = np.ones((1, 4, 4, 2), np.float32), np.ones((3, 1, 1, 2), np.float32)
        (operation,) = trace(lambda x, w: ss.ops.convolution(x, w, stride=2), image, weights).operations
        assert operation.attributes == {"stride": 2, "padding": 0}

    def test_text_form(self):
        text = str(trace(ss.ops.relu, X))
        assert re.search(r"0  %1:float32\[2, 4\] = relu\(%0:float32\[2, 4\]\) +# test_tracing\.py:\d+: return ss\.program.*$", text)


class TestArguments:
    def test_variadic_arguments_are_named_by_their_place(self):
        program = trace(lambda first, *rest: ss.ops.add(first, rest[1]), X, X, X)
        assert [program.variables[v].name for v in program.inputs] == ["first", "rest[0]", "rest[1]"]

    def test_defaults_stay_python_values(self):
        program = trace(lambda x, times=3: [x := ss.ops.relu(x) for _ in range(times)][-1], X)
        assert len(program.operations) == 3

    @pytest.mark.parametrize("count", [0, 3])
    def test_wrong_number(self, count):
        def two(x, y):
            return ss.ops.add(x, y)

        with pytest.raises(ProgramError, match=f"'two' cannot take {count} arguments"):
            trace(two, *[X] * count)

    @pytest.mark.parametrize("value", [3.0, [1.0, 2.0], None, "x"])
    def test_not_an_array(self, value):
        with pytest.raises(ProgramError, match=rf"argument 'b' is a {type(value).__name__}, not an array"):
            trace(ss.ops.add, X, value)

    def test_an_array_of_pytorch(self):
        tensor = type("Tensor", (), {"__module__": "torch", "shape": (3,), "dtype": "torch.float32"})()
        with pytest.raises(ProgramError, match=r"argument 'b' is a Tensor of PyTorch's .*ss\.capture"):
            trace(ss.ops.add, X, tensor)

    @pytest.mark.parametrize("dtype", ["complex64", "object", "datetime64[ns]", "uint32", "S3", [("a", "f4")]])
    def test_unsupported_dtype(self, dtype):
        with pytest.raises(ProgramError, match=r"argument 'x': dtype .* is not supported .*float16"):
            trace(ss.ops.relu, np.zeros(3, dtype))

    def test_foreign_byte_order(self):
        with pytest.raises(ProgramError, match=r"argument 'x': dtype '>f4' has the other byte order .*astype\('float32'\)"):
            trace(ss.ops.relu, np.zeros(3, ">f4"))

    def test_a_dtype_of_another_library(self):
        class Tensor:
            shape = (3,)
            dtype = "torch.bfloat16"

        with pytest.raises(ProgramError, match=r"argument 'x': dtype 'torch\.bfloat16' is unknown to NumPy"):
            trace(ss.ops.relu, Tensor())

    def test_anything_with_shape_and_dtype_will_do(self):
        class Tensor:
            shape = (3, 5)
            dtype = "float16"

        assert str(trace(ss.ops.relu, Tensor()).variables[0].spec) == "float16[3, 5]"

    def test_attributes_of_the_function_hide_nothing(self):
        def function(x):
            return ss.ops.relu(x)

        function.trace = function.function = "the user's own"
        assert len(trace(function, X).operations) == 1

    def test_only_functions_become_programs(self):
        with pytest.raises(ProgramError, match="wants a function, not an int"):
            ss.program(3)


class TestReturns:
    @pytest.mark.parametrize(("value", "said"), [(None, "nothing"), (3, "an int"), ([], "nothing"), ((), "nothing")])
    def test_no_variable(self, value, said):
        with pytest.raises(ProgramError, match=f"returned {said}"):
            trace(lambda x: value, X)

    def test_one_of_several_is_no_variable(self):
        with pytest.raises(ProgramError, match="returned a str instead of a variable"):
            trace(lambda x: (x, "y"), X)

    def test_what_nothing_has_written(self):
        with pytest.raises(ProgramError, match="returns 'scratch', which nothing has written"):
            trace(lambda x: ss.empty(3, name="scratch"), X)

    def test_a_variable_of_another_program(self):
        kept = []
        trace(lambda x: kept.append(x) or x, X)
        with pytest.raises(ProgramError, match="returned a Symbol instead of a variable"):
            trace(lambda x: kept[0], X)


class TestMisuse:
    """Errors name the variable, the operator and the user's line."""

    def test_read_before_written(self):
        def function(x):
            scratch = ss.empty(x.shape, name="scratch")
            return ss.ops.add(x, scratch)

        line = function.__code__.co_firstlineno + 2
        with pytest.raises(ProgramError, match=rf"^add at test_tracing\.py:{line} reads 'scratch', which nothing has written$"):
            trace(function, X)

    def test_shapes_that_do_not_fit(self):
        def function(x, y):
            return ss.ops.relu(ss.ops.add(x, y))

        line = function.__code__.co_firstlineno + 1
        with pytest.raises(
            ProgramError, match=rf"^add: shapes \(2, 4\) and \(3,\) do not broadcast, applied to 'x', 'y' at test_tracing\.py:{line} "
        ):
            trace(function, X, ROW[:3])

    def test_dtypes_that_do_not_fit(self):
        with pytest.raises(ProgramError, match=r"matmul: dtypes float32, float64 do not fit, applied to 'a', 'b' at .*\(use one of"):
            trace(ss.ops.matmul, X, X.astype(float))

    @pytest.mark.parametrize("other", [1j, "1", X, None])
    @pytest.mark.parametrize("apply", [ss.ops.add, lambda a, b: a + b, lambda a, b: b + a, lambda a, b: a * b, lambda a, b: b * a])
    def test_a_value_instead_of_a_variable(self, other, apply):
        with pytest.raises(ProgramError, match=r"at .*test_tracing\.py:\d+"):
            trace(lambda x: apply(x, other), X)

    def test_an_array_times_a_variable(self):
        with pytest.raises(ProgramError, match="matmul"):
            trace(lambda x: X @ x, X)

    def test_numpy_on_a_variable(self):
        with pytest.raises(ProgramError, match=r"NumPy at test_tracing\.py:\d+ asks for the values of 'x'"):
            trace(lambda x: ss.ops.relu(np.asarray(x)), X)

    @pytest.mark.parametrize(
        ("use", "said"),
        [
            (
                lambda x: x.cumsum(),
                r"'x' has no attribute \.cumsum at test_tracing\.py:\d+: .*use the operator: ss\.ops\.cumsum",
            ),
            (lambda x: x.dot(x), r"\.dot at .*ss\.ops\.matmul\(a, b\)"),
            (lambda x: x.diagonal(), r"\.diagonal at .*change the array before it goes into the program, or .* ss\.operator"),
            (lambda x: x.view("int32"), r"\.view at test_tracing\.py:\d+"),
            (lambda x: x.item(), r"\.item at .*values are known when the program runs"),
        ],
    )
    def test_a_variable_used_like_an_array(self, use, said):
        with pytest.raises(ProgramError, match=said):
            trace(use, X)

    def test_a_branch_on_a_sum_is_told_what_is_wrong_at_once(self):
        with pytest.raises(ProgramError, match="branches on the value of"):
            trace(lambda x: x if x.sum() > 0 else -x, X)

    @pytest.mark.parametrize("name", ["sum", "mean", "prod", "max", "min", "any", "all", "argmax", "argmin"])
    def test_methods_reduce_as_numpys_do(self, name):
        with ss.Engine("sync", device="simulated") as engine:
            for keywords in ({}, {"axis": 0}, {"axis": 1, "keepdims": True}):
                found = engine.run(lambda x: getattr(x, name)(**keywords), X)  # noqa: B023 — it runs at once
                np.testing.assert_allclose(found, getattr(X, name)(**keywords), rtol=1e-6)

    def test_a_variable_can_be_asked_what_it_is_and_be_copied(self):
        def function(x):
            assert not hasattr(x, "cumsum")
            assert getattr(x, "__cuda_array_interface__", None) is None
            twins = [copy.copy(x), *copy.deepcopy({"kept": [x]})["kept"]]
            assert all((twin.spec, twin.tracer) == (x.spec, x.tracer) for twin in twins)
            assert len({x.id, *(twin.id for twin in twins)}) == 3  # memory of its own each, as in NumPy
            assert pickle.loads(pickle.dumps(x)).name == "x"
            return ss.ops.relu(x)

        trace(function, X)

    def test_branching_on_a_value(self):
        with pytest.raises(ProgramError, match=r"test_tracing\.py:\d+ branches on the value of 'x', .*ss\.ops\.where.*branch on shapes"):
            trace(lambda x: x or ss.ops.relu(x), X)

    def test_a_variable_of_another_program(self):
        kept = []
        trace(lambda x: kept.append(x) or x, X)
        with pytest.raises(ProgramError, match=r"add at test_tracing\.py:\d+ uses 'x', which belongs to another program"):
            trace(lambda y: ss.ops.add(y, kept[0]), X)

    @pytest.mark.parametrize(
        ("out", "said"),
        [
            (lambda x, y: ss.empty((3, 3)), r"out= of relu at .* is float32\[3, 3\], but the result is float32\[2, 4\]"),
            (lambda x, y: ss.empty((2, 4), "float64"), "is float64"),
            (lambda x, y: X, "out= of relu at .* is not a variable of this program"),
            (lambda x, y: (x, y), "writes 1 variable, but out= names 2"),
            (lambda x, y: (), "writes 1 variable, but out= names 0"),
        ],
    )
    def test_out_that_does_not_fit(self, out, said):
        with pytest.raises(ProgramError, match=said):
            trace(lambda x, y: ss.ops.relu(x, out=out(x, y)), X, X)

    def test_library_calls_do_not_write_over_what_they_read(self):
        square = np.ones((3, 3), np.float32)
        with pytest.raises(ProgramError, match=r"matmul at .* cannot write over 'a', which it reads \(give another variable as out=\)"):
            trace(lambda a, b: ss.ops.matmul(a, b, out=a), square, square)
        image, weights = np.ones((1, 2, 2, 2), np.float32), np.ones((2, 1, 1, 2), np.float32)
        with pytest.raises(ProgramError, match=r"convolution at .* cannot write over 'x'"):
            trace(lambda x, w: ss.ops.convolution(x, w, out=x), image, weights)

    def test_one_variable_for_two_results(self):
        same = np.ones((2, 1, 1, 2), np.float32)

        def function(x, w, dy):
            target = ss.empty(x.shape)
            return ss.ops.convolution_backward(x, w, dy, out=(target, target))

        with pytest.raises(ProgramError, match=r"convolution_backward at .* writes 'empty' twice"):
            trace(function, same, same, same)

    @pytest.mark.parametrize("shape", [(2, -1), (2.5,), "ab", None, ((1, 2), 3)])
    def test_empty_of_an_impossible_shape(self, shape):
        with pytest.raises(ProgramError, match=r"ss\.empty at test_tracing\.py:\d+: shape"):
            trace(lambda x: ss.ops.relu(x, out=ss.empty(shape)), X)

    def test_empty_of_an_impossible_dtype(self):
        with pytest.raises(ProgramError, match=r"ss\.empty at .*dtype 'float31' is unknown to NumPy"):
            trace(lambda x: ss.ops.relu(x, out=ss.empty(3, "float31")), X)

    def test_empty_of_one_extent(self):
        assert trace(lambda x: ss.ops.relu(x, out=ss.empty(4)), ROW).variables[1].spec.shape == (4,)

    def test_outside_a_program(self):
        with pytest.raises(ProgramError, match="relu was called outside a program"):
            ss.ops.relu(X)

        def attention(x):
            return ss.ops.softmax(x)

        with pytest.raises(ProgramError, match=r"softmax was called outside a program .*ss\.compare\(attention, \.\.\.\)"):
            attention(X)
        with pytest.raises(ProgramError, match=r"ss\.empty was called outside a program"):
            ss.empty(3)

        @ss.program
        def step(x):
            return ss.ops.relu(x)

        with pytest.raises(ProgramError, match=r"'step' was called outside a program .*ss\.compare\(step"):
            step(X)


class TestPlaces:
    def test_an_input_lies_where_it_is_first_used(self):
        program = trace(lambda a, b, unused: (ss.ops.relu(a), negate(b)), X, X, X)
        assert places(program) == {
            "a": MemoryPlace.DEVICE,
            "b": MemoryPlace.HOST,
            "unused": MemoryPlace.DEVICE,
            "relu_0": MemoryPlace.DEVICE,
            "negate_1": MemoryPlace.HOST,
        }

    def test_copies_go_between(self):
        program = trace(lambda x: ss.ops.to_host(ss.ops.relu(ss.ops.to_device(negate(x)))), X)
        assert list(places(program).values()) == [
            MemoryPlace.HOST,
            MemoryPlace.HOST,
            MemoryPlace.DEVICE,
            MemoryPlace.DEVICE,
            MemoryPlace.HOST,
        ]

    def test_host_function_of_a_device_variable(self):
        said = r"negate at .* wants 'relu_0' in host memory, but it lies in device memory \(copy it first with ss\.ops\.to_host\)"
        with pytest.raises(ProgramError, match=said):
            trace(lambda x: negate(ss.ops.relu(x)), X)

    def test_device_operator_of_a_host_variable(self):
        with pytest.raises(ProgramError, match=r"relu at .* wants 'x' in device memory.*ss\.ops\.to_device"):
            trace(lambda x: (negate(x), ss.ops.relu(x)), X)

    def test_out_lies_where_the_operator_writes(self):
        with pytest.raises(ProgramError, match=r"to_host at .* wants 'empty' in host memory"):
            trace(lambda x: ss.ops.to_host(x, out=ss.empty(x.shape)), X)


class TestNesting:
    def test_a_program_inside_a_program_is_inlined(self):
        @ss.program
        def inner(x, y):
            return ss.ops.add(x, y), ss.ops.multiply(x, y)

        def outer(x):
            total, product = inner(x, ss.ops.relu(x))
            return ss.ops.add(total, product)

        program = trace(outer, X)
        assert [op.name for op in program.operations] == ["relu", "add", "multiply", "add"]
        assert program.inputs == (0,)

    def test_an_inlined_program_checks_its_arguments(self):
        @ss.program
        def inner(x, y):
            return ss.ops.add(x, y)

        with pytest.raises(ProgramError, match="'inner' cannot take 1 argument:"):
            trace(lambda x: ss.ops.relu(inner(x)), X)

    def test_a_program_of_a_program_is_the_program(self):
        inner = ss.program(lambda x: ss.ops.relu(x + x))
        assert str(ss.program(inner).trace(X)) == str(inner.trace(X))

    def test_tracing_another_program_while_tracing(self):
        lengths = []

        def outer(x):
            lengths.append(len(trace(lambda y: ss.ops.relu(ss.ops.relu(y)), ROW).operations))
            return ss.ops.relu(x)

        assert len(trace(outer, X).operations) == 1
        assert lengths == [2]

    def test_an_exception_leaves_nothing_behind(self):
        def inner(x):
            raise KeyError("inner")

        def outer(x):
            with pytest.raises(KeyError):
                trace(inner, ROW)
            ss.ops.relu(x)
            raise ValueError("outer")

        with pytest.raises(ValueError, match="outer"):
            trace(outer, X)
        with pytest.raises(ProgramError, match="outside a program"):
            ss.ops.relu(X)

    def test_threads_trace_side_by_side(self):
        barrier = threading.Barrier(4, timeout=30)
        programs = {}

        def work(length):
            def chain(x):
                for _ in range(length):
                    barrier.wait()
                    x = ss.ops.relu(x)
                for _ in range(4 - length):
                    barrier.wait()
                return x

            programs[length] = trace(chain, X)

        threads = [threading.Thread(target=work, args=(length,)) for length in range(1, 5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert {length: len(program.operations) for length, program in programs.items()} == {1: 1, 2: 2, 3: 3, 4: 4}

    def test_a_thread_knows_no_program_of_another(self):
        said = []

        def apply(x):
            try:
                ss.ops.relu(x)
            except ProgramError as error:
                said.append(error.message)

        def function(x):
            thread = threading.Thread(target=apply, args=(x,))
            thread.start()
            thread.join()
            return ss.ops.relu(x)

        assert len(trace(function, X).operations) == 1
        assert said == ["relu was called outside a program"]


def everything(x, w):
    y = ss.ops.softmax(ss.ops.relu(x) @ w) + ss.ops.sum(x, axis=1, keepdims=True)
    line = ss.elementwise("y = a * x + b", gradient={"x": "a * dy"})
    gradients = *ss.ops.add.gradient(y, y, ss.ops.sum(y, axis=0)), ss.ops.prod.gradient(ss.ops.prod(y), y)
    return line(2, y, 1), line.gradient(y, 2, y, 1)[1], *gradients


def test_tracing_makes_no_source(monkeypatch):
    monkeypatch.setattr("streamscope.kernels.source.KernelSource.__init__", lambda *_: pytest.fail("a source was made"))
    x = np.zeros((37, 37), np.float32)
    programs = [(ss.program(everything), (x, x)), *(each.outline() for each in WORKLOADS.values())]
    for function, inputs in programs:
        for fuse in (False, True):
            assert ss.program(function, fuse=fuse).trace(*inputs).operations
    with pytest.raises(pytest.fail.Exception, match="a source was made"):
        programs[0][0].source(x, x)


def test_an_operation_in_a_block_of_another_gpu_is_refused():
    def used_before(x):
        y = x * 2
        with ss.gpu(1):
            return x + 1, y

    with pytest.raises(ProgramError, match=r"add at .* is in a block of ss\.gpu\(1\), and 'x' lies on GPU 0") as caught:
        ss.program(used_before).trace(np.ones(4))
    assert caught.value.hint == "copy it first, ss.ops.to_gpu(x, 1), or move the operation out of the block"


@pytest.mark.parametrize(
    ("use", "places"),
    [
        (lambda x, y: x + y, [0, 0]),
        (lambda x, y: ss.ops.to_gpu(x, 1) + y, [0, 1]),
        (lambda x, y: ss.ops.all_reduce([y, x]), [1, 0]),
        (lambda x, y: x, [0, 0]),
    ],
    ids=["nothing says", "beside an operand", "in a list", "never used"],
)
def test_an_input_lies_where_it_is_first_used(use, places):
    traced = ss.program(use).trace(*np.ones((2, 4)))
    assert [traced.variables[number].gpu for number in traced.inputs] == places


def test_copies_lead_out_of_a_block_of_a_gpu():
    def copied(x):
        y = x * 2
        with ss.gpu(1):
            on_1 = ss.ops.to_gpu(y[::2], 1) + 1  # A view that is copied on GPU 0 first.
            return on_1, ss.ops.to_gpu(y, 0), ss.ops.to_host(y)

    traced = ss.program(copied).trace(np.ones(4))
    assert [traced.variables[output].gpu for output in traced.outputs] == [1, 0, 0]


def test_a_block_of_a_gpu_outside_a_program_names_the_users_function():
    def outside():
        with ss.gpu(1):
            pass

    with pytest.raises(ProgramError, match=r"ss\.gpu was called outside a program") as caught:
        outside()
    assert caught.value.hint == "run the function that calls it: ss.compare(outside, ...)"


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda x, y: ss.ops.all_to_all([x, y]), r"no axis to be cut along.*x\.reshape\(1\)"),
        (
            lambda x, y: ss.ops.broadcast(x, [1, 2]),
            r"^broadcast at test_tracing\.py:\d+: 'x' lies on GPU 0, which is not in gpus=\[1, 2\].*\(name GPU 0 in gpus=, too, or copy it",
        ),
        (
            lambda x, y: ss.ops.all_reduce([x, y], bucket="1 apple"),
            r"^'1 apple' is not a size for bucket= of all_reduce at .*test_tracing\.py.*\(give bytes, or for example \"512 MiB\"\)",
        ),
        (
            lambda x, y: ss.ops.all_reduce([ss.ops.relu(x), ss.ops.relu(y)]),
            r"'relu_0' and 'relu_1', which both lie on GPU 0 \(one variable a GPU: compute 'relu_1' in a block, with ss\.gpu\(1\):, or",
        ),
        (
            lambda x, y: ss.ops.all_reduce([x + 1, x + 2, x + 3]),
            r"got 'add_0', 'add_1' and 'add_2', which all lie on GPU 0 \(.*'add_2' in a block, with ss\.gpu\(1\):",
        ),
        # One variable twice: no block would help.
        (lambda x, y: ss.ops.all_reduce([x, x]), r"'x' and 'x', .* \(one variable a GPU: copy 'x' to GPU 1 with ss\.ops\.to_gpu\)$"),
        (lambda x, y: ss.ops.broadcast(x, gpus=1), r"gpus=1 must be two GPUs or more, each once.* \(gpus=2, or gpus=\[0, 1\]\)$"),
        (lambda x, y: ss.ops.broadcast(x, gpus=True), r"gpus=True must be two GPUs or more, each once.* \(gpus=2, or gpus=\[0, 1\]\)$"),
        (lambda x, y: ss.ops.broadcast(x, gpus=9), r"8 is no GPU \(give a number from 0 to 7\)$"),
        (lambda x, y: ss.ops.broadcast(x), r"^broadcast at .*test_tracing\.py:\d+: .* 'gpus' \(broadcast\(x, \[0, 1\]\)\)$"),
        (lambda x, y: ss.ops.send(x), r"^send at .*test_tracing\.py:\d+: .* 'gpu' \(send\(x, 1\)\)$"),
        (lambda x, y: ss.ops.to_gpu(x), r"^to_gpu at .*test_tracing\.py:\d+: .* 'gpu' \(to_gpu\(x, 1\)\)$"),
        (lambda x, _: ss.ops.all_gather(x, x), r"^all_gather at .*test_tracing\.py:\d+: too many .* \(all_gather\(\[u, v\]\)\)$"),
        (lambda x, _: ss.ops.all_to_all(x, x), r"^all_to_all at .* \(all_to_all\(\[u, v\]\)\)$"),
        (lambda x, y: ss.ops.reduce_scatter(), r"^reduce_scatter at .* \(reduce_scatter\(\[u, v\]\)\)$"),
        (lambda x, y: ss.ops.all_reduce([x, y], buckets=4), r"^all_reduce at .* 'buckets' \(all_reduce\(\[u, v\]\)\)$"),
        (lambda x, y: ss.ops.send(x, 0), r"^send at test_tracing\.py:\d+: 'x' lies on GPU 0 already \(leave the send out\)$"),
    ],
)
def test_collectives_that_are_refused_say_what_to_do(function, said):
    with pytest.raises(ProgramError, match=said):
        ss.program(function).trace(np.ones(()), np.ones(()))


def test_a_number_of_gpus_is_the_first_ones_of_a_broadcast():
    (operation,) = ss.program(lambda x: ss.ops.broadcast(x, gpus=3)).trace(np.ones(4)).operations
    assert operation.gpus == (0, 1, 2)


def test_a_bucket_makes_at_most_1024_parts():
    def cut(bucket):
        return ss.program(lambda x, y: ss.ops.all_reduce([x, y], bucket=bucket)).trace(*np.ones((2, 65, 64), np.float32)).operations

    with pytest.raises(ProgramError, match=r"^bucket=3 of all_reduce at test_tracing\.py:\d+ cuts 'x' into 4,160 parts") as caught:
        cut(3)
    assert caught.value.hint == "at most 1,024; the smallest bucket is 20 bytes, 832 parts"
    with pytest.raises(ProgramError, match="cuts 'x' into 1,040 parts"):
        cut(19)
    assert len(cut(20)) == 832
