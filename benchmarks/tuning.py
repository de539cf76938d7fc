"""What tuning brings to element-wise kernels, on small and on large arrays: the time of every variant, by `ss.tune`.

python benchmarks/tuning.py [RESULT.json]
"""

from __future__ import annotations

import os
import tempfile
from datetime import UTC, datetime
from typing import Any

import numpy as np
from provenance import keep

import streamscope as ss
from streamscope.kernels.form import DEFAULT, Variant
from streamscope.trace.info import library_versions

NAMES = ("abs", "relu", "sqrt", "exp", "tanh", "sigmoid", "log1p", "sin", "erf", "gamma")
SIZES = (2**20, 2**27)
DTYPES = ("float16", "float32")


def functions(x: Any, y: Any, bias: Any) -> Any:
    """Return each operator's result, and those of some with two operands."""
    return *(getattr(ss.ops, name)(x) for name in NAMES), x + y, x / y, ss.ops.hypot(x, y), ss.ops.greater(x, y), ss.ops.bias_add(x, bias)


def words(variant: Variant) -> str:
    return "default" if variant == DEFAULT else f"{variant.vector_bytes} bytes × {variant.items}"


def main() -> None:
    rows: list[dict[str, Any]] = []
    device = ""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["STREAMSCOPE_CACHE_DIR"] = folder  # its choices are not the user's
        for dtype in DTYPES:
            for size in SIZES:
                x = np.ones((size // 4096 // np.dtype(dtype).itemsize * 2, 4096), dtype)
                tuning = ss.tune(ss.program(functions), x, x, x[0], device="cuda", progress=False)
                device = tuning.device
                rows += [
                    {
                        "kernel": kernel.name,
                        "shape": list(kernel.shapes[-1]),
                        "median_ns": {words(variant): round(median, 1) for variant, median in kernel.medians_ns.items()},
                        "choice": words(kernel.choice),
                        "gain": round(kernel.gain, 3),
                    }
                    for kernel in tuning.kernels
                ]
    content = {
        "what": "median time of one launch, among others of the same kernel in a CUDA graph, of each variant of element-wise kernels",
        "kernels": rows,
        "device": device,
        "versions": library_versions(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    keep("tuning.json", content)
    for row in rows:
        print(f"{row['gain']:.2f} {row['choice']:12} {row['kernel']} {row['shape']} {row['median_ns']['default'] / 1e3:.1f} us")


if __name__ == "__main__":
    main()
