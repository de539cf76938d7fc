"""Arrays of JAX's in a capture: refused in the thread that captures; others, and other libraries, go on."""

from __future__ import annotations

import sys
import threading
from types import SimpleNamespace

import pytest

import streamscope as ss
from streamscope.capturing.capture_errors import not_captured
from streamscope.capturing.jax_arrays import REFUSED, jax_refused
from streamscope.errors import EngineError


class Tensor:
    """One of PyTorch's, or of JAX's: it lends its memory."""

    def __dlpack__(self):
        return 7

    @property
    def __cuda_array_interface__(self):
        return {"data": 7}


class ArrayImpl(Tensor):
    __dlpack__ = vars(Tensor)["__dlpack__"]
    __cuda_array_interface__ = vars(Tensor)["__cuda_array_interface__"]


@pytest.fixture
def libraries(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(Tensor=Tensor))
    monkeypatch.setitem(sys.modules, "jax._src.array", SimpleNamespace(ArrayImpl=ArrayImpl))


def asked(array, asking):
    """Let a module ask an array for its memory in both ways."""
    for line in ("found = array.__dlpack__()", "found = array.__cuda_array_interface__['data']"):
        names = {"__name__": asking, "array": array}
        exec(line, names)
        assert names["found"] == 7


def test_jax_is_refused_while_a_thread_captures_and_nobody_else_is(libraries):
    before = [dict(vars(kind)) for kind in (Tensor, ArrayImpl)]
    with jax_refused(), jax_refused():
        asked(Tensor(), "cupy")
        for array, asking in ((Tensor(), "jax._src.dlpack"), (ArrayImpl(), "torch")):
            with pytest.raises(RuntimeError, match=REFUSED):
                asked(array, asking)
        other = threading.Thread(target=asked, args=(ArrayImpl(), "torch"))
        other.start()
        other.join(30)
    asked(ArrayImpl(), "jax._src.dlpack")
    assert [dict(vars(kind)) for kind in (Tensor, ArrayImpl)] == before


def test_the_error_says_what_to_do():
    found = not_captured("step", RuntimeError(REFUSED))
    assert REFUSED in str(found)
    assert "leave out what JAX computes" in found.hint


@pytest.mark.gpu
@pytest.mark.parametrize("before", [lambda x: x, lambda x: x.sin()])
def test_a_function_that_calls_jax_is_refused_by_name(before, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    jax = pytest.importorskip("jax")
    with torch.cuda.device(0):  # When JAX first looks for several GPUs, it leaves another one current.
        jax.devices()
    doubled = jax.jit(lambda x: 2 * x)
    with pytest.raises(EngineError, match=REFUSED) as caught:
        ss.capture(lambda x: torch.from_dlpack(doubled(jax.dlpack.from_dlpack(before(x)))) + 1, torch.ones(64, device="cuda"))
    assert "test_jax_arrays.py" in str(caught.value)
    assert ss.capture(torch.sin, torch.ones(64, device="cuda")).nodes
