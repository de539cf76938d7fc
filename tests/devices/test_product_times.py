"""Tables of products: their entries, what lies between and beyond, and what they refuse."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamscope.devices.product_times import ProductTimes, tiles
from streamscope.errors import DeviceError
from streamscope.program.launch import Product

TABLE = ProductTimes((1.0, 4.0, 64.0), (16.0, 64.0), ((100.0, 200.0), (100.0, 400.0), (1600.0, 6400.0)))


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
    steep = ProductTimes((1.0, 2.0), (1.0, 2.0), ((1.0, 8.0), (8.0, 64.0)))
    assert steep.of(product(4, 2)) == pytest.approx(128)
    falling = ProductTimes((1.0, 2.0), (1.0, 2.0), ((4.0, 2.0), (4.0, 2.0)))
    assert falling.of(product(1, 1000)) == pytest.approx(2)


@given(st.integers(1, 10_000), st.integers(1, 10_000), st.integers(1, 20))
def test_more_work_takes_no_less(rows, inner, factor):
    def ns(*, rows=rows, inner=inner, count=1):
        return TABLE.of(Product("matmul", "float16", count, rows, inner, 100))

    assert min(ns(rows=rows * factor), ns(inner=inner * factor), ns(count=factor)) >= ns() * (1 - 1e-9)


def test_tiles_are_counted_where_they_begin():
    assert (tiles(1, 1), tiles(64, 64), tiles(65, 64), tiles(100, 200)) == (1, 1, 2, 8)


def test_a_table_survives_its_file():
    assert ProductTimes.checked("matmul float16", TABLE.to_dict()) == TABLE


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rate": 1}, "expected tiles, inner and ns"),
        ({"tiles": [1]}, r"axis \[1.0\], expected two or more numbers that grow"),
        ({"inner": [64, 16]}, "that grow"),
        ({"inner": "16"}, "expected numbers"),
        ({"ns": 5}, "expected 3 rows"),
        ({"ns": [[1, 2], [1, 2]]}, "expected 3 rows"),
        ({"ns": [[1, 2], [1, 2], [1]]}, r"rows of \[1, 2\] times, expected 2 in each"),
        ({"ns": [[1, 2], [1, 0], [1, 2]]}, "has 0, expected numbers above 0"),
        ({"ns": [[1, 2], [1, float("nan")], [1, 2]]}, "has nan"),
        ({"ns": [[1, 2], [1, True], [1, 2]]}, "has True"),
    ],
)
def test_an_impossible_table_is_refused(change, message):
    with pytest.raises(DeviceError, match=f"product_times 'matmul float16'.*{message}"):
        ProductTimes.checked("matmul float16", TABLE.to_dict() | change)


def test_what_is_no_table_is_refused():
    with pytest.raises(DeviceError, match="expected tiles, inner and ns"):
        ProductTimes.checked("matmul float16", [1])
