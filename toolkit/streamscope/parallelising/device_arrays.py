"""Arrays of PyTorch and CuPy: identity, place, and copies on a stream of the caller's."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from streamscope.capturing.arrays import as_copied, copyable, is_tensor, unsupported
from streamscope.devices.cuda.streams import ForeignStream
from streamscope.errors import OutOfMemoryError, ProgramError
from streamscope.kernels.library.libraries import libraries
from streamscope.words import a_kind

_MEMORY_HINT = "bind large arrays that stay the same with functools.partial, which copies nothing, or give a smaller memory_limit="

ArrayIdentity = tuple[int, tuple[int, ...], bool, bool]


def is_array(value: object) -> bool:
    """Tell an array, wherever it lies: PyTorch's, CuPy's, NumPy's, or one of another library in device memory."""
    return is_tensor(value) or isinstance(value, np.ndarray) or hasattr(type(value), "__cuda_array_interface__")


def check_on_device(what: str, path: str, array: Any) -> None:
    """Check that an array is one of PyTorch's or CuPy's on the current GPU; ``what`` names the function.

    Raises
    ------
    ProgramError
        It is not.
    """
    tensor = is_tensor(array)
    if on_host(array):
        raise ProgramError(f"{what}: {path} lies in host memory: {spec_text(array)}", hint=_how_to_move(path, array))
    if (why := unsupported(array)) is not None:
        raise ProgramError(f"{what}: {path} is {why[0]}", hint=f"pass {why[1]}")
    if not tensor and not (hasattr(array, "data") and hasattr(array.data, "ptr")):
        raise ProgramError(f"{what}: {path} is {a_kind(array)}", hint=f"pass cupy.asarray({path}), which shares its memory")
    current = sys.modules["torch"].cuda.current_device() if tensor else libraries().runtime.getDevice()
    if (own := gpu_of(array)) != current:
        hint = f"make it the current one: torch.cuda.set_device({own})" if tensor else f"with cupy.cuda.Device({own}): ..."
        raise ProgramError(f"{what}: {path} lies on GPU {own}, and GPU {current} is the current one", hint=hint)


def on_host(array: Any) -> bool:
    """Tell an array in host memory."""
    return isinstance(array, np.ndarray) or (is_tensor(array) and not array.is_cuda)


def _how_to_move(path: str, array: Any) -> str:
    """Say how an argument gets from host memory to the GPU."""
    return f"move it to the GPU before: {path}.cuda()" if is_tensor(array) else f"move it to the GPU before: cupy.asarray({path})"


def how_to_fit(path: str, array: Any, captured: Any) -> str:
    """Describe an argument like the captured one."""
    if on_host(array):
        return _how_to_move(path, array)
    if is_tensor(array) != is_tensor(captured):
        return f"pass torch.as_tensor({path})" if is_tensor(captured) else f"pass cupy.asarray({path})"
    if array.dtype != captured.dtype:
        return (
            f"convert it before: {path}.to({captured.dtype})"
            if is_tensor(array)
            else f"convert it before: {path}.astype('{captured.dtype}')"
        )
    return "pass arrays of the captured shapes"


def key(array: Any) -> tuple[Any, ...]:
    """Return the traits that an array must share with the captured one: library, shape, dtype, device."""
    if is_tensor(array):
        return "PyTorch", array.shape, array.dtype, array.device
    return "CuPy", array.shape, array.dtype, getattr(array.device, "id", "host")


def spec_text(array: Any) -> str:
    """Return dtype, shape and place of an array in words: ``"float16[8, 3, 224, 224] on cuda:0"``."""
    dtype = str(array.dtype).removeprefix("torch.")
    where = f" on {array.device}" if is_tensor(array) else " in NumPy" if isinstance(array, np.ndarray) else f" on GPU {array.device.id}"
    return f"{dtype}{list(array.shape)}{where}"


def extent(array: Any) -> tuple[int, int]:
    """Return the first address of an array's elements, and the one behind the last."""
    if is_tensor(array):
        start, item = array.data_ptr(), array.element_size()
        reach = sum((size - 1) * stride for size, stride in zip(array.shape, array.stride(), strict=True)) if array.numel() else -1
        return start, start + (reach + 1) * item
    low = high = array.data.ptr
    if not array.size:
        return low, low
    for size, stride in zip(array.shape, array.strides, strict=True):
        low, high = (low + (size - 1) * stride, high) if stride < 0 else (low, high + (size - 1) * stride)
    return low, high + array.itemsize


def place(array: Any) -> ArrayIdentity:
    """Return the identity of an array among those of one shape and dtype: address of the first element, strides, kind of view.

    A tensor may be a view that conjugates or negates each element as it is read.
    """
    if is_tensor(array):
        return array.data_ptr(), array.stride(), array.is_conj(), array.is_neg()
    return array.data.ptr, array.strides, False, False


def stays_in_place(array: Any) -> bool:
    """Tell a tensor that gradients are gathered in, such as a parameter: a copy of it would have none of them."""
    return bool(is_tensor(array) and array.requires_grad and array.is_leaf)


def copied(array: Any) -> Any:
    """Return a copy that is laid out like the array and belongs to nobody else."""
    with out_of_memory(f"copying an input of {array.nbytes:,} bytes"):
        if is_tensor(array):
            # A tensor that is made in inference mode could not be filled outside of it.
            with sys.modules["torch"].inference_mode(mode=False):
                return as_copied(copyable(array).clone(), array).requires_grad_(array.requires_grad)
        return array.copy(order="K")


def holds_the_same(one: Any, other: Any) -> bool:
    """Tell whether two arrays of one shape and dtype hold the same bits, as they are read."""
    if is_tensor(one):
        torch = sys.modules["torch"]
        bits = [copyable(each).resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8) for each in (one, other)]
        return bool(torch.equal(*bits))
    cupy = libraries().cupy
    bits = [cupy.ascontiguousarray(each).reshape(-1).view(np.uint8) for each in (one, other)]
    return bool(cupy.array_equal(*bits))


@contextmanager
def out_of_memory(what: str, hint: str = _MEMORY_HINT) -> Iterator[None]:
    """Turn a library's error that device memory ran out into ours.

    Raises
    ------
    OutOfMemoryError
    """
    try:
        yield
    except Exception as error:
        if is_out_of_memory(error):
            first = str(error).partition("\n")[0]
            raise OutOfMemoryError(f"device memory ran out, {what}: {first}", hint=hint) from error
        raise


def is_out_of_memory(error: BaseException) -> bool:
    """Tell the errors of PyTorch and CuPy that say so."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(error, torch.OutOfMemoryError):
        return True
    return isinstance(error, MemoryError)  # CuPy's is one.


def gpu_of(array: Any) -> int:
    """Return the number of the GPU that an array of PyTorch's or CuPy's lies on."""
    return int(array.device.index if is_tensor(array) else array.device.id)


def on_gpu(gpu: int) -> AbstractContextManager[object]:
    """Make a GPU the thread's current one in the block, for CuPy and for PyTorch, which both go by CUDA's."""
    found: AbstractContextManager[object] = libraries().cupy.cuda.Device(gpu)
    return found


class Caller(NamedTuple):
    """What the calling thread has made current, as functions that each call asks, so they are bound beforehand."""

    gpu: Callable[[], int]
    """Its current GPU."""
    stream: Callable[[], int]
    """The address of PyTorch's current stream on the captured GPU, or of CuPy's where no tensor is about."""
    is_captured: Callable[[int], bool]
    """Tells whether somebody captures a stream."""


def caller(gpu: int | None, *, tensors: bool) -> Caller:
    """Return what tells the state of a thread that calls captured code of a GPU; None is the current one."""
    lib = libraries()
    if not tensors:
        current = lib.cupy.cuda.get_current_stream
        return Caller(lib.runtime.getDevice, lambda: int(current().ptr), lib.runtime.streamIsCapturing)
    # What `torch.cuda.current_stream().cuda_stream` is, without the object, which takes 4 µs to make.
    inner = sys.modules["torch"]._C  # noqa: SLF001
    number = inner._cuda_getDevice() if gpu is None else gpu  # noqa: SLF001
    current = inner._cuda_getDevice if lib.runtime.getDeviceCount() > 1 else int  # noqa: SLF001 — the only one is 0
    return Caller(current, partial(inner._cuda_getCurrentRawStream, number), lib.runtime.streamIsCapturing)  # noqa: SLF001


def cupy_on(stream: int) -> AbstractContextManager[object]:
    """Let CuPy launch on a stream of PyTorch's in the block."""
    found: AbstractContextManager[object] = libraries().cupy.cuda.Stream.from_external(ForeignStream(stream))
    return found


def copier(targets: Sequence[Any]) -> Callable[[Sequence[Any]], None]:
    """Return a function that copies arrays into others of the same shapes, on the current stream, in as few launches as possible."""
    torch = sys.modules.get("torch")
    tensors = [number for number, each in enumerate(targets) if is_tensor(each)]
    others = [number for number, each in enumerate(targets) if not is_tensor(each)]
    into = [copyable(targets[number]) for number in tensors]

    def copy(sources: Sequence[Any]) -> None:
        if len(tensors) == 1:
            into[0].copy_(copyable(sources[tensors[0]]))
        elif tensors:
            assert torch is not None
            torch._foreach_copy_(into, [copyable(sources[number]) for number in tensors])
        for number in others:
            targets[number][...] = sources[number]

    return copy


def fresh_copies(arrays: Sequence[Any]) -> list[Any]:
    """Return copies of arrays in memory of their own, on the current stream."""
    if len(arrays) > 1 and all(map(is_tensor, arrays)):
        torch = sys.modules["torch"]
        made = [torch.empty_like(each) for each in arrays]
        torch._foreach_copy_(list(map(copyable, made)), list(map(copyable, arrays)))
        return made
    return [as_copied(copyable(each).clone(), each) if is_tensor(each) else each.copy(order="K") for each in arrays]
