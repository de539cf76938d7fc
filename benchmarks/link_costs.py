"""Costs of collectives and of copies between GPUs on a real host: ``python benchmarks/link_costs.py [FILE [GPUS [STEP...]]]``."""

import sys
from pathlib import Path

from streamscope.calibrating.link_costs import link_readings
from streamscope.calibrating.link_steps import STEPS

if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent / "results" / "link_costs.json")
    gpus = int(sys.argv[2]) if len(sys.argv) > 2 else 2
    found = link_readings(gpus, target, steps=sys.argv[3:] or tuple(STEPS), progress=lambda what: print(what, flush=True))
    print(found["seconds"], found["errors"], found.get("left out", ""))
