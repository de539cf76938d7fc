"""Which kernels a program needs, found by noting: exactly those that binding it asks for."""

from __future__ import annotations

import re
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from tests.combinations import THOROUGH

import streamscope as ss
from streamscope.errors import StreamscopeError
from streamscope.kernels.compile.batch import compile_batch
from streamscope.kernels.compile.program_kernels import program_kernels
from streamscope.kernels.form import Variant
from streamscope.ops.operators import OPERATORS

DTYPES = ["float16", "float32", "float64", "int8", "uint8", "int16", "int32", "int64", "uint64", "bool"]
REDUCTIONS = [
    ss.ops.sum,
    ss.ops.mean,
    ss.ops.prod,
    ss.ops.nansum,
    ss.ops.nanprod,
    ss.ops.max,
    ss.ops.min,
    ss.ops.any,
    ss.ops.all,
    ss.ops.argmax,
    ss.ops.argmin,
    ss.ops.norm,
]
SHAPES = [(4, 8), (3, 7), (1,), (300, 1000), (0, 4)]


def zeros(shape, dtype):
    return np.zeros(shape, dtype)  # a gigabyte of zeros takes no time until somebody writes there


def elementwise(dtype, shape):
    """Every element-wise operator that takes the dtype, and its gradient."""
    for operator in OPERATORS.values():
        arrays = [zeros(shape, dtype)] * len(operator.definition.operands)
        yield operator, arrays
        if operator.definition.gradient is not None and dtype.startswith("float"):
            yield gradient_of(operator), [zeros(shape, dtype), *arrays]


def gradient_of(operator):
    def function(dy, *operands):
        results = operator.gradient(dy, *operands)
        return tuple(each for each in (results if isinstance(results, tuple) else [results]) if each is not None)

    return function


def others(dtype, shape):
    """Reductions with and without workspace, softmax, broadcasting, several requests, in place, fused."""
    x, row = zeros(shape, dtype), zeros(shape[-1:], dtype)
    for reduction in REDUCTIONS:
        for axis in (None, 0, -1):
            yield (lambda a, reduction=reduction, axis=axis: reduction(a, axis=axis)), [x]
            if dtype.startswith("float") and hasattr(reduction, "gradient"):
                yield (lambda a, reduction=reduction, axis=axis: reduction.gradient(reduction(a, axis=axis), a, axis=axis)), [x]
    for function in (ss.ops.softmax, ss.ops.log_softmax):
        for axis in (0, -1):
            yield (lambda a, function=function, axis=axis: function(a, axis=axis)), [x]
        yield (lambda a, function=function: function(a, out=a)), [x]
        yield (lambda a, b, function=function: function(a, out=b, request="add")), [x, x]
    for function in (ss.ops.softmax.gradient, ss.ops.log_softmax.gradient):
        for axis in (0, -1):
            yield (lambda dy, y, function=function, axis=axis: function(dy, y, axis=axis)), [x, x]
    yield (lambda a, b: (a + b, a * b, b - a, ss.ops.add_n(a, b, a))), [x, row]
    yield in_place, [x, x]
    yield add_to, [x, row, x, row]
    column = zeros((600 * max(1, shape[0]), *shape[1:]), dtype)  # a sum of which comes in parts
    yield add_to, [column, row, column, row]
    yield ss.program(lambda a, b: ss.ops.tanh(ss.ops.relu(a) * b) + a, fuse=True), [x, row]


def in_place(a, b):
    ss.ops.add(a, b, out=a)
    ss.ops.subtract(b, a, out=b, request="add")
    return a, b


def add_to(dy, b, da, db):
    ss.ops.multiply.gradient(dy, dy, b, out=(da, db), request="add")
    return da, db


def traced(cases):
    """Return the programs of the cases that the operators take."""
    programs = []
    for function, arrays in cases:
        program = (
            function if hasattr(function, "trace") and not hasattr(function, "definition") else ss.program(lambda *a, f=function: f(*a))
        )
        try:
            programs.append(program.trace(*arrays))
        except StreamscopeError:
            continue
    return programs


def every_program(dtype, shape):
    return traced([*elementwise(dtype, shape), *others(dtype, shape)])


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_they_are_what_binding_asks_for(monkeypatch, dtype, shape):
    device, programs = ss.open_device("cuda"), every_program(dtype, shape)
    compile_batch([source for program in programs for source in program_kernels(program, device.tuned)], device.architecture).check()
    asked, module = set(), device.module

    def noting(source, *gpu):
        asked.add(source)
        return module(source, *gpu)

    monkeypatch.setattr(device, "module", noting)
    for program in programs:
        asked.clear()
        ss.prepare(program, engine="dual", device=device)
        assert asked == set(program_kernels(program, device.tuned)), str(program)


@pytest.mark.gpu
def test_preparing_a_warm_program_compiles_nothing(monkeypatch):
    device = ss.open_device("cuda")
    (program,) = traced([(lambda x: (ss.ops.softmax(ss.ops.relu(x)), ss.ops.sum(x)), [zeros((300, 1000), "float32")])])
    ss.warm(program, device=device, progress=False)

    def refuse(*_, **__):
        raise AssertionError("something is compiled")

    monkeypatch.setattr("streamscope.devices.cuda.device.compile_batch", refuse)
    monkeypatch.setattr("streamscope.devices.cuda.device.compile_kernel", refuse)
    ss.prepare(program, engine="async", device=device)


def asked_on_the_host(bench, program):
    """Return the kernels that binding asks for, of arrays with true addresses and strides, instead of those that are made up."""
    bench.stream = SimpleNamespace(workspace=lambda nbytes: bench.argument(bench.memory(nbytes)))
    specs = [variable.spec for variable in program.variables]
    arrays = [bench.memory(max(1, spec.nbytes))[: spec.nbytes].view(spec.dtype).reshape(spec.shape) for spec in specs]
    for launch in program.launches():
        reads = [arrays[variable] if view is None else view.of(arrays[variable]) for variable, view in launch.operands]
        launch.cuda(bench, list(map(bench.argument, reads)), [bench.argument(arrays[variable]) for variable in launch.writes])
    return list(bench.sources)


def of_each():
    """Yield every dtype and shape: of two dtypes all, the others in two or three shapes in turn."""
    for (i, dtype), (j, shape) in product(enumerate(DTYPES), enumerate(SHAPES)):
        if THOROUGH or dtype in ("float32", "int8") or (i + j) % 2:
            yield pytest.param(dtype, shape, id=f"{shape}-{dtype}")


@pytest.mark.parametrize(("dtype", "shape"), list(of_each()))
def test_they_are_what_binding_to_real_memory_asks_for(host_bench, dtype, shape):
    programs = every_program(dtype, shape)
    assert len(programs) > 20
    found = 0
    for program in programs:
        needed = program_kernels(program)
        assert asked_on_the_host(host_bench(None), program) == list(needed), str(program)
        found += len(needed)
    assert found > 0


class Chosen:
    """What tuning would have kept: two vectors in flight for everything."""

    def of(self, source, size):
        return Variant(8, 2)


def test_what_tuning_chose_is_needed_instead(host_bench):
    (program,) = traced([(lambda x: (ss.ops.erf(x), ss.ops.sum(x)), [zeros((300, 1000), "float32")])])
    bench = host_bench(None)
    bench.tuned = Chosen()
    needed = program_kernels(program, Chosen())
    assert asked_on_the_host(bench, program) == list(needed)
    assert needed != program_kernels(program)
    assert len(needed) == len(program_kernels(program))


def test_each_comes_once():
    (program,) = traced([(lambda x: ss.ops.relu(ss.ops.relu(ss.ops.relu(x))), [zeros((4, 8), "float32")])])
    (kernel,) = program_kernels(program)
    assert kernel.name.startswith("relu_float32")


def test_libraries_bring_their_own():
    (program,) = traced([(lambda a: ss.ops.relu(ss.ops.matmul(a, a)), [zeros((8, 8), "float32")])])
    (kernel,) = program_kernels(program)
    assert kernel.name.startswith("relu_float32")


def test_a_program_shows_its_sources():
    x = np.zeros((64, 64), np.float32)

    @ss.program
    def mixed(x, y):
        return ss.ops.relu(ss.ops.softmax(x + y) @ x), ss.ops.relu(x), ss.ops.sum(x)

    source = mixed.source(x, x)
    kernels = program_kernels(mixed.trace(x, x))
    assert [source.count(kernel.code) for kernel in kernels] == [1, 1, 1, 1]
    assert re.search(
        r"^// relu \(operation 3, test_program_kernels.py:\d+\), relu \(operation 4, test_program_kernels.py:\d+\)$", source, re.MULTILINE
    )
    assert "matmul" not in source
    log = compile_log(mixed, x)
    assert {record.source for record in log.kernels} == {kernel.code for kernel in kernels}


def compile_log(program, x):
    return ss.warm(program, x, x, device="simulated", progress=False)
