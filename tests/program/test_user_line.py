"""The line that an operation names is the user's own, however the operator was reached."""

from __future__ import annotations

import functools
import importlib
import inspect
import json
import subprocess
import sys

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import streamscope as ss
from streamscope.program.user_line import told_apart

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


def test_files_of_one_name_are_told_apart_by_their_folders(tmp_path, monkeypatch):
    """Both operations, and the kernels that they launch, name the folders as far as they differ; another file keeps its bare name."""
    for folder in ("a", "b"):
        (tmp_path / "net" / folder).mkdir(parents=True)
        (tmp_path / "net" / folder / "layers.py").write_text("def block(x, w):\n    return x @ w\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    first, second = (importlib.import_module(f"net.{folder}.layers").block for folder in ("a", "b"))
    expected = []

    def step(x, w):
        expected.append(here(1))
        return ss.ops.relu(second(first(x, w), w))

    operations = ss.program(step).trace(X, X).operations
    assert [operation.where for operation in operations] == ["a/layers.py:2", "b/layers.py:2", *expected]
    assert [launch.where for operation in operations for launch in operation.launches] == ["a/layers.py:2", "b/layers.py:2", *expected]
    trace = ss.compare(step, X, X, engines="async", device="simulated", progress=False)["async"].trace
    assert {row.place for row in ss.analysis.by_code(trace, "line").rows} == {"a/layers.py:2", "b/layers.py:2", expected[0]}
    assert {"a/layers.py:2", "b/layers.py:2"} <= {row.place for row in ss.analysis.memory(trace, "line").rows}


@given(st.lists(st.lists(st.sampled_from("ab"), max_size=3).map(lambda folders: "/".join(["", *folders, "net.py"])), unique=True))
def test_names_of_files_are_the_shortest_ends_of_their_paths_that_differ(paths):
    names = told_apart(paths)
    assert len(set(names.values())) == len(paths)
    for path, name in names.items():
        shorter = name.partition("/")[2]
        assert path.endswith(name)
        assert not shorter or any(other.endswith(f"/{shorter}") for other in paths if other != path)
