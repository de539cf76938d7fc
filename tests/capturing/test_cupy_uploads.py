"""NumPy arrays that a captured function hands to CuPy: which are constants, and in which thread."""

from __future__ import annotations

import sys
import threading
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from streamscope.capturing import cupy_captures


@pytest.fixture
def core(monkeypatch):
    """Return CuPy's module whose function makes arrays of others, as far as this goes."""
    cupy, core = ModuleType("cupy"), ModuleType("cupy._core")
    cupy._core, core.array = core, lambda given, dtype=None, **keywords: ("plain", given)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setitem(sys.modules, "cupy._core", core)
    cupy_captures._uploads_stand_in.cache_clear()
    cupy_captures._uploads_stand_in()
    yield core
    cupy_captures._uploads_stand_in.cache_clear()


@pytest.fixture
def captured(monkeypatch):
    """Let this thread capture; what becomes a constant is listed."""
    constants = []

    def copy_of(made):
        constants.append(made()[1])
        return "copy"

    monkeypatch.setitem(cupy_captures._UPLOADING, threading.get_ident(), SimpleNamespace(copy_of=copy_of))
    return constants


class OnDevice:
    @property
    def __cuda_array_interface__(self):
        raise AssertionError("it is not looked into")


@pytest.mark.parametrize("given", [np.ones(3), [1, 2.5], [[1, 2], [3, 4]], (np.float32(1), np.int64(2)), [np.ones(2), np.zeros(2)]])
def test_arrays_and_lists_of_numbers_are_constants(core, captured, given):
    assert core.array(given, np.float32, order="C") == "copy"
    assert captured == [given]


@pytest.mark.parametrize("given", [3.0, np.float64(3), np.array(3.0), OnDevice(), [OnDevice(), OnDevice()], [[1.0, OnDevice()]]])
def test_numbers_and_what_lies_on_the_device_are_captured(core, captured, given):
    assert core.array(given) == ("plain", given)
    assert captured == []


def test_other_threads_are_left_alone(core, captured):
    found = []
    thread = threading.Thread(target=lambda: found.append(core.array([1, 2])))
    thread.start()
    thread.join()
    assert found == [("plain", [1, 2])]
    assert captured == []


def test_without_a_capture_nothing_is_a_constant(core):
    assert core.array([1, 2]) == ("plain", [1, 2])
