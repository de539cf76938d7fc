"""Where CuPy's matrix products read and write, who stands in for CuPy's calls of cuBLAS, and what is said of other calls."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamscope.capturing import cupy_captures
from streamscope.capturing.cupy_captures import CupyProducts, what_was_refused

sizes = st.integers(1, 9)


def bounds(rows, columns, step, count, apart, itemsize, base=1000):
    """Return first and last byte of matrices whose columns lie in memory one after the other, by looking at each element."""
    row, column, matrix = np.ogrid[:rows, :columns, :count]
    places = base + (row + column * step + matrix * apart) * itemsize
    return int(places.min()), int(places.max()) + itemsize


@given(
    sizes,
    sizes,
    sizes,
    st.booleans(),
    st.booleans(),
    st.integers(0, 5),
    st.sampled_from([(0, np.float32), (1, np.float64), (2, np.float16)]),
)
def test_a_product_reads_and_writes_its_matrices(m, n, k, turned_a, turned_b, wider, kind):
    number, dtype = kind
    itemsize = np.dtype(dtype).itemsize
    (rows_a, columns_a), (rows_b, columns_b) = ((k, m) if turned_a else (m, k)), ((n, k) if turned_b else (k, n))
    given_ = (turned_a, turned_b, m, n, k, 1, 1000, number, rows_a + wider, 1000, number, rows_b, 2, 1000, number, m + wider, 68, -1)
    symbol, own, reads, writes = cupy_captures._gemm_ex("gemmEx", *given_)
    assert symbol == "cublasGemmEx"
    assert own == given_
    assert reads == (bounds(rows_a, columns_a, rows_a + wider, 1, 0, itemsize), bounds(rows_b, columns_b, rows_b, 1, 0, itemsize))
    assert writes == (bounds(m, n, m + wider, 1, 0, itemsize),)


@given(sizes, sizes, sizes, sizes, st.integers(0, 100), st.integers(0, 100))
def test_products_of_many_matrices_reach_from_the_first_to_the_last(m, n, k, count, apart_a, apart_c):
    given_ = (0, 0, m, n, k, 1, 1000, 0, m, apart_a, 1000, 0, k, 0, 2, 1000, 0, m, apart_c, count, 0, -1)
    symbol, own, reads, writes = cupy_captures._gemm_strided("gemmStridedBatchedEx", *given_)
    assert symbol == "cublasGemmStridedBatchedEx"
    assert own == (*given_[:-2], 68, -1)  # cuBLAS is told to compute in float32 in today's words.
    assert reads == (bounds(m, k, m, count, apart_a, 4), bounds(k, n, k, 1, 0, 4))
    assert writes == (bounds(m, n, m, count, apart_c, 4),)


def test_products_from_addresses_say_nothing_of_their_memory():
    symbol, own, reads, writes = cupy_captures._gemm_batched("dgemmBatched", *range(14))
    assert (symbol, own, reads, writes) == ("cublasDgemmBatched", tuple(range(14)), (), ())


@pytest.fixture
def cublas(monkeypatch):
    """CuPy's module of cuBLAS's functions, each of which says its name."""
    module = SimpleNamespace(**{name: (lambda *given, name=name: f"cupy {name}") for name in cupy_captures._CALLS})
    monkeypatch.setattr(cupy_captures, "_module", lambda: module)
    monkeypatch.setattr(CupyProducts, "call", lambda self, name, given: f"ours {name}")
    return module


def test_ours_stand_in_for_cupys_in_the_block_and_in_its_thread(cublas):
    before = dict(vars(cublas))
    elsewhere = []
    with CupyProducts().through():
        assert cublas.gemmEx(0) == "ours gemmEx"
        thread = threading.Thread(target=lambda: elsewhere.append(cublas.gemmEx(0)))
        thread.start()
        thread.join()
    assert elsewhere == ["cupy gemmEx"]
    assert vars(cublas) == before


def test_two_threads_may_capture_at_once(cublas):
    before = dict(vars(cublas))
    inside, leave = threading.Event(), threading.Event()
    results = []

    def other():
        with CupyProducts().through():
            inside.set()
            assert leave.wait(30)
            results.append(cublas.sgeam(0))

    thread = threading.Thread(target=other)
    thread.start()
    assert inside.wait(30)
    with CupyProducts().through():
        assert cublas.sgeam(0) == "ours sgeam"
    assert cublas.sgeam(0) == "cupy sgeam"
    leave.set()
    thread.join()
    assert results == ["ours sgeam"]
    assert vars(cublas) == before


def test_cupys_functions_come_back_after_an_error(cublas):
    before = dict(vars(cublas))
    with pytest.raises(ValueError, match="mine"), CupyProducts().through():
        raise ValueError("mine")
    assert vars(cublas) == before


def refused(names, text="calling cuSOLVER API during stream capture is currently unsupported"):
    """Return the error that a chain of functions of some modules raises, the first called by a line of this file."""
    call = None
    for module, function in reversed(names):
        body = "call()" if call is not None else "raise NotImplementedError(text)"
        scope = {"__name__": module, "call": call, "text": text}
        exec(compile(f"def {function}():\n    {body}\n", f"{module}.py", "exec"), scope)
        call = scope[function]
    try:
        call()
    except NotImplementedError as error:
        return error


def test_the_call_that_cupy_refuses_is_named_with_the_users_line():
    error = refused([("cupy.linalg._solve", "solve"), ("cupy.linalg._util", "check"), ("cupy_backends.cuda.libs.cusolver", "sgetrf")])
    assert what_was_refused(error).startswith("cupy.linalg.solve calls cusolver.sgetrf (test_cupy_products.py:")


def test_other_errors_are_not_about_that():
    chain = [("cupy.linalg._solve", "solve"), ("cupy_backends.cuda.libs.cusolver", "sgetrf")]
    assert what_was_refused(refused(chain, "something else")) == ""
    assert what_was_refused(RuntimeError("during stream capture")) == ""
