"""What tables say of the times in them. These words are pinned here; other tests ask for them."""

from __future__ import annotations

from streamscope.analysis.table import SIMULATED_CAPTION, device_words
from streamscope.trace.trace import DeviceInfo


def test_simulated_times_are_called_so():
    assert device_words(DeviceInfo("simulated", "simulated NVIDIA H200")) == "simulated NVIDIA H200: all times are simulated"
    assert device_words(DeviceInfo("cuda", "NVIDIA H200")) == "NVIDIA H200"
    assert SIMULATED_CAPTION == "All times in this table are simulated."
