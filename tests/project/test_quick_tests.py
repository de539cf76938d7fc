"""What `make quick` runs: every file of the toolkit has tests, and every test file that is named is there."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

OF_NO_TEST = {"py.typed"}
"""Files that the tests of the package's build look at, as it is in a wheel."""


@pytest.fixture
def quick_tests(repository, monkeypatch):
    monkeypatch.chdir(repository)
    spec = importlib.util.spec_from_file_location("quick_tests", repository / "scripts" / "quick_tests.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_file_of_the_toolkit_has_tests(quick_tests):
    root = Path("toolkit/streamscope")
    files = {path for path in root.rglob("*") if path.is_file() and path.name not in OF_NO_TEST and "__pycache__" not in path.parts}
    assert len(files) > 100
    without = [str(path) for path in sorted(files) if not list(quick_tests.tests_of(str(path)))]
    assert without == []


def test_every_test_that_is_named_is_there(quick_tests):
    named = {*quick_tests.CORE, *quick_tests.OTHER_SOURCES.values(), *(each for tests in quick_tests.OF_MODULES.values() for each in tests)}
    assert [path for path in sorted(named) if not Path(path).exists()] == []
    modules = {path.stem for path in Path("toolkit/streamscope").glob("*.py")}
    assert set(quick_tests.OF_MODULES) <= modules


@pytest.mark.parametrize(
    ("source", "test"),
    [
        ("engines/pushed/lanes.py", "tests/engines/pushed/test_lanes.py"),
        ("kernels/cuda/reduce_rows.cuh", "tests/kernels/test_first_numbers.py"),
        ("forks.py", "tests/engines/pushed/test_forks.py"),
        ("words.py", "tests/test_words.py"),
    ],
)
def test_a_change_brings_its_tests(quick_tests, source, test):
    assert test in quick_tests.tests_of(f"toolkit/streamscope/{source}")
