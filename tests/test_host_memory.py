"""How much memory is free: by the system, by control groups of both versions, and where files are odd."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamscope.host_memory import free_bytes

SYSTEM = {"proc/meminfo": "MemTotal: 8000000 kB\nMemAvailable:    4000000 kB\n"}
V2, V1 = "sys/fs/cgroup", "sys/fs/cgroup/memory"


def second(limit, taken, unused=0, below=""):
    """Return the files of a group of version 2."""
    stat = f"anon 5\ninactive_file {unused}\nactive_file 7\n"
    return {f"{V2}{below}/memory.max": f"{limit}\n", f"{V2}{below}/memory.current": f"{taken}\n", f"{V2}{below}/memory.stat": stat}


def first(limit, taken, unused=0, below=""):
    """Return the files of a group of version 1."""
    stat = f"cache 5\ninactive_file 1\ntotal_inactive_file {unused}\n"
    names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.stat")
    return {f"{V1}{below}/{name}": f"{text}\n" for name, text in zip(names, (limit, taken, stat), strict=True)}


def own(*lines):
    return {"proc/self/cgroup": "".join(f"{line}\n" for line in lines)}


def laid_out(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


CASES = {
    "the system": (SYSTEM, 4_096_000_000),
    "nothing": ({}, 0),
    "no limit": (SYSTEM | second("max", 5), 4_096_000_000),
    "a limit": (SYSTEM | second(3000, 1000), 2000),
    "above the limit": (SYSTEM | second(1000, 3000), 0),
    "a limit above what there is": (SYSTEM | second(2**62, 1000), 4_096_000_000),
    "files that were read": (SYSTEM | second(3000, 2900, 2500), 2600),
    "more files than is taken": (SYSTEM | second(3000, 100, 200), 3000),
    "its own group": (SYSTEM | own("0::/a/b") | second(3000, 1000, 500, "/a/b"), 2500),
    "a group around it": (SYSTEM | own("0::/a/b") | second("max", 9, 0, "/a/b") | second(3000, 1000, 0, "/a"), 2000),
    "the smallest of them": (SYSTEM | own("0::/a/b") | second(3000, 0, 0, "/a/b") | second(5000, 4000, 0, "/a") | second(9000, 5000), 1000),
    "another group": (SYSTEM | own("0::/a") | second(3000, 1000, 0, "/b"), 4_096_000_000),
    "the host's path": (SYSTEM | own("0::/docker/1234") | second(3000, 1000), 2000),
    "a path out of the container": (SYSTEM | own("0::/../../a") | second(3000, 1000), 2000),
    "version 1": (SYSTEM | own("4:memory:/a:b", "0::/") | first(3000, 2900, 2500, "/a:b"), 2600),
    "version 1, the host's path": (SYSTEM | own("4:memory:/docker/1234", "1:cpu:/") | first(3000, 1000), 2000),
    "version 1, without /proc": (SYSTEM | first(3000, 1000), 2000),
    "version 1, no limit": (SYSTEM | own("4:cpu,memory:/a") | first(9223372036854771712, 1000, 0, "/a"), 4_096_000_000),
    "both versions": (SYSTEM | own("4:memory:/", "0::/") | first(3000, 1000) | second("max", 1000), 2000),
    "a group but no system": (second(3000, 1000), 2000),
    "no statistics": (SYSTEM | {**second(3000, 1000), f"{V2}/memory.stat": ""}, 2000),
    "odd lines": (SYSTEM | own("", ":", "memory", "x::y::z", "0::/a\0b", f"0::/{'a' * 5000}") | second(3000, 1000), 2000),
}


@pytest.mark.parametrize(("files", "expected"), CASES.values(), ids=CASES)
def test_free_memory(tmp_path, files, expected):
    assert free_bytes(laid_out(tmp_path, files)) == expected


@given(st.data())
def test_no_file_is_too_odd(tmp_path_factory, data):
    names = sorted(SYSTEM | own("") | second(0, 0) | first(0, 0))
    odd = st.binary(max_size=20) | st.sampled_from(
        [b"MemAvailable:", b"MemAvailable: kB 7", b"-5", b"9" * 5000, "²".encode(), b"inactive_file x"]
    )
    root = tmp_path_factory.mktemp("root")
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data.draw(odd))
    assert free_bytes(root) >= 0


def test_what_cannot_be_read(tmp_path):
    for name in SYSTEM | own("") | second(0, 0) | first(0, 0):
        (tmp_path / name).mkdir(parents=True)
    assert free_bytes(tmp_path) == 0


@pytest.mark.skipif(not Path("/proc/meminfo").exists(), reason="it is Linux that tells there")
def test_on_this_machine():
    assert free_bytes() > 0
