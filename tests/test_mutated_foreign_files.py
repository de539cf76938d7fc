"""Files of other programs that were damaged at random give an error of ours or a trace, quickly, in little memory; what loads is shown.

``STREAMSCOPE_MUTATIONS=20000`` tries 10,000 in all.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter

import pytest
from tests.mutating import MOST_BYTES

pytestmark = pytest.mark.slow

COUNT = int(os.environ.get("STREAMSCOPE_MUTATIONS", "200")) // 12
KINDS = dict.fromkeys(("kineto", "own", "nsys", "rocpd", "xplane"), COUNT)


@pytest.mark.timeout(300 + 4 * COUNT)
def test_what_is_damaged_is_told_or_read(repository):
    command = [sys.executable, "-m", "tests.mutating_foreign", json.dumps(KINDS), "0"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=repository, env=environment)
    cases = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(cases) == sum(KINDS.values()), f"what came after {cases[-1:]} ended with {done.returncode}: {done.stderr[-2000:]}"
    counts = Counter((case["kind"], case["outcomes"][0]) for case in cases)
    peak_bytes = max(case["peak_bytes"] for case in cases)
    print(f"{dict(counts.most_common())}, at most {peak_bytes / 2**20:.0f} MiB")  # noqa: T201
    assert [case for case in cases if case["outcomes"][0] not in ("refused", "salvaged", "equal", "other")] == []
    assert peak_bytes < MOST_BYTES
    # What can be read of a damaged file is salvaged, where the format allows it: few of those are refused.
    told = {"kineto": "salvaged", "own": "salvaged", "nsys": "refused", "rocpd": "refused", "xplane": "refused"}
    assert all(counts[kind, outcome] for kind, outcome in told.items())
