"""A cell as a function: which names become inputs, and that the function means what the cell means."""

from __future__ import annotations

import ast

import numpy as np
import pytest

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
