"""How long the reference kernel takes on this host, by CUPTI, and how far apart the kernels of a chain begin; on a stream and in a graph.

    python benchmarks/reference_kernel.py [RESULT.json]

A result that is there keeps its rows, and this host's is added.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from provenance import provenance

import streamscope as ss
from streamscope.devices.gates import reference_call
from streamscope.devices.protocol import Device
from streamscope.devices.reference import CHAINS
from streamscope.engines.binding import capturing
from streamscope.files import written_whole
from streamscope.recording.calibration import median_reading_ns
from streamscope.recording.cupti import kernel_durations_ns

NODES, WARM, REPEATS = 40, 5, 9


def measured(device: Device) -> dict[str, float]:
    """Return durations and distances, in ns; medians."""
    stream = device.stream("reference")
    call, pair = reference_call(device, stream), (device.event(timing=True), device.event(timing=True))

    def chain(length: int) -> None:
        for _ in range(length):
            call()

    def replay(length: int) -> Callable[[], None]:
        with capturing(device, stream) as graphs:
            chain(length)
        return lambda: graphs[0].launch(stream)

    def apart_ns(bodies: list[Callable[[], Any]]) -> float:
        short, long = (median_reading_ns(device, stream, pair, body, REPEATS) for body in bodies)
        return (long - short) / (CHAINS[1] - CHAINS[0])

    chain(1)
    device.synchronize()
    queued: list[Callable[[], Any]] = [partial(chain, length) for length in CHAINS]
    in_graph: list[Callable[[], Any]] = [replay(length) for length in CHAINS]
    for bodies in (queued, in_graph):
        apart_ns(bodies)  # Clocks go up.
    found = {"queued_apart_ns": apart_ns(queued), "in_graph_apart_ns": apart_ns(in_graph)}
    nodes = replay(NODES)
    for name, body in (("queued_ns", lambda: chain(NODES)), ("in_graph_ns", nodes)):
        found[name] = float(np.median(kernel_durations_ns(body)[WARM:]))
    return {name: round(value, 1) for name, value in found.items()}


def main() -> None:
    """Measure, and add a row to the result."""
    target = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent / "results" / "reference_kernel.json")
    device = ss.open_device("cuda")
    row = {**provenance(device), **measured(device)}
    hosts = json.loads(target.read_text(encoding="utf-8"))["hosts"] if target.exists() else []
    content = {"what": "the reference kernel on some hosts: by CUPTI, and how far apart kernels of a chain begin", "hosts": [*hosts, row]}
    with written_whole(target) as path:
        path.write_text(json.dumps(content, indent=1) + "\n")
    print(row)


if __name__ == "__main__":
    main()
