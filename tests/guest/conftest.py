"""The package `tests/guest/package`, installed for a test: its entry points are found as those of any package."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest
from tests.project.test_doors import DOORS

FOLDER = Path(__file__).parent


@pytest.fixture
def guest(tmp_path, monkeypatch):
    """Install the package: its folder and that of its metadata are on the path. The doors look for guests once more."""
    metadata = tmp_path / "site" / "steplog-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: steplog\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_bytes((FOLDER / "entry_points.txt").read_bytes())
    monkeypatch.syspath_prepend(metadata.parent)
    monkeypatch.syspath_prepend(FOLDER / "package")
    importlib.invalidate_caches()
    for door in DOORS.values():
        monkeypatch.setattr(door, "_guests", None)
    before = set(sys.modules)
    yield FOLDER / "package" / "steplog"
    for name in set(sys.modules) - before:
        if name.partition(".")[0] == "steplog":
            del sys.modules[name]
