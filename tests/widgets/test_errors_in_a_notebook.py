"""What a notebook shows of an error of ours: the user's lines and our sentence. `%tb` shows all of it."""

from __future__ import annotations

import atexit

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from traitlets.config import Config

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
    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "nocolor"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IPYTHONDIR", str(tmp_path_factory.mktemp("ipython")))
        shell = InteractiveShell(config=config)
        patch.setattr(InteractiveShell, "_instance", shell)
        patch.setattr("IPython.get_ipython", lambda: shell)
        shell.run_cell(SETUP, store_history=True).raise_error()
        yield shell
        atexit.unregister(shell.atexit_operations)
        shell.atexit_operations()


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


def test_an_error_of_the_users_own_is_shown_as_ever(shell):
    said = shown(shell, "ss.compare(lambda x: 1 / 0, x, device='simulated', progress=False)")
    assert "ZeroDivisionError" in said
    assert "comparing/compare.py" in said
