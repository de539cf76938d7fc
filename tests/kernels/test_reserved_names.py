"""Names that an operand may have: all that mean nothing else in an expression, whatever the generated source calls so."""

from __future__ import annotations

import inspect
import re

import numpy as np
import pytest
from tests.sources import source_of

import streamscope as ss
from streamscope.errors import ProgramError
from streamscope.kernels.compile.batch import compile_batch
from streamscope.kernels.compile.kernel_cache import KernelCache
from streamscope.kernels.expression.tokens import RESERVED
from streamscope.kernels.source import KernelSource
from streamscope.program.reference import run_reference

WORD = re.compile(r"[A-Za-z_]\w*")
AT_ONCE = 24


def sources(operator):
    """Return sources of all forms: plain, masked, broadcast, strided, two vectors a thread, half, adding, a gradient that sums."""
    count = len(operator.definition.operands) - 1
    either, double = ["float16", *["float32"] * count], ["float64"] * (count + 1)  # vectors of two are quick to compile
    yield source_of(operator, *either)
    yield source_of(operator, *either, request="add")
    yield source_of(operator, *either[:-1], 0.5)
    yield source_of(operator, *double, shapes=[(33, 64), *[(64,)] * count])
    yield source_of(operator, *double, shapes=[(33, 63), *[(63,)] * count])
    yield source_of(operator, *double, shapes=[(2, 3, 64), *[(2, 1, 64)] * count])
    yield source_of(operator, *double, shapes=[(1001,)] * (count + 1), items=2)
    yield source_of(operator, *double, shapes=[(4, 8, 64), *[(8, 1)] * count], gradient_of=operator.definition.operands[1])


def words_of_sources():
    code = re.sub(r"//.*|\"[^\"]*\"", "", "\n".join(sources(ss.ops.multiply)))
    return sorted({word for word in WORD.findall(code) if not word.startswith(("multiply_", "__"))} - RESERVED)


def added(words):
    expression = " + ".join(words)
    return ss.elementwise(f"y = {expression}", gradient=dict.fromkeys(words, f"dy * ({expression})"))


def test_whatever_the_kernels_call_something_may_be_an_operand(tmp_path):
    pytest.importorskip("cuda.bindings.nvrtc")
    free = [word for word in words_of_sources() if word not in ("dy", "y")]
    assert {"n", "k", "out", "size", "value", "at", "from", "place", "layout", "vector", "half_t", "in_a", "held_in_a"} <= set(free)
    kernels = {}
    for first in range(0, len(free), AT_ONCE):
        for code in sources(added(["x", *free[first : first + AT_ONCE]])):
            name = re.search(r"__launch_bounds__\(\d+\)\n(\w+)\(", code)[1]
            kernels[name] = KernelSource(name, code)
    result = compile_batch(list(kernels.values()), "sm_90", cache=KernelCache(tmp_path))
    assert {source.name for source in result.failures} == set()


NAMES = ["i", "j", "k", "n", "out", "row", "size", "value", "first", "last", "count", "request", "x", "x_values", "in_x", "offset"]


@pytest.mark.parametrize("shapes", [[(40,)], [(5, 8), (8,), (5, 1)]], ids=["plain", "broadcast"])
def test_operands_are_called_as_their_user_likes(new_bench, bound_program, shapes):
    expression = " + ".join(f"{number} * {name}" for number, name in enumerate(NAMES, 1))
    total = ss.elementwise(f"sum = {expression}", gradient={name: f"dsum * {number}" for number, name in enumerate(NAMES, 1)})
    random = np.random.default_rng(0)
    inputs = [random.integers(-9, 9, shapes[number % len(shapes)]).astype(np.float32) for number in range(len(NAMES))]
    bench = new_bench()
    program = bound_program(bench, lambda *each: (total(*each), *total.gradient(total(*each), *each)), inputs)
    bench.finish()
    for found, expected in zip(program.run(), run_reference(program.program, inputs), strict=True):
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(program.run()[0], sum(number * each for number, each in enumerate(inputs, 1)))


def test_operands_called_like_options_are_programs_arguments_too():
    total = ss.elementwise("y = out * request + x")
    assert list(inspect.signature(total).parameters) == ["out_", "request_", "x", "out", "request"]
    traced = ss.program(total).trace(*[np.ones(3, np.float32)] * 3)
    assert [variable.name for variable in traced.variables[:3]] == ["out_", "request_", "x"]


@pytest.mark.parametrize("word", ["T", "threadIdx", "NULL", "float", "__x", "dy"])
def test_what_is_reserved_is_refused(word):
    with pytest.raises(ProgramError, match=f"'{word}' cannot be a name of an operand"):
        ss.elementwise(f"y = x * {word}", operands=["x", word])


def test_the_gradient_of_the_result_is_no_operand():
    with pytest.raises(ProgramError, match="'dz' cannot be a name of an operand"):
        ss.elementwise("z = x * dz", gradient={"x": "dz * dz"})
