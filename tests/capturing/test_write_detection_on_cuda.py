"""What nodes are seen to change when they run one by one, and addresses in the parameters that CUDA really keeps, on a GPU."""

from __future__ import annotations

import numpy as np
import pytest

from streamscope.capturing.allocations import Allocated
from streamscope.capturing.cupy_captures import CupyProducts
from streamscope.capturing.nodes import Parameter, pointers_among, read_nodes
from streamscope.capturing.stream_capture import taken_through_cupy
from streamscope.capturing.write_detection import observed_writes
from streamscope.kernels.library.libraries import checked, libraries

pytestmark = pytest.mark.gpu

HIDDEN = """
extern "C" __global__ void through(float* const* table, int n) { for (int i = threadIdx.x; i < n; i += 256) table[0][i] += 1; }
struct Pair { const float* from; float* to; };
extern "C" __global__ void pair(Pair both, int n) { for (int i = threadIdx.x; i < n; i += 256) both.to[i] = both.from[i] + 1; }
"""


def region(array):
    return array.data.ptr, array.data.ptr + array.nbytes


def taken(function, *inputs):
    """Return what keeps a captured function's memory, and its nodes."""
    one = taken_through_cupy(function, inputs, None)
    return one, read_nodes(one.graph)


def test_each_node_is_seen_to_change_its_lines(cupy):
    x, y = cupy.zeros(100_000, np.float32), cupy.zeros(100_000, np.float32)

    def function(x, y):
        x[128:256] += 1
        y[99_999:] += 1
        cupy.copyto(x[:128], y[:128])  # They are equal: nothing changes.
        y *= 3

    kept, nodes = taken(function, x, y)
    before = x.copy(), y.copy()

    def put_back():
        x[...], y[...] = before

    found = observed_writes(nodes, sorted([region(x), region(y)]), kept.own, put_back)
    start, last = x.data.ptr, y.data.ptr + 99_999 // 128 * 512
    assert [one for one in found if one] == [
        [(start + 512, start + 1024)],
        [(last, y.data.ptr + y.nbytes)],
        [(last, y.data.ptr + y.nbytes)],
    ]
    assert (x == before[0]).all()
    assert (y == before[1]).all()


def test_a_write_through_an_address_in_memory_is_found(cupy):
    x = cupy.zeros(1000, np.float32)
    table = cupy.array([x.data.ptr], np.uint64)
    kernel = cupy.RawModule(code=HIDDEN).get_function("through")

    def function(table):
        other = cupy.ones(10)
        kernel((1,), (256,), (table, np.int32(x.size)))
        other += 1

    kept, nodes = taken(function, table)
    found = observed_writes(nodes, sorted([region(x), region(table)]), kept.own, lambda: x.fill(0))
    assert [bool(one) for one in found] == [False, True, False]
    assert found[1] == [region(x)]


def test_an_address_inside_a_structure_is_found(cupy):
    x, y = cupy.zeros(1000, np.float32), cupy.zeros(1000, np.float32)
    kernel = cupy.RawModule(code=HIDDEN).get_function("pair")
    both = np.array([(x.data.ptr, y.data.ptr)], [("from", np.uint64), ("to", np.uint64)])[0]
    kept, nodes = taken(lambda: kernel((1,), (256,), (both, np.int32(x.size))))
    assert kept
    structure, number = nodes[-1].parameters
    assert structure.words == (x.data.ptr, y.data.ptr)
    assert np.frombuffer(number.values, np.int32)[0] == x.size
    assert pointers_among(nodes[-1].words, Allocated([region(x), region(y)]).around) == (x.data.ptr, y.data.ptr)


def test_the_address_in_a_tensor_map_is_its_first_word(cupy):
    cuda = libraries().cuda
    x = cupy.zeros((256, 128), np.float16)
    sizes = [cuda.cuuint64_t(one) for one in (128, 256)], [cuda.cuuint64_t(256)]
    boxes = [cuda.cuuint32_t(64)] * 2, [cuda.cuuint32_t(1)] * 2
    kinds = (
        cuda.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        cuda.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
        cuda.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_NONE,
        cuda.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )
    half = cuda.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_FLOAT16
    encoded = checked(cuda.cuTensorMapEncodeTiled(half, 2, x.data.ptr, *sizes, *boxes, *kinds))
    words = np.array([int(one) for one in encoded.opaque], np.uint64)
    assert pointers_among(Parameter(0, words.tobytes()).words, Allocated([region(x)]).around) == (x.data.ptr,)


def test_a_packed_buffer_of_cublas_leads_to_its_matrices(cupy):
    a, b, c = (cupy.ones((512, 512), np.float16) for _ in range(3))
    kept, nodes = taken(lambda a, b: cupy.matmul(a, b, out=c), a, b)
    assert any(isinstance(one, CupyProducts) for one in kept.kept)
    found = {one for node in nodes for one in pointers_among(node.words, Allocated([region(one) for one in (a, b, c)]).around)}
    assert {a.data.ptr, b.data.ptr, c.data.ptr} <= found


def test_a_node_that_writes_what_a_run_before_wrote_is_seen(cupy):
    kept, nodes = taken(lambda x: (x * 2) + 1, cupy.ones(1000, np.float32))
    owned = sorted(kept.own)
    first, second = observed_writes(nodes, owned, owned, lambda: None)
    assert sum(end - start for start, end in first) == 4096
    assert sum(end - start for start, end in second) == 4096
    assert first != second
    assert (kept.result == 3).all()
