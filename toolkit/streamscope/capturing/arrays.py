"""Arrays in device memory, PyTorch's and CuPy's, in any dtype: where they lie, copies of them, and their values in NumPy.

NumPy lacks some dtypes. It holds the values of bfloat16 and float8 as float32, those of complex32 as complex64. Dtypes that nobody computes
with, such as int4 and float4 of which several share a byte, are whole numbers of their size.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import numpy as np

from streamscope.arrays import Array
from streamscope.tolerance import allowed_of_others

_ALLOWED_ULPS = 2.0
"""How many units in the last place of its largest value a result may be off, in dtypes that NumPy lacks."""


def is_tensor(value: Any) -> bool:
    """Tell a PyTorch tensor, without importing PyTorch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def plainly() -> AbstractContextManager[object]:
    """Treat tensors of users' own classes in the block as plain ones: methods of those classes may raise anything."""
    torch = sys.modules.get("torch")
    return nullcontext() if torch is None else torch._C.DisableTorchFunctionSubclass()  # noqa: SLF001 — PyTorch's documented way


def unsupported(value: Any) -> tuple[str, str] | None:
    """Name the kind of a tensor without plain strided elements, or of an array of JAX's, and an alternative; None for any other."""
    if not is_tensor(value):
        of_jax = type(value).__module__.partition(".")[0] in ("jax", "jaxlib")
        streams = "an array of JAX's, which launches on streams of its own", "torch.from_dlpack of it, and operators of PyTorch's or CuPy's"
        return streams if of_jax else None
    if value.is_quantized:
        return "a quantized tensor", "its whole numbers, .int_repr(), and its scale"
    if value.is_nested:
        return "a nested tensor", "its parts, .unbind()"
    return None if value.layout is sys.modules["torch"].strided else ("a sparse tensor", "its indices and values")


def on_device(value: Any) -> bool:
    """Tell a CuPy array, or a CUDA tensor that is not `unsupported`."""
    return bool(value.is_cuda and unsupported(value) is None) if is_tensor(value) else hasattr(value, "__cuda_array_interface__")


def holds_numbers(value: Any) -> bool:
    """Tell an array in host memory that stands for numbers, such as lengths: one without axes, or whole numbers along one axis."""
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "biufc" and (value.ndim == 0 or (value.ndim == 1 and value.dtype.kind in "biu"))
    if not is_tensor(value) or value.device.type != "cpu" or value.requires_grad or unsupported(value) is not None:
        return False
    return bool(value.ndim == 0 or (value.ndim == 1 and not value.dtype.is_floating_point and not value.dtype.is_complex))


def device_address(value: Any) -> int:
    """Return where the first element of a CuPy array or CUDA tensor lies."""
    return int(value.data_ptr() if is_tensor(value) else value.__cuda_array_interface__["data"][0])


def is_one_piece(value: Any) -> bool:
    """Tell an array whose elements lie one behind the other, in C's order, without gaps; one without elements is none."""
    return bool(value.nbytes > 0 and (value.is_contiguous() if is_tensor(value) else value.__cuda_array_interface__["strides"] is None))


def repeats(value: Any) -> bool:
    """Tell an array that holds elements several times, as one that was expanded: nobody can write to it."""
    strides = value.stride() if is_tensor(value) else value.strides
    return any(stride == 0 and size > 1 for size, stride in zip(value.shape, strides, strict=True))


def copyable(value: Any) -> Any:
    """Return the same memory in a dtype that the library can copy, without gradients: few of PyTorch's kernels know all dtypes.

    Of a tensor in another dtype that is conjugated or negated as it is read, it is memory that holds the values as read.
    """
    if not is_tensor(value):
        return value
    value = value.detach() if value.requires_grad else value
    return value if value.dtype in _copied() else value.resolve_conj().resolve_neg().view(_whole_numbers(value.dtype))


def copy_of(value: Any) -> Any:
    """Return a copy of a CuPy array or tensor, without gradients."""
    return as_copied(copyable(value).clone(), value) if is_tensor(value) else value.copy()


def as_copied(copy: Any, value: Any) -> Any:
    """Return a copy of a tensor's `copyable` form in the tensor's own dtype."""
    return copy if copy.dtype == value.dtype else copy.view(value.dtype)


def restore(before: Iterable[tuple[Any, Any]]) -> None:
    """Restore arrays from their copies."""
    for value, copy in before:
        if repeats(value):
            continue
        if is_tensor(value):
            _write(value, copy)
        else:
            value[...] = copy


def _write(tensor: Any, values: Any) -> None:
    """Write a tensor of the same dtype, or its bits as whole numbers, to where another lies."""
    if tensor.is_conj() or tensor.is_neg():
        tensor.detach().copy_(values)
    else:
        copyable(tensor).copy_(copyable(values))


def fetched(value: Any) -> Array:
    """Return the values of a CuPy array or tensor in NumPy."""
    if is_tensor(value):
        copied, numpys = copyable(value.detach().resolve_conj().resolve_neg()).cpu(), _numpys(value.dtype)
        return np.asarray((copied if numpys is None else as_copied(copied, value).to(numpys)).numpy())
    values = np.asarray(value.get() if hasattr(value, "get") else value)
    # CuPy's bfloat16 is a dtype of another package, which NumPy cannot compute with.
    return values.astype(np.float32) if values.dtype.name == "bfloat16" else values


def fill(value: Any, values: Array) -> None:
    """Write values that are as `fetched` returns them; those that are too large for the dtype become its largest."""
    if not is_tensor(value):
        value.set(values.astype(value.dtype))
        return
    torch, numpys = sys.modules["torch"], _numpys(value.dtype)
    if numpys not in (None, value.dtype) and not value.is_complex():
        most = torch.finfo(value.dtype).max
        values = np.where(np.isfinite(values), np.clip(values, -most, most), values)
    made = torch.from_numpy(np.ascontiguousarray(values)).reshape(value.shape)
    _write(value, made if numpys is None else made.to(value.dtype))


def allowed(value: Any, expected: Array) -> Array:
    """Return how far the values of an array may be from the expected ones, as absolute differences, if it is not in each bit the same."""
    limit = allowed_of_others(expected)
    if not is_tensor(value) or _numpys(value.dtype) in (None, value.dtype):
        return limit
    coarse = _ALLOWED_ULPS * float(sys.modules["torch"].finfo(value.dtype).eps)
    largest = float(np.abs(np.where(np.isfinite(expected), expected, 0)).max(initial=0.0))
    return np.maximum(limit, coarse * largest)


@cache
def _numpys(dtype: Any) -> Any:
    """Return the dtype of PyTorch's in which NumPy holds the values of a dtype; None where there is none."""
    torch = sys.modules["torch"]
    for wanted in (dtype, torch.complex64 if dtype.is_complex else torch.float32):
        try:
            torch.empty(1, dtype=dtype, device="cpu").to(wanted).numpy()
        except (TypeError, RuntimeError):
            continue
        return wanted
    return None


@cache
def _copied() -> frozenset[Any]:
    """Return the dtypes that all of PyTorch's ways to copy know."""
    torch = sys.modules["torch"]
    names = "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64 complex128"
    return frozenset(getattr(torch, name) for name in names.split())


def _whole_numbers(dtype: Any) -> Any:
    torch = sys.modules["torch"]
    return {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
