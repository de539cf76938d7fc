"""How long single launches take: each repeated in a chain in which nothing waits for the host."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from streamscope.devices.protocol import Call, Device, Stream
from streamscope.engines.binding import capturing, settled
from streamscope.program.launch import Launch
from streamscope.program.operation import Program
from streamscope.recording.calibration import median_reading_ns

_SHORT, LONG = 4, 16
"""Launches in the two chains whose difference is the time of one."""
_REPEATS = 5
_ALONE_NS = 300_000
"""A launch that takes longer is not repeated: the 3 µs that events add do not show beside it."""
_NOISE = np.random.default_rng(0).standard_normal(1 << 16).astype(np.float32)


class LaunchTimer:
    """Times launches on one stream of a device, by default one of its own."""

    def __init__(self, device: Device, stream: Stream | None = None) -> None:
        self.device = device
        self.stream = stream if stream is not None else device.stream("timed")
        self._pair = device.event(timing=True), device.event(timing=True)
        self._repeats = 1 if device.info.exact else _REPEATS

    def bound(self, program: Program, launch: Launch) -> Call:
        """Prepare a launch of a program on memory of its own, which is full of random numbers: zeros would run faster."""
        buffers = {}
        for variable in dict.fromkeys((*launch.reads, *launch.writes)):
            spec, place = program.variables[variable].spec, program.variables[variable].place
            buffers[variable] = self.device.allocate(spec, place)
            if variable in launch.reads:
                self.device.write(buffers[variable], np.resize(_NOISE, spec.shape).astype(spec.dtype))
        return self.device.bind(launch, [buffers[one] for one in launch.reads], [buffers[one] for one in launch.writes], self.stream)

    def gated_ns(self, body: Callable[[], object]) -> float:
        """Return the median reading of a pair of events around the work behind a gate, in ns."""
        return median_reading_ns(self.device, self.stream, self._pair, body, self._repeats)

    def step_ns(self, call: Call) -> float:
        """Return by how much a graph takes longer for each launch more in it: the launch, and the gap before it."""
        with settled([self.stream]):
            call()  # Ungated first: a library that loads a kernel at its first launch waits for the device.
            self.stream.synchronize()
        alone_ns = self.gated_ns(call)
        if alone_ns > _ALONE_NS:
            return alone_ns
        short_ns, long_ns = (self.gated_ns(self._replay(call, length)) for length in (_SHORT, LONG))
        return (long_ns - short_ns) / (LONG - _SHORT)

    def _replay(self, call: Call, length: int) -> Callable[[], object]:
        with capturing(self.device, self.stream) as graphs:
            for _ in range(length):
                call()
        self.stream.synchronize()
        return lambda: graphs[0].launch(self.stream)
