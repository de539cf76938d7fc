"""Cost models that ``streamscope calibrate`` made on this machine, kept for later runs."""

from __future__ import annotations

import json
import re
from pathlib import Path

from streamscope.devices.cost_model import CostModel
from streamscope.errors import OutputError
from streamscope.files import user_cache, writable_folder, written_whole

FLAT = re.compile(r"\[(?:[^][{}]|\[[^][{}\n]*\])*\]")
"""A list of numbers, or of such lists that stand on one line."""
_VERSION = "3"
"""Counts up when a cost model gets other numbers: files of earlier versions are left alone, and not read."""


def models_folder() -> Path:
    """Return where measured cost models are kept: ``streamscope/cost_models/3`` in the user's cache folder (XDG)."""
    return user_cache() / "streamscope" / "cost_models" / _VERSION


def file_name(device: str) -> str:
    """Return a file's name for a device: ``nvidia-h200.json``."""
    return re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-") + ".json"


def save_model(model: CostModel, path: Path | None = None) -> Path:
    """Write a cost model as JSON, by default where `model_of` finds it; return its path."""
    target = writable_folder(models_folder(), private=True) / file_name(model.provenance.device) if path is None else path
    with written_whole(target) as temporary:
        temporary.write_text(_model_text(model), encoding="utf-8")
    return target


def _model_text(model: CostModel) -> str:
    """Return a cost model as JSON, each curve on a line."""
    text = json.dumps(model.to_dict(), indent=1)
    for _ in range(2):  # The points of curves, then the curves.
        text = FLAT.sub(lambda found: " ".join(found[0].split()).replace("[ ", "[").replace(" ]", "]"), text)
    return text + "\n"


def model_of(device: str) -> CostModel:
    """Return the cost model that was measured on this machine for a GPU of this name, else the built-in one of the H200."""
    try:
        kept = models_folder() / file_name(device)
    except OutputError:  # Without a home folder, nothing can have been kept.
        return CostModel.load("h200")
    return CostModel.load(kept if kept.is_file() else "h200")
