"""An engine that puts all work on one stream, copies too."""

from streamscope.engine_entry import EngineEntry
from streamscope.engines.plan import MAIN, CallHost, Issue, Plan, Synchronize


def plan(program, estimate, streams=None):
    """Issue launches in program order; the host waits for all of them before a function of its own."""
    steps = []
    for operation in program.operations:
        steps += [Issue(launch, 0) for launch in operation.launches]
        if not operation.launches:
            steps += [Synchronize(0), *(CallHost(call) for call in operation.works)]
    return Plan("one-stream", program, (MAIN,), tuple(steps), 0)


ENGINE = EngineEntry(
    name="one-stream",
    line="one stream for kernels and copies",
    plan=plan,
    traits=frozenset({"one stream for all work"}),
)
