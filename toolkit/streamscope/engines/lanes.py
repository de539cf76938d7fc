"""Which lane each launch goes on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from streamscope.engines.plan import AUXILIARY, COPY_IN, COPY_OUT, MAIN
from streamscope.program.launch import HostCall, Launch, LaunchKind
from streamscope.program.operation import Program

LANES = (MAIN, AUXILIARY, COPY_IN, COPY_OUT)
COPY_LANES = {LaunchKind.COPY_IN: LANES.index(COPY_IN), LaunchKind.COPY_OUT: LANES.index(COPY_OUT)}

Estimate = Callable[[Launch], float]
"""How long a launch is expected to run, in ns."""


def one_lane(launch: Launch) -> int:
    """Put everything on the main stream."""
    return 0


def copy_lanes(launch: Launch) -> int:
    """Put kernels on the main stream, and copies on a stream for each direction."""
    return COPY_LANES.get(launch.kind, 0)


@dataclass
class _Lane:
    ready_ns: float = 0.0


def two_lanes(program: Program, estimate: Estimate) -> Mapping[tuple[int, int], int]:
    """Spread the kernels of a program over the main and the auxiliary stream, by earliest start.

    List scheduling in program order: a launch goes where it can start first by its inputs and by what is on the stream already, given
    how long each launch is expected to run. Where both are as good, it stays where its last input was made (no event is needed), or
    else on the main stream. The launches of an operation's auxiliary scope go on the auxiliary stream always.

    Returns
    -------
    mapping of (operation, part) to lane
    """
    lanes = (_Lane(), _Lane())
    done_ns: dict[int, float] = {}
    made_on: dict[int, int] = {}
    chosen: dict[tuple[int, int], int] = {}
    for operation in program.operations:
        if isinstance(operation.work, HostCall):
            ready = max((done_ns.get(v, 0.0) for v in operation.reads), default=0.0)
            done_ns.update(dict.fromkeys(operation.writes, ready + operation.work.duration_ns))
            continue
        scope = any(launch.auxiliary for launch in operation.launches)
        for launch in operation.launches:
            ready = max((done_ns.get(v, 0.0) for v in (*launch.reads, *launch.writes)), default=0.0)
            end = ready + estimate(launch)
            if launch.kind in COPY_LANES:
                chosen[launch.operation, launch.part] = COPY_LANES[launch.kind]
            else:
                lane = int(launch.auxiliary) if scope else _best_lane(lanes, launch, ready, done_ns, made_on)
                end = max(ready, lanes[lane].ready_ns) + estimate(launch)
                lanes[lane].ready_ns = end
                chosen[launch.operation, launch.part] = lane
                made_on.update(dict.fromkeys(launch.writes, lane))
            done_ns.update(dict.fromkeys(launch.writes, end))
    return chosen


def _best_lane(lanes: tuple[_Lane, _Lane], launch: Launch, ready: float, done_ns: Mapping[int, float], made_on: Mapping[int, int]) -> int:
    latest = max(launch.reads, key=lambda variable: done_ns.get(variable, 0.0), default=None)
    home = 0 if latest is None else made_on.get(latest, 0)
    starts = [max(ready, lane.ready_ns) for lane in lanes]
    return home if starts[home] <= starts[1 - home] else 1 - home
