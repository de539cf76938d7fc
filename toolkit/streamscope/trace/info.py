"""Origin of a trace: device, engine, recorder, versions, and the cost of recording."""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from typing import Any, Literal

from streamscope.arguments import Kinds, check_kinds
from streamscope.errors import TraceError
from streamscope.trace.file_checks import (
    COUNT,
    COUNTS,
    JSON,
    SCHEMA_VERSION,
    TEXT,
    TEXTS,
    TIMES,
    VERSIONS,
    is_count,
    listed_texts,
    named_values,
    optional,
)


def library_versions() -> dict[str, str]:
    """Return the versions of Python, Streamscope and the libraries it uses that are installed here."""
    return dict(_library_versions())


@cache
def _library_versions() -> Mapping[str, str]:
    versions = {"python": platform.python_version(), "platform": sys.platform}
    for name in (
        "streamscope",
        "numpy",
        "cupy-cuda13x",
        "cupy-cuda12x",
        "cuda-bindings",
        "nvidia-cudnn-frontend",
        "nvidia-nccl-cu13",
        "nvidia-nccl-cu12",
        "cupti-python",
    ):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


@dataclass(frozen=True)
class DeviceInfo:
    """Name of a device, and whether its times are real.

    Attributes
    ----------
    kind : {"cuda", "hip", "simulated"}
        Times from a simulated device are never shown without this word.
    name : str
        For example ``"NVIDIA H200"``, or ``"simulated NVIDIA H200"``.
    details : mapping
        Multiprocessors, driver version, cost model and the like, as JSON values. Of a trace that another tool recorded, ``gpus`` lists
        the GPUs of its file; and where it is of one, ``gpu`` is its number.

    Raises
    ------
    TraceError
        A field is wrong.
    """

    kind: Literal["cuda", "hip", "simulated"]
    name: str
    details: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_kinds("DeviceInfo", _DEVICE_FIELDS, self.kind, self.name, self.details, error=TraceError)

    @property
    def simulated(self) -> bool:
        """Whether the times come from a model. Wherever such a time is shown, the word stands beside it."""
        return self.kind == "simulated"

    @property
    def gpu(self) -> int | None:
        """Number of the one GPU that the trace is of, in its file; None where that is unknown, or the trace is of several."""
        number = self.details.get("gpu")
        return number if isinstance(number, int) else None

    @property
    def gpus(self) -> tuple[int, ...]:
        """Numbers of all GPUs of that file; empty where they are unknown."""
        numbers = self.details.get("gpus")
        return tuple(number for number in numbers if isinstance(number, int)) if isinstance(numbers, list) else ()

    def of_one(self, gpu: int) -> DeviceInfo:
        """Return one of the GPUs of a host, which is called ``"2 × NVIDIA H100"``, or has the ``names`` of its GPUs in its details."""
        details = dict(self.details)
        names = details.pop("names", None)
        name = names.get(str(gpu)) if isinstance(names, Mapping) else None
        return replace(self, name=name or re.sub(r"\b\d+ × ", "", self.name, count=1), details={**details, "gpu": gpu})

    @property
    def exact(self) -> bool:
        """Whether the times have no error and repeat, so that measuring once is enough."""
        return self.simulated


@dataclass(frozen=True)
class TraceInfo:
    """Origin of a trace, and the basis of its numbers.

    Attributes
    ----------
    engine, program : str
        Name of the engine and of the program.
    device : DeviceInfo
    recorder : str
        ``"events"``, ``"stamps"``, ``"cupti"``, ``"device log"``, ``"prediction"``; the format where another tool recorded.
    calibration : mapping
        The recorder's corrections and how they were found (JSON values, times in ns).
    ledger : mapping
        Cost of recording, in ns: ``recorded_ns`` (makespan of the run shown), ``unrecorded_ns`` (median of runs without recording);
        where all recorders were measured, ``events_ns``, ``stamps_ns`` and ``cupti_ns`` (makespans recorded so). Where records were lost,
        ``lost_records`` (a count: at least so many). Where only the last seconds were kept, ``whole_from_ns``: from then on, all is there.
    notes : tuple of str
        Warnings for the reader ("3 kernels end outside their graph", and so on).
    versions : mapping
        Versions of Python, Streamscope and the libraries that took part.
    created : str
        ISO 8601, UTC.
    schema : int
        `SCHEMA_VERSION` of the program that wrote it.
    plan : mapping
        How the engine ordered the work: ``streams`` with kernels on them (those for copies come on top), ``events``, and ``waits`` for
        them by streams and by the host. In a graph, events and waits are edges. ``branches`` where lanes are those of a graph that CUDA
        places by itself. Empty where there was no plan of ours.
    memory : mapping
        Memory that the engine held for the program, in bytes, by purpose: ``variables_bytes``, ``workspaces_bytes`` and
        ``temporaries_bytes`` on the device, where known, their sum ``device_bytes``, and ``host_bytes`` (page-locked). Since nothing is
        given back as long as a program is prepared, each is also the most there was. Empty where it was not measured.
    stretched : bool
        Whether the recorder watched the calls of the host while they ran, and so stretched them. `Format.stretches` says it of a file.
    rank, local_rank, world_size : int, optional
        Which of the processes of one job recorded it: its number in the job, its number on its host, and how many there are. None where
        unknown, or where a process ran alone.
    host : str
        Name of that rank's host; empty where there are no ranks.
    zero_ns : int, optional
        When the trace's zero was, on the clock of its recorder, in ns. Recorders on one host share a clock. None where it is unknown.

    Raises
    ------
    TraceError
        A field is wrong.
    """

    engine: str
    program: str
    device: DeviceInfo
    recorder: str = "events"
    calibration: Mapping[str, Any] = field(default_factory=dict)
    ledger: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=library_versions)
    created: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    schema: int = SCHEMA_VERSION
    plan: Mapping[str, int] = field(default_factory=dict)
    memory: Mapping[str, int] = field(default_factory=dict)
    stretched: bool = False
    rank: int | None = None
    local_rank: int | None = None
    world_size: int | None = None
    host: str = ""
    zero_ns: int | None = None

    def __post_init__(self) -> None:
        check_kinds("TraceInfo", _FIELDS, *(getattr(self, name) for name in _FIELDS), error=TraceError)

    @property
    def job(self) -> dict[str, Any]:
        """Which rank of which job recorded it, as JSON values; empty where there are no ranks."""
        if self.rank is None:
            return {}
        return {"rank": self.rank, "local_rank": self.local_rank, "world_size": self.world_size, "host": self.host}

    @property
    def profiled(self) -> bool:
        """Whether all that is known of the run is how long it took while a profiler watched its host; a table does not tell."""
        return self.stretched and not self.device.simulated and "unrecorded_ns" not in self.ledger

    @classmethod
    def from_dict(cls, stored: Any) -> TraceInfo:
        """Read the values of `dataclasses.asdict`; fields of later versions are left out.

        Raises
        ------
        LookupError, TypeError, ValueError, TraceError
            It is something else.
        """
        values = {name: value for name, value in named_values(stored).items() if name in _FIELDS}
        return cls(**{**values, "device": DeviceInfo(**values["device"]), "notes": listed_texts(values["notes"])})


_DEVICE_FIELDS: Kinds = {
    "kind": (lambda value: isinstance(value, str) and value in ("cuda", "hip", "simulated"), "'cuda', 'hip' or 'simulated'"),
    "name": TEXT,
    "details": JSON,
}
_FIELDS: Kinds = {
    "engine": TEXT,
    "program": TEXT,
    "device": (lambda value: isinstance(value, DeviceInfo), "a DeviceInfo"),
    "recorder": TEXT,
    "calibration": JSON,
    "ledger": TIMES,
    "notes": TEXTS,
    "versions": VERSIONS,
    "created": TEXT,
    "schema": (lambda value: is_count(value) and 1 <= value <= SCHEMA_VERSION, f"a schema from 1 to {SCHEMA_VERSION}"),
    "plan": COUNTS,
    "memory": COUNTS,
    "stretched": (lambda value: isinstance(value, bool), "True or False"),
    "rank": optional(COUNT),
    "local_rank": optional(COUNT),
    "world_size": optional(COUNT),
    "host": TEXT,
    "zero_ns": optional((lambda value: type(value) is int and abs(value) < 2**63, "a whole number of ns")),
}
