"""The wheel carries all that a user needs, who has no Node, and nothing that is only ours."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("hatchling")

PACKAGES = {"streamscope": "toolkit", "streamscope_widgets": "widgets"}
CARRIED = {".css", ".js", ".json", ".py", ".typed"}


@pytest.fixture(scope="module")
def wheel(repository, tmp_path_factory):
    """Build the wheel around the bundle that the installation has built already."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    environment = {**os.environ, "HATCH_BUILD_NO_HOOKS": "true"}
    result = subprocess.run(command, cwd=repository, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert result.returncode == 0, result.stdout + result.stderr
    (path,) = folder.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        yield archive


def metadata(wheel, name):
    (path,) = [path for path in wheel.namelist() if path.endswith(f".dist-info/{name}")]
    return wheel.read(path).decode()


def test_wheel_carries_every_file_of_both_packages(repository, wheel):
    wanted = {
        str(path.relative_to(repository / folder))
        for package, folder in PACKAGES.items()
        for path in (repository / folder / package).rglob("*")
        if path.suffix in CARRIED and "__pycache__" not in path.parts
    }
    assert wanted - set(wheel.namelist()) == set()


def test_wheel_carries_nothing_else(wheel):
    strangers = [name for name in wheel.namelist() if name.partition("/")[0] not in PACKAGES and ".dist-info/" not in name]
    assert strangers == []
    assert [name for name in wheel.namelist() if "node_modules" in name or Path(name).name.startswith("test_")] == []


def test_wheel_carries_the_bundle_the_cost_model_and_the_types(wheel):
    names = set(wheel.namelist())
    assert [name for name in names if name.startswith("streamscope_widgets/static/") and name.endswith(".js")], "run `make setup`"
    assert "streamscope/devices/h200.json" in names
    assert {"streamscope/py.typed", "streamscope_widgets/py.typed"} <= names


def test_wheel_names_its_command_and_its_licence(wheel):
    assert "streamscope = streamscope.cli:main" in metadata(wheel, "entry_points.txt")
    assert "Apache License" in metadata(wheel, "licenses/LICENSE")
    assert "License-Expression: Apache-2.0" in metadata(wheel, "METADATA")
