"""Which tasks a pattern names, and what changes make of tasks, by hand."""

from dataclasses import replace

import pytest

from streamscope.errors import TraceError
from streamscope.predicting.scenario import _by_name, _origins, chosen
from streamscope.predicting.tasks import Task
from streamscope.trace import DeviceInfo, SpanTable, Trace, TraceInfo
from streamscope.trace.origins import Trait


def task(operation, *after, trait=Trait.CAPTURED):
    return Task((operation, 0), "step", trait, after)


def test_names_mean_host_functions_of_the_program_and_no_stretch_of_the_host_between_graphs():
    function, between = task(3, trait=Trait.HOST), task(-1, trait=Trait.HOST)
    assert [_by_name(each, "st*") for each in (task(-1), function, between)] == [True, True, False]
    assert [_by_name(each, "**") for each in (task(-1), function)] == [True, False]


def test_an_operation_has_its_words_as_far_as_they_are_known():
    words = [{"operator": "relu", "label": "first"}, {"module": "inception4a", "text": "none of these"}]
    assert [_origins(task(operation), SpanTable.of(), words) for operation in (0, 1, 2, -1)] == [
        {"relu", "first"}, {"inception4a"}, set(), set(),
    ]  # fmt: skip


@pytest.mark.parametrize(("pattern", "is_kind"), [("copy", True), ("gemm", False)])
def test_a_kind_of_which_there_is_nothing_is_told_as_one(pattern, is_kind):
    trace = Trace(SpanTable.of(("kernel", "step", "main", 0, 5)), TraceInfo("kineto", "p", DeviceInfo("cuda", "card"), "kineto"))
    with pytest.raises(TraceError) as raised:
        chosen([replace(task(-1), rows=(0,))], trace, pattern)
    assert raised.value.hint.startswith(f"nothing in it is of the kind {pattern!r}; ") is is_kind
    assert raised.value.hint.endswith("what takes longest is 'step'")
