"""Files that were damaged at random give an error of ours or what was saved, quickly, in little memory, and whatever loads is shown.

``STREAMSCOPE_MUTATIONS=5000`` tries that many of each kind.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
from tests.mutating import MOST_BYTES

import streamscope as ss
from streamscope.comparing.comparison import Comparison

pytestmark = pytest.mark.slow

COUNT = int(os.environ.get("STREAMSCOPE_MUTATIONS", "64"))
KINDS = {"parquet": COUNT, "comparison": COUNT, "columns": COUNT // 2, "values": COUNT // 4}
"""The first two damage bytes, or what they say, so that nothing else than what was saved may load. The last two damage what is written, and
their files have the digests that fit: values that may be, at the limits too, load."""


@ss.program
def small(x):
    return ss.ops.relu(x @ x) + x


@pytest.fixture(scope="module")
def tried(tmp_path_factory, repository):
    """Save a comparison, damage it again and again, and return what came of it."""
    folder = tmp_path_factory.mktemp("saved")
    x = np.ones((8, 8), np.float32)
    found = ss.compare(small, x, device="simulated", progress=False)
    Comparison(found.program, found.device, [found["sync"], found["graph"]], settings={"size": 8}).save(folder)
    command = [sys.executable, "-m", "tests.mutating", str(folder), json.dumps(KINDS), "0"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=repository, env=environment)
    cases = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(cases) == sum(KINDS.values()), f"what came after {cases[-1:]} ended with {done.returncode}: {done.stderr[-2000:]}"
    return cases


@pytest.mark.timeout(300 + 2 * COUNT)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_damaged_is_told_or_as_it_was(tried, kind):
    cases = [case for case in tried if case["kind"] == kind]
    counts, peak_bytes = Counter(" and ".join(case["outcomes"]) for case in cases), max(case["peak_bytes"] for case in cases)
    print(f"{kind}: {dict(counts.most_common())}, at most {peak_bytes / 2**20:.0f} MiB")  # noqa: T201
    allowed = {"refused", "equal"} if kind in ("parquet", "comparison") else {"refused", "equal", "other"}
    assert [case for case in cases if not allowed.issuperset(case["outcomes"])] == []
    assert peak_bytes < MOST_BYTES
    assert any("refused" in case["outcomes"] for case in cases)
