"""Jobs on a simulated host: data-parallel steps with a planted straggler, to predict from one and to run with a change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import streamscope as ss
from streamscope.comparing.preview import linked
from streamscope.devices.simulated import SimulatedDevice
from streamscope.engines.plan import Issue, Plan, Replay
from streamscope.engines.prepared import planned
from streamscope.measuring.simulation import logged_without_data
from streamscope.ranks.job import Job
from streamscope.ranks.rank import Rank
from streamscope.recording.communication import communication_of
from streamscope.recording.origins import origins_of_program, with_waits
from streamscope.trace import Trace


@dataclass(frozen=True)
class Step:
    """A step: in each layer a product, an activation, and a gradient that all GPUs reduce while they go on.

    ``late`` is the GPU that does ``extra`` more activations in each of ``late_layers``. Gradients have ``columns`` of each layer.
    """

    gpus: int = 2
    rows: int = 2048
    width: int = 1024
    columns: tuple[int, ...] = (1024, 512, 2048, 1024)
    late: int = 1
    extra: int = 0
    late_layers: tuple[int, ...] = ()
    engine: str = "dual"
    link_speed: float = 1.0
    activations: int = 1
    bucket: str | None = None

    @property
    def repaired(self) -> Step:
        """The step without its straggler."""
        return replace(self, extra=0)

    def run(self, planned_as: Step | None = None) -> Job:
        """Simulate it, without computing anything, and return the job of its GPUs; perhaps with the plan of a step that has more to do."""
        plan = (planned_as or self).plan()
        plan = plan if self.extra else _without_extras(plan)
        spans, info = logged_without_data(plan, self.device, self.streams)
        collectives, peers = communication_of(plan.program, spans)
        origins = with_waits(origins_of_program(plan.program, self.device.estimate_ns), plan)
        return job_of(Trace(spans, info, origins, collectives=collectives, peers=peers))

    @property
    def device(self) -> SimulatedDevice:
        """A new host with its GPUs and links."""
        return SimulatedDevice(gpus=self.gpus, links=linked(self.link_speed))

    @property
    def streams(self) -> int | None:
        """Compute streams that its engine may use: "dual" with one lets nothing but communication run beside kernels."""
        return 1 if self.engine == "dual" else None

    def plan(self) -> Plan:
        """Return the plan of its engine."""

        @ss.program
        def step(*values):
            x, w, *targets = ([*values[at : at + self.gpus]] for at in range(0, len(values), self.gpus))
            reduced = []
            for layer, target in enumerate(targets):
                gradients = []
                for gpu in range(self.gpus):
                    with ss.gpu(gpu):
                        x[gpu] = x[gpu] @ w[gpu]
                        more = self.extra if gpu == self.late and layer in self.late_layers else 0
                        for _ in range(self.activations):
                            x[gpu] = ss.ops.relu(x[gpu])
                        for _ in range(more):
                            x[gpu] = ss.ops.tanh(x[gpu])
                        gradients.append(x[gpu].T @ target[gpu])
                reduced += ss.ops.all_reduce(gradients, op="mean", bucket=self.bucket)
            return tuple(ss.ops.exp(one) for one in reduced)

        def each(*shapes):
            return [np.empty(shape, np.float32) for shape in shapes for _ in range(self.gpus)]

        gradients = [(self.rows, columns) for columns in self.columns]
        program = step.trace(*each((self.rows, self.width), (self.width, self.width), *gradients))
        return planned(program, self.engine, self.device, self.streams)


def _without_extras(plan: Plan) -> Plan:
    """Leave out the work that makes a GPU late; all else keeps its lane, its place there and its waits."""

    def left(steps: Sequence[Any]) -> tuple[Any, ...]:
        steps = [replace(step, steps=left(step.steps)) if isinstance(step, Replay) else step for step in steps]
        return tuple(step for step in steps if not (isinstance(step, Issue) and step.launch.name == "tanh"))

    return replace(plan, steps=left(plan.steps))


def job_of(trace: Trace, gpus: Sequence[int] | None = None) -> Job:
    """Return the job whose ranks are the GPUs of a trace: they share its clock."""
    return Job.of([Rank(number, "", trace.of_gpu(number), recording="") for number in gpus or trace.gpus])
