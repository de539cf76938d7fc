"""What pyproject.toml says, for the tests of the project itself."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

Groups = Callable[..., dict[str, Requirement]]


def holds(requirement: Requirement, python: str) -> bool:
    """Tell whether a requirement counts on x86-64 Linux under a Python, for example 3.13.0."""
    here = {
        "implementation_name": "cpython",
        "platform_machine": "x86_64",
        "platform_python_implementation": "CPython",
        "python_full_version": python,
        "python_version": python.rpartition(".")[0],
        "sys_platform": "linux",
    }
    return requirement.marker is None or requirement.marker.evaluate(here)


@pytest.fixture(scope="session")
def pyproject(repository: Path) -> dict[str, Any]:
    return tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def requirements(pyproject: dict[str, Any]) -> Groups:
    """Return a function: names of extras or groups -> the runtime's requirements and theirs for a Python, by package; the first counts."""
    project, groups = pyproject["project"], pyproject["dependency-groups"]

    def lines(name: str) -> list[str]:
        if name in project["optional-dependencies"]:
            return project["optional-dependencies"][name]
        nested = [line for entry in groups[name] if isinstance(entry, dict) for line in lines(entry["include-group"])]
        return nested + [entry for entry in groups[name] if isinstance(entry, str)]

    def collect(*names: str, python: str = "3.11.7") -> dict[str, Requirement]:
        found: dict[str, Requirement] = {}
        for line in [*project["dependencies"], *(line for name in names for line in lines(name))]:
            requirement = Requirement(line)
            if holds(requirement, python):
                found.setdefault(requirement.name, requirement)
        return found

    return collect
