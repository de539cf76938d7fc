"""What a table says of its columns."""

import json
import re

import pytest

from streamscope.analysis import definitions, json_lines, measure, summary
from streamscope.analysis.metric import ENGINE, HOST, METRICS, TRACE, UNITS, Metric, definition_of, metrics_of
from streamscope.analysis.table import AGAINST
from streamscope.trace import DeviceInfo, SpanKind, SpanTable, Trace, TraceInfo


@pytest.mark.parametrize("quantity", [*metrics_of(ENGINE), AGAINST], ids=lambda quantity: quantity.heading)
def test_the_unit_of_a_definition_is_the_one_that_the_column_shows(quantity):
    for unit in re.findall(r"Unit: ([^.;,]+)", quantity.definition):
        assert unit == (quantity.unit or "none")


@pytest.mark.parametrize("metric", METRICS.values(), ids=lambda metric: metric.name)
def test_every_metric_is_whole(metric):
    """The contract of an entry: a name that says the unit, a scope, a definition with formula and unit, a value as text."""
    assert metric.name.isidentifier()
    assert metric.scope
    assert set(metric.scope) <= {ENGINE, TRACE, HOST}
    assert metric.unit in UNITS
    assert metric.name.endswith("_us") == (metric.unit == "µs")
    assert metric.name.endswith("_bytes") == (metric.unit == "MiB")
    for function in {metric.function, metric.trace_function}:
        assert len(definition_of(function)) > 40
    assert metric.show_value(None) == "–"
    assert metric.show_value(1.0)
    assert metric.heading.startswith(metric.label)


def longest_us(trace):
    """Longest kernel.

    Formula: max(end - start) over kernels. Unit: µs.
    """
    kernels = trace.spans.duration_ns[trace.spans.kind == SpanKind.KERNEL]
    return kernels.max() / 1000 if len(kernels) else None


def broken(trace):
    """Fail. Unit: none."""
    raise KeyError("no such thing")


@pytest.fixture
def guests(monkeypatch):
    """Metrics of another package: one good, one with the name of a field of ours, and others that fail."""
    added = {
        "longest_us": Metric(name="longest_us", label="longest kernel", unit="µs", function=longest_us),
        "broken": Metric(name="broken", label="broken", unit="", function=broken),
        "nan": Metric(name="nan", label="0 / 0", unit="", function=lambda trace: float("nan"), error="no_such_attribute"),
        "repeats": Metric(name="repeats", label="repeats", unit="", function=lambda trace: -1),
    }
    monkeypatch.setattr(METRICS, "_guests", added)


@pytest.mark.usefixtures("guests")
def test_a_metric_of_another_package_is_everywhere():
    spans = SpanTable.of(("launch", "a", "host", 0, 3_000, 0), ("kernel", "a", "main", 5_000, 25_000, 0))
    trace = Trace(spans, TraceInfo("async", "step", DeviceInfo("cuda", "NVIDIA H200")))
    found, metrics = summary(trace), measure(trace, [40_000] * 9)
    assert found.to_dict()["longest_us"] == metrics.value("longest_us") == 20.0
    assert "longest kernel               20.0 µs" in repr(found)
    assert ("longest kernel", "20.0 µs", "Longest kernel.") in list(found.rows())
    assert "longest kernel, µs" in repr(metrics)
    assert {"longest_us", "broken"} <= {json.loads(line)["name"] for line in json_lines(trace).splitlines()}
    assert {name: defined for name, *_, defined in definitions()}["longest_us"]["trace"].startswith("Longest kernel. Formula:")
    assert "metric 'broken' failed: KeyError: 'no such thing'" in found.warnings
    assert "metric 'broken' failed: KeyError: 'no such thing'" in metrics.flags
    assert metrics.value("broken") is None
    assert any("metric 'nan' failed: ValueError: it is nan" in warning for warning in found.warnings)
    assert json.dumps(metrics.to_dict(), allow_nan=False)
    assert (metrics.to_dict()["longest_us"], metrics.to_dict()["repeats"]) == (20.0, 9)


def test_an_entry_of_ours_that_no_field_holds_is_computed_by_its_function(monkeypatch):
    added = Metric(name="longest_us", label="longest kernel", unit="µs", function=longest_us)
    monkeypatch.setitem(METRICS.own, "longest_us", "streamscope.analysis.catalogue:LONGEST_US")
    monkeypatch.setattr("streamscope.analysis.catalogue.LONGEST_US", added, raising=False)
    monkeypatch.setattr(METRICS, "_loaded", dict(METRICS._loaded))
    spans = SpanTable.of(("launch", "a", "host", 0, 3_000, 0), ("kernel", "a", "main", 5_000, 25_000, 0))
    trace = Trace(spans, TraceInfo("async", "step", DeviceInfo("cuda", "NVIDIA H200")))
    assert summary(trace).to_dict()["longest_us"] == measure(trace, [40_000] * 9).value("longest_us") == 20.0


@pytest.mark.parametrize(
    ("changed", "said"), [({"unit": "fraction"}, "'µs', '%', '×', 'MiB', 'GB/s', ''"), ({"scope": ("run",)}, "'engine', 'trace'")]
)
def test_a_unit_or_scope_that_is_not_known_is_refused(changed, said):
    with pytest.raises(ValueError, match=said):
        Metric(**{"name": "share", "label": "share", "unit": "%", "function": longest_us} | changed)
