"""How long the explorer takes from a knob's event in Python until the new timelines are sent, on the simulated device.

``python benchmarks/explorer.py`` moves each knob of the first workload over its values, and keeps medians and the largest time in ms under
``benchmarks/results``: for each knob, and for the largest program that the knobs can make. Each time is worked out anew.
Beside it stands the processor time of the same moves, which says more where others use the machine.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "toolkit"), str(ROOT / "widgets"), str(ROOT / "benchmarks")]

from provenance import provenance  # noqa: E402

import streamscope as ss  # noqa: E402
from streamscope_widgets.exploring.explorer import Explorer  # noqa: E402
from streamscope_widgets.timeline import TimelineWidget  # noqa: E402

ROUNDS = 5


class Knobs:
    """The explorer's knobs by name, and the time of the payload that was sent last."""

    def __init__(self) -> None:
        self.sent_s = 0.0
        TimelineWidget.send = lambda widget, content, buffers=None: self._sent()
        self.explorer = ss.explore(device="simulated")
        assert isinstance(self.explorer, Explorer)
        names = {"branches": "branches", "length": "length", "size": "size"}
        # A knob stands alone, or in a box with what is told of it.
        offered = [getattr(each, "children", (each,))[0] for each in self.explorer.controls.knobs.children]
        found = {name: next(each for each in offered if each.description.startswith(label)) for label, name in names.items()}
        self.controls: dict[str, Any] = {**found, "streams": self.explorer.controls.streams}

    def _sent(self) -> None:
        self.sent_s = time.perf_counter()

    def move_ms(self, name: str, value: int) -> tuple[float, float]:
        """Move a knob away and back to a value; return how long the latter took, and the processor's part of it."""
        control = self.controls[name]
        values = [each[1] if isinstance(each, tuple) else each for each in control.options]
        control.value = next(other for other in values if other != value)
        start_s, used_s = time.perf_counter(), time.process_time()
        control.value = value
        return (self.sent_s - start_s) * 1e3, (time.process_time() - used_s) * 1e3


def summary(times: list[tuple[float, float]]) -> dict[str, float]:
    """Return medians, and the longest time that a reader waited."""
    waited, used = zip(*times, strict=True)
    return {
        "median_ms": round(statistics.median(waited), 1), "largest_ms": round(max(waited), 1),
        "processor_median_ms": round(statistics.median(used), 1),
    }  # fmt: skip


def main() -> None:
    knobs, found = Knobs(), {}
    for name, control in knobs.controls.items():
        before = control.value
        values = [each[1] if isinstance(each, tuple) else each for each in control.options]
        times = [knobs.move_ms(name, value) for _ in range(ROUNDS) for value in values]
        found[name] = summary(times)
        control.value = before
    knobs.controls["branches"].value, knobs.controls["length"].value = 8, 16
    times = [knobs.move_ms("size", value) for _ in range(ROUNDS) for value in (1 << 12, 1 << 16, 1 << 20)]
    found["8 branches of 16"] = summary(times)
    path = ROOT / "benchmarks" / "results" / "explorer.json"
    path.write_text(json.dumps({"knobs": found} | provenance(ss.open_device("simulated")), indent=1) + "\n", encoding="utf-8")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
