"""The built-in link model, made of the results of `link_costs` on 2 and on 4 GPUs.

`streamscope calibrate --gpus 2 --out FILE` measures and fits at once.
"""

import json
from dataclasses import replace
from pathlib import Path

from streamscope import devices
from streamscope.calibrating.link_fit import fitted_links
from streamscope.devices.link_model import LinkModel
from streamscope.devices.measured_models import save_model


def with_tables_of(model: LinkModel, other: LinkModel) -> LinkModel:
    """Return the model with another one's tables of collectives, too: of another number of GPUs on such a host."""
    collectives, channels = ({**getattr(model, name), **getattr(other, name)} for name in ("collective_points", "channel_points"))
    how = {**model.provenance.how, "collective_points": f"{model.provenance.how['collective_points']}; and of {other.provenance.device}"}
    return replace(
        model,
        collective_points=collectives,
        channel_points=channels,
        call_points=tuple(sorted({*model.call_points, other.call_points[-1]})),
        provenance=replace(model.provenance, how=how),
    )


if __name__ == "__main__":
    results = Path(__file__).parent / "results"
    two, four = (json.loads((results / name).read_text(encoding="utf-8")) for name in ("link_costs.json", "link_costs_4.json"))
    # Of 4 GPUs, collectives alone count: copies beside kernels were not beside them all the time there.
    four["steps"]["neighbours"] = two["steps"]["neighbours"]
    model = with_tables_of(fitted_links(two), fitted_links(four))
    path = save_model(model, Path(devices.__file__).parent / "data" / "links_h100.json")
    print(f"wrote {path}")
