"""Element-wise kernels in a graph whose operands come from memory, since a large kernel ran in between; beside the cost model's times.

    python benchmarks/cold_operands.py FILE

Where the model has the latency of memory, the two agree.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from provenance import provenance

import streamscope as ss
from streamscope.comparing.preview import Preview
from streamscope.engines.prepared import prepare_traced
from streamscope.recording.recorders import recorder_of
from streamscope.trace.spans import SpanKind

KIB = (1024, 2048, 4096, 8192, 16384)
EVICTING = 1 << 26


@ss.program
def step(large: Any, *values: Any) -> Any:
    """Read each value twice, from memory."""
    found = []
    for value in values:
        large = large + 1
        found.append(value * 0.5)
        large = large + 1
        found.append(ss.ops.relu(value))
    return large, *found


def main(file: Path) -> None:
    inputs = [np.zeros(EVICTING, np.float16), *(np.ones(kib * 512, np.float16) for kib in KIB)]
    traced, device = step.trace(*inputs), ss.open_device("cuda")
    prepared = prepare_traced(traced, "graph", device)
    prepared.load(inputs)
    for _ in range(3):
        prepared.run()
    prepared.wait()
    traces = recorder_of(device).record(prepared, partial(prepared.load, inputs)), Preview(traced).comparison(["graph"])["graph"].trace
    kernels = [trace.spans.of_kind([SpanKind.KERNEL]) for trace in traces]
    ns = [spans.duration_ns[np.argsort(spans.operation)][1::2].tolist() for spans in kernels]
    sizes = [kib for kib in KIB for _ in range(2)]
    rows = [{"kib": kib, "ns": measured, "model_ns": model} for kib, measured, model in zip(sizes, *ns, strict=True)]
    file.write_text(json.dumps({**provenance(device), "rows": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
