"""The README's ten lines of code run as they stand."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest


def test_ten_lines(repository, tmp_path):
    for package in ("plotly", "anywidget"):
        pytest.importorskip(package)
    (code,) = re.findall(r"^```python\n(.*?)^```", (repository / "README.md").read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    assert len([line for line in code.splitlines() if line.strip()]) <= 12
    path = f"{repository / 'toolkit'}:{repository / 'widgets'}"
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=tmp_path, env={"PYTHONPATH": path}, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "graph" in result.stdout
    assert (tmp_path / "step.html").stat().st_size > 50_000
