"""Stamped kernels: the same code with stamps around it."""

from __future__ import annotations

import re

import numpy as np
import pytest

import streamscope as ss
from streamscope.kernels.compile.batch import compile_batch, grouped, unit_code
from streamscope.kernels.compile.kernel_cache import kernel_key
from streamscope.kernels.compile.program_kernels import program_kernels
from streamscope.kernels.source import STAMPS, KernelSource, stamped


@ss.program
def every_kind(x, y, z, indices, image):
    """Apply operators that need a kernel of each kind that is generated."""
    return (
        ss.ops.relu(x) * y + 1,
        ss.ops.softmax(x),
        ss.ops.softmax(x, axis=0),
        ss.ops.log_softmax(x.astype("float16")),
        ss.ops.sum(x),
        ss.ops.sum(x, axis=0),
        ss.ops.max(x, axis=1),
        ss.ops.argmax(z, axis=1),
        ss.ops.cumsum(x, axis=1),
        ss.ops.concatenate([x, y]),
        ss.ops.take(x, indices, axis=0),
        ss.ops.layer_norm(x, y[0], y[1]),
        ss.ops.max_pool(image, 2),
        x.T.copy(),
        x.astype("float64"),
    )


def its_inputs() -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, 64, 96)).astype("float32")
    return x, y, (x > 0), rng.integers(0, 64, 10).astype("int64"), rng.standard_normal((1, 8, 8, 4)).astype("float32")


@pytest.fixture(scope="module")
def sources() -> tuple[KernelSource, ...]:
    return program_kernels(every_kind.trace(*its_inputs()))


def test_a_stamped_kernel_is_the_plain_one_with_one_argument_and_one_line_more(sources):
    assert len(sources) >= 14
    for plain in sources:
        source = stamped(plain)
        assert source.name == f"{plain.name}_stamped"
        assert source.code.startswith(STAMPS)
        code = source.code.removeprefix(f"{STAMPS}\n").replace(", unsigned long long* stamps_of_blocks)", ")")
        code = code.replace("    const stamped_block stamped(stamps_of_blocks);\n", "").replace(source.name, plain.name)
        assert re.sub(r"\s+", "", code) == re.sub(r"\s+", "", plain.code)


def test_stamped_kernels_compile_together_and_have_keys_of_their_own(sources):
    pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC's bindings are not installed")
    twins = [stamped(source) for source in sources]
    result = compile_batch(twins, "sm_90")
    result.check()
    assert all(source.name in result.cubins[source].resources for source in twins)
    keys = {kernel_key(source, "sm_90") for source in (*sources, *twins)}
    assert len(keys) == len(sources) + len(twins)


def test_what_all_stamped_kernels_share_stands_once(sources):
    (group, *_) = grouped([stamped(source) for source in sources], 1)
    assert unit_code(group).count("struct stamped_block") == 1


def test_a_kernel_without_parameters_gets_its_only_one():
    source = stamped(KernelSource("nothing", 'extern "C" __global__ void nothing() {}\n'))
    assert "nothing_stamped(unsigned long long* stamps_of_blocks)" in source.code


def test_a_source_without_the_kernel_is_refused():
    with pytest.raises(ValueError, match="'other' is declared 0 times"):
        stamped(KernelSource("other", 'extern "C" __global__ void nothing() {}\n'))
