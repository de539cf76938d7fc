"""Every form of element-wise kernel, built for the host: alignment, masked ends, broadcasting, strides, requests; neighbours survive."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import streamscope as ss
from streamscope.kernels.elementwise.specialization import bind, specialized
from streamscope.kernels.form import Access, Form, Variant, choose_form
from streamscope.kernels.layout import broadcast_strides, compact
from streamscope.program.variable import ArraySpec
from streamscope.program.view import row_major

CANARY = 0x5A
FUNCTIONS = {"add": np.add, "multiply": np.multiply, "less": np.less}
PAIRS = [
    ("float32", "float32"),
    ("float16", "float16"),
    ("float64", "float64"),
    ("float16", "float32"),
    ("int8", "int8"),
    ("int32", "float64"),
]


class Placed:
    """An array in the middle of memory full of canaries, some elements behind a vector boundary."""

    def __init__(self, bench, shape, dtype, offset=0, view=None, seed=0):
        whole = [2 * extent for extent in shape] if view == "every other" else shape[::-1] if view == "transposed" else shape
        itemsize = np.dtype(dtype).itemsize
        count = int(np.prod(whole, dtype=int))
        self.bench = bench
        self.memory = bench.memory((64 + offset + count + 64) * itemsize)
        self.memory[...] = CANARY
        first = (64 + offset) * itemsize
        array = self.memory[first : first + count * itemsize].view(dtype).reshape(tuple(whole))
        if view == "every other":
            array = array[tuple(slice(None, None, 2) for _ in shape)]
        self.array = array.T if view == "transposed" else array[..., ::-1] if view == "reversed" else array
        generator = np.random.default_rng(seed)
        self.before = generator.integers(0 if dtype == np.bool_ else -20, 2 if dtype == np.bool_ else 20, shape).astype(dtype)
        bench.write(self.array, self.before)

    def neighbours_survive(self, address_of):
        first = address_of(self.array) - address_of(self.memory)
        if self.array.ndim:
            first = first + sum((np.indices(self.array.shape).T * self.array.strides).T)
        outside = np.ones(self.memory.size, bool)
        for byte in range(self.array.itemsize):
            outside[first + byte] = False
        return bool((self.bench.read(self.memory)[outside] == CANARY).all())


# Shapes of two operands; offsets of both and of the result, in elements from a vector boundary; views of both and of the result; items.
PLAIN = [(n,) for n in (1, 2, 7, 8, 64, 203, 1024, 2048, 2049)]
BROADCAST = [
    ((5, 8), (8,)),
    ((5, 7), (7,)),
    ((5, 16), (5, 1)),
    ((5, 7), (5, 1)),
    ((3, 4, 16), (4, 1)),
    ((3, 1, 8), (1, 4, 1)),
    ((2, 3, 4), (3, 4)),
    ((1,), (4, 8)),
    ((), (4, 8)),
    ((9, 1), (1, 300)),
    ((3, 2, 1, 5), (2, 6, 1)),
    ((700, 8), (700, 1)),
]


def layouts():
    straight = (None, None, None)
    for shape in PLAIN:
        yield shape, shape, (0, 0, 0), straight, None
    for offset in range(1, 17):
        yield (203,), (203,), (offset,) * 3, straight, None
    for offsets in [(1, 0, 0), (0, 3, 0), (0, 0, 1), (2, 2, 1)]:
        yield (203,), (203,), offsets, straight, None
    for first, second in BROADCAST:
        yield first, second, (0, 0, 0), straight, None
        yield second, first, (0, 0, 0), straight, None
        yield first, second, (3, 0, 3), straight, None
        yield first, second, (3, 1, 2), straight, None
    for view in ("every other", "transposed", "reversed"):
        for views in [(view, None, None), (None, view, None), (None, None, view), (view, view, view)]:
            yield (6, 8), (6, 8), (0, 0, 0), views, None
            yield (5, 7), (7,), (0, 0, 0), (views[0], None, views[2]), None
    yield (203,), (203,), (0, 3, 3), ("every other", None, None), None  # the first vector begins before the first element
    yield (203,), (203,), (3, 3, 3), (None, "reversed", None), None
    yield (), (), (0, 0, 0), straight, None
    yield (), (), (1, 1, 1), straight, None
    for items in (2, 4):
        for shape in [(1,), (203,), (4096,), (5000,)]:
            yield shape, shape, (0, 0, 0), straight, items
        yield (203,), (203,), (3, 3, 3), straight, items
        yield (33, 64), (64,), (0, 0, 0), straight, items
        yield (33, 63), (33, 1), (0, 0, 0), straight, items
        yield (60, 80), (60, 80), (0, 0, 0), ("every other", None, None), items


def cases():
    """Every layout in float and half, with all requests in float; some layouts with other functions and dtypes."""
    for number, layout in enumerate(layouts()):
        yield "add", PAIRS[0], layout, False
        yield "multiply", PAIRS[1], layout, False
        if number % 2 == 0:
            yield "add", PAIRS[0], layout, True
        if number % 3 == 0:
            yield "less", PAIRS[3], layout, False
            yield "add", PAIRS[2 + number // 3 % 4], layout, False


class Prepared:
    def __init__(self, bench, case):
        name, dtypes, (first, second, offsets, views, items), accumulate = case
        self.bench = bench
        self.operands = [
            Placed(bench, shape, dtype, offset, view if len(shape) else None, seed)
            for seed, (shape, dtype, offset, view) in enumerate(zip((first, second), dtypes, offsets, views, strict=False))
        ]
        operator, self.function, self.accumulate = getattr(ss.ops, name), FUNCTIONS[name], accumulate
        specs = [ArraySpec(each.before.shape, each.before.dtype) for each in self.operands]
        shape = np.broadcast_shapes(first, second)
        promoted = operator.promoted(specs, {})
        self.result = Placed(bench, shape, promoted.result, offsets[2], views[2] if len(shape) else None, seed=9)
        arrays = [bench.argument(each.array) for each in (*self.operands, self.result)]
        self.call = bind(bench, operator.signature(specs, {}, accumulate=accumulate), arrays, {}, Variant(items=items))

    @property
    def expected(self):
        values = self.function(*(operand.before for operand in self.operands))
        return (self.result.before + values if self.accumulate else values).astype(self.result.before.dtype)


@pytest.fixture(scope="module")
def prepared(new_bench):
    bench = new_bench()
    made = [Prepared(bench, case) for case in cases()]
    bench.finish()
    return made


def test_every_form(prepared, address_of):
    for case, each in zip(cases(), prepared, strict=True):
        each.call()
        np.testing.assert_array_equal(each.bench.read(each.result.array), each.expected, err_msg=str(case))
        assert all(array.neighbours_survive(address_of) for array in (*each.operands, each.result)), case


@pytest.mark.parametrize("change", [("n + W <= size", "n < size"), ("if (n >= 0 && n", "if (n"), ("n + k < size", "n + k < size + 1")])
def test_neighbours_are_seen_to_be_overwritten(host_bench, build, address_of, change):
    """The test above has teeth: without its masks, the kernel writes over the ends."""

    def broken(sources):
        return build({source: replace(source, code=source.code.replace(*change)) for source in sources})

    bench = host_bench(broken)
    each = Prepared(bench, ("add", PAIRS[0], ((203,), (203,), (3, 3, 3), (None,) * 3, None), False))
    bench.finish()
    each.call()
    assert not each.result.neighbours_survive(address_of)


def form(shape, *strides, itemsizes=(4, 4, 4), **options):
    return choose_form(compact(shape, [*strides, row_major(shape)]), itemsizes, **options)


@pytest.mark.parametrize(
    ("chosen", "width", "lead", "accesses", "rows"),
    [
        (form((64,), (1,), (1,)), 4, 0, "LLL", True),
        (form((5, 8), (8, 1), (8, 1)), 4, 0, "LLL", True),
        (form((64,), (1,), (1,), itemsizes=(2, 2, 2)), 8, 0, "LLL", True),
        (form((64,), (1,), (1,), itemsizes=(1, 8, 1)), 2, 0, "LLL", True),
        (form((64,), (1,), (1,), itemsizes=(1, 1, 1)), 16, 0, "LLL", True),
        # 4 bytes behind a boundary of 16, all alike; then differently.
        (form((64,), (1,), (1,), addresses=(4, 260, 516)), 4, 1, "LLL", True),
        (form((64,), (1,), (1,), addresses=(4, 256, 516)), 1, 0, "LLL", True),
        # Alike in elements, though not in bytes.
        (form((64,), (1,), (1,), itemsizes=(2, 4, 4), addresses=(2, 4, 4)), 4, 1, "LLL", True),
        # A row that is shared: by vectors where it is a whole number of them, else element by element.
        (form((5, 8), (8, 1), (0, 1)), 4, 0, "LWL", True),
        (form((5, 7), (7, 1), (0, 1)), 4, 0, "LSL", False),
        (form((5, 8), (8, 1), (0, 1), addresses=(0, 4, 0)), 4, 0, "LSL", False),
        (form((5, 8), (8, 1), (1, 0)), 4, 0, "LRL", True),
        (form((5, 7), (7, 1), (1, 0)), 4, 0, "LSL", False),
        # One element for all; every other element.
        (form((64,), (1,), (0,)), 4, 0, "LRL", True),
        (form((64,), (1,), (2,)), 4, 0, "LSL", True),
    ],
)
def test_the_form_chosen(chosen, width, lead, accesses, rows):
    letters = {Access.LINEAR: "L", Access.ROW: "W", Access.REPEATED: "R", Access.STRIDED: "S"}
    assert (chosen[0].width, chosen[1], chosen[0].rows) == (width, lead, rows)
    assert "".join(letters[access] for access in chosen[0].accesses) == accesses


def test_two_vectors_in_flight_only_where_no_operand_streams():
    def items(first, second, result):
        steps = [broadcast_strides(shape, row_major(shape), result) for shape in (first, second)]
        return form(result, *steps)[0].items

    assert items((4096, 1), (1, 4096), (4096, 4096)) == 2
    assert items((4096, 4096), (1, 4096), (4096, 4096)) == 1
    assert items((64, 1), (1, 64), (64, 64)) == 1


def test_blocks_cover_the_array_and_its_lead():
    plain = Form(4, 1, 1, (Access.LINEAR,), rows=True, wide=False)
    assert [plain.blocks(size) for size in (0, 1, 1024, 1025)] == [0, 1, 1, 2]
    assert plain.blocks(1024, lead=1) == 2
    assert Form(4, 2, 1, (Access.LINEAR,), rows=True, wide=False).blocks(2049) == 2


@pytest.mark.parametrize("shape", [(0,), (0, 5), (3, 0)])
def test_nothing_is_launched_for_no_elements(host_bench, bound_program, shape):
    class Bench(host_bench):
        def kernel(self, source, blocks, threads, arguments):
            raise AssertionError("a kernel was asked for")

    x = np.zeros(shape, np.float32)
    bound_program(Bench(None), lambda x: (ss.ops.relu(x), x + x, ss.ops.add(x, 2.0), *ss.ops.multiply.gradient(x, x, x)), [x])
    specs = [ArraySpec(shape, np.float32)] * 2
    assert specialized(ss.ops.add.signature(specs, {}), [shape] * 3, [row_major(shape)] * 3).blocks == 0


def test_sizes_beyond_32_bits_get_their_own_kernel():
    specs = [ArraySpec((3,), np.float32)] * 2
    signature = ss.ops.add.signature(specs, {})
    shapes = [(2**16, 2**15), (2**15,), (2**16, 2**15)]
    wide = specialized(signature, shapes, [row_major(shape) for shape in shapes])
    narrow = specialized(signature, [(2**15, 2**15), (2**15,), (2**15, 2**15)], [(2**15, 1), (1,), (2**15, 1)])
    assert "typedef long long index_t" in wide.source.code
    assert "typedef unsigned index_t" in narrow.source.code
    assert wide.source.name != narrow.source.name
