"""Jobs on a simulated host: data-parallel steps with a planted straggler, to predict from one and to run with a change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

import streamscope as ss
from streamscope.comparing.preview import Preview
from streamscope.ranks.job import Job
from streamscope.ranks.rank import Rank
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

    @property
    def repaired(self) -> Step:
        """The step without its straggler."""
        return replace(self, extra=0)

    def run(self) -> Job:
        """Simulate it, without computing anything, and return the job of its GPUs."""

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
                reduced += ss.ops.all_reduce(gradients, op="mean")
            return tuple(ss.ops.exp(one) for one in reduced)

        def each(*shapes):
            return [np.empty(shape, np.float32) for shape in shapes for _ in range(self.gpus)]

        gradients = [(self.rows, columns) for columns in self.columns]
        program = step.trace(*each((self.rows, self.width), (self.width, self.width), *gradients))
        runs = Preview(program).comparison([self.engine], streams=1 if self.engine == "dual" else None, link_speed=self.link_speed)
        return job_of(runs[self.engine].trace)


def job_of(trace: Trace, gpus: Sequence[int] | None = None) -> Job:
    """Return the job whose ranks are the GPUs of a trace."""
    return Job.of([Rank(number, "", trace.of_gpu(number)) for number in gpus or trace.gpus])
