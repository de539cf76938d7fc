"""Names that an operand may have: all that are not reserved, whatever else the generated source calls so."""

from __future__ import annotations

import re

import pytest

import streamscope as ss
from streamscope.errors import ProgramError
from streamscope.rtc.batch import compile_batch
from streamscope.rtc.kernel_cache import KernelCache
from streamscope.rtc.signature import RESERVED
from streamscope.rtc.source import KernelSource

WORD = re.compile(r"[A-Za-z_]\w*")


def sources(operator):
    """Return sources of all forms: plain, masked, broadcast, strided, two vectors a thread, half, adding, a gradient that sums."""
    either = "float16", "float32"
    yield operator.source(*either)
    yield operator.source(*either, request="add")
    yield operator.source(*either, shapes=[(33, 64), (64,)])
    yield operator.source(*either, shapes=[(33, 63), (63,)])
    yield operator.source("float32", "float32", shapes=[(2, 3, 64), (2, 1, 64)])
    yield operator.source(*either, shapes=[(1001,), (1001,)], items=2)
    yield operator.source("float32", "float32", shapes=[(4, 8, 64), (8, 1)], gradient_of=operator.definition.operands[1])


def words_of_sources():
    code = re.sub(r"//.*|\"[^\"]*\"", "", "\n".join(sources(ss.multiply)))
    return sorted({word for word in WORD.findall(code) if not word.startswith("multiply_") and not word.endswith("_values")})


def test_what_is_not_reserved_compiles_as_an_operand(tmp_path):
    pytest.importorskip("cuda.bindings.nvrtc")
    free = [word for word in words_of_sources() if word not in RESERVED and not word.startswith("__") and word not in ("x", "dy")]
    assert len(free) > 10
    kernels = {}
    for word in free:
        operator = ss.elementwise(f"y = x * {word}", operands=["x", word], gradient={"x": f"dy * {word}", word: "dy * x"})
        for code in sources(operator):
            name = re.search(r"__launch_bounds__\(\d+\)\n(\w+)\(", code)[1]
            kernels[name] = KernelSource(name, code)
    result = compile_batch(list(kernels.values()), "sm_90", cache=KernelCache(tmp_path))
    assert {source.name for source in result.failures} == set()


@pytest.mark.parametrize("word", ["shift", "layout", "put", "threadIdx", "NULL", "float", "__x", "dy", "out", "x_values"])
def test_what_is_reserved_is_refused(word):
    with pytest.raises(ProgramError, match=f"'{word}' cannot be a name of an operand"):
        ss.elementwise(f"y = x * {word}", operands=["x", word])


def test_the_gradient_of_the_result_is_no_operand():
    with pytest.raises(ProgramError, match="'dz' cannot be a name of an operand"):
        ss.elementwise("z = x * dz", gradient={"x": "dz * dz"})
