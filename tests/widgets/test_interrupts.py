"""Ctrl-C in a notebook, in a real kernel: the cell stops, and the next one works."""

from __future__ import annotations

import pytest

jupyter_client = pytest.importorskip("jupyter_client")
pytest.importorskip("ipykernel")

SETUP = """
%load_ext streamscope
import time, numpy as np, streamscope as ss
from streamscope.devices.simulated import SimulatedDevice

device = SimulatedDevice()
x = np.arange(1.0, 9.0)
calls, stop_at = [], None

@ss.host_function
def slow(values):
    calls.append(1)
    if len(calls) == stop_at:
        print("at it", flush=True)
        time.sleep(30)
    return values + 1

@ss.program
def step(x):
    return ss.ops.relu(ss.ops.to_device(slow(ss.ops.to_host(ss.ops.multiply(x, x)))))
"""
MAGIC = "%%streamscope --device simulated -o runs --no-timeline\nss.ops.relu(ss.ops.to_device(slow(ss.ops.to_host(ss.ops.multiply(x, x)))))"
COMPARE = "runs = ss.compare(step, x, device=device, progress=True)"
RUN = """
prepared = ss.prepare(step.trace(x), engine="graph-dual", device=device)
prepared.load([x])
for _ in range(10):
    prepared.run()
"""
CHECK = """
stop_at = None
runs = ss.compare(step, x, device=device, progress=False)
from streamscope.engines import engine_names
assert tuple(runs) == engine_names() and all(run.max_abs_error == 0 for run in runs.values())
import gc, signal, threading
assert gc.isenabled()
print("threads", sorted(thread.name for thread in threading.enumerate()))
"""
TIMEOUT_S = 60


@pytest.fixture(scope="module")
def kernel():
    manager, client = jupyter_client.manager.start_new_kernel(kernel_name="python3", startup_timeout=TIMEOUT_S)
    try:
        yield manager, client
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def reply_of(client, message):
    """Return the reply to a request, and what its cell printed."""
    printed = []
    while True:
        reply = client.get_shell_msg(timeout=TIMEOUT_S)
        if reply["parent_header"].get("msg_id") == message:
            break
    while True:
        said = client.get_iopub_msg(timeout=TIMEOUT_S)
        if said["parent_header"].get("msg_id") != message:
            continue
        if said["msg_type"] == "stream":
            printed.append(said["content"]["text"])
        if said["msg_type"] == "status" and said["content"]["execution_state"] == "idle":
            return reply["content"], "".join(printed)


def wait_for(client, message, text):
    """Wait until the cell of a request has printed a text."""
    while True:
        said = client.get_iopub_msg(timeout=TIMEOUT_S)
        if said["parent_header"].get("msg_id") == message and text in said["content"].get("text", ""):
            return


def execute(client, code):
    reply, printed = reply_of(client, client.execute(code))
    assert reply["status"] == "ok", "\n".join(reply.get("traceback", []))
    return printed


@pytest.mark.parametrize("cell", [RUN, COMPARE, MAGIC], ids=["run", "compare", "magic"])
@pytest.mark.parametrize("stop_at", [1, 5])
def test_the_next_cell_works_after_an_interrupt(kernel, cell, stop_at):
    manager, client = kernel
    execute(client, SETUP)
    threads = execute(client, CHECK)
    execute(client, f"calls.clear(); stop_at = {stop_at}")
    message = client.execute(cell)
    wait_for(client, message, "at it")
    manager.interrupt_kernel()
    reply, _ = reply_of(client, message)
    assert (reply["status"], reply["ename"]) == ("error", "KeyboardInterrupt")
    assert execute(client, CHECK) == threads
    execute(client, MAGIC)
    assert execute(client, "print(all(run.max_abs_error == 0 for run in runs.values()))").strip() == "True"
