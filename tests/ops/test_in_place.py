"""`x += y` and its kind write in place as in NumPy; who sees that, and who does not, is NumPy's too."""

from __future__ import annotations

import operator
import re
from contextlib import suppress

import numpy as np
import pytest

import streamscope as ss
from streamscope.errors import ProgramError
from streamscope.ops.operators import FUNCTIONS, UFUNCS
from streamscope.program.aliasing import Aliasing
from streamscope.program.reference import run_reference

X = np.arange(1.0, 7.0)
SQUARE = np.arange(9.0).reshape(3, 3)
OPERATORS = [
    getattr(operator, f"i{name}")
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor", "lshift", "rshift")
] + [operator.iand, operator.ior]
DTYPES = ["float16", "float32", "float64", "int8", "uint8", "int64", "uint64", "bool"]


def traced(function, *arrays, fuse=False):
    return ss.program(function, fuse=fuse).trace(*arrays)


def check(function, *arrays):
    """Compare a traced function with the function itself, on arrays of its own each."""
    expected = function(*(array.copy() for array in arrays))
    for fuse in (False, True):
        found = run_reference(traced(function, *arrays, fuse=fuse), arrays)
        for one, right in zip(found, expected if isinstance(expected, tuple) else (expected,), strict=True):
            np.testing.assert_array_equal(one, np.asarray(right), strict=True)


def add_one(v):
    v += 1


def a_view_taken_before(x):
    h = x[1:]
    x += 1
    return h * 1


def an_alias(x):
    y = x
    y *= 2
    return x + 0


def a_helper(x):
    add_one(x)
    add_one(x[2:])
    add_one(x.reshape(2, 3).T[::-1])
    return x


def a_view_written(x):
    h = x[::-2]
    h -= x[0]
    x[1:] += x[:-1]  # overlaps: what is added is read before
    x[...] *= 2
    return x, h


def overlapping_by_itself(x):
    turned = x[::-1]
    turned += x
    x += turned
    return x


def parts_of_rows(x):
    rows = x.reshape(2, 3)
    rows[0] += rows[1]
    rows[:, 1] *= rows[:, 2]
    rows[1, 2] += 40
    rows[None, :, 1:][0, 1] -= 1
    for row in rows:
        row.__itruediv__(2)
    first, second = np.split(rows, 2)
    first += second
    return x, rows.copy()


def numbers_are_copies(x):
    a, b, *rest = x
    c, total = x[-1], np.sum(x)
    x += 100
    total += 1
    b += 1
    flipped = np.flip(x[0, ...])
    x += c
    return x, a, b * 1, rest[0] + c, total, flipped


def numbers_do_not_change_together(x):
    s = np.sum(x)
    t = s
    t += 1
    t *= x  # an array now
    t -= 1
    return s, t


def elements(x):
    x[0] += x[1]
    x[1] = x[1] + x[0]
    x[-1] *= 2
    whole = x[2, ...]
    whole += 5
    return x


def arrays_without_axes(x):
    a = np.where(x[0] > 0, x[0], 1)
    b = np.copy(x[1])
    c = np.squeeze(x[2:3])
    for each in (a, b, c):
        same = each
        same += 10
    return x, a, b, c


def copies_are_not_written(x):
    parts = [x[::2].ravel(), x[::2].flatten(), x.reshape(2, 3).T.reshape(6), x.copy(), x.astype("float64"), np.copy(x)]
    for part in parts:
        part.__iadd__(1000)
    kept = x.astype("float64", copy=False)
    kept += 1
    return (x, *parts)


def products(x):
    a = x[:4].reshape(2, 2)
    a @= a.T + 1
    return x


def in_its_own_dtype(x):
    narrow = x.astype("float32")
    narrow[1:] += x[1:] / 3
    narrow /= np.float64(7)
    whole = x.astype("int8")
    whole *= (x * 100).astype("int64")  # wraps, as in NumPy
    whole[0] += 1.75  # an element is assigned, which casts more
    return narrow, whole


def nothing_in_it(x):
    none = x[3:3]
    none += 1
    x[:0] *= x[:1]
    return x * 1


def repeating_views_see_it(x):
    wide = np.broadcast_to(x, (2, 6))
    x += 1
    return wide * 1


CASES = [
    a_view_taken_before,
    an_alias,
    a_helper,
    a_view_written,
    overlapping_by_itself,
    parts_of_rows,
    numbers_are_copies,
    numbers_do_not_change_together,
    elements,
    arrays_without_axes,
    copies_are_not_written,
    products,
    in_its_own_dtype,
    nothing_in_it,
    repeating_views_see_it,
]


@pytest.mark.parametrize("function", CASES)
def test_a_program_writes_what_its_function_writes(function):
    check(function, X)


def test_an_input_is_loaded_anew_for_each_run_and_the_users_array_is_not_changed():
    x = X.copy()
    with ss.Engine(device="simulated") as engine:
        for _ in range(2):
            np.testing.assert_array_equal(engine.run(an_alias, x), 2 * X)
    runs = ss.compare(an_alias, x, device="simulated", progress=False)
    assert all(run.correct for run in runs.values())
    np.testing.assert_array_equal(x, X)


@pytest.mark.parametrize("update", OPERATORS, ids=lambda each: each.__name__)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_operator_has_numpys_casting_rule(update, dtype):
    """Also for numbers, which have no dtype of their own; what NumPy refuses is refused, by the user's line."""
    others = [np.array([[2, 1], [1, 0]], other) for other in DTYPES] + [2, 1.5, True, np.float32(2), np.int64(3)]
    for other in others:
        target = np.array([[1, 3], [2, 1]], dtype)

        def function(x, *given, other=other):
            alias = x
            alias = update(alias, given[0] if given else other)
            return x * x.dtype.type(1)

        inputs = [target, *([other] if isinstance(other, np.ndarray) else [])]
        try:
            with np.errstate(all="ignore"):
                expected = function(*(array.copy() for array in inputs))
        except (TypeError, ValueError, OverflowError):
            with pytest.raises(ProgramError, match=r"test_in_place\.py:\d+"):
                traced(function, *inputs)
            continue
        if update is operator.imatmul and (dtype[:5] != "float" or getattr(other, "dtype", None) != dtype):
            continue  # Products are of one floating dtype here, in place or not.
        np.testing.assert_array_equal(run_reference(traced(function, *inputs), inputs)[0], expected, strict=True)


VIEWS = {
    "T": lambda x: x.T,
    "transpose": np.transpose,
    "swapaxes": lambda x: np.swapaxes(x, 0, -1),
    "moveaxis": lambda x: np.moveaxis(x, [], []),
    "squeeze": np.squeeze,
    "reshape": lambda x: x.reshape(-1),
    "np.reshape": lambda x: np.reshape(x, (*x.shape, 1)),
    "reshape to nothing": lambda x: x[:1].reshape(()),
    "ravel": lambda x: x.ravel(),
    "np.ravel": np.ravel,
    "flatten": lambda x: x.flatten(),
    "copy": lambda x: x.copy(),
    "np.copy": np.copy,
    "astype": lambda x: x.astype(x.dtype),
    "astype without a copy": lambda x: x.astype(x.dtype, copy=False),
    "np.astype": lambda x: np.astype(x, "float32"),
    "expand_dims": lambda x: np.expand_dims(x, 0),
    "expand_dims by none": lambda x: np.expand_dims(x, ()),
    "flip": np.flip,
    "broadcast_to": lambda x: np.broadcast_to(x, (2, *x.shape)),
    "broadcast_to its own shape": lambda x: np.broadcast_to(x, x.shape),
    "a part of broadcast_to": lambda x: np.broadcast_to(x, (2, *x.shape))[0].T,
    "split": lambda x: np.split(x, 1)[0],
    "[...]": lambda x: x[...],
    "[()]": lambda x: x[()],
    "[:]": lambda x: x[:],
    "[0]": lambda x: x[0],
    "[0, ...]": lambda x: x[0, ...],
    "[None]": lambda x: x[None],
    "[...][()]": lambda x: x[...][()],
    "sum": np.sum,
    "max of rows": lambda x: x.max(axis=tuple(range(x.ndim))[-1:]),
    "where": lambda x: np.where(x > 0, x, x),
    "clip": lambda x: np.clip(x, 0, 1),
    "negative": lambda x: -x,
    "fix": np.fix,
    "isposinf": np.isposinf,
    "round": np.round,
    "cumsum": np.cumsum,
    "var": np.var,
    "argmax": np.argmax,
    "take": lambda x: np.take(x, np.int64(0)) if isinstance(x, np.ndarray | np.generic) else np.take(x, np.argmax(x)),
    "product": lambda x: x @ x,
}
GIVEN = {
    "matrix": lambda x: x,
    "columns": lambda x: x[:, 1:],
    "turned": lambda x: x.T,
    "vector": lambda x: x[0],
    "every second": lambda x: x[0, ::2],
    "array without axes": lambda x: x[0, 0, ...],
    "number": lambda x: x[0, 0],
    "a number's array": lambda x: x[0, 0][...],
    "row that repeats": lambda x: np.broadcast_to(x[0], (3, 3)),
}


@pytest.mark.parametrize("view", VIEWS)
def test_what_shares_memory_what_is_a_number_and_what_may_be_written_is_numpys(view):
    for given in GIVEN:
        check_view(view, given)


def check_view(view, given):
    def both(x):
        source = GIVEN[given](x)
        return source, VIEWS[view](source)

    try:
        source, expected = both(SQUARE.copy())
    except (TypeError, ValueError, IndexError, AttributeError):
        return  # NumPy has no such view.

    def program(x):
        seen, found = both(x)
        is_number = isinstance(expected, np.generic)
        assert (found.sharing is Aliasing.NUMBER) == is_number, given
        if isinstance(source, np.ndarray) and not is_number:
            assert (found.base is seen.base) == np.shares_memory(expected, source), given
        copied_number = given in ("number", "a number's array") and found.base is seen.base
        assert is_number or copied_number or (found.sharing is Aliasing.ARRAY) == expected.flags.writeable, given
        return found

    traced(program, SQUARE)


@pytest.mark.parametrize("function", [*UFUNCS, *(each for each in FUNCTIONS if each not in (np.shape, np.size, np.ndim))])
def test_every_function_of_numpys_shares_memory_and_makes_numbers_where_numpy_does(function):
    """Also where it has nothing to do, as np.round of whole numbers has not: what NumPy copies is copied."""
    for array in (np.ones(shape, dtype) for shape in [(3, 3), (1,), ()] for dtype in ("int32", "bool", "float32")):
        count = getattr(function, "nin", 1)
        try:
            with np.errstate(all="ignore"):
                expected = function(*[array] * count)
        except (TypeError, ValueError):  # It takes no such array, or has further arguments.
            continue

        def program(x, expected=expected, array=array, count=count):
            found = function(*[x] * count)
            assert (found.sharing is Aliasing.NUMBER) == isinstance(expected, np.generic)
            if found.shape:
                assert (found.base is x) == np.shares_memory(expected, array)
            return found

        with suppress(ProgramError):  # No operator takes this dtype.
            traced(program, array)


def outdated(x, i):
    row = x[np.argmax(i)]
    x += 1
    return row * 1


def a_row_at_a_number(x, i):
    x[np.argmax(i)] += 1
    return x


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda x, i: np.broadcast_to(x, (2, 3, 3)).__iadd__(1), r"in-place add of 'x\.broadcast_to\(.*\)' at .* in which elements repeat"),
        (lambda x, i: np.broadcast_to(x, x.shape).__imul__(1), "in-place multiply of .* which NumPy makes read-only"),
        (lambda x, i: np.sum(x)[None].__iadd__(1), r"in-place add of 'sum_0\[None\]' at .* a view of a number, which is a copy in NumPy"),
        (lambda x, i: x[0].__iadd__(x), r"in-place add of 'x\[0\]' at .* has shape \(3, 3\), and 'x\[0\]' keeps its shape \(3,\)"),
        (lambda x, i: i.__itruediv__(2), "in-place divide of 'i' at .* the result is float64, and NumPy does not cast that to int64"),
        (lambda x, i: i.__itruediv__(2), r"write x = x / y, or convert 'i' to float64 first"),
        (lambda x, i: i.__ifloordiv__(2.0), r"write x = x // y, or convert 2\.0 to int64 first"),
        (lambda x, i: (i == 1).__isub__(1), r"write x = x - y, or convert 'equal_0' to int64 first"),
        (lambda x, i: i.astype(np.uint8).__imul__(i), r"write x = x \* y, or convert 'i' to uint8 first"),
        (lambda x, i: x[0].__imatmul__(x[0]), r"in-place matmul of 'x\[0\]' at .* the result has shape \(\)"),
        (outdated, r"multiply at .* reads 'take_1', a view of 'x' in NumPy, which was written since .*index again"),
        (a_row_at_a_number, "in-place add of 'take_1' at .* known only when the program runs"),
        (lambda x, i: x.__setitem__(i, x[0]), "item assignment to 'x' at .* is not an operator of a program"),
        (lambda x, i: x.__setitem__(0, x[1]), "item assignment to 'x' at .* is not an operator of a program"),
        (lambda x, i: x.__setitem__((0, 0), 1.0), "item assignment to 'x' at .* is not an operator of a program"),
        (lambda x, i: x.__iadd__([1, 2, 3]), "add at .* got a list instead of a variable"),
        (lambda x, i: ss.empty(3).__iadd__(1), "add at .* reads 'empty', which nothing has written"),
    ],
)
def test_what_cannot_be_written_is_said(function, said):
    with pytest.raises(ProgramError, match=said) as caught:
        traced(function, SQUARE, np.arange(3))
    assert "test_in_place.py" in caught.value.message


def test_a_returned_row_that_is_outdated_is_refused():
    def function(x, i):
        row = x[np.argmax(i)]
        x += 1
        return row

    with pytest.raises(ProgramError, match="returns 'take_1', a view of 'x' in NumPy, which was written since"):
        traced(function, SQUARE, np.arange(3))
    check(lambda x, i: (x[np.argmax(i)].copy(), x.__iadd__(1)), SQUARE, np.arange(3))


def test_one_kernel_writes_a_part_and_the_printed_program_shows_it():
    def function(x):
        x[1:] += 1
        x[:2] += x[2:4]
        x *= x
        return x

    program = traced(function, X)
    lines = [re.sub(r" +# .*", "", line).strip() for line in str(program).splitlines()[1:]]
    assert lines == [
        "0  %0[1:]:float64[5] = add(%0[1:]:float64[5], b=1)",
        "1  %1:float64[2] = add(%0[:2]:float64[2], %0[2:4]:float64[2])",
        "2  %0[:2]:float64[2] = copy(%1:float64[2])",
        "3  %0:float64[6] = multiply(%0:float64[6])",
    ]
    assert [operation.reads for operation in program.operations] == [(0,), (0,), (1, 0), (0,)]  # also what stays as it is
    assert [operation.writes for operation in program.operations] == [(0,), (1,), (0,), (0,)]
    assert [launch.cost.bytes for launch in program.launches()] == [80, 48, 32, 96]


def test_a_number_is_copied_only_where_it_is_still_held_when_its_array_is_written():
    def function(x):
        y = x[0] + x[1]
        x += y
        return x

    assert [operation.name for operation in traced(function, X).operations] == ["add", "add"]


def test_a_number_of_numpys_is_no_array_without_axes():
    def function(x):
        y = x
        y += 1
        return x * 1, y

    for given in (np.float64(3), np.array(3.0)):
        check(function, given)
    with ss.Engine(device="simulated") as engine:
        assert [float(engine.run(function, given)[0]) for given in (np.float64(3), np.array(3.0))] == [3.0, 4.0]


def test_a_part_that_is_all_of_a_variable_leaves_nothing_to_read():
    def function(x, y):
        turned = x.T
        turned @= y
        return x

    copied = traced(function, SQUARE, SQUARE + 1).operations[-1]
    assert (copied.name, copied.reads, copied.writes) == ("copy", (2,), (0,))
    check(function, SQUARE, SQUARE + 1)
    assert not ss.audit(function, SQUARE, SQUARE + 1, device="simulated", progress=False).findings


def test_pushed_functions_write_in_place_what_they_return():
    def grown(a, b):
        a += b
        return a

    with ss.Engine(device="simulated") as engine:
        a, b = engine.variable(X.copy()), engine.variable(X)
        engine.push(grown, reads=(a, b), writes=(a,))
        engine.push(grown, reads=(a, a), writes=(a,))
        np.testing.assert_array_equal(engine.read(a), 4 * X)
        with pytest.raises(ProgramError, match=r"add .* changes 'variable 0'"):
            engine.push(lambda a, b: grown(a, b) * 1, reads=(a, b), writes=(engine.variable(X),))
