"""Two ranks, one process a GPU: a step with collectives is captured, ordered and replayed together, to the same bits."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "collective_orders.py"


def told_by_two_ranks(*options):
    """Return the JSON lines that two ranks print."""
    torch = pytest.importorskip("torch")
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU, and collectives need two")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(SCRIPT)]
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=150, check=False)
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert found, done.stderr[-2000:]
    return found


@pytest.mark.gpu
@pytest.mark.parametrize("case", ["tp-256", "dp-1024x16"])
def test_a_step_with_collectives_equals_its_capture_in_each_bit(case):
    found = told_by_two_ranks("--cases", case, "--replays", "50")
    assert all(one.get("bit_equal") for one in found), found


@pytest.mark.gpu
def test_another_order_on_one_rank_is_refused_on_all_before_it_is_launched():
    told = {one["rank"]: one["planted"] for one in told_by_two_ranks("--cases", "dp-1024x16", "--planted")}
    assert sorted(told) == [0, 1]
    for one in told.values():
        assert one["collectives"].startswith("DeadlockError: rank 1 has another order of the collectives of ")
        assert one["edges"] == "DeadlockError: rank 1 has another order of captured code than rank 0"
        assert "as fast" in one["nothing"]
