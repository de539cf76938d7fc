"""A parallelised function in a notebook."""

from __future__ import annotations

from types import SimpleNamespace

from tests.parallelising.gains import gain

import streamscope as ss
from streamscope_widgets.parallelised_view import NOT_RECORDED, parallelised_html


def test_it_shows_the_verdict_the_times_and_the_certificate_with_everything_escaped():
    shown = SimpleNamespace(gain=gain(1616, 909, 1.78, name="net <script>"), recorded=None)
    page = parallelised_html(shown)
    assert "net &lt;script&gt; · NVIDIA H200" in page
    assert "<script>" not in page
    assert "1.78× as fast (1.76 to 1.80)" in page
    assert "captured order" in page
    assert "relu &lt;b&gt;" in page
    assert NOT_RECORDED in page


def test_once_both_orders_are_recorded_they_stand_on_one_axis():
    function, inputs = ss.workload("branches").build()
    recorded = ss.compare(function, *inputs, engines="graph,graph-dual", device="simulated", progress=False)
    page = parallelised_html(SimpleNamespace(gain=gain(1616, 909, 1.78), recorded=recorded))
    assert "data:image/svg+xml" in page
    assert NOT_RECORDED not in page
    assert len(page) < 200_000
