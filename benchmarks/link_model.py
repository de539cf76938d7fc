"""The built-in link model, made of the results of `link_costs`. `streamscope calibrate --gpus 2 --out FILE` does both at once."""

import json
from pathlib import Path

from streamscope import devices
from streamscope.calibrating.link_fit import fitted_links
from streamscope.devices.measured_models import save_model

if __name__ == "__main__":
    found = json.loads((Path(__file__).parent / "results" / "link_costs.json").read_text(encoding="utf-8"))
    path = save_model(fitted_links(found), Path(devices.__file__).parent / "data" / "links_h100.json")
    print(f"wrote {path}")
