"""Collectives by the calls of PyTorch's operators; stand-ins for process groups."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from streamscope.capturing.communication import communication_of, is_distributed, kind_of
from streamscope.devices.graph_node import Communication


class ScriptObject:
    """An argument of TorchScript's: a group, or something else."""

    def __init__(self, name=None):
        self.name = name


class Group:
    """A process group."""

    def __init__(self, name, ranks):
        self.group_name, self.ranks = name, ranks

    @staticmethod
    def unbox(boxed):
        if boxed.name is None:
            raise RuntimeError("no process group")
        return SimpleNamespace(group_name=boxed.name)


@pytest.fixture(autouse=True)
def groups(monkeypatch):
    """Let there be two groups."""
    world = SimpleNamespace(pg_map={Group("0", (0, 1, 2, 3)): None, Group("left", (0, 1)): None})
    c10d = SimpleNamespace(_world=world, ProcessGroup=Group, get_process_group_ranks=lambda group: list(group.ranks))
    monkeypatch.setitem(sys.modules, "torch.distributed", SimpleNamespace(distributed_c10d=c10d))


@pytest.mark.parametrize(
    ("operator", "kind"),
    [
        ("c10d.allreduce_.default", "all_reduce"),
        ("c10d.allreduce_coalesced_.default", "all_reduce"),
        ("c10d._reduce_scatter_base_.default", "reduce_scatter"),
        ("c10d.alltoall_base_.default", "all_to_all"),
        ("c10d.recv_.default", "recv"),
        ("_c10d_functional.all_gather_into_tensor.default", "all_gather"),
        ("_c10d_functional.wait_tensor.default", ""),
        ("aten.gather.default", ""),
    ],
)
def test_kinds(operator, kind):
    assert kind_of(operator) == kind


def test_a_file_of_that_name_is_no_operator():
    assert is_distributed("c10d.allreduce_.default at train.py:7")
    assert not is_distributed("aten.add.Tensor at c10d.train.py:7")
    assert not is_distributed("")


def test_a_group_is_an_object_or_a_name():
    reduction = ScriptObject()
    found = communication_of("c10d.allreduce_.default", [[1.0], ScriptObject("left"), reduction, None], 64)
    assert found == Communication("all_reduce", "left", (0, 1), 64)
    assert str(found) == "all_reduce of 64 bytes over group 'left' of 2 ranks"
    assert communication_of("_c10d_functional.all_reduce.default", [1.0, "sum", "0"], 8) == Communication(
        "all_reduce", "0", (0, 1, 2, 3), 8
    )


def test_a_group_that_nobody_knows_has_no_name():
    assert communication_of("c10d.broadcast_.default", [ScriptObject("gone")], 8) == Communication("broadcast", "", (), 8)


def test_other_operators_are_none():
    assert communication_of("aten.add.Tensor", [1.0], 8) is None
