"""The launch of a call on a GPU: each copies from its own arrays, however many are queued."""

from __future__ import annotations

import numpy as np
import pytest

import streamscope as ss
from streamscope.devices.cuda.captures import CAPTURES
from streamscope.devices.cuda.graph import CudaGraph
from streamscope.devices.graph_node import NodeKind
from streamscope.parallelising.device_arrays import extent
from streamscope.parallelising.quick_call import Copying

pytestmark = pytest.mark.gpu

SIZES = (1, 15, 16, 1000, 40_001)


def busy(cupy):
    """Keep the current stream busy, so that the host is ahead of it."""
    source = 'extern "C" __global__ void spin(long long n) { long long s = clock64(); while (clock64() - s < n); }'
    cupy.RawKernel(source, "spin")((1,), (1,), (np.int64(40_000_000),))


@pytest.mark.parametrize("count", [1, 3, 5, 17, 64])
def test_queued_launches_copied_each_its_own_arrays(cupy, count):
    """From any address; an array that is its target stays as it is. A set to zero, with which the graph begins, counts in each launch."""
    sizes, runtime, stream = [SIZES[k % 5] + k for k in range(count)], cupy.cuda.runtime, cupy.cuda.Stream(non_blocking=True)
    targets, results = ([cupy.zeros(size, np.uint8) for size in sizes] for _ in range(2))
    counted = cupy.ones(9001, np.uint8)

    def code():
        counted.data.memset_async(0, counted.nbytes)
        cupy.add(counted, np.uint8(1), out=counted)
        for target, result in zip(targets, results, strict=True):
            cupy.add(target, np.uint8(1), out=result)

    with stream:
        code()
        busy(cupy)
        stream.synchronize()
        runtime.streamBeginCapture(stream.ptr, runtime.streamCaptureModeThreadLocal)
        code()
        graph = CudaGraph(runtime.streamEndCapture(stream.ptr), CAPTURES, stream)
        copying = Copying([extent(target) for target in targets], graph)
        assert copying.cleared == [extent(counted)]
        random = np.random.default_rng(0)
        values = [[random.integers(0, 250, size, np.uint8) for size in sizes] for _ in range(8)]
        given = [
            [cupy.asarray(np.append(np.uint8(0), one))[1:] if k % 2 else cupy.asarray(one) for one in each] for k, each in enumerate(values)
        ]
        kept = [[cupy.empty(size, np.uint8) for size in sizes] for _ in given]
        given[5][0], values[5][0] = targets[0], values[4][0]
        stream.synchronize()
        busy(cupy)
        for arrays, copies in zip(given, kept, strict=True):
            addresses = tuple(array.data.ptr for array in arrays)
            (copying.launches.get(addresses) or copying.set(addresses))(stream.ptr)
            for result, copy in zip(results, copies, strict=True):
                runtime.memcpyAsync(copy.data.ptr, result.data.ptr, copy.nbytes, runtime.memcpyDeviceToDevice, stream.ptr)
        stream.synchronize()
    for copies, wanted in zip(kept, values, strict=True):
        assert all(np.array_equal(copy.get(), one + np.uint8(1)) for copy, one in zip(copies, wanted, strict=True))
    assert (counted == 1).all()


def test_the_copying_kernel_does_small_sets_to_zero_and_no_others(cupy):
    def total(x, y):
        small, large, sevens = cupy.zeros(1003, x.dtype)[1:], cupy.zeros(2**19, x.dtype), cupy.empty(1001, np.uint8)
        sevens.data.memset_async(7, sevens.nbytes)
        small += x[:1002]
        large[: x.size] += y
        return small, large, sevens + np.uint8(1), x * y

    x = cupy.arange(40_001, dtype=np.float32)
    fast = ss.parallelise(total, x, x + 1, outputs="static", check=0, progress=False)
    call = fast._captures[0].call
    sets, left = (
        sorted(node.nbytes for node in graph.nodes if node.kind is NodeKind.SET) for graph in (call.graph, call._copying._copies[0].graph)
    )
    assert sets == [1001, 4 * 1003, 2**21]
    assert left == [1001, 2**21]
    assert [end - start for start, end in call._copying.cleared] == [4 * 1003]
    for k in range(5):
        small, large, sevens, product = fast(x + k, x * k)
        assert np.array_equal(small.get(), x.get()[:1002] + k)
        assert np.array_equal(large.get()[: x.size], x.get() * k)
        assert not large[x.size :].any()
        assert (sevens == 8).all()
        assert np.array_equal(product.get(), (x.get() + np.float32(k)) * (x.get() * np.float32(k)))


def test_a_result_that_is_set_beside_the_copies_can_be_passed_on(cupy):
    """It would be zero before it is copied."""

    def total(x):
        found = cupy.zeros(x.shape, x.dtype)
        found += x
        return found

    x = cupy.arange(40_001, dtype=np.float32)
    fast = ss.parallelise(total, x, outputs="static", check=0, progress=False)
    assert fast._captures[0].call._copying.cleared
    for _ in range(3):
        result = fast(x + 1)
        assert np.array_equal(fast(result).get(), x.get() + 1)


def test_calls_in_turns_on_several_streams_have_their_own_arguments(cupy):
    x = cupy.arange(5000, dtype=np.float32)
    fast = ss.parallelise(lambda x, y: [x * k - y for k in range(4)], x, x + 1, check=0, progress=False)
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(3)]
    pairs = [(cupy.random.random(5000, np.float32), x + k) for k in range(7)]
    wanted = [[a.get() * np.float32(k) - b.get() for k in range(4)] for a, b in pairs]
    cupy.cuda.Device().synchronize()
    found = []
    for number, pair in enumerate(pairs * 3):
        with streams[number % 3]:
            if number % 3 == 0:
                busy(cupy)
            found.append(fast(*pair))
    cupy.cuda.Device().synchronize()
    for results, expected in zip(found, wanted * 3, strict=True):
        assert all(np.array_equal(each.get(), one) for each, one in zip(results, expected, strict=True))
