"""The cache of kernels: what its keys are made of, where a kernel is found, who is to compile it."""

from __future__ import annotations

import os
import tracemalloc
import warnings
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamscope.devices.cost_model import CostModel
from streamscope.devices.measured_models import save_model
from streamscope.errors import CacheWarning, OutputError
from streamscope.kernels.compile import kernel_cache as module
from streamscope.kernels.compile.cubin import MAGIC, Cubin, packed
from streamscope.kernels.compile.kernel_cache import KernelCache, Origin, cache_folder, kernel_cache, kernel_key
from streamscope.kernels.compile.tuned_variants import tuned_variants
from streamscope.kernels.form import Variant
from streamscope.kernels.source import KernelSource

KEYS = [f"{number}".ljust(64, "0") for number in range(10)]


def cubin(number=0):
    return Cubin(bytes([number]), "sm_90", "13.0", 1, 1)


@pytest.fixture(autouse=True)
def _version(monkeypatch):
    monkeypatch.setattr(module, "nvrtc_build", lambda: "13.0 a")


texts = st.text(max_size=6)


@given(st.lists(st.tuples(texts, texts, texts), unique=True, min_size=2, max_size=6))
def test_whatever_differs_has_another_key(parts):
    """Also where one part ends with what the next begins with."""
    assert len({kernel_key(KernelSource(name, code), architecture) for name, code, architecture in parts}) == len(parts)


def test_nvrtc_its_options_and_the_format_are_part_of_the_key(monkeypatch):
    source = KernelSource("k", "code")
    keys = {kernel_key(source, "sm_90")}
    for name, value in [("nvrtc_build", lambda: "13.0 b"), ("OPTIONS", ("--std=c++17", "-G")), ("FORMAT", 1000)]:
        with monkeypatch.context() as patch:
            patch.setattr(module, name, value)
            keys.add(kernel_key(source, "sm_90"))
    assert len(keys) == 4


def test_first_in_memory_then_on_disk_then_nowhere(tmp_path):
    cache = KernelCache(tmp_path)
    assert cache.find(KEYS[0]) is None
    assert cache.find_or_claim(KEYS[:2]) == ({}, KEYS[:2])
    cache.keep(KEYS[:2], cubin())
    assert cache.find(KEYS[1]) == (cubin(), Origin.MEMORY)
    assert KernelCache(tmp_path).find(KEYS[1]) == (cubin(), Origin.DISK)
    cache.forget()
    assert [cache.find(KEYS[1])[1] for _ in range(2)] == [Origin.DISK, Origin.MEMORY]


def test_a_claim_ends_with_keeping_or_giving_up(tmp_path):
    cache, other = KernelCache(tmp_path), KernelCache(tmp_path)
    assert cache.find_or_claim(KEYS[:3]) == ({}, KEYS[:3])
    assert other.find_or_claim(KEYS[:3]) == ({}, [])
    cache.keep(KEYS[:1], cubin())
    cache.give_up(KEYS[:2])
    assert other.find_or_claim(KEYS[:3]) == ({KEYS[0]: (cubin(), Origin.DISK)}, [KEYS[1]])


def test_what_came_between_looking_and_claiming_is_taken(tmp_path, monkeypatch):
    cache, other = KernelCache(tmp_path), KernelCache(tmp_path)
    take = cache.claims.take

    def slow(key):
        other.keep([key], cubin())
        return take(key)

    monkeypatch.setattr(cache.claims, "take", slow)
    assert cache.find_or_claim(KEYS[:1]) == ({KEYS[0]: (cubin(), Origin.DISK)}, [])
    assert other.claims.take(KEYS[0])


def test_an_error_in_the_middle_leaves_no_claim(tmp_path, monkeypatch):
    cache, find = KernelCache(tmp_path), KernelCache.find

    def interrupted(self, key, *_):
        if key == KEYS[2]:
            raise KeyboardInterrupt
        return find(self, key)

    with monkeypatch.context() as patch:
        patch.setattr(KernelCache, "find", interrupted)
        with pytest.raises(KeyboardInterrupt):
            cache.find_or_claim(KEYS[:3])
    assert cache.find_or_claim(KEYS[:3]) == ({}, KEYS[:3])


def test_warnings_that_are_errors_leave_no_claim(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    cache = KernelCache(tmp_path / "file")
    with warnings.catch_warnings():
        warnings.simplefilter("error", CacheWarning)
        with pytest.raises(CacheWarning):
            cache.find_or_claim(KEYS[:3])
    assert cache.find_or_claim(KEYS[:3]) == ({}, KEYS[:3])


def test_memory_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MOST_IN_MEMORY", 3)
    cache = KernelCache(tmp_path)
    for number in range(3):
        cache.keep([KEYS[number]], cubin(number))
    cache.find(KEYS[0])
    cache.keep([KEYS[3]], cubin(3))
    cache.folder.clear()
    assert [cache.find(key) is not None for key in KEYS[:4]] == [True, False, True, True]


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"STREAMSCOPE_CACHE_DIR": "/ours", "XDG_CACHE_HOME": "/xdg"}, "/ours/kernels"),
        ({"STREAMSCOPE_CACHE_DIR": "", "XDG_CACHE_HOME": "/xdg"}, "/xdg/streamscope/kernels"),
        ({"HOME": "/home/somebody"}, "/home/somebody/.cache/streamscope/kernels"),
        ({"HOME": "/home/somebody", "STREAMSCOPE_CACHE_DIR": "~/ours"}, "/home/somebody/ours/kernels"),
        ({"HOME": "/home/somebody", "XDG_CACHE_HOME": "~/xdg"}, "/home/somebody/xdg/streamscope/kernels"),
        ({"HOME": "/home/somebody", "XDG_CACHE_HOME": "some/folder"}, "/home/somebody/.cache/streamscope/kernels"),
    ],
)
def test_where_it_is(monkeypatch, variables, expected):
    for name in ("STREAMSCOPE_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert cache_folder() == Path(expected)


@pytest.mark.usefixtures("homeless")
@pytest.mark.parametrize("given", [None, "~/ours", "~nobody_of_that_name/ours"])
def test_without_a_home_folder_it_is_in_memory(monkeypatch, given):
    if given is not None:
        monkeypatch.setenv("STREAMSCOPE_CACHE_DIR", given)
    with pytest.raises(OutputError, match=f"there is no home folder for {given or '~/.cache'}"):
        cache_folder()
    cache = kernel_cache()
    assert cache is kernel_cache()
    assert cache.folder.problem() == f"there is no home folder for {given or '~/.cache'}"
    assert cache.find_or_claim(KEYS[:1]) == ({}, KEYS[:1])
    assert cache.find_or_claim(KEYS[:1]) == ({}, [])
    with pytest.warns(CacheWarning, match="there is no home folder"):
        KernelCache(None, why_none=cache.folder.why_none).keep(KEYS[:1], cubin())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CacheWarning)
        cache.keep(KEYS[:1], cubin())
    assert cache.find(KEYS[0]) == (cubin(), Origin.MEMORY)
    cache.forget()


@pytest.mark.parametrize("umask", [0o022, 0o002, 0o000], ids=oct)
@pytest.mark.parametrize(
    "make",
    [
        lambda folder: KernelCache(folder).claims.take(KEYS[0]),
        lambda folder: KernelCache(folder).folder.write(KEYS[:1], GOOD),
        lambda folder: KernelCache(folder).keep(KEYS[:1], GOOD),
        lambda folder: KernelCache(folder).find_or_claim(KEYS[:1]),
        lambda folder: tuned_variants("a GPU").keep(KernelSource("k", "code"), 10, Variant(4, None), {}),
        lambda folder: save_model(CostModel.load("h200")),
    ],
    ids=["claim", "write", "keep", "find", "tune", "calibrate"],
)
def test_whatever_makes_the_folder_makes_it_and_those_above_for_you_alone(tmp_path, monkeypatch, make, umask):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "above" / "cache"))
    monkeypatch.delenv("STREAMSCOPE_CACHE_DIR", raising=False)
    monkeypatch.setattr("streamscope.kernels.compile.tuned_variants.nvrtc_version", lambda: "13.0")
    before = os.umask(umask)
    try:
        make(cache_folder())
    finally:
        os.umask(before)
    made = [path for path in tmp_path.rglob("*") if path.is_dir()]
    assert tmp_path / "above" / "cache" / "streamscope" in made
    assert {path.stat().st_mode & 0o777 for path in made} == {0o700}


@pytest.mark.parametrize("mode", [0o770, 0o777, 0o720], ids=oct)
def test_in_a_folder_that_others_can_write_to_nothing_is_looked_for_and_nothing_is_kept(tmp_path, mode):
    """Not even a lock. Kernels are compiled and kept in memory."""
    folder = tmp_path / "kernels"
    KernelCache(folder).keep(KEYS[:2], GOOD)
    folder.chmod(mode)
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    cache = KernelCache(folder)
    with pytest.warns(CacheWarning, match="the machine code in it is run as it is"):
        assert cache.find_or_claim(KEYS[:3]) == ({}, KEYS[:3])
    cache.keep(KEYS[:3], cubin(1))
    assert cache.find(KEYS[0]) == (cubin(1), Origin.MEMORY)
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == before


def test_one_cache_for_one_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("STREAMSCOPE_CACHE_DIR", str(tmp_path))
    assert kernel_cache() is kernel_cache()
    assert kernel_cache().folder.path == tmp_path / "kernels"


GOOD = Cubin(b"machine code", "sm_90", "13.0", 1, 1)


BROKEN = {
    "nothing": b"",
    "no magic word": b"other" * 100,
    "a byte changed": packed(GOOD)[:-1] + b"?",
}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_file_with_something_else_in_it_is_compiled_again_with_one_warning(tmp_path, broken):
    for key in KEYS[:3]:
        (tmp_path / f"{key}.cubin").write_bytes(BROKEN[broken])
    found_again(tmp_path)


@pytest.mark.parametrize("start", [b"", MAGIC, packed(GOOD)])
def test_a_file_of_eight_gigabytes_takes_no_memory(tmp_path, start):
    for key in KEYS[:3]:
        with (tmp_path / f"{key}.cubin").open("wb") as file:
            file.write(start)
            file.truncate(8 * 2**30)
    tracemalloc.start()
    try:
        found_again(tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def found_again(folder):
    """Look for three kernels, find none, and find all once they were compiled."""
    cache = KernelCache(folder)
    with pytest.warns(CacheWarning, match=r"cannot use .*cubin.*compiled again") as warned:
        assert cache.find_or_claim(KEYS[:3]) == ({}, KEYS[:3])
    assert len(warned) == 1
    cache.keep(KEYS[:3], GOOD)
    assert KernelCache(folder).find_or_claim(KEYS[:3]) == (dict.fromkeys(KEYS[:3], (GOOD, Origin.DISK)), [])
