"""What it costs to launch a kernel made at run time, measured beside a plain launch."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import streamscope as ss
from streamscope.kernels.compile.compilation_log import CompilationLog, LaunchCost

X = np.ones((8, 16), np.float32)


def test_a_log_tells_it_to_the_log_that_gets_its_records():
    session = CompilationLog()
    log = CompilationLog(copy_to=session)
    assert session.launch_cost is log.launch_cost is None
    cost = LaunchCost("a GPU", 2000.0, 2010.0, 5000.0)
    log.note_launch_cost(cost)
    assert session.launch_cost is log.launch_cost is cost


@pytest.mark.gpu
def test_on_a_gpu():
    from streamscope.compiling.launch_cost import launch_cost
    from streamscope.devices.cuda.bench import CudaBench
    from streamscope.kernels.elementwise.specialization import bind
    from streamscope.ops.binary import add
    from streamscope.program.variable import ArraySpec

    device = ss.open_device("cuda")
    log = ss.warm(ss.program(ss.ops.relu), X, device=device, progress=False)
    assert log.launch_cost is launch_cost(device)
    assert 500 < log.launch_cost.plain_ns < 50_000
    # A launch keeps what it needs, its stream too.
    spec = ArraySpec((4096,), np.dtype(np.float32))
    arrays = [device.empty_bytes(spec.nbytes).view(np.float32) for _ in range(2)]
    call = bind(CudaBench(device, device.stream("dropped")), add.signature([spec, spec], {}), [*arrays, arrays[0]], {})
    gc.collect()
    call()
    device.synchronize()
