"""Streamscope shows what a GPU really does with your operations: the same program under every engine, on one time axis.

All public names but one are loaded when they are first used, so that ``import streamscope`` is quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

# Not lazily: `streamscope.program` is also a package, and the import of any module in it would put the package under this name.
from streamscope.program.tracing import program  # noqa: F401 — named in `__all__`, which is computed

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

_HOME = {
    "Advice": "choosing.advice",
    "ArraySpec": "program.variable",
    "Audit": "auditing.audit",
    "Choice": "choosing.choice",
    "Comparison": "comparison",
    "CompilationComparison": "comparing_compilation",
    "CompilationLog": "rtc.compilation_log",
    "Engine": "dynamic.engine",
    "Program": "program.operation",
    "Run": "comparison",
    "StreamscopeError": "errors",
    "Trace": "trace.trace",
    "Tuning": "tuning",
    "WORKLOADS": "workloads",
    "add_n": "ops.add_n",
    "advise": "choosing.advise",
    "audit": "auditing.audit",
    "auxiliary_stream": "devices.cuda.bench",
    "best": "choosing.best",
    "bias_add": "ops.elementwise",
    "capture": "capturing.function",
    "compare": "comparing",
    "compare_compilation": "comparing_compilation",
    "compilations": "rtc.compilation_log",
    "convolution": "ops.convolution",
    "convolution_backward": "ops.convolution",
    "elementwise": "ops.one_line",
    "empty": "program.tracing",
    "host_function": "ops.host",
    "load_comparison": "comparison",
    "matmul": "ops.linear",
    "open_device": "devices",
    "operator": "ops.custom",
    "prepare": "engines.prepared",
    "to_device": "ops.copies",
    "to_host": "ops.copies",
    "tune": "tuning",
    "warm": "warming",
    "workload": "workloads",
}
"""Module, within this package, of each public name."""

# fmt: off
_GENERATED = {
    "ops.unary": (
        "abs", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctanh", "bitwise_not", "cbrt", "ceil", "cos", "cosh", "degrees",
        "exp", "expm1", "fix", "floor", "isfinite", "isinf", "isnan", "isneginf", "isposinf", "log", "log10", "log1p", "log2",
        "logical_not", "negative", "radians", "rcbrt", "reciprocal", "rint", "round", "rsqrt", "sign", "sin", "sinh", "sqrt", "square",
        "tan", "tanh", "trunc",
    ),
    "ops.activations": (
        "digamma", "erf", "erfinv", "gamma", "gammaln", "log_sigmoid", "mish", "relu", "sigmoid", "smooth_l1", "softsign",
    ),
    "ops.binary": (
        "add", "arctan2", "bitwise_and", "bitwise_or", "bitwise_xor", "copysign", "divide", "floor_divide", "fmax", "fmin", "fmod",
        "gcd", "hypot", "lcm", "ldexp", "left_shift", "logaddexp", "maximum", "minimum", "mod", "multiply", "power", "right_shift",
        "subtract",
    ),
    "ops.logic": (
        "equal", "greater", "greater_equal", "less", "less_equal", "logical_and", "logical_or", "logical_xor", "not_equal",
    ),
    "ops.reductions": (
        "all", "any", "argmax", "argmin", "max", "mean", "min", "nanprod", "nansum", "prod", "sum",
    ),
    "ops.norm": ("norm",),
    "ops.softmax": ("log_softmax", "softmax"),
}
# fmt: on
"""Names of the operators with generated kernels, by module."""
_HOME |= {name: module for module, names in _GENERATED.items() for name in names}

__all__ = sorted([*_HOME, "load_ipython_extension", "program"])  # noqa: PLE0605 — computed from the one table above, and pinned by a test.
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'streamscope' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"streamscope.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Add the ``%%streamscope`` cell magic: ``%load_ext streamscope``."""
    from streamscope_widgets.magics import register

    register(shell)
