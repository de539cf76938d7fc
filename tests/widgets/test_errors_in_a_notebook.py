"""What a notebook shows of an error of ours: the user's lines and our sentence. `%tb` shows all of it."""

from __future__ import annotations

import pickle

import pytest
from ipykernel.compiler import XCachingCompiler
from IPython.utils.capture import capture_output
from tests.widgets.conftest import a_shell

SETUP = """%load_ext streamscope
import numpy as np, streamscope as ss
x, w = np.ones((4, 4), np.float32), np.ones((3, 4), np.float32)
def layer(x, w):
    return ss.ops.relu(x @ w)  # does not fit

def step(x, w):
    return layer(x + 1, w)"""
COMPARE = "ss.compare(step, x, w, device='simulated', progress=False)"


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    with a_shell(tmp_path_factory.mktemp("ipython"), SETUP, store_history=True) as made:
        yield made


def shown(shell, cell):
    with capture_output() as captured:
        shell.run_cell(cell, store_history=True)
    return captured.stdout


def test_the_users_lines_and_our_sentence(shell):
    said = shown(shell, COMPARE)
    assert "streamscope/" not in said
    for line in (f"----> 1 {COMPARE}", "      8     return layer(x + 1, w)"[6:], "----> 5     return ss.ops.relu(x @ w)  # does not fit"):
        assert line in said
    assert said.index(COMPARE) < said.index("layer(x + 1, w)") < said.index("# does not fit") < said.index("matmul: inner extents")
    assert said.count("ProgramError") == 2  # above and below the lines
    assert said.rstrip().endswith("(%tb shows what Streamscope did)")


def test_all_of_it_afterwards(shell):
    short = shown(shell, COMPARE)
    full = shown(shell, "%tb")
    assert len(full.splitlines()) > 2 * len(short.splitlines())
    assert "comparing/compare.py" in full
    assert "%tb" not in full
    assert len(shown(shell, "%tb Plain").splitlines()) < len(full.splitlines())
    assert shown(shell, COMPARE).splitlines()[3:] == short.splitlines()[3:]


def test_the_error_keeps_its_frames(shell):
    error = shell.run_cell(COMPARE).error_in_exec
    modules = []
    trace = error.__traceback__
    while trace is not None:
        modules.append(trace.tb_frame.f_globals["__name__"])
        trace = trace.tb_next
    assert "streamscope.comparing.compare" in modules


def test_in_the_magic_the_line_of_the_cell(shell):
    said = shown(shell, "%%streamscope --device simulated\ny = x + 1\ny @ w")
    assert "----> 3 y @ w" in said
    assert f"Cell In[{shell.execution_count - 1}], line 3" in said
    assert f"at In[{shell.execution_count - 1}]:3" in said
    assert "run_cell_magic" not in said
    assert "magics.py" not in said
    assert "magics.py" in shown(shell, "%tb")


def test_a_cell_that_is_no_program_shows_the_sentence_alone(shell):
    said = shown(shell, "%%streamscope --device simulated\ny = x + 1")
    assert "ProgramError: the cell does not end with an expression" in said
    assert len(said.splitlines()) <= 6


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("ss.ops.relu(x", "SyntaxError: '(' was never closed"),
        ("y = = x", "SyntaxError: invalid syntax"),
        ("from numpy import *", "SyntaxError: import * only allowed at module level"),
    ],
)
def test_a_cell_that_is_not_python_shows_what_an_ordinary_cell_shows(shell, wrong, said):
    in_magic = shown(shell, f"%%streamscope --device simulated\n{wrong}\nx")
    number = shell.execution_count - 1
    assert f"Cell In[{number}], line 2" in in_magic
    assert wrong in in_magic
    assert in_magic.rstrip().endswith(said)
    assert len(in_magic.splitlines()) <= 5
    if "*" not in wrong:
        assert in_magic.replace(f"In[{number}]", f"In[{number + 1}]") == shown(shell, f"pass\n{wrong}\nx")


def test_the_users_error_that_led_to_ours_is_shown_with_its_line(shell):
    said = shown(
        shell,
        "def wrong(v):\n    return v / nothing\n"
        "op = ss.operator(lambda x, y: None, reads=['x'], writes=['y'], reference=wrong)\n"
        "ss.compare(lambda x: op(x), x, device='simulated', progress=False)",
    )
    assert "----> 2     return v / nothing" in said
    assert "NameError: name 'nothing' is not defined" in said
    assert "the NumPy reference of" in said
    assert "streamscope/" not in said


@pytest.mark.parametrize("kernel", [False, True])
@pytest.mark.parametrize("wrong", [0, 1, 2])
def test_in_the_magic_the_listing_and_the_sentence_agree(shell, monkeypatch, kernel, wrong):
    if kernel:  # whose cells are files that do not exist, which IPython lists in another way
        monkeypatch.setattr(shell, "compile", XCachingCompiler())
    lines = ["", f"y{wrong} = x @ x", "y2 = x @ x"]
    lines[wrong] = f"y{wrong} = x @ x[:3]"
    said = shown(shell, "\n".join(["%%streamscope --device simulated", *lines, "ss.ops.relu(y2)"]))
    assert f"----> {wrong + 2} {lines[wrong]}" in said
    assert f":{wrong + 2}\n" in said


@pytest.mark.parametrize(
    ("cell", "line", "error"),
    [
        ("ss.compare(lambda x: 1 / 0, x, device='simulated', progress=False)", "ss.compare(", "ZeroDivisionError: division by zero"),
        ("%%streamscope --device simulated\ny = x + 1\ny + nothing", "----> 3 y + nothing", "NameError: name 'nothing'"),
        ("%%streamscope --device simulated\nss.ops.softmaxx(x)", "----> 2 ss.ops.softmaxx(x)", "no attribute 'softmaxx'"),
        (
            "def step(x):\n    signal.raise_signal(signal.SIGINT)\n    return x\nss.compare(step, x, device='simulated', progress=False)",
            "----> 2     signal.raise_signal(signal.SIGINT)",
            "KeyboardInterrupt",
        ),
    ],
)
def test_what_is_raised_in_a_verb_shows_the_users_lines(shell, cell, line, error):
    shell.run_cell("import signal")
    said = shown(shell, cell)
    assert line in said
    assert error in said
    assert "streamscope/" not in said
    assert said.rstrip().endswith("(%tb shows what Streamscope did)")
    assert "comparing/compare.py" in shown(shell, "%tb")


def test_an_interrupt_below_us_shows_the_line_that_called_us(shell):
    interrupts = "unittest.mock.Mock(side_effect=KeyboardInterrupt)"  # which raises it in a line of Python's own
    said = shown(shell, f"import unittest.mock\nss.compare(lambda x: x + 1, x, device='simulated', progress={interrupts})")
    assert "----> 2 ss.compare(" in said
    assert "mock.py" not in said
    assert "streamscope/" not in said


def test_an_error_that_was_caught_is_the_users_to_do_with_as_ever(shell):
    cell = (
        "try:\n    ss.compare(lambda x: 1 / 0, x, device='simulated', progress=False)\nexcept ZeroDivisionError as error:\n    kept = error"
    )
    shell.run_cell(cell).raise_error()
    kept = shell.user_ns.pop("kept")
    assert type(kept) is ZeroDivisionError
    assert kept.args == ("division by zero",)
    assert pickle.loads(pickle.dumps(kept)).args == kept.args


def test_an_error_that_has_nothing_to_do_with_us_is_shown_as_ever(shell):
    said = shown(shell, "np.linalg.inv(np.zeros((2, 3)))")
    assert "linalg.py" in said
    assert "Streamscope" not in said
