"""Keys of several columns."""

import numpy as np

from streamscope.analysis.matching import packed


def test_keys_of_columns_too_wide_for_one_number_are_equal_where_rows_are():
    wide = 1 << 40
    key = packed(np.array([0, wide, 0, wide, -1]), np.array([0, wide, wide, wide, wide]))
    assert [key.tolist().index(each) for each in key] == [0, 1, 2, 1, 4]
