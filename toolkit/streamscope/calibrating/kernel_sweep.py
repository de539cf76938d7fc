"""Generated kernels of several sorts and sizes, timed, and the rates of a cost model that explain their times."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from streamscope.calibrating.launch_times import LaunchTimer
from streamscope.devices.cost_model import CostModel
from streamscope.devices.protocol import Device
from streamscope.ops.activations import sigmoid
from streamscope.ops.batch_norms import batch_norm
from streamscope.ops.binary import add
from streamscope.ops.layer_norms import layer_norm
from streamscope.ops.reductions import max as max_of
from streamscope.ops.reductions import sum as sum_of
from streamscope.ops.softmaxes import softmax
from streamscope.ops.takes import take
from streamscope.ops.unary import square
from streamscope.ops.views import copy
from streamscope.program.launch import Cost, Launch
from streamscope.program.operation import Program
from streamscope.program.variable import ArraySpec
from streamscope.tracing import program

SIZES = (512, 5000, 40_000, 200_000, 700_000, 2_000_000, 5_000_000, 10_000_000)
ROWS = ((20, 100), (500, 96), (128, 2048), (2000, 2000), (16, 40_000), (50_000, 12), (6000, 300), (12_000, 1000))
IMAGES = ((1, 40, 40, 64), (4, 20, 20, 96), (16, 40, 40, 48), (32, 64, 64, 64), (64, 7, 7, 512))
_TAKEN = 700
"""Rows that are taken by their numbers."""
_FITTED = ("cache_gb_s", "thread_gb_s", "stage_ns", "stage_block_ns")
"""The rates that are fitted."""
START = {"cache_gb_s": 6000.0, "thread_gb_s": 0.2, "stage_ns": 400.0, "stage_block_ns": 180.0}
_STEP = 0.3
"""Of their logarithms, in which the search begins."""

_Case = tuple[Callable[..., Any], tuple[ArraySpec, ...]]


def _cases(dtype: str) -> Iterator[_Case]:
    def spec(*shape: int) -> ArraySpec:
        return ArraySpec(shape, np.dtype(dtype))

    for size in SIZES:
        yield square, (spec(size),)
        yield sigmoid, (spec(size),)
        yield add, (spec(size), spec(size))
    for shape in ROWS:
        x, last = spec(*shape), spec(shape[1])
        for axis in (0, 1):
            yield lambda x, axis=axis: sum_of(x, axis=axis), (x,)
        yield lambda x: max_of(x, axis=1), (x,)
        yield softmax, (x,)
        yield softmax.gradient, (x, x)
        yield layer_norm, (x, last, last)
        yield lambda x: copy(x.T), (x,)
        yield lambda x, rows: take(x, rows, axis=0), (x, ArraySpec((_TAKEN,), np.dtype(np.int32)))
    for image in IMAGES:
        yield batch_norm, (spec(*image), *[ArraySpec(image[-1:], np.dtype(np.float32))] * 4)


def traced_kernels() -> tuple[Program, list[Launch]]:
    """Trace all kernels as one program, so that they compile together, and return their launches."""
    cases = [case for dtype in ("float16", "float32") for case in _cases(dtype)]

    @program
    def kernels(*inputs: Any) -> tuple[Any, ...]:
        left = iter(inputs)
        return tuple(function(*(next(left) for _ in specs)) for function, specs in cases)

    traced = kernels.trace(*(spec for _, specs in cases for spec in specs))
    return traced, list(traced.launches())


def kernel_steps(device: Device) -> list[tuple[Cost, float]]:
    """Return the duration of each kernel, with the gap before it, in ns; see `LaunchTimer.step_ns`."""
    traced, launches = traced_kernels()
    device.make_ready(traced)
    timer = LaunchTimer(device)
    return [(launch.cost, timer.step_ns(timer.bound(traced, launch))) for launch in launches]


def fitted_rates(model: CostModel, steps: Sequence[tuple[Cost, float]]) -> Mapping[str, float]:
    """Return the rates with which a model's times for kernels are nearest to those that were measured, by the mean of abs(ln(ratio)).

    The mean of absolute values, which single kernels that are slow for a reason of their own hardly move.
    """
    from scipy.optimize import minimize

    gap_ns = model.graph_node_gap_ns
    measured = np.log([max(ns, 1.0) for _, ns in steps])

    def rates(logarithms: Any) -> dict[str, float]:
        return {name: float(START[name] * np.exp(by)) for name, by in zip(_FITTED, logarithms, strict=True)}

    def error(logarithms: Any) -> float:
        tried = replace(model, **rates(logarithms))  # type: ignore[arg-type]
        modelled = [sum(gap_ns + tried.kernel_ns(kernel) for kernel in cost.kernels) for cost, _ in steps]
        return float(np.mean(np.abs(np.log(modelled) - measured)))

    simplex = np.vstack([np.zeros(len(_FITTED)), _STEP * np.eye(len(_FITTED))])
    found = minimize(error, simplex[0], method="Nelder-Mead", options={"initial_simplex": simplex, "xatol": 1e-2, "fatol": 1e-4})
    return rates(found.x)
