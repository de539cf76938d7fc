"""A cell as a function: which names become inputs, and that the function means what the cell means."""

from __future__ import annotations

import ast
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamscope.errors import ProgramError
from streamscope_widgets.cell_program import cell_program, names_of

NAMES = {
    "y = x\ny + w": ["x", "w"],
    "x = 1\nx": [],
    "x = x + 1\nx": ["x"],
    "x += w\nx": ["x", "w"],
    "y: int = x\ny": ["x"],
    "(x := w) + x": ["x", "w"],
    "x, y = w, x\nx + y": ["x", "w"],
    "[x for x in w]": ["w"],
    "[x + w for v in w]": ["x", "w"],
    "lambda x: x + w": ["w"],
    "def f(x):\n    return x + w\nf(y)": ["w", "y"],
    "def f():\n    x = 1\n    return x\nf()": [],
    "import numpy as x\nx": [],
    "for x in w:\n    pass\nx": ["w", "x"],
    "if w:\n    x = 1\nx": ["w", "x"],
    "with w as x:\n    pass\nx": ["w", "x"],
    "x.shape[w]": ["x", "w"],
    "x[0] = w\nx": ["x", "w"],
    "f'{x} {w!r}'": ["x", "w"],
    "class A(x):\n    y = w\nA": ["x", "w"],
    "del x\nw": ["w"],
    "[[x for x in v] for v in w]": ["w"],
    "[x for v in w for x in v]": ["w"],
    "[v for v in w if v in x]": ["w", "x"],
    "[v for v in w for _ in x]": ["w", "x"],
    "[v for x in w for v in x]\nx": ["w", "x"],
    "{x for x in w} | {y}": ["w", "y"],
    "{x: y for x, y in w}": ["w"],
    "sum(v for v in w) + x": ["w", "x"],
    "sum(x for x in w) + x": ["x", "w"],
    "[v for v in w if (y := v)]\ny": ["w", "y"],
    "lambda: [(x := v) for v in w]\nx": ["w", "x"],
    "w and (x := 1)\nx": ["w", "x"],
    "lambda w, *x, y=y, **v: (w, x, y, v)": ["y"],
    "def f(v=w):\n    return [y for y in v]\nf(x)": ["w", "x"],
    "class A:\n    x = 1\n    y = x\nA": [],
    "class A:\n    x = 1\n    def f(self):\n        return x\nA": ["x"],
    "class A:\n    x = w\n    y = [v for v in x]\nA": ["w"],
    "class A:\n    x = 1\n    y = [x for v in w]\nA": ["x", "w"],
    "try:\n    w\nexcept E as x:\n    pass\nx": ["w", "x"],
    "match w:\n    case [x, *y]:\n        pass\nx": ["w", "x"],
    "match w:\n    case {'k': _, **x}:\n        pass\nx": ["w", "x"],
    "f'{x:{w}} {[y for y in w]}'": ["x", "w"],
    "x: int\nx": ["x"],
    "import x.y as w\nw": [],
    "import x.y\nx": [],
    "global x\nx = x + w\nx": ["w"],
    "def f():\n    global x\n    x = w\n    return x\nf()": ["w"],
    "y = 1\ndef f():\n    nonlocal y\n    y += x\nf()\ny": ["x"],
    "def f():\n    x = 1\n    def g():\n        nonlocal x\n        x = w\n    g()\n    return x\nf()": ["w"],
}
if sys.version_info >= (3, 12):
    NAMES |= {
        "def f[x](v: int) -> int:\n    return x, w\nf(y)": ["w", "y"],
        "class A[x]:\n    y: x = w\nA": ["w"],
        "type x[y] = dict[y, w]\nx": ["w", "x"],
    }


@pytest.mark.parametrize("cell", NAMES)
def test_names_that_a_cell_reads_before_it_stores_them(cell):
    reads, _ = names_of(ast.parse(cell))
    assert [name for name in reads if name in ("w", "x", "y")] == NAMES[cell]


MEANINGS = (
    "x @ w",
    "x = x + w\nx = x * 2\nx",
    "n = n + 1\nx * n",
    "h = x\nfor _ in range(n):\n    h = h @ w\nh",
    "def twice(v):\n    return v + v * n\ntwice(x) + w",
    "[x + k for k in range(3)][-1] + w",
    "if n > 2:\n    x = w\nx + 1",
    "if n > 5:\n    x = w\nx + 1",
    "n += 2\nx + n",
    "x if n else w",
    "(s := x + w) * s",
    "total = 0\nwhile n:\n    total = total + x\n    n -= 1\ntotal",
    "[x for x in range(3)][-1] * w",
    "[[w for x in range(2)] for w in (x, x)][0][0] + x",
    "sum(x * n for x in (x, w))",
    "(lambda x, *, w=w: x + w)(x)",
    "[y := v + n for v in range(2)][-1] + y * x",
    "class A:\n    n = n\n    k = [x for _ in range(2)][0]\nA.n * x + A.k",
    "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    x = w\nx",
    "match n:\n    case 3 as k:\n        x = x * k\nx",
    "k = n\ndel k\nx",
    "f'{n:{n}}' and x",
    "n: int\nx * n",
    "x if n > 5 else (n := w) * n",
    "from math import pi as n\nx * n",
)


@pytest.mark.parametrize("cell", MEANINGS)
def test_the_function_computes_what_the_cell_computes(cell):
    x, w = np.arange(9.0).reshape(3, 3), np.full((3, 3), 2.0)
    namespace = {"x": x, "w": w, "n": 3}
    tree = ast.parse(cell)
    plain = dict(namespace)
    exec(compile(ast.Module(tree.body[:-1], []), "plain", "exec"), plain)
    expected = eval(compile(ast.Expression(tree.body[-1].value), "plain", "eval"), plain)
    made = cell_program(ast.parse(cell), namespace, name="cell", filename="cell")
    np.testing.assert_array_equal(made.function(*(namespace[name] for name in made.inputs)), expected)
    assert {name: id(value) for name, value in namespace.items() if name != "__builtins__"} == {"x": id(x), "w": id(w), "n": id(3)}


def test_names_called_global_stay_the_namespaces():
    namespace = {"x": np.ones(2), "n": 3}
    made = cell_program(ast.parse("global n\nn = n + 1\nx * n"), namespace, name="cell", filename="cell")
    assert made.inputs == ("x",)
    np.testing.assert_array_equal(made.function(np.ones(2)), [4.0, 4.0])
    assert namespace["n"] == 4


def test_a_function_in_the_cell_may_change_the_cells_variables():
    cell = "count = 0\ndef f(v):\n    nonlocal count\n    count += v\nf(x)\nf(x)\ncount"
    made = cell_program(ast.parse(cell), {"x": np.ones(2)}, name="cell", filename="cell")
    np.testing.assert_array_equal(made.function(np.ones(2)), [2.0, 2.0])


class Watched(dict):
    """Variables that notes which of the user's values a plain run of the cell reads."""

    def __init__(self, values):
        super().__init__(values)
        self.values, self.read = dict(values), set()

    def __getitem__(self, name):
        found = super().__getitem__(name)
        if found is self.values.get(name):
            self.read.add(name)
        return found


variables = st.sampled_from("abc")
leaves = variables | st.sampled_from(["1", "2"]) | variables.map("int(f'{{{}}}')".format)


def combined(inner):
    return st.one_of(
        st.builds("({} + {})".format, inner, inner),
        st.builds("[{} for {} in ({}, {})][0]".format, inner, variables, inner, inner),
        st.builds("({} if {} > 3 else {})".format, inner, inner, inner),
    )


# Without functions inside: a function whose comprehension has a variable that a function inside takes from outside fails in Python 3.12.1.
bodies = st.recursive(leaves, combined, max_leaves=3)
expressions = st.recursive(
    leaves,
    lambda inner: st.one_of(
        combined(inner),
        st.builds("sum({} for {} in [{}] for {} in [{}] if {} > 0)".format, inner, variables, inner, variables, inner, inner),
        st.builds("(lambda {}: {})({})".format, variables, inner, inner),
        st.builds("(lambda {}={}: {})()".format, variables, inner, inner),
    ),
    max_leaves=4,
)
statements = st.one_of(
    st.builds("{} = {}".format, variables, expressions),
    st.builds("{} += {}".format, variables, expressions),
    st.builds("{} = ({} := {}) + {}".format, variables, variables, expressions, expressions),
    st.builds("if {} > 4:\n    {} = {}".format, expressions, variables, expressions),
    st.builds("for {} in ({},):\n    {} = {}".format, variables, expressions, variables, expressions),
    st.builds("def f({}):\n    {} = {}\n    return {}\n{} = f({})".format, variables, variables, bodies, bodies, variables, expressions),
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])  # slow to draw on a busy machine
@given(st.lists(statements, max_size=3), expressions)
def test_any_cell_means_the_same_as_a_function(lines, last):
    """And whatever array a plain run of it reads is an input."""

    def values():  # anew, since `a += 1` changes an array
        return {name: np.array(number) for number, name in enumerate("abc", 1)}

    cell, watched = "\n".join([*lines, last]), Watched(values())
    try:
        exec("\n".join(lines), watched)
        expected = eval(last, watched)
    except NameError:  # a function of the cell's own, in either
        return
    made = cell_program(ast.parse(cell), (given := values()), name="cell", filename="cell")
    assert set(made.inputs) >= watched.read
    assert made.function(*(given[name] for name in made.inputs)) == expected


def test_only_arrays_become_inputs():
    class OnTheDevice:
        __cuda_array_interface__ = None

    namespace = {"a": np.zeros(2), "b": OnTheDevice(), "c": np.float32(1), "d": [np.zeros(2)], "e": 3}
    made = cell_program(ast.parse("(e, d, c, b, a, unknown)"), namespace, name="cell", filename="cell")
    assert made.inputs == ("b", "a")


@pytest.mark.parametrize("cell", ["", "y = x", "x\ny = x", "for _ in x:\n    pass", "# nothing"])
def test_a_cell_without_a_result(cell):
    with pytest.raises(ProgramError, match="does not end with an expression"):
        cell_program(ast.parse(cell), {"x": np.zeros(2)}, name="cell", filename="cell")


def test_what_cannot_stand_in_a_function():
    with pytest.raises(SyntaxError, match="import"):
        cell_program(ast.parse("from math import *\nx"), {"x": np.zeros(2)}, name="cell", filename="cell")
