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
    "ArraySpec": "program.variable",
    "Audit": "auditing.audit",
    "Comparison": "comparison",
    "Program": "program.operation",
    "Run": "comparison",
    "StreamscopeError": "errors",
    "Trace": "trace.trace",
    "WORKLOADS": "workloads",
    "add": "ops.elementwise",
    "audit": "auditing.audit",
    "auxiliary_stream": "devices.cuda.bench",
    "bias_add": "ops.elementwise",
    "capture": "capturing.function",
    "compare": "comparing",
    "convolution": "ops.convolution",
    "convolution_backward": "ops.convolution",
    "empty": "program.tracing",
    "host_function": "ops.host",
    "load_comparison": "comparison",
    "matmul": "ops.linear",
    "multiply": "ops.elementwise",
    "open_device": "devices",
    "operator": "ops.custom",
    "prepare": "engines.prepared",
    "relu": "ops.elementwise",
    "softmax": "ops.softmax",
    "to_device": "ops.copies",
    "to_host": "ops.copies",
    "workload": "workloads",
}
"""Module, within this package, of each public name."""

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
