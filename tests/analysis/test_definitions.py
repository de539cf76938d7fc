"""What a table says of its columns."""

import re

import pytest

from streamscope.analysis.table import AGAINST, QUANTITIES


@pytest.mark.parametrize("quantity", [*QUANTITIES, AGAINST], ids=lambda quantity: quantity.heading)
def test_the_unit_of_a_definition_is_the_one_that_the_column_shows(quantity):
    for unit in re.findall(r"Unit: ([^.;,]+)", quantity.definition):
        assert unit == (quantity.unit or "none")
