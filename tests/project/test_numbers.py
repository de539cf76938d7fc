"""The documentation says what the committed data say."""

from __future__ import annotations

import importlib
import sys

import pytest


@pytest.fixture(scope="module", autouse=True)
def scripts(repository):
    sys.path.insert(0, str(repository / "scripts"))
    yield
    sys.path.remove(str(repository / "scripts"))


@pytest.fixture(scope="module")
def tables(scripts):
    return importlib.import_module("measured_tables")


def test_the_measured_tables_are_those_of_the_data(repository, tables):
    shown = []
    for name in tables.PAGES:
        text = (repository / "docs" / name).read_text(encoding="utf-8")
        assert text == tables.page_with_tables(text), f"run scripts/measured_tables.py: {name} is older than the data"
        shown += [place[1] for place in tables.PLACE.findall(text)]
    assert sorted(shown) == sorted(tables.TABLES)


def test_the_charts_are_those_of_the_data(repository):
    for name, chart in importlib.import_module("headline_charts").CHARTS.items():
        picture = (repository / "docs" / "headlines" / f"{name}.svg").read_text(encoding="utf-8")
        assert picture == chart() + "\n", f"run scripts/headline_charts.py: the chart {name} is older than the data"


def test_results_that_the_documentation_rests_on_are_good(scripts):
    data = importlib.import_module("page_tables.parts").data
    for name in ("memcheck", "racecheck"):
        tool = data("sanitizers")["tools"][name]
        assert (tool["tests_failed"], tool["findings"]) == (0, 0)
    assert data("soak")["flat"]
    assert min(row["share_of_copy"] for row in data("bandwidth")["rows"]) >= 0.9
