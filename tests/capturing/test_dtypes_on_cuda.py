"""Captured and parallelised functions of arrays in every dtype of PyTorch's and CuPy's."""

from __future__ import annotations

import numpy as np
import pytest

import streamscope as ss
from streamscope.capturing.arrays import copy_of
from streamscope.errors import ProgramError
from streamscope.parallelising.device_arrays import holds_the_same

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore:ComplexHalf support")]

NUMPYS = ["bool", "uint16", "uint64", "int64", "float16", "complex64"]
OTHERS = [
    "bfloat16", "complex32", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu",
    "float4_e2m1fn_x2", "bits8", "bits16", "int4", "uint4", "uint1",
]  # fmt: skip


def turned(torch, x):
    """Return two results that two branches make, and change nothing; of any dtype, since it moves bytes."""
    raw = x.view(torch.uint8)
    return raw.flip(0).contiguous().view(x.dtype), torch.roll(raw, 1, 0).view(x.dtype)


@pytest.mark.parametrize("name", [*NUMPYS, *OTHERS])
def test_pytorchs(torch, name):
    dtype = getattr(torch, name, None)
    if dtype is None:
        pytest.skip(f"this PyTorch has no {name}")
    raw = torch.from_numpy(np.random.default_rng(0).integers(0, 2 if name == "bool" else 120, (64, 64), np.uint8))
    x = raw.cuda().view(dtype)
    before = copy_of(x)

    def function(x):
        return turned(torch, x)

    if name in OTHERS:
        runs = ss.compare(ss.capture(function, x), engines="graph,graph-dual", repeats=2, progress=False)
        assert all(run.correct for run in runs.values())
    fast = ss.parallelise(function, x, progress=False, check=3)
    other = copy_of(x).view(torch.uint8).flip(1).contiguous().view(dtype)
    for given in (x, other):
        for found, wanted in zip(fast(given), function(given), strict=True):
            assert found.dtype == dtype
            assert holds_the_same(found, wanted)
    assert holds_the_same(x, before)


def test_a_product_of_float8(torch):
    x = torch.randn(64, 64, device="cuda").to(torch.float8_e4m3fn)
    w = torch.randn(64, 64, device="cuda").to(torch.float8_e4m3fn).t()
    scale = torch.ones((), device="cuda")

    def function(x, w):
        made = torch._scaled_mm(x, w, scale_a=scale, scale_b=scale, out_dtype=torch.bfloat16)
        return made.relu().to(torch.float8_e4m3fn), made

    runs = ss.compare(ss.capture(function, x, w), engines="graph,graph-dual", repeats=2, progress=False)
    assert all(run.correct for run in runs.values())
    fast = ss.parallelise(function, x, w, progress=False, check=5)
    for found, wanted in zip(fast(x, w), function(x, w), strict=True):
        assert holds_the_same(found, wanted)


@pytest.mark.filterwarnings("ignore:torch.quantize")
def test_a_quantized_result_is_refused_by_name(torch):
    x = torch.randn(8, device="cuda")
    with pytest.raises(ProgramError, match="returned a quantized tensor"):
        ss.capture(lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8), x)


@pytest.mark.parametrize("name", NUMPYS)
def test_cupys(cupy, name):
    x = cupy.asarray(np.random.default_rng(0).integers(0, 2, (64, 64)).astype(name))

    def function(x):
        return cupy.flip(x, 0).copy(), cupy.roll(x, 1)

    runs = ss.compare(ss.capture(function, x), engines="graph,graph-dual", repeats=2, progress=False)
    assert all(run.correct for run in runs.values())
    fast = ss.parallelise(function, x, progress=False, check=3)
    for found, wanted in zip(fast(x.T.copy()), function(x.T.copy()), strict=True):
        assert holds_the_same(found, wanted)
