"""The constraints pin, for every Python that we support, one version of all that pyproject.toml asks for."""

from __future__ import annotations

import re

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from tests.project.conftest import holds

FILES = {"cuda12": "constraints-cuda12.txt", "cuda13": "constraints.txt"}
PYTHONS = ("3.11.7", "3.12.1", "3.13.0", "3.14.0")


@pytest.fixture(params=FILES)
def extra(request):
    return request.param


def pins(repository, extra, python):
    """Return the versions that are pinned for one Python."""
    found: dict[str, Version] = {}
    for line in (repository / FILES[extra]).read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            continue
        requirement = Requirement(line)
        if holds(requirement, python):
            (specifier,) = requirement.specifier
            assert specifier.operator == "==", line
            assert canonicalize_name(requirement.name) not in found, f"{requirement.name} is pinned twice for Python {python}"
            found[canonicalize_name(requirement.name)] = Version(specifier.version)
    return found


@pytest.mark.parametrize("python", PYTHONS)
def test_pins_satisfy_pyproject(repository, requirements, extra, python):
    pinned = pins(repository, extra, python)
    asked = [*requirements("lab", "perfetto", extra, python=python).values(), *requirements("dev", "lock", python=python).values()]
    for requirement in asked:
        name = requirement.name
        assert name in pinned, f"{name} is not pinned: run `make lock`"
        assert requirement.specifier.contains(pinned[name]), f"{name}=={pinned[name]} does not satisfy {requirement}: run `make lock`"


@pytest.mark.parametrize(
    ("extra", "python", "oldest"), [("cuda13", "3.13.0", "13.0"), ("cuda13", "3.14.0", "13.2"), ("cuda12", "3.12.1", "12.8")]
)
def test_cupti_is_asked_for_where_there_are_wheels_of_it(requirements, extra, python, oldest):
    asked = requirements(extra, python=python)["cupti-python"].specifier
    assert min(Version(each.version) for each in asked) == Version(oldest)
    assert "cupti-python" not in requirements("cuda12", python="3.13.0")


def test_build_backend_is_pinned(repository, pyproject, requirements):
    backend = Requirement(*pyproject["build-system"]["requires"])
    assert requirements("build")[backend.name] == backend


def test_both_files_agree_where_cuda_does_not_matter(repository):
    def ordinary(extra):
        return {k: v for k, v in pins(repository, extra, "3.11.7").items() if not re.match("cuda|cupti|cupy|nvidia", k)}

    only_cuda13 = ordinary("cuda13").items() - ordinary("cuda12").items()
    only_cuda12 = ordinary("cuda12").items() - ordinary("cuda13").items()
    assert (only_cuda13, only_cuda12) == (set(), set())


@pytest.mark.parametrize("file", FILES.values())
def test_versions_only(repository, file):
    """No index, no file, no URL: where packages come from is the user's own setting."""
    for line in (repository / file).read_text(encoding="utf-8").splitlines():
        assert line.startswith("#") or re.fullmatch(r"[a-z0-9.-]+==[A-Za-z0-9.+!]+( ; .+)?", line), line
        assert "://" not in line


@pytest.mark.parametrize("extra", ["nvrtc", "cuda12", "cuda13"])
def test_the_oldest_bindings_look_for_the_nvrtc_that_comes_with_them(pyproject, extra):
    """Bindings of CUDA 12 load libnvrtc.so.12, those of CUDA 13 libnvrtc.so.13."""
    asked = [Requirement(line) for line in pyproject["project"]["optional-dependencies"][extra]]
    oldest = {
        requirement.name: min(Version(each.version) for each in requirement.specifier if each.operator == ">=") for requirement in asked
    }
    (nvrtc,) = [version for name, version in oldest.items() if name.startswith("nvidia-cuda-nvrtc")]
    assert oldest["cuda-bindings"].major == nvrtc.major
