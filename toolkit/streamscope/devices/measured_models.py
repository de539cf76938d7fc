"""Cost and link models that ``streamscope calibrate`` made on this machine, kept for later runs."""

from __future__ import annotations

import json
import re
from pathlib import Path

from streamscope.devices.cost_model import CostModel
from streamscope.devices.link_model import LinkModel
from streamscope.errors import OutputError
from streamscope.files import user_cache, writable_folder, written_whole

FLAT = re.compile(r"\[(?:[^][{}]|\[[^][{}\n]*\])*\]")
"""A list of numbers, or of such lists that stand on one line."""
_VERSION = "4"
"""Counts up when a cost or link model gets other numbers: files of earlier versions are left alone, and not read."""


def models_folder() -> Path:
    """Return where measured cost models are kept: ``streamscope/cost_models/4`` in the user's cache folder (XDG)."""
    return user_cache() / "streamscope" / "cost_models" / _VERSION


def file_name(device: str) -> str:
    """Return a file's name for a device: ``nvidia-h200.json``."""
    return re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-") + ".json"


def save_model(model: CostModel | LinkModel, path: Path | None = None) -> Path:
    """Write a model as JSON, by default where `model_of` or `links_of` finds it; return its path."""
    name = file_name(model.provenance.device)
    target = writable_folder(models_folder(), private=True) / name if path is None else path
    with written_whole(target) as temporary:
        temporary.write_text(_model_text(model), encoding="utf-8")
    return target


def _model_text(model: CostModel | LinkModel) -> str:
    """Return a model as JSON, each curve on a line."""
    text = json.dumps(model.to_dict(), indent=1)
    for _ in range(2):  # The points of curves, then the curves.
        text = FLAT.sub(lambda found: " ".join(found[0].split()).replace("[ ", "[").replace(" ]", "]"), text)
    return text + "\n"


def model_of(device: str) -> CostModel:
    """Return the cost model that was measured on this machine for a GPU of this name, else the built-in one of its kind, or of the H200."""
    kept = _kept(device)
    return built_in_model(device) if kept is None else CostModel.load(kept)


def built_in_model(device: str) -> CostModel:
    """Return the built-in cost model of a GPU's kind, else that of the H200."""
    return CostModel.load("h100" if "H100" in device else "h200")


def links_of(gpus: int, device: str) -> LinkModel:
    """Return the link model that was measured on this machine for so many GPUs of this name, else the built-in one of the H100."""
    return LinkModel.load(_kept(host_name(gpus, device)) or "h100")


def host_name(gpus: int, device: str) -> str:
    """Return the name of a host in the provenance of a link model: ``"2 x NVIDIA H100"``."""
    return f"{gpus} x {device}"


def _kept(device: str) -> Path | None:
    """Return the file of a model that was measured here; without a home folder, none can have been kept."""
    try:
        kept = models_folder() / file_name(device)
    except OutputError:
        return None
    return kept if kept.is_file() else None
