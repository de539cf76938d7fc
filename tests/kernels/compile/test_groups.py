"""Which kernels share a translation unit, how many units there are, and whose fault a log says it is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamscope.errors import CompilationError
from streamscope.kernels.compile import batch
from streamscope.kernels.compile.batch import MOST_IN_GROUP, WORKER_BYTES, group_count, grouped, unique_sources, unit_code, worker_count
from streamscope.kernels.source import HALF_CONVERSIONS, VECTORS, KernelSource


def kernel(name, body="", before=""):
    return KernelSource(name, f'{before}extern "C" __global__ void {name}(float* x) {{ {body} }}\n')


some = st.lists(st.integers(0, 5000), max_size=40).map(
    lambda sizes: [kernel(f"k{number}", ";" * size) for number, size in enumerate(sizes)]
)


@given(some, st.integers(1, 20))
def test_each_kernel_is_in_one_group_and_none_is_empty(sources, count):
    found = grouped(sources, count)
    assert sorted(source.name for group in found for source in group) == sorted(source.name for source in sources)
    assert len(found) == min(count, len(sources))
    assert all(found)
    costs = [sum(len(source.code) for source in group) for group in found]
    assert costs == sorted(costs, reverse=True)
    # Each kernel went to the group that was the cheapest then, so no group is ahead of another by more than one kernel.
    if costs:
        assert costs[0] - costs[-1] <= max(len(source.code) for source in sources)


@given(some, st.integers(1, 20), st.randoms())
def test_the_order_of_the_kernels_does_not_matter(sources, count, random):
    shuffled = random.sample(sources, len(sources))
    assert grouped(shuffled, count) == grouped(sources, count)


def test_pieces_that_many_begin_with_come_once():
    halves, plain = [kernel(f"h{number}", before=HALF_CONVERSIONS + "\n" + VECTORS) for number in range(3)], kernel("plain")
    code = unit_code((*halves, plain))
    assert code.count("struct half_t {") == code.count("struct words<16>") == 1
    lines = code.splitlines()
    for source in (*halves, plain):
        at = lines.index(next(line for line in lines if line.endswith(f'"{source.name}.cu"')))
        number = int(lines[at].split()[1])
        assert source.code.splitlines()[number - 1] == lines[at + 1]  # so errors name lines of its own source


def test_two_kernels_of_one_name():
    one, other = kernel("same", "x[0] = 1;"), kernel("same", "x[0] = 2;")
    assert unique_sources([one, kernel("b"), one]) == (one, kernel("b"))
    with pytest.raises(CompilationError, match="two different kernels are called 'same'"):
        unique_sources([one, other])


@pytest.mark.parametrize(("cores", "free", "workers"), [(8, 100, 8), (8, 3, 3), (8, 0.5, 1), (1, 100, 1), (200, 150, 150)])
def test_workers_by_cores_and_free_memory(monkeypatch, cores, free, workers):
    monkeypatch.setattr(batch.os, "sched_getaffinity", lambda _: set(range(cores)))
    monkeypatch.setattr(batch, "free_bytes", lambda: int(free * WORKER_BYTES))
    assert worker_count() == workers
    assert worker_count(200) == 200  # as asked for


@pytest.mark.parametrize("asked", [0, -1, 1.5, "2", True])
def test_wrong_numbers_of_workers(asked):
    with pytest.raises(CompilationError, match="workers="):
        worker_count(asked)


@given(st.integers(1, 5000), st.integers(1, 300))
def test_the_number_of_groups(kernels, workers):
    count = group_count(kernels, workers)
    assert 1 <= count <= max(workers, -(-kernels // MOST_IN_GROUP))
    assert kernels / count <= MOST_IN_GROUP
    assert count <= max(1, kernels) or kernels == 1
