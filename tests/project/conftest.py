"""What pyproject.toml says, for the tests of the project itself."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

Groups = Callable[..., dict[str, Requirement]]


@pytest.fixture(scope="session")
def pyproject(repository: Path) -> dict[str, Any]:
    return tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def requirements(pyproject: dict[str, Any]) -> Groups:
    """Return a function: names of extras or groups -> the runtime's requirements and theirs, by package; the first to name one counts."""
    project, groups = pyproject["project"], pyproject["dependency-groups"]

    def lines(name: str) -> list[str]:
        if name in project["optional-dependencies"]:
            return project["optional-dependencies"][name]
        nested = [line for entry in groups[name] if isinstance(entry, dict) for line in lines(entry["include-group"])]
        return nested + [entry for entry in groups[name] if isinstance(entry, str)]

    def collect(*names: str) -> dict[str, Requirement]:
        found: dict[str, Requirement] = {}
        for line in [*project["dependencies"], *(line for name in names for line in lines(name))]:
            requirement = Requirement(line)
            found.setdefault(requirement.name, requirement)
        return found

    return collect
