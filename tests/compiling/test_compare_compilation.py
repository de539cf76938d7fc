"""Compiling one by one and together: the same kernels, nothing from a cache, both on one axis."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

import streamscope as ss
from streamscope.compiling.compare_compilation import compare_compilation, never_compiled
from streamscope.errors import CompilationError, ProgramError
from streamscope.kernels.compile.compilation_log import CompileStage
from streamscope.kernels.compile.kernel_cache import Origin
from streamscope.kernels.compile.nvrtc import compile_unit
from streamscope.kernels.compile.program_kernels import program_kernels
from streamscope.kernels.source import KernelSource

pytest.importorskip("cuda.bindings.nvrtc")

X = np.ones((8, 16), np.float32)


@ss.program
def step(x):
    return ss.ops.softmax(ss.ops.relu(x)), ss.ops.tanh(x) * 2.0, ss.ops.sum(x)


@pytest.fixture(scope="module")
def compared():
    progress = []
    return compare_compilation(step, X, device="simulated", repeats=2, progress=lambda *report: progress.append(report)), progress


def test_both_compile_every_kernel(compared):
    comparison, _ = compared
    names = sorted(kernel.name for kernel in program_kernels(step.trace(X)))
    for log in (comparison.one_by_one, comparison.together):
        assert sorted(record.name for record in log.kernels) == names
        assert {record.origin for record in log.kernels} == {Origin.COMPILED}
    compiled = [sum(stage.stage is CompileStage.COMPILE for stage in log.stages) for log in (comparison.one_by_one, comparison.together)]
    assert compiled[0] == len(names) > compiled[1]


def test_they_take_turns(compared):
    comparison, progress = compared
    assert [what for what, _, _ in progress] == ["one by one", "together", "together", "one by one"]
    assert [(step, steps) for _, step, steps in progress] == [(0, 4), (1, 4), (2, 4), (3, 4)]
    assert len(comparison.ratios) == 2


@pytest.mark.parametrize(
    ("ratios", "words"),
    [
        ((2.0, 4.0) * 3, "faster (2.0× to 4.0× in 6 repeats)"),
        ((0.9, 1.2) * 3, "no clear difference (0.9× to 1.2× in 6 repeats)"),
        ((0.7, 0.9) * 3, "slower (0.7× to 0.9× in 6 repeats)"),
        ((2.0,), "too few repeats to tell"),
        ((2.0,) * 5, "too few repeats to tell (2.0× to 2.0× in 5 repeats)"),
    ],
)
def test_what_may_be_chance_is_not_called_faster(compared, ratios, words):
    assert str(replace(compared[0], ratios=ratios)).endswith(words)


def test_one_kernel_alone_has_nothing_to_gain():
    comparison = compare_compilation(ss.program(ss.ops.relu), X, device="simulated", repeats=1, progress=False)
    assert str(comparison).startswith("relu: 1 kernel compiles in ")
    assert str(comparison).endswith(": alone, one by one and together are the same")


@pytest.mark.parametrize("options", [{"repeats": 0}, {"repeats": 1.5}, {"workers": 0}])
def test_wrong_numbers_are_told_before_anything_is_compiled(options):
    with pytest.raises(CompilationError):
        compare_compilation(step, X, device="simulated", progress=lambda *report: pytest.fail("compiled"), **options)


def test_it_is_shown(compared):
    comparison, _ = compared
    assert str(comparison).startswith("step: 5 kernels compile in ")
    assert repr(comparison) == f"<{comparison}>"  # no machine code, which a notebook would keep
    assert repr(comparison.together) == f"<{comparison.together}>"
    assert comparison.faster == comparison.one_by_one.wall_ns / comparison.together.wall_ns
    pytest.importorskip("plotly")
    html = comparison._repr_html_()
    assert html.count("<img") == 2
    widget = pytest.importorskip("streamscope_widgets.timeline").TimelineWidget
    assert isinstance(comparison.timeline(), widget)


def test_no_source_is_like_one_before():
    kernel = KernelSource("k", 'extern "C" __global__ void k(float* x) { x[0] = 1; }\n')
    codes = [never_compiled([kernel])[0].code for _ in range(3)]
    assert len(set(codes)) == 3
    for image, log in (compile_unit(code, "k", "sm_90") for code in codes):
        assert image
        assert log == ""  # What differs is no warning in the log of a kernel that has some of its own.


def test_kernels_that_do_not_compile_are_told_as_they_are():
    bad, worse = (ss.elementwise(f"y = {name}(x)", name=name, reference=np.negative) for name in ("bad", "worse"))
    with pytest.raises(CompilationError) as caught:
        compare_compilation(ss.program(lambda x: (ss.ops.relu(x), bad(x), worse(x))), X, device="simulated", progress=False)
    message = caught.value.message
    first = re.match(
        r"2 kernels did not compile \(((bad|worse)_\w+), \w+\); the first:\n"
        r'ss.elementwise\("y = \2\(x\)"\) at test_compare_compilation.py:\d+: kernel \'\1\' did not compile for sm_90:\n'
        r'\1\.cu\(\d+\): error: identifier "\2" is undefined\n',
        message,
    )
    assert first is not None, message
    assert " turn " not in message


def test_what_needs_no_kernel():
    with pytest.raises(ProgramError, match="needs no kernel that is made at run time"):
        compare_compilation(ss.program(ss.ops.matmul), X, X.T.copy(), device="simulated", progress=False)


@pytest.mark.parametrize("architecture", ["sm_1", "sm_90 ", "compute_90", "", b"sm_90", 90])
def test_an_unknown_architecture(architecture):
    with pytest.raises(CompilationError, match="architecture="):
        compare_compilation(step, X, architecture=architecture, progress=lambda *report: pytest.fail("compiled"))


def test_more_repeats_than_anything_holds():
    with pytest.raises(CompilationError, match="repeats"):
        compare_compilation(step, X, device="simulated", repeats=10**7, progress=False)
