"""Tables of products: their entries, what lies between and beyond, and what they refuse."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamscope.devices.cost_model import CostModel
from streamscope.devices.product_times import ProductTimes, as_launched, table_of, tiles_of
from streamscope.errors import DeviceError
from streamscope.program.launch import Cost, Product

TABLE = ProductTimes(
    (
        (1.0, ((16.0, 100.0), (64.0, 200.0))),
        (4.0, ((16.0, 100.0), (64.0, 400.0))),
        (64.0, ((16.0, 1600.0), (64.0, 6400.0))),
    )
)


def product(tiles, inner, count=1):
    return Product("matmul", "float16", count, 64 * tiles, inner, 64)


@pytest.mark.parametrize(
    ("multiplied", "ns"),
    [
        (product(1, 16), 100),
        (product(4, 64), 400),
        (product(1, 64, count=4), 400),  # four results of one tile
        (product(64, 16), 1600),
        (Product("matmul", "float16", 1, 65, 64, 128), 400),  # 2 x 2 tiles are begun
        (product(2, 16), 100),  # between 100 and 100
        (product(1, 32), 100 * 2**0.5),  # halfway in logarithms
        (product(16, 16), 400),  # between 100 at 4 and 1600 at 64, where the time grows like the tiles
        (product(16, 32), 800),
        (product(1, 4), 100),  # before the table: its first entry
        (product(64, 256), 25_600),  # beyond: like the sum, as at the table's end
        (product(256, 64), 25_600),
        (product(1, 256), 400),  # the power of 1/2 goes on
    ],
)
def test_times(multiplied, ns):
    assert TABLE.of(multiplied) == pytest.approx(ns)


def test_beyond_the_table_time_grows_at_most_like_the_work_and_never_falls():
    steep = ProductTimes(((1.0, ((1.0, 1.0), (2.0, 8.0))), (2.0, ((1.0, 8.0), (2.0, 64.0)))))
    assert steep.of(product(4, 2)) == pytest.approx(128)
    falling = ProductTimes(((1.0, ((1.0, 4.0), (2.0, 2.0))), (2.0, ((1.0, 4.0), (2.0, 2.0)))))
    assert falling.of(product(1, 3)) == pytest.approx(2)
    assert falling.of(product(1, 1000)) == pytest.approx(500)  # as many steps in a nanosecond as the fastest entry makes


@given(st.integers(1, 10_000), st.integers(1, 10_000), st.integers(1, 20))
def test_more_work_takes_no_less(rows, inner, factor):
    def ns(*, rows=rows, inner=inner, count=1):
        return TABLE.of(Product("matmul", "float16", count, rows, inner, 100))

    assert min(ns(rows=rows * factor), ns(inner=inner * factor), ns(count=factor)) >= ns() * (1 - 1e-9)


def test_tiles_are_counted_where_they_begin():
    def counted(count, rows, columns):
        return tiles_of(Product("matmul", "float16", count, rows, 8, columns))

    assert (counted(1, 64, 64), counted(1, 65, 64), counted(3, 100, 200)) == (1, 2, 24)


def test_small_matrices_take_parts_of_a_tile():
    def counted(kind, rows, columns):
        return tiles_of(Product(kind, "float16", 8, rows, 8, columns))

    assert (counted("matmul", 1, 64), counted("matmul", 17, 64), counted("matmul", 16, 16), counted("matmul", 1, 128)) == (2, 4, 0.5, 4)
    assert counted("convolution", 16, 16) == 8


@pytest.mark.parametrize(
    ("kind", "dtype", "sizes", "name"),
    [
        ("matmul", "float16", (1, 64, 64, 64), "matmul float16"),
        ("matmul", "float16", (1, 64, 63, 64), "matmul float16 odd"),
        ("matmul", "float16", (1, 64, 64, 10), "matmul float16 odd"),
        ("matmul", "float32", (1, 64, 63, 65), "matmul float32"),
        ("matmul", "float32", (1, 64, 64, 33), "matmul float32"),
        ("matmul", "float32", (1, 64, 64, 32), "matmul float32 narrow"),
        ("matmul", "float64", (1, 8, 64, 4096), "matmul float64 narrow"),
        ("matmul", "float32", (1, 1, 64, 4096), "matmul float32 vector"),
        ("matmul", "float32", (1, 4096, 64, 1), "matmul float32 vector"),
        ("matmul", "float32", (9, 32, 64, 32), "matmul float32 small"),
        ("matmul", "float32", (9, 32, 64, 33), "matmul float32"),
        ("pointwise", "float16", (1, 64, 63, 128), "pointwise float16"),
        ("convolution", "float16", (1, 64, 72, 127), "convolution float16"),
        ("convolution", "float16", (1, 64, 72, 128), "convolution float16 wide"),
        ("data_gradient", "float32", (1, 64, 72, 128), "data_gradient float32 wide"),
        ("weight_gradient", "float32", (1, 64, 72, 128), "weight_gradient float32"),
        ("stem_convolution", "float32", (1, 64, 392, 128), "stem_convolution float32"),
    ],
)
def test_the_table_of_a_product(kind, dtype, sizes, name):
    assert table_of(Product(kind, dtype, *sizes)) == name


def test_a_table_survives_its_file():
    assert ProductTimes.checked("matmul float16", TABLE.to_list()) == TABLE


GOOD = [[16, 1], [64, 2]]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "is {}, expected pairs of tiles and curves"),
        ([1], "expected pairs of tiles and curves"),
        ([[1, GOOD, 3]], "expected pairs of tiles and curves"),
        ([[1, GOOD]], r"of \[1\] tiles, expected two or more numbers that grow"),
        ([[2, GOOD], [1, GOOD]], r"of \[2, 1\] tiles"),
        ([[1, GOOD], ["2", GOOD]], "not above 0"),
        ([[0, GOOD], [1, GOOD]], "not above 0"),
        ([[1, GOOD], [2, [[16, 0], [64, 1]]]], "not above 0"),
        ([[1, GOOD], [2, [[16, 1]]]], "of 2 tiles is .*, expected two or more pairs"),
        ([[1, GOOD], [2, [[16, 1], [64, float("nan")]]]], "has nan"),
        ([[1, GOOD], [2, [[16, 1], [16, 2]]]], "must grow"),
    ],
)
def test_an_impossible_table_is_refused(values, message):
    with pytest.raises(DeviceError, match=f"product_times 'matmul float16'.*{message}"):
        ProductTimes.checked("matmul float16", values)


@pytest.mark.parametrize(("product", "blocks"), [
    (Product("matmul", "float16", 1, 64, 512, 2048), 128),  # 64 by 16
    (Product("matmul", "float16", 1, 1024, 2048, 4096), 128),  # 128 by 256
    (Product("matmul", "float16", 1, 256, 2048, 640), 80),  # 64 by 32, or 32 by 64
    (Product("matmul", "float16", 3, 8, 512, 64), 3),  # 8 by 64 takes fewer
    (Product("pointwise", "float16", 1, 1024, 256, 64), 128),
    (Product("matmul", "float32", 1, 64, 512, 2048), 7),
    (Product("convolution", "float16", 1, 1024, 576, 64), 7),
])  # fmt: skip
def test_half_precision_is_launched_in_the_largest_tiles_that_fill_the_chip(product, blocks):
    launched = as_launched(Cost(8, 8, blocks=7, threads=128, product=product))
    assert launched.blocks == blocks
    assert (launched.per_multiprocessor == 1) == (blocks != 7)


@pytest.mark.parametrize("count", [1, 512])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_less_work_takes_no_longer_on_an_h200_but_where_libraries_have_kernels_of_their_own(dtype, count):
    tables = CostModel.load().product_times

    def ns(rows, inner, columns):
        product = Product("matmul", dtype, count, rows, inner, columns)
        return tables[table_of(product)].of(product)

    for inner, columns in ((64, 64), (64, 1024), (1024, 512), (8192, 4096)):
        whole = ns(64, inner, columns)
        assert all(ns(rows, inner, columns) <= 1.3 * whole for rows in (33, 40, 56, 63))
        assert all(ns(rows, inner, min(columns, 32) if count > 1 else columns) <= 2.5 * whole for rows in (1, 8, 16, 32))
