"""Who may import whom: the contracts in pyproject.toml hold, and each of them would notice."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

pytest.importorskip("importlinter")

# Contract -> an import that breaks it: where it stands, and what it says.
VIOLATIONS = {
    "an import goes down only": ("toolkit/streamscope/analysis/intruder.py", "import streamscope.devices"),
    "the library needs no widgets": ("toolkit/streamscope/engines/intruder.py", "import streamscope_widgets"),
}


def lint_imports(root):
    command = "import sys; sys.path[:0] = ['toolkit', 'widgets']; from importlinter.cli import lint_imports_command; lint_imports_command()"
    return subprocess.run(
        [sys.executable, "-I", "-c", command, "--no-cache"], cwd=root, capture_output=True, text=True, check=False, timeout=120
    )


@pytest.fixture
def copy(repository, tmp_path):
    shutil.copy(repository / "pyproject.toml", tmp_path)
    for package in ("toolkit/streamscope", "widgets/streamscope_widgets"):
        shutil.copytree(repository / package, tmp_path / package, ignore=shutil.ignore_patterns("static", "__pycache__"))
    return tmp_path


def test_layers_are_kept(repository):
    result = lint_imports(repository)
    assert result.returncode == 0, result.stdout + result.stderr


def test_every_contract_has_its_violation(pyproject):
    assert {contract["name"] for contract in pyproject["tool"]["importlinter"]["contracts"]} == set(VIOLATIONS)


@pytest.mark.parametrize("contract", VIOLATIONS)
def test_contract_notices(copy, contract):
    place, line = VIOLATIONS[contract]
    with (copy / place).open("a", encoding="utf-8") as file:
        file.write(f"\n{line}\n")
    result = lint_imports(copy)
    assert result.returncode == 1, result.stdout + result.stderr
    assert f"{contract} BROKEN" in result.stdout
