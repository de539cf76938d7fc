"""Whatever the program over several GPUs, each engine's results are NumPy's, whatever is late; and no wait may be left out."""

from __future__ import annotations

import pytest
from tests.combinations import THOROUGH
from tests.engines.hostile_schedules import adversary, all_late, expected_of, right, without_wait
from tests.engines.random_host_programs import random_host_program

from streamscope.auditing.audit import audit
from streamscope.auditing.waits import redundant_waits
from streamscope.engine_entry import ENGINES

pytestmark = pytest.mark.slow

PROGRAMS = 400 if THOROUGH else 40
"""Programs of each number of GPUs, each under one engine after the other."""
TORN = 40 if THOROUGH else 5
"""Of these, how many lose each of their waits in turn."""


def planned(seed: int, gpus: int, engine: str):
    made = random_host_program(seed, gpus, 3 + seed % 9)
    return made, ENGINES[engine].plan(made.program, lambda launch: 1e5, 2 + seed % 2)


@pytest.mark.parametrize("gpus", [1, 2, 3, 4])
def test_random_programs_give_numpys_results_under_every_engine(gpus):
    for seed in range(PROGRAMS):
        for engine in ENGINES if seed % 4 == 0 else [[*ENGINES][seed % len(ENGINES)]]:
            made, plan = planned(seed, gpus, engine)
            assert right(plan, made, expected_of(made), adversary(seed)), f"program {seed} on {gpus} GPUs under {engine}"


@pytest.mark.parametrize("engine", ["async", "dual", "graph", "graph-dual"])
@pytest.mark.parametrize("gpus", [2, 3, 4])
def test_each_wait_is_needed(gpus, engine):
    for seed in range(100, 100 + TORN):
        made, plan = planned(seed, gpus, engine)
        expected = expected_of(made)
        assert audit(plan, touches=False).ok
        assert redundant_waits(plan) == []
        for index in range(seed % 3, plan.waits, 1 if THOROUGH else 3):
            shown = without_wait(plan, index, made, expected)
            assert shown == "wrong", f"wait {index} of {engine} of program {seed} on {gpus} GPUs is {shown}"


def test_a_wait_that_a_collective_implies_is_needless():
    made, plan = planned(27, 4, "async")
    # To wait for all that the collective's other parts come after is to wait twice.
    torn = [index for index in range(plan.waits) if without_wait(plan, index, made, expected_of(made)) == "needless"]
    assert torn == []
    assert all(right(plan, made, expected_of(made), delays) for delays in all_late(plan))
