"""Collectives and copies between GPUs among the spans of a program that was recorded."""

from __future__ import annotations

import re

import numpy as np

from streamscope.engines.plan import Issue, Step
from streamscope.program.collective import Collective
from streamscope.program.launch import LaunchKind
from streamscope.program.operation import Program
from streamscope.trace.collectives import Collectives, PeerCopies
from streamscope.trace.spans import DEVICE_KINDS, SpanTable


def communication_of(program: Program, spans: SpanTable) -> tuple[Collectives, PeerCopies]:
    """Return which spans of a program's run are parts of collectives, and which are copies between GPUs.

    The n-th time that each part of a collective ran belongs to its n-th run.
    """
    if program.gpus == 1:
        return Collectives(), PeerCopies()
    copies = {one.operation: (one.gpu, one.to_gpu) for one in program.launches() if one.kind is LaunchKind.COPY_PEER}
    joined = {operation.id: operation.collective for operation in program.operations if operation.collective is not None}
    number = {operation: place for place, operation in enumerate(joined)}
    on_device = spans.is_kind(DEVICE_KINDS)
    parts = np.flatnonzero(on_device & np.isin(spans.operation, list(joined)))
    found = [joined[operation] for operation in spans.operation[parts].tolist()]
    runs: dict[tuple[int, int], int] = {}
    instances = []
    for operation, part in zip(spans.operation[parts].tolist(), spans.part[parts].tolist(), strict=True):
        run = runs[operation, part] = runs.get((operation, part), -1) + 1
        instances.append(number[operation] + run * len(joined))
    collectives = Collectives.from_columns(
        parts,
        [one.kind for one in found],
        instance=np.array(instances, np.int64),
        op=[one.op for one in found],
        nbytes=np.array([one.nbytes for one in found], np.int64),
        ranks=np.array([len(one.gpus) for one in found], np.int64),
        communicator=[_communicator(one) for one in found],
    )
    rows = np.flatnonzero(on_device & np.isin(spans.operation, list(copies)))
    ways = np.array([copies[operation] for operation in spans.operation[rows].tolist()], np.int64).reshape(-1, 2)
    return collectives, PeerCopies(rows, ways[:, 0], ways[:, 1])


def _communicator(collective: Collective) -> str:
    """Return the name of what carries a collective out: ``"0, 1"``; ``"0, 1, priority 2"`` where that is not the ordinary one."""
    gpus, priority = collective.communicator
    return ", ".join([*map(str, gpus), *([f"priority {priority}"] if priority else [])])


def priority_of(communicator: str) -> int:
    """Return the priority of collectives by the name of their communicator; 0 where it has none."""
    found = re.search(r", priority (-?[0-9]{1,18})$", communicator)
    return int(found[1]) if found else 0


def call_of(step: Step, index: int) -> int:
    """Return the index of the host's call that puts a step on the device: of a collective, that of its last part."""
    if isinstance(step, Issue) and step.launch.collective is not None:
        return index + len(step.launch.collective.gpus) - 1 - step.launch.part
    return index
