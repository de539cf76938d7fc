"""The line that an operation names is the user's own, however the operator was reached."""

from __future__ import annotations

import functools
import inspect
import json
import subprocess
import sys

import numpy as np

import streamscope as ss

X = np.ones((3, 3), np.float32)


def here(offset=0):
    return f"test_user_line.py:{inspect.currentframe().f_back.f_lineno + offset}"


def lines(function, *arguments):
    return [operation.where for operation in ss.program(function).trace(*arguments).operations]


def test_functions_and_python_operators():
    expected = []

    def function(x):
        expected.append(here(1))
        x = ss.ops.relu(x)
        expected.append(here(1))
        x = x @ x
        expected.append(here(1))
        return x + x

    assert lines(function, X) == expected


def test_host_functions_and_operators_of_the_users_own():
    negate = ss.host_function(lambda values: -values)
    double = ss.operator(lambda x, y: None, reads=["x"], writes=["y"])
    expected = []

    def function(x):
        expected.append(here(1))
        x = ss.ops.to_device(negate(x))
        expected.append(here(1))
        return double(x)

    where = lines(function, X)
    assert where == [expected[0], expected[0], expected[1]]


def test_a_wrapper_of_the_users_names_the_line_in_the_wrapper():
    expected = []

    def layer(x):
        expected.append(here(1))
        return ss.ops.relu(x)

    assert lines(lambda x: functools.reduce(lambda y, _: layer(y), range(2), x), X) == expected


def test_an_inlined_program_names_its_own_lines():
    expected = []

    @ss.program
    def inner(x):
        expected.append(here(1))
        return ss.ops.relu(x)

    def outer(x):
        x = inner(x)
        expected.append(here(1))
        return ss.ops.relu(x)

    assert lines(outer, X) == expected


def test_a_program_that_is_an_operator_names_the_line_that_traced_it():
    assert lines(ss.ops.relu, X) == [f"test_user_line.py:{lines.__code__.co_firstlineno + 1}"]


def test_a_result_that_must_be_copied_names_the_function_that_returned_it():
    expected = []

    @ss.program
    def reversed_twice(x):
        expected.append(here(1))
        return x[::-1], ss.ops.relu(x)[::-1]

    relu, *copies = reversed_twice.trace(X).operations
    assert (relu.line, [copy.line for copy in copies]) == (
        f"{expected[0]}: return x[::-1], ss.ops.relu(x)[::-1]",
        ["result of reversed_twice"] * 2,
    )
    assert "copy (operation 1, result of reversed_twice)" in map(str, reversed_twice.trace(X).operations)


def test_a_ready_workload_names_its_own_lines():
    program, inputs = ss.workload("cnn").build(size=3, channels=8, blocks=1)
    assert {operation.where.partition(":")[0] for operation in program.trace(*inputs).operations} == {"programs.py"}


def test_a_notebooks_cell_is_named_as_in_its_tracebacks(repository, tmp_path):
    code = """
import json
from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance()
shell.run_cell("import numpy as np\\nimport streamscope as ss", store_history=True)
shell.run_cell("@ss.program\\ndef step(x):\\n    return ss.ops.relu(x)", store_history=True)
print(json.dumps([operation.where for operation in shell.ev("step.trace(np.ones(3))").operations]))
"""
    command = [sys.executable, "-c", code]
    environment = {"PYTHONPATH": str(repository / "toolkit"), "HOME": str(tmp_path)}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
    assert json.loads(result.stdout.splitlines()[-1]) == ["In[2]:3"]
