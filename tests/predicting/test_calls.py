"""What a trace tells of its host, by hand."""

from dataclasses import replace

import pytest

from streamscope.devices.cost_model import CostModel
from streamscope.devices.prices import Piece
from streamscope.predicting.calls import _share_of_longer
from streamscope.predicting.tasks import Task
from streamscope.program.launch import Cost
from streamscope.trace.origins import Trait

H200 = CostModel.load()


def task(alone_ns, trait=Trait.CAPTURED):
    return Task((0, 0), "k", trait, (), pieces=(Piece(alone_ns, Cost(0, 0)),))


def test_the_share_of_long_kernels_counts_those_up_to_twice_as_long_in_part():
    shortest_ns = H200.working_kernel_ns
    tasks = [*(task(times * shortest_ns) for times in (0.5, 1, 1.5, 3)), task(9 * shortest_ns, Trait.LIBRARY)]
    assert _share_of_longer(tasks, H200) == pytest.approx(1.5 / 5)
    assert _share_of_longer([*tasks, replace(task(0.0), trait=Trait.HOST)], H200) == pytest.approx(1.5 / 5)
    assert _share_of_longer([], H200) == 0
