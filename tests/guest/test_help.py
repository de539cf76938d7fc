"""The help of commands lists what other packages add, and loads them when it is shown."""

from __future__ import annotations

import pytest

from streamscope.cli.main import main
from streamscope.device_entry import DEVICES


@pytest.mark.parametrize(
    ("command", "name"), [("compare", "accelerator"), ("compare", "one-stream"), ("compare", "shortest"), ("convert", ".steplog")]
)
def test_it_lists_guests(guest, capsys, monkeypatch, command, name):
    monkeypatch.setenv("COLUMNS", "300")
    assert main([command, "--help"]) == 0
    assert name in capsys.readouterr().out


def test_a_command_of_ours_loads_none(guest, capsys):
    assert main(["cache", "--help"]) == 0
    assert DEVICES._guests is None
