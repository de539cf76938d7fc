"""Tuning: which kernels it times, what it chooses, and that the choice is kept and used."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamscope as ss
from streamscope.compiling.tuning import LEAST_GAIN, VARIANTS, TunedKernel, Tuning, fastest, tune
from streamscope.errors import CacheWarning, DeviceError
from streamscope.kernels.compile.compilation_log import CompilationLog
from streamscope.kernels.compile.program_kernels import program_kernels
from streamscope.kernels.compile.tuned_variants import TunedVariants, tuned_variants
from streamscope.kernels.form import DEFAULT, Variant
from streamscope.kernels.source import KernelSource
from streamscope.program.reference import run_reference

pytest.importorskip("cuda.bindings.nvrtc")

X = np.linspace(0.5, 1.5, 4096, dtype=np.float16).reshape(64, 64)
SOURCE = KernelSource("k", 'extern "C" __global__ void k() {}')
NARROW = Variant(8, 2)


@ss.program
def step(x, y):
    return ss.ops.erf(x) + y, ss.ops.erf(y), ss.ops.sum(x), ss.ops.relu(x)


def test_a_simulated_device_has_nothing_to_time():
    with pytest.raises(DeviceError, match="simulated"):
        tune(step, X, X, device="simulated", progress=False)


@given(st.dictionaries(st.sampled_from(VARIANTS[1:]), st.floats(1.0, 1e9)), st.floats(1.0, 1e9))
def test_the_fastest_is_chosen_where_it_is_not_by_chance(others, default):
    medians = {DEFAULT: default, **others}
    choice = fastest(medians)
    if choice == DEFAULT:
        assert all(default <= median * LEAST_GAIN for median in others.values())
    else:
        assert medians[choice] == min(medians.values())
        assert medians[choice] * LEAST_GAIN < default


class TestChoices:
    def test_they_last(self, tmp_path):
        TunedVariants("a GPU", tmp_path).keep(SOURCE, 100, NARROW, {DEFAULT: 2.0, NARROW: 1.0})
        assert TunedVariants("a GPU", tmp_path).of(SOURCE, 100) == NARROW
        (path,) = tmp_path.iterdir()
        content = json.loads(path.read_text())
        assert content["medians_ns"][1] == {"vector_bytes": 8, "items": 2, "median_ns": 1.0}
        assert content["device"] == "a GPU"

    @pytest.mark.parametrize(
        ("device", "source", "size"),
        [("another", SOURCE, 100), ("a GPU", KernelSource("k", SOURCE.code + " "), 100), ("a GPU", SOURCE, 101)],
    )
    def test_they_count_for_one_device_kernel_and_size(self, tmp_path, device, source, size):
        TunedVariants("a GPU", tmp_path).keep(SOURCE, 100, NARROW, {DEFAULT: 2.0, NARROW: 1.0})
        assert TunedVariants(device, tmp_path).of(source, size) is None

    @pytest.mark.parametrize(
        "content",
        [
            "",
            "{",
            "[]",
            "{}",
            '{"choice": 1}',
            '{"choice": {"vector_bytes": 3, "items": 1}}',
            '{"choice": {"vector_bytes": 8, "items": -1}}',
            '{"choice": {"vector_bytes": "8", "items": 1}}',
            '{"choice": {"vector_bytes": 8, "items": [1]}}',
            '{"choice": {"items": 1}}',
        ],
    )
    def test_a_broken_file_is_no_choice(self, tmp_path, content):
        TunedVariants("a GPU", tmp_path).keep(SOURCE, 100, NARROW, {DEFAULT: 2.0, NARROW: 1.0})
        (path,) = tmp_path.iterdir()
        path.write_text(content)
        assert TunedVariants("a GPU", tmp_path).of(SOURCE, 100) is None

    def test_where_they_cannot_be_written_they_last_as_long_as_the_process(self, tmp_path):
        (tmp_path / "file").write_text("in the way")
        tuned = TunedVariants("a GPU", tmp_path / "file")
        with pytest.warns(CacheWarning, match="cannot be kept"):
            tuned.keep(SOURCE, 100, NARROW, {DEFAULT: 2.0, NARROW: 1.0})
        assert tuned.of(SOURCE, 100) == NARROW

    @pytest.mark.usefixtures("homeless")
    def test_without_a_home_folder_they_last_as_long_as_the_process(self):
        tuned = tuned_variants("a GPU of nobody's")
        assert tuned.of(SOURCE, 100) is None
        tuned.keep(SOURCE, 100, NARROW, {DEFAULT: 2.0, NARROW: 1.0})
        assert tuned_variants("a GPU of nobody's").of(SOURCE, 100) == NARROW


def test_a_program_needs_the_kernels_that_were_chosen(tmp_path):
    traced = ss.program(ss.ops.relu).trace(X)
    tuned = TunedVariants("a GPU", tmp_path)
    (default,) = program_kernels(traced)
    assert program_kernels(traced, tuned) == (default,)
    tuned.keep(default, X.size, NARROW, {DEFAULT: 2.0, NARROW: 1.0})
    (chosen,) = program_kernels(traced, tuned)
    assert chosen.name.startswith("relu_float16_x4x2_")


def test_it_is_shown():
    kernels = (
        TunedKernel("erf_<b>", ((4, 8), (4, 8)), {DEFAULT: 2000.0, NARROW: 1000.0}, NARROW),
        TunedKernel("relu", ((3,), (3,)), {DEFAULT: 1500.0}, DEFAULT),
    )
    tuning = Tuning("a GPU", kernels, CompilationLog())
    assert repr(tuning) == f"<{tuning}>"
    assert str(tuning).splitlines()[1:] == [
        "  erf_<b> [4, 8]: 2.00 µs; 1.00 µs with vectors of 8 bytes, 2 a thread (2.00×)",
        "  relu [3]: 1.50 µs; the default stays",
    ]
    pytest.importorskip("plotly")
    html = tuning._repr_html_()
    assert "erf_&lt;b&gt;" in html
    assert "1 of 2 kernels is faster in another variant" in html


@pytest.mark.gpu
def test_on_a_gpu(tmp_path, monkeypatch):
    monkeypatch.setenv("STREAMSCOPE_CACHE_DIR", str(tmp_path))
    device = ss.open_device("cuda")
    tuning = tune(step, X, X, device=device, progress=False)
    assert sorted(kernel.name.split("_")[0] for kernel in tuning.kernels) == ["add", "erf", "relu"]  # erf once, and no reduction
    for kernel in tuning.kernels:
        assert len(kernel.medians_ns) > 4
        assert all(300 < median < 100_000 for median in kernel.medians_ns.values())
        assert kernel.gain >= 1
    # Whatever was chosen, another choice is used just as well, and computes the same bits.
    results = []
    for choice in (DEFAULT, NARROW, Variant(4, 4)):
        for source in program_kernels(step.trace(X, X)):
            tuned_variants(device.info.name).keep(source, X.size, choice, {DEFAULT: 2.0})
        prepared = ss.prepare(step.trace(X, X), engine="graph", device=ss.open_device("cuda"))
        prepared.load([X, X])
        prepared.run()
        prepared.wait()
        results.append([output.tobytes() for output in prepared.outputs()])
    assert results[0] == results[1] == results[2]
    for found, expected in zip(prepared.outputs(), run_reference(step.trace(X, X), [X, X]), strict=True):
        np.testing.assert_allclose(found, expected, rtol=2e-3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ss.warm(step, X, X, device=device, progress=False)
