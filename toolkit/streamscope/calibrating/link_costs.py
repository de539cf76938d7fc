"""Measure what copies between GPUs and collectives cost, for ``streamscope calibrate --gpus``: a process for each step, with a limit."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from streamscope.calibrating.link_steps import STEPS
from streamscope.files import written_whole

LIMIT_S = 115.0
"""For all steps together."""
_STEP_S = 30.0
"""For each step: NCCL can wait for ever."""

Readings = dict[str, Any]


def link_readings(
    gpus: int,
    file: Path | None = None,
    *,
    limit_s: float = LIMIT_S,
    steps: Sequence[str] = tuple(STEPS),
    progress: Callable[[str], None] = lambda what: None,
) -> Readings:
    """Run the steps of `link_steps`; a step that fails or takes too long leaves an error beside its readings.

    Parameters
    ----------
    gpus : int
        The first so many GPUs take part.
    file : path, optional
        Written after each step, so that what was measured is kept if the rest is cut off.
    limit_s : float
        Seconds for all steps together. Steps for which none are left are named under ``"left out"``.
    steps : sequence of str
        Names of `link_steps.STEPS`.
    progress : callable
        Called with the name of each step.
    """
    found: Readings = {"gpus": gpus, "date": datetime.now(UTC).isoformat(timespec="seconds"), "steps": {}, "seconds": {}, "errors": {}}
    end_s = time.monotonic() + limit_s
    for step in steps:
        left_s = min(_STEP_S, end_s - time.monotonic())
        if left_s < 1:
            found.setdefault("left out", []).append(step)
            continue
        progress(step)
        start_s = time.monotonic()
        command = [sys.executable, "-m", "streamscope.calibrating.link_steps", step, str(gpus)]
        found["steps"][step], error = run_step(command, left_s)
        found["seconds"][step] = round(time.monotonic() - start_s, 1)
        if error:
            found["errors"][step] = error
        if file is not None:
            with written_whole(file) as temporary:
                temporary.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return found


def run_step(command: Sequence[str], limit_s: float) -> tuple[list[Any], str]:
    """Run a process that appends lines of JSON to the file that its last argument names; return them, and the error or nothing."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "readings.jsonl"
        try:
            done = subprocess.run(  # noqa: S603 — our own words
                [*command, str(target)], capture_output=True, text=True, timeout=limit_s, check=False
            )
            error = "" if done.returncode == 0 else f"exit code {done.returncode}: {done.stderr[-2000:]}"
        except subprocess.TimeoutExpired:
            error = f"not done after {limit_s:.0f} s"
        lines = target.read_text(encoding="utf-8").splitlines(keepends=True) if target.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")], error
