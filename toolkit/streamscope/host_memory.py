"""How much memory this process can still take."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

_CONTROLLERS = (
    ("", "sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"),
    ("memory", "sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)
"""Files of both versions of control groups: their name in ``/proc/self/cgroup``, their folder, in it the files of the limit and of
what is taken, and in ``memory.stat`` what of that are files that nobody has used lately."""


def free_bytes(root: Path = Path("/")) -> int:
    """Return how much memory this process can still take, by the system and by its control groups; 0 where nothing tells."""
    available = _numbers(root / "proc/meminfo").get("MemAvailable:")
    free = [] if available is None else [available * 1024]
    for name, folder, *files, unused_files in _CONTROLLERS:
        for group in _groups(root, name, folder):
            limit, taken = (_number(_text(group / file)) for file in files)
            if limit is not None and taken is not None:
                # Pages of such files are counted as taken, but make room when memory gets short.
                unused = _numbers(group / "memory.stat").get(unused_files, 0)
                free.append(max(0, limit - max(0, taken - unused)))
    return min(free, default=0)


def _groups(root: Path, controller: str, folder: str) -> Iterator[Path]:
    """Yield the folders of this process's group and of all that it is in.

    In a container, the folder itself may be that of its group, while ``/proc/self/cgroup`` has its path on the host, which is not there.
    """
    top = root / folder
    entries = [line.split(":", 2) for line in _text(root / "proc/self/cgroup").splitlines()]
    paths = [entry[2] for entry in entries if len(entry) == 3 and controller in entry[1].split(",")]
    for path in paths or [""]:
        group = top / path.lstrip("/")
        yield from (each for each in (group, *group.parents) if each.is_relative_to(top))


def _numbers(path: Path) -> dict[str, int]:
    """Return the numbers of a file of lines that begin with a name and a number."""
    words = [line.split() for line in _text(path).splitlines()]
    found = {name: _number(number) for name, number, *_ in (line for line in words if len(line) > 1)}
    return {name: number for name, number in found.items() if number is not None}


def _number(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:  # "max", for example
        return None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError):  # a name that no file can have is a ValueError
        return ""
