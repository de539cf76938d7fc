"""CuPy code as many people write it, for `common_code.py`: kernels of one's own, SciPy's functions, streams, pools, other libraries."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import cupy
import cupyx
import cupyx.scipy.fft
import cupyx.scipy.linalg
import cupyx.scipy.ndimage
import cupyx.scipy.signal
import cupyx.scipy.sparse
import cupyx.scipy.special
import numpy as np
from cupyx import jit

Case = tuple[Callable[..., Any], tuple[Any, ...]]
ndimage, signal, special = cupyx.scipy.ndimage, cupyx.scipy.signal, cupyx.scipy.special


def arrays(function: Callable[..., Any], *shapes: tuple[int, ...], dtype: str = "float32") -> Case:
    """Return a function of random arrays."""
    return function, tuple(cupy.random.standard_normal(shape).astype(dtype) for shape in shapes)


def filters(image: Any) -> Any:
    """Return an image's edges at four scales, each scale by itself."""
    found = []
    for sigma in (1, 2, 4, 8):
        smooth = ndimage.gaussian_filter(image, sigma)
        found.append(cupy.hypot(ndimage.sobel(smooth, 0), ndimage.sobel(smooth, 1)))
    return cupy.stack(found)


def morphology(image: Any) -> Any:
    mask = image > 0
    opened = ndimage.binary_opening(mask, iterations=2, brute_force=True)
    return opened, ndimage.grey_dilation(image, (5, 5)), ndimage.median_filter(image, 3), ndimage.uniform_filter(image, 7)


def warped(image: Any) -> Any:
    return ndimage.zoom(image, 2, order=1), ndimage.rotate(image, 30, reshape=False, order=1), ndimage.shift(image, (1.5, -2.5), order=1)


def of_elements() -> Case:
    squared = cupy.ElementwiseKernel("T x, T y", "T z", "z = (x - y) * (x - y)", "squared_difference")
    norm = cupy.ReductionKernel("T x", "T y", "x * x", "a + b", "y = sqrt(a)", "0", "l2norm")

    def call(x: Any, y: Any) -> Any:
        return norm(squared(x, y), axis=1), norm(x, axis=0), norm(y, axis=0)

    return arrays(call, *[(256, 256)] * 2)


SAXPY = r"""
extern "C" __global__ void saxpy(float a, const float* x, const float* y, float* out, int n) {
    int i = blockDim.x * blockIdx.x + threadIdx.x;
    if (i < n) out[i] = a * x[i] + y[i];
}
"""
TEMPLATES = r"""
__constant__ float weights[3];
template<typename T> __global__ void smooth(const T* x, T* out, int n) {
    int i = blockDim.x * blockIdx.x + threadIdx.x;
    if (i > 0 && i < n - 1) out[i] = weights[0] * x[i - 1] + weights[1] * x[i] + weights[2] * x[i + 1];
}
template<typename T> __global__ void twice(T* x, int n) {
    int i = blockDim.x * blockIdx.x + threadIdx.x;
    if (i < n) x[i] *= 2;
}
"""


def raw_kernel() -> Case:
    saxpy = cupy.RawKernel(SAXPY, "saxpy")

    def call(x: Any, y: Any) -> Any:
        results = []
        for factor in (1.0, 2.0, 3.0, 4.0):
            out = cupy.empty_like(x)
            saxpy(((x.size + 255) // 256,), (256,), (np.float32(factor), x, y, out, np.int32(x.size)))
            results.append(out)
        return sum(results)

    return arrays(call, *[(1 << 16,)] * 2)


def raw_module() -> Case:
    names = ("smooth<float>", "smooth<double>", "twice<float>")
    module = cupy.RawModule(code=TEMPLATES, name_expressions=names)
    smooth, smooth_double, twice = map(module.get_function, names)
    weights = cupy.ndarray((3,), cupy.float32, module.get_global("weights"))
    weights[...] = cupy.asarray([0.25, 0.5, 0.25], cupy.float32)

    def call(x: Any, y: Any) -> Any:
        out, out_double = cupy.zeros_like(x), cupy.zeros_like(y)
        grid, block = ((x.size + 255) // 256,), (256,)
        smooth(grid, block, (x, out, x.size))
        smooth_double(grid, block, (y, out_double, y.size))
        twice(grid, block, (out, out.size))
        return out, out_double

    x = cupy.random.standard_normal(1 << 14)
    return call, (x.astype("float32"), x)


def texture() -> Case:
    """Return a function that reads an input through a texture, which no argument's address leads to."""
    code = r"""
    extern "C" __global__ void read(unsigned long long image, float* out, int width, int height) {
        int x = blockDim.x * blockIdx.x + threadIdx.x, y = blockDim.y * blockIdx.y + threadIdx.y;
        if (x < width && y < height) out[y * width + x] = tex2D<float>(image, x, y);
    }"""
    from cupy.cuda import runtime
    from cupy.cuda import texture as textures

    kernel, width, height = cupy.RawKernel(code, "read"), 64, 64
    source = cupy.zeros((height, width), cupy.float32)
    channel = textures.ChannelFormatDescriptor(32, 0, 0, 0, runtime.cudaChannelFormatKindFloat)
    resource = textures.ResourceDescriptor(
        runtime.cudaResourceTypePitch2D, arr=source, chDesc=channel, width=width, height=height, pitchInBytes=4 * width
    )
    made = textures.TextureObject(resource, textures.TextureDescriptor((runtime.cudaAddressModeClamp,) * 2))

    def call(x: Any) -> Any:
        out = cupy.empty_like(x)
        cupy.multiply(x, 2, out=source)
        kernel((8, 8), (8, 8), (np.uint64(made.ptr), out, np.int32(width), np.int32(height)))
        cupy.multiply(x, 3, out=source)
        return out

    return arrays(call, (height, width))


def cooperative() -> Case:
    code = r"""
    #include <cooperative_groups.h>
    extern "C" __global__ void both(const float* x, float* out, int n) {
        int i = blockDim.x * blockIdx.x + threadIdx.x;
        if (i < n) out[i] = 2 * x[i];
        cooperative_groups::this_grid().sync();
        if (i < n) out[n + i] = out[n - 1 - i] * 0.5f;
    }"""
    kernel = cupy.RawKernel(code, "both", enable_cooperative_groups=True)

    def call(x: Any) -> Any:
        out = cupy.empty(2 * x.size, x.dtype)
        kernel((16,), (256,), (x, out, np.int32(x.size)))
        return out, x + 1

    return arrays(call, (4096,))


def fused() -> Case:
    @cupy.fuse()  # type: ignore[untyped-decorator]  # CuPy has no types
    def gelu(x: Any) -> Any:
        return 0.5 * x * (1 + cupy.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))

    @cupy.fuse()  # type: ignore[untyped-decorator]  # as above
    def spread(x: Any) -> Any:
        return cupy.sum((x - 1) * (x - 1), axis=1)

    return arrays(lambda x, y: (gelu(x), spread(y), gelu(y)), *[(256, 256)] * 2)


def jitted() -> Case:
    @jit.rawkernel()
    def add(x, y, out, size):  # type: ignore[no-untyped-def]
        at = jit.blockIdx.x * jit.blockDim.x + jit.threadIdx.x
        if at < size:
            out[at] = x[at] + y[at]

    @jit.rawkernel()
    def total(x, out, size):  # type: ignore[no-untyped-def]
        at = jit.blockIdx.x * jit.blockDim.x + jit.threadIdx.x
        if at < size:
            jit.atomic_add(out, 0, x[at])

    def call(x: Any, y: Any) -> Any:
        out, sums = cupy.empty_like(x), cupy.zeros(2, x.dtype)
        add[64, 256](x, y, out, np.uint32(x.size))
        total[64, 256](x, sums[:1], np.uint32(x.size))
        total[64, 256](y, sums[1:], np.uint32(x.size))
        return out, sums

    return arrays(call, *[(1 << 14,)] * 2)


def with_torch(x: Any, y: Any) -> Any:
    import torch

    product = torch.from_dlpack(x) @ torch.from_dlpack(y)
    return cupy.tanh(cupy.from_dlpack(torch.relu(product))), x + y


def beside_torch(x: Any, y: Any) -> Any:
    import torch

    likely = torch.softmax(torch.as_tensor(x, device="cuda"), -1)
    return cupy.asarray(likely) * 2, x + y


def own_streams() -> Case:
    """Return two branches on streams of their own, with events."""
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]

    def call(x: Any, y: Any) -> Any:
        main = cupy.cuda.get_current_stream()
        results, begun = [], main.record()
        for stream, one in zip(streams, (x, y), strict=True):
            stream.wait_event(begun)
            with stream:
                results.append(cupy.exp(one).sum(axis=0) * cupy.tanh(one).sum(axis=1))
            main.wait_event(stream.record())
        return results[0] + results[1]

    return arrays(call, *[(256, 256)] * 2)


def synchronised() -> Case:
    stream = cupy.cuda.Stream(non_blocking=True)

    def call(x: Any, y: Any) -> Any:
        with stream:
            first = cupy.exp(x)
        stream.synchronize()
        return first + y

    return arrays(call, *[(256, 256)] * 2)


def pooled(kind: Callable[[], Any]) -> Case:
    pool = kind()

    def call(x: Any, y: Any) -> Any:
        with cupy.cuda.using_allocator(pool.malloc):
            return cupy.exp(x).sum(axis=0) + cupy.tanh(y).sum(axis=0)

    return arrays(call, *[(256, 256)] * 2)


def waves(steps: int) -> Case:
    """Return steps of Maxwell's equations in two dimensions, in place: three fields that change in turn."""
    magnetic_x, magnetic_y = cupy.zeros((256, 256), cupy.float32), cupy.zeros((256, 256), cupy.float32)

    def step(electric: Any) -> Any:
        for _ in range(steps):
            magnetic_x[:, :-1] -= 0.5 * (electric[:, 1:] - electric[:, :-1])
            magnetic_y[:-1] += 0.5 * (electric[1:] - electric[:-1])
            electric[1:, 1:] += 0.5 * ((magnetic_y[1:, 1:] - magnetic_y[:-1, 1:]) - (magnetic_x[1:, 1:] - magnetic_x[1:, :-1]))
        return electric.copy()

    return arrays(step, (256, 256))


def jacobi(x: Any) -> Any:
    for _ in range(10):
        inner = 0.25 * (x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:])
        x = cupy.pad(inner, 1, mode="edge")
    return x


def k_means(points: Any) -> Any:
    centres = points[:8].copy()
    for _ in range(5):
        distances = ((points[:, None] - centres[None]) ** 2).sum(axis=2)
        labels = distances.argmin(axis=1)
        belongs = labels[:, None] == cupy.arange(8)
        centres = (belongs.T @ points) / cupy.maximum(belongs.sum(axis=0), 1)[:, None]
    return centres, labels


def black_scholes(price: Any, strike: Any) -> Any:
    price, strike = cupy.abs(price) + 1, cupy.abs(strike) + 1
    first = (cupy.log(price / strike) + 0.5 * 0.04) / 0.2
    second = first - 0.2
    call = price * special.ndtr(first) - strike * special.ndtr(second)
    return call, call - price + strike


def scattered(x: Any, y: Any) -> Any:
    found, at = cupy.zeros(64, x.dtype), (cupy.abs(y) * 20).astype(cupy.int32) % 64
    cupyx.scatter_add(found, at, x)
    cupyx.scatter_max(found, at, y)
    x = x.copy()
    x[x > 1] = 0
    return found, x, cupy.where(y > 0, x, y), cupy.take(x, at)


def sparse(kind: str) -> Case:
    matrix = cupyx.scipy.sparse.random(512, 512, 0.02, format=kind, dtype="float32", random_state=0)
    return arrays(lambda x, y: (matrix @ x, matrix.T @ x, matrix @ y), (512,), (512, 16))


def conjugate_gradients(x: Any) -> Any:
    from cupyx.scipy.sparse.linalg import cg

    eye = cupyx.scipy.sparse.identity(x.shape[0], dtype=x.dtype, format="csr")
    return cg(2 * eye, x, maxiter=5)[0]


def planned() -> Case:
    x = cupy.random.standard_normal((16, 1024)).astype("complex64")
    plan = cupyx.scipy.fft.get_fft_plan(x, axes=1)

    def call(x: Any) -> Any:
        with plan:
            return cupyx.scipy.fft.fft(x, axis=1) * 2

    return call, (x,)


def on_pinned_memory() -> Case:
    pinned = cupyx.zeros_pinned((256, 256), "float32")

    def call(x: Any) -> Any:
        own = cupy.empty_like(x)
        own.set(pinned)
        return own + x

    return arrays(call, (256, 256))


def vectorized() -> Case:
    @cupy.vectorize
    def clipped(x, low):  # type: ignore[no-untyped-def]
        if x < low:
            return low
        return x + x

    return arrays(lambda x, y: (clipped(x, y), clipped(y, x)), *[(256, 256)] * 2)


def networks(x: Any, w: Any, v: Any) -> Any:
    """Two layers with the gradients worked out by hand, in NumPy's words."""
    hidden = cupy.maximum(x @ w, 0)
    result = hidden @ v
    gradient = 2 * result / result.size
    below = (gradient @ v.T) * (hidden > 0)
    return (result**2).mean(), x.T @ below, hidden.T @ gradient


def pieces_of_signals(x: Any) -> Any:
    return signal.sosfilt(signal.butter(4, 0.2, output="sos"), x), signal.fftconvolve(x, x[:, :31], mode="same", axes=1), signal.hilbert(x)


def images_convolved(image: Any, kernel: Any) -> Any:
    return signal.convolve2d(image, kernel, mode="same"), signal.correlate2d(image, kernel, mode="same"), signal.medfilt2d(image, 3)


CASES: dict[str, Callable[[], Case]] = {
    "CuPy: arithmetic, where, clip": partial(
        arrays,
        lambda x, y: (cupy.sin(x) * 2 + cupy.cos(y), cupy.where(x > y, x, y).clip(-1, 1), x.mean(), y.std(axis=0)),
        *[(256, 256)] * 2,
    ),
    "CuPy: kernels of elements, reductions": of_elements,
    "CuPy: RawKernel": raw_kernel,
    "CuPy: RawModule with templates and constants": raw_module,
    "CuPy: RawKernel that reads a texture": texture,
    "CuPy: cooperative RawKernel": cooperative,
    "CuPy: fuse": fused,
    "CuPy: jit.rawkernel with atomics": jitted,
    "CuPy: vectorize": vectorized,
    "CuPy: products of PyTorch through DLPack": partial(arrays, with_torch, *[(128, 128)] * 2),
    "CuPy: PyTorch on the same memory": partial(arrays, beside_torch, *[(128, 128)] * 2),
    "CuPy: streams of its own": own_streams,
    "CuPy: a stream that is waited for": synchronised,
    "CuPy: a pool of its own": partial(pooled, cupy.cuda.MemoryPool),
    "CuPy: a pool that allocates on streams": partial(pooled, cupy.cuda.MemoryAsyncPool),
    "CuPy: managed memory": partial(pooled, lambda: cupy.cuda.MemoryPool(cupy.cuda.malloc_managed)),
    "CuPy: pinned memory": on_pinned_memory,
    "CuPy: ndimage, four scales": partial(arrays, filters, (512, 512)),
    "CuPy: ndimage, morphology and medians": partial(arrays, morphology, (256, 256)),
    "CuPy: ndimage, zoom, rotate, shift": partial(arrays, warped, (256, 256)),
    "CuPy: ndimage, label": partial(arrays, lambda x: ndimage.label(x > 0)[0], (128, 128)),
    "CuPy: signal, filters of rows": partial(arrays, pieces_of_signals, (16, 4096)),
    "CuPy: signal, images": partial(arrays, images_convolved, (256, 256), (5, 5)),
    "CuPy: sparse, csr": partial(sparse, "csr"),
    "CuPy: sparse, csc": partial(sparse, "csc"),
    "CuPy: sparse, conjugate gradients": partial(arrays, conjugate_gradients, (256,)),
    "CuPy: Fourier transforms": partial(arrays, lambda x: (cupy.abs(cupy.fft.fft2(x)), cupy.fft.irfft(cupy.fft.rfft(x) * 0.5)), (256, 256)),
    "CuPy: a plan of Fourier transforms": planned,
    "CuPy: cosine transforms": partial(arrays, lambda x: (cupyx.scipy.fft.dct(x), cupyx.scipy.fft.dctn(x)), (128, 128)),
    "CuPy: solve, inverse": partial(
        arrays, lambda x: (cupy.linalg.solve(x, x[:, 0]), cupy.linalg.inv(x + 9 * cupy.eye(64, dtype=x.dtype))), (64, 64)
    ),
    "CuPy: svd, eigh": partial(arrays, lambda x: (cupy.linalg.svd(x)[1], cupy.linalg.eigh(x + x.T)[0]), (64, 64)),
    "CuPy: LU": partial(arrays, lambda x: cupyx.scipy.linalg.lu_factor(x)[0], (64, 64)),
    "CuPy: norms, kron, outer, trace": partial(
        arrays,
        lambda x, y: (cupy.linalg.norm(x), cupy.kron(x[:16, :16], y[:4, :4]), cupy.outer(x[0], y[0]), cupy.trace(x)),
        *[(128, 128)] * 2,
    ),
    "CuPy: products of all kinds": partial(
        arrays,
        lambda x, y: (x @ y, cupy.einsum("ij,kj->ik", x, y), cupy.tensordot(x, y, 1), x @ y[0], cupy.dot(x[0], y[0])),
        *[(128, 128)] * 2,
    ),
    "CuPy: products in halves": partial(arrays, lambda x, y: cupy.tanh(x @ y) + y @ x, *[(128, 128)] * 2, dtype="float16"),
    "CuPy: layers and gradients": partial(arrays, networks, (128, 256), (256, 128), (128, 32)),
    "CuPy: random numbers": partial(
        arrays, lambda x: (x + cupy.random.standard_normal(x.shape, dtype=x.dtype), cupy.random.random(64)), (64, 64)
    ),
    "CuPy: a generator of its own": lambda: arrays(
        partial(lambda random, x: x + random.standard_normal(x.shape, dtype=x.dtype), cupy.random.default_rng(0)), (64, 64)
    ),
    "CuPy: sort, argsort, topk": partial(arrays, lambda x: (cupy.sort(x), cupy.argsort(x, axis=0), cupy.partition(x, 5)), (64, 256)),
    "CuPy: cumsum, histogram, searchsorted": partial(
        arrays,
        lambda x: (x.cumsum(axis=1), cupy.searchsorted(cupy.linspace(-2, 2, 9, dtype=x.dtype), x), cupy.histogram(x, 16)[0]),
        (64, 256),
    ),
    "CuPy: bincount, unique": partial(arrays, lambda x: cupy.bincount((cupy.abs(x) * 9).astype("int32"), minlength=64), (1024,)),
    "CuPy: scattered additions": partial(arrays, scattered, *[(4096,)] * 2),
    "CuPy: waves in place": partial(waves, 4),
    "CuPy: Jacobi's steps": partial(arrays, jacobi, (256, 256)),
    "CuPy: k-means": partial(arrays, k_means, (4096, 16)),
    "CuPy: Black-Scholes": partial(arrays, black_scholes, *[(1 << 16,)] * 2, dtype="float64"),
    "CuPy: special functions, interp": partial(
        arrays,
        lambda x: (special.erf(x), special.gammaln(cupy.abs(x)), cupy.interp(x.ravel(), cupy.linspace(-2, 2, 9), cupy.arange(9.0))),
        (128, 128),
    ),
    "CuPy: complex numbers": partial(
        arrays, lambda x: (cupy.abs(x * 1j + x), cupy.angle(cupy.exp(1j * x)), (x + 1j * x).conj().T), (128, 128)
    ),
}
