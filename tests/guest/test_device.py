"""A device of another package: opened by its name, compared on and shown like ours."""

from __future__ import annotations

import numpy as np
import pytest

import streamscope as ss
from streamscope.cli.main import main
from streamscope.errors import DeviceError

NAME = "accelerator"


def test_it_is_opened_by_its_name_and_results_tell_of_it(guest, tmp_path):
    runs = ss.compare(lambda x: x + x, np.ones(64, np.float32), device=NAME, progress=False)
    assert runs.device.name == "simulated accelerator"
    for page in (runs._repr_html_(), runs.save(tmp_path / "runs.md").read_text(encoding="utf-8")):
        assert "simulated accelerator" in page


def test_the_terminal_runs_on_it(guest, capsys):
    assert main(["compare", "branches", "--engines", "async", "--device", NAME]) == 0
    assert "simulated accelerator" in capsys.readouterr().out


def test_the_explorer_offers_it(guest):
    pytest.importorskip("streamscope_widgets")
    assert ss.explore(device=NAME).controls.asked.device == NAME


def test_it_is_named_where_a_device_is_unknown(guest):
    with pytest.raises(DeviceError) as caught:
        ss.open_device("abacus")
    assert caught.value.hint == f"choose auto, cuda, simulated or {NAME}"
