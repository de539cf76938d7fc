"""Counts of a pushed engine's work."""

from __future__ import annotations

from dataclasses import dataclass


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
