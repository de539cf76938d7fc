"""The built-in link model, made of the results of `link_costs`, and its errors: at the sizes between those of its table, and in graphs."""

import json
from pathlib import Path

from streamscope.calibrating.link_fit import fitted_links
from streamscope.devices import link_model
from streamscope.devices.measured_models import save_model

if __name__ == "__main__":
    found = json.loads((Path(__file__).parent / "results" / "link_costs.json").read_text(encoding="utf-8"))
    path = save_model(fitted_links(found), Path(link_model.__file__).parent / "data" / "links_h100.json")
    print(f"wrote {path}")
