"""Progress is shown where the user is, or handed to a function of the user's."""

from __future__ import annotations

import sys
import threading
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest

from streamscope.errors import ProgramError
from streamscope.progress import Steps, showing
from streamscope.results import screen


def test_a_function_of_the_users_is_given_itself():
    def progress(what, step, steps):
        pass

    with showing("title", progress=progress) as shown:
        assert shown is progress


@pytest.mark.parametrize("progress", [False, np.False_])
def test_none(capsys, progress):
    with showing("title", progress=progress) as shown:
        shown("what", 1, 2)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("progress", ["no", "", None, 0, 1, [], b"yes", np.ones(3)])
def test_what_is_neither_a_truth_value_nor_a_function(progress):
    with pytest.raises(ProgramError, match="is neither a truth value nor a function") as caught, showing("title", progress=progress):
        pytest.fail("it ran")
    assert caught.value.hint
    assert len(caught.value.message) < 100


def test_in_a_terminal_it_goes_to_standard_error(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: None))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with showing("title", progress=True) as shown:
        shown("half of it", 1, 2)
    out, err = capsys.readouterr()
    assert out == ""
    assert "half of it" in err


def test_where_there_is_no_terminal_nothing_is_drawn(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: None))
    with showing("title", progress=True) as shown:
        shown("half of it", 1, 2)
    assert capsys.readouterr() == ("", "")


def test_a_terminal_is_drawn_again_for_something_new_or_after_a_while(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: None))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    now_s = [0.0]
    monkeypatch.setattr(screen, "monotonic", lambda: now_s[0])
    threads = threading.active_count()
    with showing("title", progress=True) as shown:
        assert threading.active_count() == threads  # one that draws would run while times are measured
        for step in range(1000):
            shown("timing", step, 2000)
        now_s[0] = 1.0
        for step in range(1000):
            shown("timing", step, 2000)
        shown("recording", 2000, 2000)
    err = capsys.readouterr().err
    assert err.count("timing") == 2
    assert "recording" in err


@pytest.mark.parametrize("in_notebook", [False, True])
def test_a_bar_is_drawn_ten_times_a_second_at_most_but_for_new_phases(monkeypatch, in_notebook):
    draws, now_s = [], [0.0]

    @contextmanager
    def bar(*_):
        yield lambda *report: draws.append(report)

    monkeypatch.setattr(screen, "_in_notebook", lambda: in_notebook)
    monkeypatch.setattr(screen, "load", lambda place: bar)
    monkeypatch.setattr(screen, "_terminal_progress", bar)
    monkeypatch.setattr(screen, "monotonic", lambda: now_s[0])
    with showing("title", progress=True) as shown:
        steps = Steps(shown, 1001)
        steps.begin("one", 1000)
        for _ in range(1000):
            now_s[0] += 0.001
            steps.part("relu")
        steps.begin("two")
    assert draws[0] == ("one", 0, 1001)
    assert draws[-1] == ("two", 1001, 1001)
    assert 9 <= len(draws) - 2 <= 10
    assert draws[1][0].startswith("one: relu (")


def test_parts_beyond_those_of_the_phase_are_not_told():
    told = []
    steps = Steps(lambda *report: told.append(report), 3)
    steps.part("early")
    steps.begin("one", 1)
    steps.part("a")
    steps.part("b")
    for _ in range(3):
        steps.begin("again")
    assert told == [("one", 0, 3), ("one: a (1 of 1)", 1, 3), ("again", 2, 3), ("again", 3, 3), ("again", 3, 3)]


def test_an_error_goes_through():
    with pytest.raises(ZeroDivisionError), showing("title", progress=True):
        raise ZeroDivisionError


def test_in_a_notebook_it_leaves_nothing(monkeypatch):
    pytest.importorskip("IPython")
    shows = []

    def display(content, **_):
        shows.append(content)
        return SimpleNamespace(update=lambda content, **_: shows.append(content))

    monkeypatch.setattr("IPython.display.display", display)
    monkeypatch.setattr("IPython.get_ipython", lambda: SimpleNamespace(kernel=object()))
    with showing("title", progress=True) as shown:
        shown("<b>", 1, 4)
    assert 'value="1" max="4"' in shows[1]["text/html"]
    assert "&lt;b&gt;" in shows[1]["text/html"]
    assert shows[-1] == {"text/html": "", "text/plain": ""}
