from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streamscope as ss
from streamscope.errors import WorkloadError
from streamscope.program.launch import LaunchKind
from streamscope.program.reference import run_reference
from streamscope.workloads import WORKLOADS

SMALL = {
    "elementwise-chain": {"length": 7, "size": 33},
    "conv-backward": {"channels": 3, "size": 5, "batch": 2},
    "branches": {"branches": 3, "length": 4, "size": 33, "copies": 0},
    "pipeline": {"chunks": 3, "size": 33},
    "cnn": {"size": 4, "channels": 8, "blocks": 2, "batch": 2},
    "attention": {"length": 5, "heads": 2, "depth": 3, "batch": 2},
    "lstm": {"steps": 3, "width": 4, "batch": 2, "layers": 2, "training": 0},
    "resnet-block": {"size": 3, "channels": 2, "batch": 2},
    "resnet50-v2": {"batch": 2, "size": 33, "training": 0, "half": 1, "depth": 1, "width": 8},
    "transformer": {"layers": 1, "heads": 2, "depth": 3, "length": 4, "batch": 2, "prenorm": 0, "training": 0, "half": 1},
    "data-parallel": {"gpus": 2, "layers": 2, "width": 16, "rows": 4, "bucket": 0, "priority": 0, "overlap": 1},
    "tensor-parallel": {"gpus": 2, "blocks": 2, "width": 64, "tokens": 3, "batches": 2},
    "pipeline-parallel": {"gpus": 2, "layers": 1, "width": 16, "rows": 3, "batches": 3, "interleaved": 1},
    "expert-parallel": {"gpus": 2, "blocks": 1, "width": 16, "tokens": 2, "batches": 2},
}
LONG = [
    ("elementwise-chain", {"length": 5_000, "size": 8}),
    ("branches", {"branches": 2, "length": 1_500, "size": 8}),
    ("cnn", {"size": 3, "channels": 8, "blocks": 64}),
    ("lstm", {"steps": 200, "width": 8}),
]


def traced(name, **values):
    program, inputs = ss.workload(name).build(**values)
    return program.trace(*inputs), inputs


def test_the_workloads():
    assert list(WORKLOADS) == list(SMALL)
    for name, workload in WORKLOADS.items():
        assert workload.name == name
        assert workload.description
        assert list(workload.settings) == list(SMALL[name])
        assert all(setting.meaning for setting in workload.settings.values())


@pytest.mark.parametrize("name", SMALL)
def test_outputs_are_finite_and_say_something(name):
    program, inputs = traced(name, **SMALL[name])
    for output in run_reference(program, inputs):
        assert np.isfinite(output).all()
        assert np.unique(output).size > 1


@pytest.mark.parametrize(("name", "values"), LONG)
def test_outputs_of_long_ones_are_finite_too(name, values):
    program, inputs = traced(name, **values)
    assert all(np.abs(output).max() < 100 for output in run_reference(program, inputs))  # What grows would not stay finite for ever.


@pytest.mark.parametrize("name", SMALL)
def test_the_same_each_time(name):
    (first, inputs), (second, again) = (traced(name, **SMALL[name]) for _ in range(2))
    assert str(first) == str(second)
    for array, same in zip(inputs, again, strict=True):
        np.testing.assert_array_equal(array, same)


@pytest.mark.parametrize("name", SMALL)
def test_settings_come_as_text_from_the_command_line(name):
    as_text, _ = traced(name, **{key: str(value) for key, value in SMALL[name].items()})
    as_numbers, _ = traced(name, **SMALL[name])
    assert str(as_text) == str(as_numbers)


@pytest.mark.parametrize("name", SMALL)
def test_the_defaults_trace(name):
    program, specs = ss.workload(name).outline()  # Whole networks have millions of weights.
    assert program.trace(*specs).operations


@settings(max_examples=20)
@given(st.integers(1, 30), st.integers(1, 5))
def test_settings_decide_how_many_operations_there_are(length, branches):
    assert len(traced("elementwise-chain", length=length, size=3)[0].operations) == length
    program, _ = traced("branches", branches=branches, length=length, size=3)
    assert len(program.operations) == branches * length + branches - 1


@pytest.mark.parametrize("name", SMALL)
def test_an_outline_is_what_the_inputs_are_like(name):
    program, inputs = ss.workload(name).build(**SMALL[name])
    outlined, specs = ss.workload(name).outline(**SMALL[name])
    assert [(spec.shape, spec.dtype) for spec in specs] == [(array.shape, array.dtype) for array in inputs]
    assert str(outlined.trace(*specs)) == str(program.trace(*inputs))


def test_branches_with_copies_go_to_the_device_and_back_each_by_itself():
    program, inputs = traced("branches", branches=3, length=2, size=4, copies=1)
    kinds = [launch.kind for launch in program.launches()]
    assert [kinds.count(kind) for kind in LaunchKind] == [3 * 2, 3, 3, 0, 0]
    x, *scales = inputs
    for output, scale in zip(run_reference(program, inputs), scales, strict=True):
        np.testing.assert_array_equal(output, np.maximum(scale * x, 0))


def test_a_pipeline_has_copies_and_host_steps():
    program, _ = traced("pipeline", chunks=2, size=3)
    kinds = [launch.kind for launch in program.launches()]
    assert [kinds.count(kind) for kind in LaunchKind] == [2 * 12, 2, 2, 0, 0]
    assert sum(not operation.launches for operation in program.operations) == 2


def test_conv_backward_by_hand():
    program, (x, w, dy) = traced("conv-backward", channels=1, size=1)
    dx, dw = run_reference(program, (x, w, dy))
    # One pixel with a border of zeros: only the middle of the filter meets it.
    np.testing.assert_allclose(dx.item(), float(w[0, 1, 1, 0]) * float(dy.item()), rtol=1e-3)
    expected = np.zeros((3, 3))
    expected[1, 1] = float(x.item()) * float(dy.item())
    np.testing.assert_allclose(dw[0, :, :, 0], expected, rtol=1e-3)


def test_an_unknown_workload():
    with pytest.raises(WorkloadError, match=r"unknown workload 'resnet' \(choose from elementwise-chain, conv-backward"):
        ss.workload("resnet")


def test_an_unknown_setting():
    with pytest.raises(WorkloadError, match=r"'cnn' has no setting 'lenght' \(it has size, channels, blocks, batch\)"):
        ss.workload("cnn").build(lenght=3)


@pytest.mark.parametrize("value", ["", "three", "1.5", 1.5, 2.0, None, "1e3", "0x10"])
def test_settings_that_are_not_whole_numbers(value):
    with pytest.raises(WorkloadError, match=r"setting size=.* of 'branches' is not a whole number \(1 to .*: "):
        ss.workload("branches").build(size=value)


@pytest.mark.parametrize("name", SMALL)
def test_settings_out_of_range(name):
    workload = ss.workload(name)
    for key, setting in workload.settings.items():
        assert setting.least <= setting.default <= setting.most
        for value in (setting.least - 1, setting.most + 1, str(setting.most + 1), -1):
            with pytest.raises(
                WorkloadError, match=rf"setting {key}={value} of '{name}' is out of range \({setting.least} to {setting.most}\)"
            ):
                workload.build(**{key: value})


@pytest.mark.parametrize("name", SMALL)
def test_the_least_settings_work(name):
    workload = ss.workload(name)
    program, inputs = traced(name, **{key: setting.least for key, setting in workload.settings.items()})
    assert all(np.abs(output).max() < 100 for output in run_reference(program, inputs))  # What grows would not stay finite for ever.
