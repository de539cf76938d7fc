"""Reductions planned as operators do, and run by a build of the generated source for the host."""

from __future__ import annotations

import ctypes
import mmap
from types import SimpleNamespace

import numpy as np

from streamscope.kernels.reduce.reduction_plan import checked_axes, plan_reduction, reduced_shape
from streamscope.ops import reductions as operators
from streamscope.ops.reductions import norm_of_order
from streamscope.program.variable import ArraySpec

FLOATS = ["float16", "float32", "float64"]
WHOLE = ["int8", "uint8", "int16", "int32", "int64", "uint64", "bool"]
TOLERANCE = {"float16": 2e-3, "float32": 2e-6, "float64": 1e-13}
GUARD = 64


def operator_named(name):
    return norm_of_order(float(name.removeprefix("norm "))) if name.startswith("norm ") else getattr(operators, name)


def plan_of(name, dtype, shape, axis, **options):
    operator = operator_named(name)
    axes = checked_axes(name, shape, axis)
    x = ArraySpec(shape, dtype)
    result = ArraySpec(reduced_shape(shape, axes, keepdims=False), operator.result_dtype(x.dtype))
    return plan_reduction(operator.reducer, x, result, axes, **options), result


def fenced(x, *, at_end):
    """Return a copy of an array flush with a page that nobody may touch, before or behind it: who reads there ends the process."""
    page = mmap.PAGESIZE
    inner = -(-max(x.nbytes, 1) // page) * page
    memory = mmap.mmap(-1, inner + 2 * page)
    base, libc = ctypes.addressof(ctypes.c_char.from_buffer(memory)), ctypes.CDLL(None)
    for fence in (base, base + page + inner):
        assert libc.mprotect(ctypes.c_void_p(fence), ctypes.c_size_t(page), 0) == 0
    copy = np.frombuffer(memory, x.dtype, x.size, page + (inner - x.nbytes if at_end else 0)).reshape(x.shape)
    copy[...] = x
    return copy


def run(bench, plan, x_pointer, out):
    scratch = np.full(plan.scratch_bytes + 16, 0xA5, np.uint8)
    bench.stream = SimpleNamespace(workspace=lambda nbytes: ctypes.c_void_p(scratch.ctypes.data))
    guarded = np.full(out.nbytes + 2 * GUARD, 0xA5, np.uint8)
    guarded[GUARD : GUARD + out.nbytes] = np.frombuffer(out.tobytes(), np.uint8)
    plan.bind(bench, ctypes.c_void_p(x_pointer), ctypes.c_void_p(guarded.ctypes.data + GUARD))()
    assert (scratch[plan.scratch_bytes :] == 0xA5).all()
    assert (guarded[:GUARD] == 0xA5).all()
    assert (guarded[GUARD + out.nbytes :] == 0xA5).all()
    return guarded[GUARD : GUARD + out.nbytes].view(out.dtype).reshape(out.shape)


def numbers(shape, dtype, name, seed=0):
    random = np.random.default_rng(seed)
    if dtype == "bool":
        return np.asarray(random.random(shape) < 0.7)
    if dtype in WHOLE:
        return np.asarray(random.integers(1 if "uint" in dtype else -9, 10, shape), dtype)
    if "prod" in name:
        return np.asarray(1 + random.standard_normal(shape) / 20, dtype)
    return np.asarray(random.standard_normal(shape), dtype)


def expected_of(name, x, axis):
    exact = x.astype(np.float64) if x.dtype.kind == "f" else x
    with np.errstate(all="ignore"):
        return np.asarray(operator_named(name).reference(exact, axis=axis, keepdims=False))
