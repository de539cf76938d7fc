"""Convolutions by cuDNN, through cudnn-frontend: raw pointers, a handle for each stream, safe under capture."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Literal

from streamscope.errors import DeviceError, NoDeviceError
from streamscope.kernels.library.libraries import libraries
from streamscope.program.launch import CudaBench, CudaCall

Direction = Literal["forward", "data_gradient", "weight_gradient"]

_planning = threading.Lock()


@dataclass(frozen=True)
class ConvolutionShape:
    """Extents of a convolution: input ``x[N, H, W, C]``, weights ``w[K, R, S, C]``, stride and padding (`streamscope.ops.convolutions`)."""

    x: tuple[int, int, int, int]
    w: tuple[int, int, int, int]
    stride: int
    padding: int

    @property
    def y(self) -> tuple[int, int, int, int]:
        """Shape of the output."""
        n, h, w, _ = self.x
        k, r, s, _ = self.w
        return n, (h + 2 * self.padding - r) // self.stride + 1, (w + 2 * self.padding - s) // self.stride + 1, k

    @property
    def flops(self) -> int:
        """Floating-point operations of each direction: 2 N P Q K R S C."""
        n, p, q, k = self.y
        _, r, s, c = self.w
        return 2 * n * p * q * k * r * s * c

    def taps(self) -> Iterator[tuple[int, int, tuple[slice, slice, slice]]]:
        """Yield each filter position with the slice of the padded input that it meets."""
        _, p, q, _ = self.y
        for r in range(self.w[1]):
            for s in range(self.w[2]):
                rows = slice(r, r + self.stride * (p - 1) + 1, self.stride)
                yield r, s, (slice(None), rows, slice(s, s + self.stride * (q - 1) + 1, self.stride))


@cache
def _cudnn() -> Any:
    try:
        import cudnn
    except ImportError as error:
        raise NoDeviceError(
            f"cuDNN's front end cannot be loaded: {error}", hint="pip install nvidia-cudnn-frontend and nvidia-cudnn-cu13 (or -cu12)"
        ) from None
    return cudnn


def make_handle(stream_pointer: int) -> Any:
    """Return a cuDNN handle on a stream."""
    handle = _cudnn().create_handle()
    _cudnn().set_stream(handle=handle, stream=stream_pointer)
    return handle


def destroy_handle(handle: Any) -> None:
    """Give a handle back; nothing that was prepared with it may be called any more."""
    _cudnn().destroy_handle(handle)


@cache
def _planning_handle(gpu: int) -> Any:
    """Return the handle with which plans are made on a GPU; it is never destroyed, since plans live longer than any stream."""
    return _cudnn().create_handle()


def convolution_call(bench: CudaBench, direction: Direction, shape: ConvolutionShape, first: Any, second: Any, out: Any) -> CudaCall:
    """Prepare one direction of a convolution on CuPy arrays, channels last: from x and w y, from w and dy dx, from x and dy dw."""
    if first.dtype.name == "float64":
        # cuDNN 9.19 builds a plan for channels-last double, reports success, and computes something else (seen on an H200).
        raise DeviceError("cuDNN's convolutions of float64, channels last, give wrong results", hint="use float32 or float16")
    key = ("convolution", bench.stream.gpu, direction, shape, first.dtype.name)
    graph, tensors = bench.device.cached(key, lambda: _build(direction, shape, first.dtype.name))
    pointers = dict(zip(tensors, (first.data.ptr, second.data.ptr, out.data.ptr), strict=True))
    workspace = bench.stream.workspace(graph.get_workspace_size())
    call = partial(graph.execute, pointers, int(workspace.data.ptr), handle=bench.stream.cudnn)
    call.kept = (first, second, out, workspace, bench.stream)  # type: ignore[attr-defined]
    return call


def _build(direction: Direction, shape: ConvolutionShape, dtype: str) -> tuple[Any, tuple[Any, Any, Any]]:
    with _planning:  # One thread at a time may use a handle.
        return _built_with(_planning_handle(libraries().runtime.getDevice()), direction, shape, dtype)


def _built_with(handle: Any, direction: Direction, shape: ConvolutionShape, dtype: str) -> tuple[Any, tuple[Any, Any, Any]]:
    cudnn = _cudnn()
    data = {"float16": cudnn.data_type.HALF, "float32": cudnn.data_type.FLOAT}[dtype]
    compute = cudnn.data_type.FLOAT
    graph = cudnn.pygraph(handle=handle, io_data_type=data, intermediate_data_type=compute, compute_data_type=compute)
    extents = {"x": shape.x, "w": shape.w, "dy": shape.y}
    names = {"forward": ("x", "w"), "data_gradient": ("w", "dy"), "weight_gradient": ("x", "dy")}[direction]
    tensors = [graph.tensor(name=name, data_type=data, **_layout(extents[name])) for name in names]
    geometry = {"padding": [shape.padding] * 2, "stride": [shape.stride] * 2, "dilation": [1, 1]}
    if direction == "forward":
        result, layout = graph.conv_fprop(tensors[0], tensors[1], **geometry), _layout(shape.y)
    elif direction == "data_gradient":
        result, layout = graph.conv_dgrad(loss=tensors[1], filter=tensors[0], **geometry), _layout(shape.x)
    else:
        result, layout = graph.conv_wgrad(image=tensors[0], loss=tensors[1], **geometry), _layout(shape.w)
    result.set_output(True).set_data_type(data)
    result.set_dim(layout["dim"]).set_stride(layout["stride"])
    try:
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
        graph.check_support()
        graph.build_plans(cudnn.build_plan_policy.HEURISTICS_CHOICE)
    except Exception as error:
        raise DeviceError(f"cuDNN has no kernel for {direction} of {shape} in {dtype}: {error}") from error
    return graph, (tensors[0], tensors[1], result)


def _layout(extents: tuple[int, int, int, int]) -> dict[str, list[int]]:
    """Return cuDNN's dimensions (N, C, H, W) and strides of an array that is stored channels last."""
    n, h, w, c = extents
    return {"dim": [n, c, h, w], "stride": [h * w * c, 1, w * c, c]}
