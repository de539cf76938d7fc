"""A recorder of another package: chosen by its name like ours, and told of in what it recorded."""

from __future__ import annotations

import numpy as np
import pytest
from tests.comparing.test_recorders import WithoutLog

import streamscope as ss
from streamscope.cli.main import main
from streamscope.errors import RecordingError
from streamscope.recorder_entry import RECORDERS

X = np.ones((8, 8), np.float32)
NAME = "shortest"


def compared():
    return ss.compare(lambda x: x @ x + x, X, engines="async,graph", device=WithoutLog(), repeats=1, progress=False, recorder=NAME)


def test_trace_and_report_tell_of_it(guest, tmp_path):
    runs = compared()
    for run in runs.values():
        assert run.trace.info.recorder == NAME
        assert run.metrics.kernel_count == 2
    pytest.importorskip("streamscope_widgets")
    assert f"by {NAME}" in runs.report(tmp_path / "runs.html").read_text(encoding="utf-8")


def test_the_terminal_takes_it(guest):
    assert main(["compare", "branches", "--engines", "async", "--device", "simulated", "--recorder", NAME]) == 0


def test_it_is_named_where_a_recorder_is_unknown(guest):
    with pytest.raises(RecordingError) as caught:
        ss.compare(lambda x: x + x, X, device="simulated", progress=False, recorder="nsight")
    assert caught.value.hint == f"one of {', '.join((*RECORDERS.own, NAME))}"


class Failing:
    def __init__(self, record):
        self.record = record

    def on(self, device):
        return self


def no_lane(prepared, reload):
    return {}["lane"]


def refuses(prepared, reload):
    raise RecordingError("no permission")


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (Failing(no_lane), "^recorder 'shortest' of the package 'steplog' failed: KeyError: 'lane'"),
        (Failing(lambda prepared, reload: None), "^recorder 'shortest' of the package 'steplog' returned a NoneType, not a Trace"),
        (Failing(refuses), "^no permission"),
        (type("NotOne", (), {"on": staticmethod(lambda device: 1 / 0)}), "^recorder .* 'steplog' failed: ZeroDivisionError"),
    ],
)
def test_one_that_fails_is_an_error_that_names_its_package(guest, monkeypatch, entry, said):
    monkeypatch.setitem(RECORDERS.guests(), NAME, entry)
    with pytest.raises(RecordingError, match=said):
        compared()
