"""Cost models that were measured on this machine."""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields, replace

import pytest

from streamscope.devices.cost_model import CostModel
from streamscope.devices.link_model import LinkModel
from streamscope.devices.measured_models import file_name, links_of, model_of, models_folder, save_model
from streamscope.errors import DeviceError, OutputError

H200 = CostModel.load("h200")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def test_a_kept_model_is_found_by_the_name_of_its_gpu():
    model = replace(H200, launch_ns=1234.0, provenance=replace(H200.provenance, device="NVIDIA RTX 5090 (laptop)"))
    assert save_model(model) == models_folder() / "nvidia-rtx-5090-laptop.json"
    assert model_of("NVIDIA RTX 5090 (laptop)") == model


def test_links_are_found_by_the_number_and_name_of_their_gpus():
    built_in = LinkModel.load("h100")
    model = replace(built_in, hop_ns=1234.0, provenance=replace(built_in.provenance, device="4 x NVIDIA B200"))
    assert save_model(model) == models_folder() / "4-x-nvidia-b200.json"
    assert links_of(4, "NVIDIA B200") == model
    assert links_of(2, "NVIDIA B200") == built_in


def test_files_of_a_version_have_the_same_numbers():
    """Else files that were kept before cannot be read, and each simulation fails: count the version up with the numbers."""
    names = {kind.__name__: sorted(item.name for item in fields(kind)) for kind in (CostModel, LinkModel)}
    told = hashlib.sha256(json.dumps(names).encode()).hexdigest()[:12]
    assert (models_folder().name, told) == ("4", "60ac4085cf60")


def test_without_one_it_is_the_h200s():
    assert model_of("NVIDIA B200") == H200


@pytest.mark.usefixtures("homeless")
def test_without_a_home_folder_there_is_none():
    assert model_of("NVIDIA H200") == H200
    with pytest.raises(OutputError, match="no home folder"):
        save_model(H200)


def test_a_broken_one_is_an_error_not_a_guess():
    save_model(H200)
    (models_folder() / file_name("NVIDIA H200")).write_text("{")
    with pytest.raises(DeviceError):
        model_of("NVIDIA H200")


def test_it_can_be_written_elsewhere_or_not_at_all(tmp_path):
    path = tmp_path / "mine.json"
    assert CostModel.load(save_model(H200, path)) == H200
    with pytest.raises(OutputError):
        save_model(H200, tmp_path / "missing" / "mine.json")
