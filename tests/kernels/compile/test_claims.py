"""Claims on keys: of one thread at a time, told to other processes, ended by the death of whoever holds them."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from streamscope.kernels.compile.kernel_cache import Claims, KernelCache

KEYS = [hashlib.sha256(str(number).encode()).hexdigest() for number in range(40)]
HOLDER = """
import sys
from pathlib import Path
from streamscope.kernels.compile.kernel_cache import Claims
claims = Claims(Path(sys.argv[1]))
print([claims.take(key) for key in sys.argv[2:]], flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    """Return a function that starts a process which claims keys, says which it got, and holds them until it is killed."""
    started = []

    def start(*keys):
        process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(tmp_path / "lock"), *keys], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        return process, process.stdout.readline().strip()

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_a_key_is_one_holders(tmp_path):
    claims = Claims(tmp_path / "folder" / "lock")
    assert claims.take(KEYS[0])
    assert not claims.take(KEYS[0])
    assert claims.take(KEYS[1])
    claims.give_back(KEYS)
    assert claims.take(KEYS[0])


def test_of_many_threads_one_gets_it(tmp_path):
    claims, barrier, got = Claims(tmp_path / "lock"), threading.Barrier(8), []

    def take():
        barrier.wait()
        got.extend(key for key in KEYS if claims.take(key))

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(got) == sorted(KEYS)


def test_other_processes_see_it(tmp_path, holder):
    claims = Claims(tmp_path / "lock")
    assert claims.take(KEYS[0])
    _, got = holder(KEYS[0], KEYS[1])
    assert got == "[False, True]"
    assert not claims.take(KEYS[1])
    claims.give_back([KEYS[0], KEYS[1]])  # the other one's is left as it is
    assert not claims.take(KEYS[1])
    assert claims.take(KEYS[0])


def test_a_killed_holder_blocks_nobody(tmp_path, holder):
    process, got = holder(KEYS[0])
    assert got == "[True]"
    claims = Claims(tmp_path / "lock")
    assert not claims.take(KEYS[0])
    process.kill()
    process.wait()
    assert claims.take(KEYS[0])


def _child(cache, key, answer):
    with cache._mutex:
        answer.send(cache.claims.take(key))
    answer.recv()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_holds_nothing_of_its_parents(tmp_path):
    """It shares the open file: without care it would take the parent's locks for its own, and keep them when the parent is gone."""
    cache = KernelCache(tmp_path)
    assert cache.claims.take(KEYS[0])
    here, there = multiprocessing.Pipe()
    with cache.claims._mutex, cache._mutex:  # as other threads may have them while this one forks
        child = multiprocessing.get_context("fork").Process(target=_child, args=(cache, KEYS[0], there))
        child.start()
    try:
        assert here.poll(30), "the child hangs"
        assert here.recv() is False
        assert not Claims(tmp_path / "lock").take(KEYS[0])  # the parent's lock is still there
    finally:
        here.send(None)
        child.join(30)
        child.kill()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_an_idle_child_does_not_keep_a_dead_parents_claims(tmp_path):
    script = f"""
import os, time
from pathlib import Path
from streamscope.kernels.compile.kernel_cache import KernelCache
cache = KernelCache(Path({str(tmp_path)!r}))
assert cache.claims.take({KEYS[0]!r})
end, begin = os.pipe()
if not os.fork():
    print(os.getpid(), flush=True)
    os.write(begin, b"!")
    time.sleep(60)
    os._exit(0)
os.read(end, 1)
os._exit(1)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.wait(30)
    try:
        assert Claims(tmp_path / "lock").take(KEYS[0])
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_file_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    claims = Claims(tmp_path / "file" / "lock")
    assert claims.take(KEYS[0])
    assert not claims.take(KEYS[0])
    claims.give_back([KEYS[0]])
    assert claims.take(KEYS[0])


@pytest.mark.parametrize(("number", "free"), [(errno.ENOLCK, True), (errno.EINVAL, True), (errno.EAGAIN, False), (errno.EACCES, False)])
def test_a_file_system_without_locks(tmp_path, monkeypatch, number, free):
    def refuse(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "fcntl", refuse)
    assert Claims(tmp_path / "lock").take(KEYS[0]) is free


def test_no_file_stays_open(tmp_path):
    def open_files():
        return sum(each.resolve() == tmp_path / "lock" for each in Path("/proc/self/fd").iterdir())

    for _ in range(3):
        claims = Claims(tmp_path / "lock")
        assert claims.take(KEYS[0])
        assert open_files() == 1
        del claims
    assert open_files() == 0
