"""The rank of this process in its job, as its launcher says it, and the file of a rank's trace."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from streamscope.arguments import shown
from streamscope.errors import OutputError, RecordingError, TraceError
from streamscope.files import writable_file
from streamscope.trace.format import read_as

PLACE = "{rank}"
_SUFFIX = ".parquet"
_LAUNCHERS: Sequence[tuple[str, Sequence[str], Sequence[str]]] = (
    ("RANK", ("LOCAL_RANK",), ("WORLD_SIZE",)),
    ("OMPI_COMM_WORLD_RANK", ("OMPI_COMM_WORLD_LOCAL_RANK",), ("OMPI_COMM_WORLD_SIZE",)),
    ("PMI_RANK", ("MPI_LOCALRANKID", "PMI_LOCAL_RANK"), ("PMI_SIZE",)),
    ("SLURM_PROCID", ("SLURM_LOCALID",), ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")),
)
"""Variables with the rank, the local rank and the number of ranks: of torchrun, Open MPI, MPICH and its kin, and srun.

The first that has a rank counts: torchrun may run inside of each of the others, and processes that mpirun started in a job of Slurm all
have rank 0 of Slurm.
"""
_HINT = "torchrun, srun and mpirun set it; else set RANK, LOCAL_RANK and WORLD_SIZE in each process"


@dataclass(frozen=True)
class Rank:
    """Which process of a job this is; the fields are those of `TraceInfo`, None and empty where it runs alone."""

    rank: int | None = None
    local_rank: int | None = None
    world_size: int | None = None
    host: str = ""

    @property
    def one_of_several(self) -> bool:
        """Whether the job has other ranks."""
        return bool(self.rank) or (self.world_size or 0) > 1


ALONE = Rank()


def rank_here(variables: Mapping[str, str] | None = None) -> Rank:
    """Return the rank of this process, by environment variables.

    Raises
    ------
    RecordingError
        There are several ranks, and which one this is cannot be told.
    """
    given = os.environ if variables is None else variables
    for rank_name, local_names, size_names in _LAUNCHERS:
        if (rank := _number(given, rank_name)) is not None:
            local_rank, size = (
                next((_number(given, name) for name in names if name in given), None) for names in (local_names, size_names)
            )
            if size is not None and rank >= size:
                raise RecordingError(f"{rank_name}={rank} is no rank among {size}", hint=_HINT)
            return Rank(rank, local_rank, size, platform.node())
    for rank_name, _, size_names in _LAUNCHERS:
        for name in size_names:
            if (size := _number(given, name)) is not None and size > 1:
                raise RecordingError(f"{name}={size}, and {rank_name} is not set: which of the ranks is this?", hint=_HINT)
    return ALONE


def _number(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name)
    if text is None or (text.isascii() and text.isdecimal() and len(text) < 10):
        return None if text is None else int(text)
    raise RecordingError(f"{name}={shown(text)} must be a whole number from 0 on", hint=_HINT)


def check_file_name(path: Path) -> None:
    """Refuse a name of another format."""
    if path.suffix.lower() != _SUFFIX:
        raise RecordingError(
            f"path={shown(str(path))} must end with {_SUFFIX}", hint="recording.trace.save(path) writes the other formats after the block"
        )


def file_of_rank(path: Path, rank: Rank) -> Path:
    """Return the file of one rank, which can be written; its folder is made.

    Raises
    ------
    RecordingError
        All ranks would write to one file.
    OutputError
        The file cannot be written, or is there and is no trace that this rank recorded.
    """
    if rank.one_of_several and PLACE not in str(path):
        raise RecordingError(
            f"path={shown(str(path))} is one file for all ranks",
            hint=f"put {PLACE} into it: path={shown(f'{path.stem}-{PLACE}{path.suffix}')}",
        )
    found = writable_file(Path(str(path).replace(PLACE, str(rank.rank or 0))).absolute())
    if found.exists():
        _check_replaceable(found, rank)
    return found


def _check_replaceable(path: Path, rank: Rank) -> None:
    hint = "choose another name, or move the file away"
    try:
        there = read_as("parquet", path).info
    except TraceError as error:
        raise OutputError(f"{path} exists and is no trace of Streamscope: it stays", hint=hint) from error
    if there.rank != rank.rank:
        whose = "a process without ranks" if there.rank is None else f"rank {there.rank}"
        raise OutputError(f"{path} exists and is the trace of {whose}: it stays", hint=hint)
