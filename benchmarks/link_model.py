"""The built-in link model, made of the results of `link_costs` on 2 and on 4 GPUs.

`streamscope calibrate --gpus 2 --out FILE` measures and fits at once.
"""

import json
from pathlib import Path

from streamscope import devices
from streamscope.calibrating.link_fit import fitted_links
from streamscope.devices.measured_models import save_model

if __name__ == "__main__":
    results = Path(__file__).parent / "results"
    two, four = (json.loads((results / name).read_text(encoding="utf-8")) for name in ("link_costs.json", "link_costs_4.json"))
    # Of 4 GPUs, collectives alone count: copies beside kernels were not beside them all the time there.
    four["steps"]["neighbours"] = two["steps"]["neighbours"]
    model = fitted_links(two).with_tables_of(fitted_links(four))
    path = save_model(model, Path(devices.__file__).parent / "data" / "links_h100.json")
    print(f"wrote {path}")
