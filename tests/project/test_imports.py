"""`import streamscope` is quick: what is heavy is imported where it is used."""

from __future__ import annotations

import json
import subprocess
import sys

HEAVY = {
    "IPython",
    "anywidget",
    "cuda",
    "cudnn",
    "cupti",
    "cupy",
    "ipywidgets",
    "msgspec",
    "pandas",
    "perfetto",
    "plotly",
    "pyarrow",
    "rich",
    "scipy",
    "typer",
}


def test_import_brings_nothing_heavy(repository):
    code = "import json, sys; import streamscope; print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    environment = {"PYTHONPATH": str(repository / "toolkit")}
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True, timeout=60)
    loaded = set(json.loads(result.stdout))
    assert "streamscope" in loaded
    assert loaded & HEAVY == set()


def test_engines_and_captures_need_nothing_that_only_reads_files(repository):
    """A machine that runs programs on its GPU may have none of what reads and shows traces."""
    missing = ("anywidget", "ipywidgets", "msgspec", "perfetto", "plotly")
    code = f"import sys; sys.modules.update(dict.fromkeys({missing!r})); from streamscope import Engine, capture, parallelise"
    environment = {"PYTHONPATH": str(repository / "toolkit")}
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert result.returncode == 0, result.stderr
