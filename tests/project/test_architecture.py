"""ARCHITECTURE.md names every module, and nothing that is not there."""

from __future__ import annotations

import re

import pytest


@pytest.fixture(scope="module")
def architecture(repository):
    return (repository / "ARCHITECTURE.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def mentioned(architecture):
    """Return the last part of every path in backticks."""
    return {path.rpartition("/")[2] for path in re.findall(r"`([\w./-]+)`", architecture)}


def test_every_module_has_its_line(repository, mentioned):
    modules = [path for package in ("toolkit", "widgets/streamscope_widgets") for path in (repository / package).rglob("*.py")]
    names = {path.name for path in modules if path.name != "__init__.py"}
    assert names - mentioned == set()


def test_every_file_that_is_named_is_there(repository, mentioned):
    roots = ("toolkit", "widgets/streamscope_widgets", "tests", "scripts", "benchmarks")
    there = {path.name for root in roots for path in (repository / root).rglob("*")} | {path.name for path in repository.iterdir()}
    named = {name for name in mentioned if name.endswith((".py", ".json", ".txt", ".yml"))}
    assert named - there == set()


def test_every_package_is_described(repository, architecture):
    packages = {path.parent.name for path in (repository / "toolkit" / "streamscope").glob("*/__init__.py")}
    assert {package for package in packages if f"{package}/" not in architecture} == set()
