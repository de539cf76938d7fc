"""Counts of a pushed engine's work."""

from __future__ import annotations

from dataclasses import dataclass

from streamscope.engines.pushed.catalogue import Catalogue
from streamscope.engines.pushed.issuing import Issuer
from streamscope.engines.pushed.programs import PreparedPrograms
from streamscope.engines.pushed.pushing import Pusher
from streamscope.engines.pushed.scheduler import Scheduler


@dataclass(frozen=True)
class EngineStatistics:
    """Counts of one engine since it was made.

    Attributes
    ----------
    pushed : int
        Operations pushed, those among them that the engine pushes itself for `Engine.read` and `Engine.write`.
    stream_waits, host_waits : int
        Waits of streams for events of other streams, and of the host for events.
    events_created, events_recorded : int
        Events made; records of them. The first stops growing when as many are there as are held together.
    threads : int
        Worker threads.
    callbacks_pending : int
        Asynchronous host functions that have returned and not called back, see `Engine.push_async`.
    in_use_bytes, high_water_bytes : int
        Device memory of variables and temporaries, and the most that was in use at a time; the sum of all GPUs.
    cache_hits, cache_misses : int
        Device operations that were only launched, and those that were bound first.
    program_runs : int
        Calls of `Engine.run`.
    programs_prepared, programs_evicted, programs_kept : int
        Programs that were prepared, each for certain shapes and attributes; those that had to make room when memory got short, the ones
        not used for longest first; and those that are kept now. A run that finds its program kept replays it.
    """

    pushed: int
    stream_waits: int
    host_waits: int
    events_created: int
    events_recorded: int
    threads: int
    callbacks_pending: int
    in_use_bytes: int
    high_water_bytes: int
    cache_hits: int
    cache_misses: int
    program_runs: int
    programs_prepared: int
    programs_evicted: int
    programs_kept: int


def gathered(issuer: Issuer, scheduler: Scheduler, pusher: Pusher, catalogue: Catalogue, programs: PreparedPrograms) -> EngineStatistics:
    """Return the counts of one engine now."""
    with issuer.lock:
        memory = issuer.memory.statistics()
        return EngineStatistics(
            pushed=pusher.again + pusher.pushed,
            stream_waits=sum(lane.waits for lane in issuer.lanes.values()),
            host_waits=scheduler.host_waits,
            events_created=sum(lane.events for lane in issuer.lanes.values()),
            events_recorded=sum(lane.position for lane in issuer.lanes.values()),
            threads=sum(len(pool.threads) for pool in scheduler.pools),
            callbacks_pending=max(0, scheduler.callbacks),
            in_use_bytes=memory.in_use_bytes,
            high_water_bytes=memory.high_water_bytes,
            cache_hits=pusher.again + pusher.found,
            cache_misses=catalogue.misses,
            program_runs=programs.runs,
            programs_prepared=programs.prepared,
            programs_evicted=programs.kept.evicted,
            programs_kept=len(programs.kept),
        )
