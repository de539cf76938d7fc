"""How many compilations run at the same time."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

BYTES_A_WORKER = 512 << 20
"""Memory that NVRTC may take for one group of kernels, generously."""

_CONTROL_GROUP = Path("/sys/fs/cgroup")


def worker_count() -> int:
    """Return how many workers the cores that this process may use, and the memory that is free, are enough for; at least 1."""
    return max(1, min(len(os.sched_getaffinity(0)), free_bytes() // BYTES_A_WORKER))


def free_bytes() -> int:
    """Return the host memory that is free: of the machine, and under the limit of the control group (a container's)."""
    return min(_free_of_machine(), _free_of_container())


def _free_of_machine() -> int:
    with suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _free_of_container() -> float:
    with suppress(OSError, ValueError):  # "max" is no number: there is no limit
        limit, used = (int((_CONTROL_GROUP / name).read_text(encoding="ascii")) for name in ("memory.max", "memory.current"))
        return max(0, limit - used)
    return float("inf")
