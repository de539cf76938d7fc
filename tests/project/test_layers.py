"""Who may import whom: the contracts in pyproject.toml hold, and each of them would notice."""

from __future__ import annotations

import ast
import runpy
import shutil
import subprocess
import sys

import pytest

pytest.importorskip("importlinter")

# Contract -> an import that breaks it: where it stands, and what it says.
VIOLATIONS = {
    "an import goes down only": ("toolkit/streamscope/analysis/intruder.py", "import streamscope.devices"),
    "engines and analysis know no CUDA": ("toolkit/streamscope/measuring/intruder.py", "import streamscope.kernels.source"),
    "a device is opened by its entry": ("toolkit/streamscope/devices/__init__.py", "import streamscope.devices.cuda"),
    "the library needs no widgets": ("toolkit/streamscope/engines/intruder.py", "import streamscope_widgets"),
}


LARGEST_CIRCLE = 7
"""Modules that import each other, at most, imports for types included."""
MOST_OF_COMPARE = 168
"""Modules that one has to know to follow `ss.compare` from call to picture, as far as imports lead; recorders and devices are opened by
their entries."""
BY_NAME = {"__init__.py", "public_names.py", "doors.py", "results/views.py", "results/widgets.py"}
"""Modules that may import by a name in a string: the tables of public names and of doors are theirs."""


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


def hidden_imports(path):
    """Yield the lines that reach a module by a name in a string, but for other packages, which have no layer."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Call(func=ast.Name("__import__" | "import_module" | "resolve_name"), args=[name, *_]):
                pass
            case ast.Call(func=ast.Attribute(attr="import_module" | "resolve_name"), args=[name, *_]):
                pass
            case ast.Subscript(value=ast.Attribute(attr="modules"), slice=ast.Constant(str()) as name):
                pass
            case ast.Call(func=ast.Attribute(value=ast.Attribute(attr="modules"), attr="get"), args=[ast.Constant(str()) as name, *_]):
                pass
            case _:
                continue
        if not (isinstance(name, ast.Constant) and str(name.value).partition(".")[0] not in ("streamscope", "streamscope_widgets")):
            yield node.lineno


def test_no_module_is_imported_by_a_name_in_a_string_which_no_contract_sees(repository):
    toolkit = repository / "toolkit" / "streamscope"
    paths = {path.relative_to(toolkit).as_posix(): path for path in toolkit.rglob("*.py")}
    found = {name for name, path in paths.items() if list(hidden_imports(path))}
    assert found <= BY_NAME
    assert {"public_names.py", "results/views.py"} <= found  # It would see one.


def test_modules_that_import_each_other_are_few_and_a_comparison_leads_into_few(repository):
    structure = runpy.run_path(str(repository / "scripts" / "structure.py"))
    running, typed = structure["imports_of"](structure["modules_of"](repository))
    assert structure["largest_circle"](typed) <= LARGEST_CIRCLE
    assert len(structure["led_into"](running, "streamscope.comparing.compare")) <= MOST_OF_COMPARE
