"""How many combinations the tests try: a share that tries each pair, or with ``STREAMSCOPE_THOROUGH=1`` all of them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

THOROUGH = os.environ.get("STREAMSCOPE_THOROUGH", "0") != "0"


def in_pairs(first: Sequence[Any], second: Sequence[Any], third: Sequence[Any]) -> Iterator[tuple[Any, Any, Any]]:
    """Yield combinations of three lists, in which each value of the first two comes with each of the other, and moves through the third.

    A kernel is generated from parts that do not know each other: what a reduction does with two values, how a dtype is loaded, how a
    layout is walked. A bug of a part shows wherever the part is used, and one between two parts wherever the two meet.
    """
    for (i, one), (j, two) in product(enumerate(first), enumerate(second)):
        for k, three in enumerate(third):
            if THOROUGH or k == (i + j) % len(third):
                yield one, two, three
