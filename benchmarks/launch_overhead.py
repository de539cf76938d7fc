"""What one operation costs the host under ``async`` on a prepared program without recording, against a C loop over cuLaunchKernel.

Both launch the same kernel with the same arguments on the same machine, in turns; least and median of the rounds.

    python benchmarks/launch_overhead.py [RESULT.json]
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

import streamscope as ss
from streamscope.devices.cuda import CudaDevice
from streamscope.devices.cuda.bench import PackedArguments
from streamscope.files import written_whole
from streamscope.ops.fitting import fitted_fresh
from streamscope.program.variable import Place
from streamscope.rtc.form import THREADS
from streamscope.trace.trace import library_versions

LENGTH, SIZE, ROUNDS = 500, 4096, 200
ALLOWED = 1.5


def c_library(folder: Path) -> ctypes.CDLL:
    target = folder / "launch_overhead.so"
    source = Path(__file__).with_suffix(".c")
    subprocess.run(["nvcc", "-O2", "-shared", "-Xcompiler", "-fPIC", "-o", target, source, "-lcuda"], check=True)
    library = ctypes.CDLL(str(target))
    library.launch_ns.restype = ctypes.c_double
    return library


def main() -> None:
    device = CudaDevice()
    target = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent / "results" / "launch_overhead.json")

    @ss.program
    def chain(x, y):
        for _ in range(LENGTH):
            x = ss.add(x, y, out=x)
        return x

    inputs = [np.zeros(SIZE, np.float32), np.ones(SIZE, np.float32)]
    engines = {name: ss.prepare(chain.trace(*inputs), name, device) for name in ("async", "graph")}
    for prepared in engines.values():
        prepared.load(inputs)
        for _ in range(5):
            prepared.run()
            prepared.wait()

    spec = ss.ArraySpec((SIZE,), np.float32)
    kernel = fitted_fresh(ss.add.signature([spec, spec], {}), ((SIZE,),) * 3)
    cupy_arrays = [device.allocate(spec, Place.DEVICE).array for _ in range(2)]
    packed = PackedArguments([*cupy_arrays, cupy_arrays[0], ctypes.c_longlong(SIZE), ctypes.c_int(kernel.lead)])
    function = device.module(kernel.source).get_function(kernel.source.name)
    stream = device.stream("c")

    times: dict[str, list[float]] = {"c loop": [], "async": [], "graph": []}
    with tempfile.TemporaryDirectory() as folder:
        library = c_library(Path(folder))
        for _ in range(ROUNDS):
            where = ctypes.c_void_p(stream.pointer), ctypes.c_void_p(packed.address)
            times["c loop"].append(library.launch_ns(ctypes.c_void_p(function.ptr), kernel.blocks, THREADS, *where, LENGTH))
            stream.synchronize()
            for name, prepared in engines.items():
                start = time.perf_counter_ns()
                prepared.run()
                times[name].append((time.perf_counter_ns() - start) / LENGTH)
                prepared.wait()
    per_operation = {name: {"least_ns": min(values), "median_ns": float(np.median(values))} for name, values in times.items()}
    ratio = {which: per_operation["async"][which] / per_operation["c loop"][which] for which in ("least_ns", "median_ns")}
    content = {
        "what": "host time of one operation, async engine without recording against a C loop over cuLaunchKernel",
        "operations": LENGTH,
        "elements": SIZE,
        "rounds": ROUNDS,
        "per_operation": per_operation,
        "async_over_c": ratio,
        "allowed": ALLOWED,
        "within": max(ratio.values()) <= ALLOWED,
        "device": device.info.name,
        "details": dict(device.info.details),
        "versions": library_versions(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    with written_whole(target) as path:
        path.write_text(json.dumps(content, indent=1) + "\n")
    print(json.dumps({key: content[key] for key in ("per_operation", "async_over_c", "within")}, indent=1))


if __name__ == "__main__":
    main()
