"""The documentation says what the committed data say."""

from __future__ import annotations

import importlib.util

import pytest


@pytest.fixture(scope="module")
def tables(repository):
    spec = importlib.util.spec_from_file_location("measured_tables", repository / "scripts" / "measured_tables.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_measured_tables_are_those_of_the_data(repository, tables):
    shown = []
    for name in tables.PAGES:
        text = (repository / "docs" / name).read_text(encoding="utf-8")
        assert text == tables.page_with_tables(text), f"run scripts/measured_tables.py: {name} is older than the data"
        shown += [place[1] for place in tables.PLACE.findall(text)]
    assert sorted(shown) == sorted(tables.TABLES)
    for name, chart in tables.CHARTS.items():
        picture = (repository / "docs" / "headlines" / f"{name}.svg").read_text(encoding="utf-8")
        assert picture == chart() + "\n", f"run scripts/measured_tables.py: the chart {name} is older than the data"


def test_results_that_the_documentation_rests_on_are_good(tables):
    for name in ("memcheck", "racecheck"):
        tool = tables.data("sanitizers")["tools"][name]
        assert (tool["tests_failed"], tool["findings"]) == (0, 0)
    assert tables.data("soak")["flat"]
    assert min(row["share_of_copy"] for row in tables.data("bandwidth")["rows"]) >= 0.9
