"""Views inside a program: shapes, values and errors are NumPy's; nothing is launched; an operation reads the variable behind a view."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps

import streamscope as ss
from streamscope.errors import ProgramError
from streamscope.ops.views import VIEW_FUNCTIONS
from streamscope.program.reference import run_reference

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
DTYPES = ["float16", "float32", "float64", "int8", "uint8", "int16", "int32", "int64", "uint64", "bool"]


def traced(function, *arrays):
    return ss.program(function).trace(*arrays)


def arrays(least=0):
    return st.builds(
        lambda shape, dtype: (np.arange(np.prod(shape)) % 251).astype(dtype).reshape(shape),
        nps.array_shapes(min_dims=0, max_dims=4, min_side=least, max_side=4),
        st.sampled_from(DTYPES),
    )


@st.composite
def steps(draw, array):
    """Return a function that makes a view, or at times a copy, of what NumPy has as ``array``."""
    rank = array.ndim
    axis = st.integers(-rank, rank - 1) if rank else st.nothing()
    choices = [
        nps.basic_indices(array.shape, allow_newaxis=True).map(lambda key: lambda x: x[key]),
        st.permutations(range(rank)).map(lambda axes: lambda x: np.transpose(x, axes)),
        st.just(lambda x: x.T),
        st.just(lambda x: x.reshape(-1)),
        st.just(np.ravel),
        st.just(lambda x: x.flatten()),
        st.just(lambda x: x.squeeze()),
        st.just(np.flip),
        st.just(lambda x: np.broadcast_to(x, (2, *x.shape))),
    ]
    if rank:
        choices += [
            st.tuples(axis, axis).map(lambda axes: lambda x: x.swapaxes(*axes)),
            st.tuples(axis, axis).map(lambda axes: lambda x: np.moveaxis(x, *axes)),
            axis.map(lambda one: lambda x: np.split(x, x.shape[one] or 1, axis=one)[-1]),
            axis.map(lambda one: lambda x: np.expand_dims(x, one)),
            axis.map(lambda one: lambda x: np.flip(x, one)),
        ]
    return draw(st.one_of(choices))


@given(st.data())
def test_any_chain_of_views_is_numpys(data):
    array = data.draw(arrays())
    chain, expected = [], array
    for _ in range(data.draw(st.integers(1, 4))):
        if expected.ndim > 6:
            break
        chain.append(data.draw(steps(expected)))
        expected = chain[-1](expected)

    def program(x):
        for step in chain:
            x = step(x)
        return x, ss.ops.equal(x, x)

    program_of_it = traced(program, array)
    result, same = run_reference(program_of_it, [array])
    assert result.dtype == expected.dtype
    np.testing.assert_array_equal(result, expected, strict=True)
    assert same.shape == expected.shape
    assert same.all()
    (found, _) = on_the_simulated_device(program, array)
    np.testing.assert_array_equal(found, expected, strict=True)


def on_the_simulated_device(function, *inputs):
    prepared = ss.prepare(traced(function, *inputs), engine="async", device="simulated")
    prepared.load(inputs)
    prepared.run()
    prepared.wait()
    return prepared.outputs()


def test_a_view_launches_nothing_and_reads_the_variable():
    program = traced(lambda x: (ss.ops.exp(x[0].T), ss.ops.sum(x.reshape(6, 4)[::2], axis=0)), X)
    assert [launch.name for launch in program.launches()] == ["exp", "sum"]
    assert [launch.reads for launch in program.launches()] == [(0,), (0,)]
    assert "%1:float32[4, 3] = exp(%0[0].T:float32[4, 3])" in str(program)
    assert "%2:float32[4] = sum(%0.reshape(6, 4)[::2]:float32[3, 4], axis=0, keepdims=False)" in str(program)


def test_a_variable_and_its_view_are_two_operands():
    square = X[0, :, :3]
    program = traced(lambda x: x + x.T, square)
    (operation,) = program.operations
    assert operation.reads == (0,)
    assert [str(spec) for spec in program.read_specs(operation)] == ["float32[3, 3]"] * 2
    assert "add(%0:float32[3, 3], %0.T:float32[3, 3])" in str(program)
    np.testing.assert_array_equal(run_reference(program, [square])[0], square + square.T)


def test_what_changes_nothing_is_the_variable_itself():
    program = traced(lambda x: (x.reshape(2, 3, 4) + 1, x[...] + 1, x.T.T + 1, x.swapaxes(1, -2) + 1), X)
    assert all(not launch.views for launch in program.launches())


@pytest.mark.parametrize(
    "function",
    [
        lambda x, at: x[at],
        lambda x, at: x[:, at],
        lambda x, at: x[..., at],
        lambda x, at: x[None, ::-1, at],
        lambda x, at: x[1:, ..., at],
        lambda x, at: x[at, ..., None],
        lambda x, at: x[:, None, at, 1:],
    ],
)
@pytest.mark.parametrize("shape", [(5,), (2, 3), ()])
def test_a_variable_of_whole_numbers_takes_what_numpy_takes(function, shape):
    at = (np.arange(np.prod(shape, dtype=int)) % 4 - 2).reshape(shape)
    (found,) = run_reference(traced(lambda x, at: function(x, at), X, at), [X, at])  # noqa: PLW0108 — of both
    np.testing.assert_array_equal(found, function(X, at), strict=True)


def test_a_view_sees_what_is_written_later():
    def program(x):
        first = x[1:]
        x = ss.ops.add(x, 1, out=x)
        return first * 1, x

    (seen, _) = run_reference(traced(program, X), [X])
    np.testing.assert_array_equal(seen, X[1:] + 1)


def test_a_view_that_an_operator_cannot_read_is_copied_once_for_all_until_the_variable_is_written():
    image = np.ones((1, 4, 4, 2), np.float32)
    weights = np.ones((2, 1, 1, 2), np.float32)

    def program(x, w):
        y = ss.ops.convolution(x.swapaxes(1, 2), w)
        z = ss.ops.convolution(x.swapaxes(1, 2), w)
        x = ss.ops.add(x, 1, out=x)
        return y, z, ss.ops.convolution(x.swapaxes(1, 2), w), x

    names = [operation.name for operation in traced(program, image, weights).operations]
    assert names == ["copy", "convolution", "convolution", "add", "copy", "convolution"]


def test_who_reads_without_gaps_reads_a_part_that_has_none():
    rows = np.ones((8, 64), np.float32)
    for function, copies in [
        (lambda x: ss.ops.softmax(x[3:]), 0),
        (lambda x: ss.ops.softmax(x[:, 1:]), 1),
        (lambda x: ss.ops.to_host(x[3:]), 0),
        (lambda x: ss.ops.to_host(x.T), 1),
    ]:
        assert [each.name for each in traced(function, rows).operations].count("copy") == copies


def test_a_vector_that_runs_backwards_or_repeats_one_number_is_copied_for_a_product():
    # cuBLAS takes a vector in steps of one element or more.
    vector = np.ones(8, np.float32)
    for function, copies in [
        (lambda x: x[::2] @ x[1::2], 0),
        (lambda x: x @ x[::-1], 1),
        (lambda x: x @ ss.ops.broadcast_to(x[:1], (8,)), 1),
    ]:
        assert [each.name for each in traced(function, vector).operations].count("copy") == copies


def test_results_that_are_views_are_arrays_of_their_own():
    program = traced(lambda x: (x[0], x[0]), X)
    assert len(set(program.outputs)) == 2
    assert [operation.name for operation in program.operations] == ["copy", "copy"]


def test_a_result_in_another_shape_is_no_operation():
    def program(x):
        y, z = x * 2, x + 1
        return y.reshape(-1), z[:, None], z.reshape(4, 6), y, x.reshape(-1)

    for fuse in (False, True):
        traced_program = ss.program(program, fuse=fuse).trace(X)
        names = [operation.name for operation in traced_program.operations]
        assert names == ["multiply", "add", "copy", "copy", "copy"]  # y is returned as it is, too, z in two shapes, and x is an input
        for found, expected in zip(run_reference(traced_program, [X]), program(X), strict=True):
            np.testing.assert_array_equal(found, expected, strict=True)
    runs = ss.compare(lambda x: ((x * 2).reshape(-1), ss.ops.exp(x)[None]), X, device="simulated", progress=False)
    assert all(run.correct for run in runs.values())
    assert [operation.name for operation in traced(lambda x: (x * 2).reshape(-1), X).operations] == ["multiply"]


def test_a_reshape_that_takes_a_copy_takes_one():
    program = traced(lambda x: x.T.reshape(4, 6), X)
    assert [operation.name for operation in program.operations] == ["copy"]
    np.testing.assert_array_equal(run_reference(program, [X])[0], X.T.reshape(4, 6))


def test_host_functions_see_views_of_host_memory():
    @ss.host_function(results=[((4, 3), "float32")])
    def doubled(x):
        return x * 2

    (found,) = on_the_simulated_device(lambda x: doubled(x[1].T), X)
    np.testing.assert_array_equal(found, X[1].T * 2)


def test_a_copy_to_the_device_takes_what_lies_together():
    (found,) = on_the_simulated_device(lambda x: ss.ops.to_device(x[1]), X)
    np.testing.assert_array_equal(found, X[1])
    with pytest.raises(ProgramError, match=r"to_device at .* cannot read 'x\.T', whose elements do not follow each other in host memory"):
        traced(lambda x: ss.ops.to_device(x.T), X)


def test_pushed_operations_see_views():
    x = np.arange(6.0).reshape(2, 3)
    with ss.Engine(device="simulated") as engine:
        a, *others = (engine.variable(values) for values in (x, np.zeros((3, 2)), np.zeros((3, 3)), np.zeros((3, 2))))
        b, c, d = others
        engine.push(lambda a: a.T + a.reshape(3, 2), reads=(a,), writes=(b,))
        engine.push(ss.ops.matmul, reads=(a, a), writes=(c,), transpose_a=True)
        engine.push(lambda a: (a * 2).reshape(3, 2), reads=(a,), writes=(d,))
        np.testing.assert_array_equal(engine.read(b), x.T + x.reshape(3, 2))
        np.testing.assert_array_equal(engine.read(c), x.T @ x)
        np.testing.assert_array_equal(engine.read(d), (x * 2).reshape(3, 2))


def test_length_and_iteration_are_numpys():
    def program(x):
        first, second = x
        return first + second, ss.ops.add_n(*x) * len(x)

    found, other = run_reference(traced(program, X), [X])
    np.testing.assert_array_equal(found, X[0] + X[1])
    np.testing.assert_array_equal(other, (X[0] + X[1]) * 2)
    for use in (len, list):
        with pytest.raises(TypeError):
            traced(lambda x, use=use: use(x[0, 0, 0]), X)


# What is ours: the operator, the variable, the user's line, and the way out. What is not possible is NumPy's word, and stands behind.
X_AT = r"'x', which is float32\[2, 3, 4\], at test_views\.py:\d+: \w"
INDEXED = r" at test_views\.py:\d+: a program takes whole numbers, slices, \.\.\. and None, or one variable"
EXTENTS = "the extents' product must be the number of elements; one may be -1"
CONDITION = "shapes must be known while the program is traced: for a condition, use np.where"
DIVISOR = "give a number that divides the axis, or where the parts begin: [2, 5]"


@pytest.mark.parametrize(
    ("use", "said", "hint"),
    [
        (lambda x: x[2], f"indexing of {X_AT}", None),
        (lambda x: x[0, 0, 0, 0], f"indexing of {X_AT}", None),
        (lambda x: x[..., ...], f"indexing of {X_AT}", None),
        (lambda x: x[::0], f"indexing of {X_AT}", None),
        (lambda x: x[1.5], f"'x' is indexed with 1\\.5{INDEXED}", "make it whole numbers first, with int(...) or .astype('int32')"),
        (
            lambda x: x[x],
            f"'x' is indexed with the variable 'x'{INDEXED}",
            "make it whole numbers first, with int(...) or .astype('int32')",
        ),
        (
            lambda x: x[0, x.astype("int32")],
            f"'x' is indexed with the variable 'astype_0'{INDEXED}",
            "index in two steps, with the numbers first: x[0][i] for x[0, i]",
        ),
        (
            lambda x: x[(x.astype("int32"),) * 2],
            f"'x' is indexed with the variable 'astype_0'{INDEXED}",
            "for pairs of indices, say where each element is: x.ravel()[i * x.shape[1] + j]",
        ),
        (lambda x: x[[0, 1]], rf"'x' is indexed with \[0, 1\]{INDEXED}", "pass the indices as an input of the program"),
        (lambda x: x[np.array([0])], rf"'x' is indexed with array\(\[0\]\){INDEXED}", "pass the indices as an input of the program"),
        (lambda x: x[np.array(1)], rf"'x' is indexed with array\(1\){INDEXED}", "take the number out of the array: int(...)"),
        (lambda x: x[x > 1], f"'x' is indexed with the variable 'greater_0'{INDEXED}", CONDITION),
        (lambda x: x[[True, False]], rf"'x' is indexed with \[True, False\]{INDEXED}", CONDITION),
        (lambda x: x[True], f"'x' is indexed with True{INDEXED}", CONDITION),
        (lambda x: x.transpose(0, 1), f"transpose of {X_AT}", "name each axis once, for example (0, 2, 1)"),
        (lambda x: x.transpose(0, 0, 1), f"transpose of {X_AT}", "name each axis once, for example (0, 2, 1)"),
        (lambda x: x.swapaxes(0, 3), f"swapaxes of {X_AT}", None),
        (lambda x: x.swapaxes(0, 2**70), f"swapaxes of {X_AT}", None),
        (
            lambda x: x.reshape(5, -1),
            r"reshape: 'x', which is float32\[2, 3, 4\], has 24 elements and cannot have the shape \(5, -1\) at test_views\.py:\d+$",
            EXTENTS,
        ),
        (
            lambda x: x.reshape(-1, -1),
            r"reshape: shape=\(-1, -1\) at test_views\.py:\d+ is not a shape",
            "give whole numbers, one of which may be -1: as many as are left",
        ),
        (
            lambda x: x.reshape("many"),
            r"reshape: shape='many' at test_views\.py:\d+ is not a shape",
            "give whole numbers, one of which may be -1: as many as are left",
        ),
        (lambda x: x.squeeze(0), f"squeeze of {X_AT}", None),
        (lambda x: np.broadcast_to(x, (2, 3, 5)), f"broadcast_to of {X_AT}", "from the right, extents must be equal or 1"),
        (lambda x: np.split(x, 5), r"split: 'x', which is float32\[2, 3, 4\], has no parts 5 at test_views\.py:\d+$", DIVISOR),
        (lambda x: np.split(x, 0), "split: 'x', .* has no parts 0 at", DIVISOR),
        (lambda x: np.split(x, -1), "split: 'x', .* has no parts -1 at", DIVISOR),
        (lambda x: np.split(x, 2.0), r"split: 'x', .* has no parts 2\.0 at", DIVISOR),
        (lambda x: np.split(x, 2, axis=3), f"split of {X_AT}", None),
        (lambda x: x[0, 0].mT, r"\.mT: 'x\[0, 0\]' of shape \(4,\) is not a matrix", "use .T for a vector"),
        (
            lambda x: np.reshape(x, 24, order="F"),
            r"a program has no operator for NumPy's reshape with order= at test_views\.py:\d+",
            "leave order out",
        ),
        (lambda x: np.copy(x, order="F"), "a program has no operator for NumPy's copy with order= at", "leave order out"),
        (
            lambda x: x.reshape(4, 6, order="F"),
            r"reshape of 'x' with order='F' at test_views\.py:\d+: ",
            "leave order out; x.T has the axes",
        ),
        (lambda x: x.ravel("F"), "ravel of 'x' with order='F' at", "leave order out; x.T has the axes in reverse"),
        (lambda x: x.flatten("F"), "flatten of 'x' with order='F' at", "leave order out; x.T has the axes in reverse"),
        (lambda x: x.copy("K"), "copy of 'x' with order='K' at", "leave order out; x.T has the axes in reverse"),
        (
            lambda x: ss.ops.add(x[0], 1, out=x[1]),
            r"out= of add at test_views\.py:\d+ is 'x\[1\]', a view: operations write whole variables",
            "join the parts of a new array with ss.ops.concatenate",
        ),
        (
            lambda x: ss.ops.add(x, x[:, ::-1], out=x),
            r"add at test_views\.py:\d+ cannot write over 'x' while it reads 'x\[:, ::-1\]', a view of it",
            "give another variable as out=, or copy the view first: .copy()",
        ),
        (
            lambda x: x.__setitem__(0, x[1]),
            r"item assignment to 'x' at test_views\.py:\d+",
            "join the parts of a new array with ss.ops.concatenate",
        ),
        (
            lambda x: ss.ops.transpose(X),
            "transpose: it takes variables, got an ndarray",
            "make it an input, by position or by the name of a parameter before any *; in a %%streamscope cell, ",
        ),
        (lambda x: np.take(x, [1, 0]), r"take at test_views\.py:\d+ got a list instead of a variable", "make it an input, by position or"),
        (lambda x: np.concatenate(x, 0), r"concatenate: it takes a list of variables, not x:float32\[2, 3, 4\]", "give a list: [a, b]"),
    ],
)
def test_what_is_not_possible_is_said(use, said, hint):
    with pytest.raises(ProgramError) as caught:
        traced(use, X)
    assert re.match(said, caught.value.message)
    assert (caught.value.hint or "").startswith(hint or "")
    assert bool(caught.value.hint) == bool(hint)


def test_an_array_by_the_name_of_a_parameter_behind_a_star_is_not_an_input():
    with pytest.raises(ProgramError, match=r"got an ndarray .*\(make it an input, by position or by .* before any \*;"):
        ss.program(lambda x, *, w: x @ w).trace(X, w=X.mT.copy())


def test_orders_that_are_numpys_defaults_may_be_given():
    program = traced(lambda x: (x.reshape(24, order="C") + 1, x.ravel("C") + 1, np.reshape(x, 24, order="C") + 1, np.copy(x, order="K")), X)
    assert [operation.name for operation in program.operations] == ["add", "add", "add", "copy"]


@pytest.mark.parametrize("function", VIEW_FUNCTIONS, ids=lambda each: each.__name__)
def test_numpys_own_functions_mean_the_same(function):
    arguments = {
        np.swapaxes: (0, 1),
        np.moveaxis: (0, 2),
        np.expand_dims: (1,),
        np.broadcast_to: ((5, 2, 3, 4),),
        np.reshape: ((4, 6),),
        np.split: (2,),
    }.get(function, ())

    def program(x):
        result = function(x, *arguments)
        return tuple(result) if isinstance(result, tuple | list) else (result,)

    for found, expected in zip(run_reference(traced(program, X), [X]), program(X), strict=True):
        np.testing.assert_array_equal(found, expected, strict=True)


def test_a_cost_counts_what_memory_hands_out():
    table = np.zeros((1000, 64), np.float32)

    def read(function):
        (launch,) = traced(lambda x: ss.ops.negative(function(x)), table).launches()
        return launch.cost.bytes - np.negative(function(table)).nbytes

    assert read(lambda x: x.T) == table.nbytes
    assert read(lambda x: x[:500]) == table.nbytes // 2
    assert read(lambda x: x[:, ::2]) == table.nbytes  # every second element, but all sectors
    assert read(lambda x: x[:, 0]) == 1000 * 32  # one sector of each row
    assert read(lambda x: np.broadcast_to(x[0], (1000, 64))) == 64 * 4


def test_a_transpose_has_a_block_for_each_tile_and_other_copies_wait_for_nothing():
    def cost(function, *shape):
        (launch,) = traced(lambda x: ss.ops.copy(function(x)), np.zeros(shape, np.float32)).launches()
        return launch.cost.blocks, launch.cost.stages

    assert cost(lambda x: x.T, 100, 70) == (4 * 3, 2)  # of 32 by 32, the last ones in part
    assert cost(lambda x: x[::2], 4096, 64) == (2048 * 64 // 4 // 256, 0)  # four elements a thread
    assert cost(lambda x: x.T, 8, 4096)[1] == 0  # too few rows for tiles


def test_what_is_read_twice_is_moved_once():
    x = np.zeros((64, 64), np.float32)
    for function in (lambda x: x + x, lambda x: x.T + x.T):
        assert traced(function, x).operations[-1].launches[0].cost.bytes == 2 * x.nbytes
    assert traced(lambda x: x.T + x, x).operations[-1].launches[0].cost.bytes == 3 * x.nbytes


class TestFusion:
    def test_views_of_inputs_are_operands_of_a_fused_kernel(self):
        square = X[0, :, :3].copy()
        program = ss.program(lambda x: (x.T + x) * 2 + x[::-1], fuse=True).trace(square)
        (operation,) = program.operations
        assert len(operation.launches[0].reads) == 3
        np.testing.assert_array_equal(run_reference(program, [square])[0], (square.T + square) * 2 + square[::-1])

    def test_what_is_read_through_a_view_is_written_first(self):
        def program(x):
            y = x * 2
            return y.T + 1

        square = X[0, :, :3].copy()
        fused = ss.program(program, fuse=True).trace(square)
        assert [operation.name for operation in fused.operations] == ["multiply", "add"]
        np.testing.assert_array_equal(run_reference(fused, [square])[0], program(square))
