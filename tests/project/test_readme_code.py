"""The README's code runs as it stands."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest


def run(code, repository, folder):
    path = f"{repository / 'toolkit'}:{repository / 'widgets'}"
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=folder, env={"PYTHONPATH": path}, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture
def blocks(repository):
    for package in ("plotly", "anywidget"):
        pytest.importorskip(package)
    readme = (repository / "README.md").read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```", readme, flags=re.MULTILINE | re.DOTALL)


def test_ten_lines(blocks, repository, tmp_path):
    code = blocks[0]
    assert len([line for line in code.splitlines() if line.strip()]) <= 12
    assert "graph" in run(code, repository, tmp_path)
    assert (tmp_path / "step.html").stat().st_size > 50_000


def test_pushes(blocks, repository, tmp_path):
    imports = "import numpy as np\nimport streamscope as ss\n"
    # x becomes 1 + 2, and z its product with y.
    assert run(imports + blocks[1], repository, tmp_path).strip() == "[6. 6. 6.]"
