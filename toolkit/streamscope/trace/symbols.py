"""Names in traces: readable names of kernels such as ``void at::native::…<…>(…)``, and kinds of calls by their names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from streamscope.trace.spans import SpanKind
from streamscope.words import shortened_inside

_NAMELESS = re.compile(r"\(anonymous namespace\)::|<unnamed>::|\{anonymous\}::")
_MARKS = re.compile(r"operator\s*(?:<<=?|<=>?|>>=?|->\*?|\(\)|[<>]=?)|->|[<>(){}\[\]]")
_WRAPPERS = frozenset({"Kernel", "Kernel2", "device_kernel", "kernel_entry"})
"""Kernels of CUTLASS, all of one name: the first template argument says which one it is."""
_QUALIFIED = re.compile(r"(?<![\w:])(?!std::|c10::)(?:\w+::)+(\w+)")
_SAY_NOTHING = frozenset({
    "ReduceOp", "func_wrapper_t", "gpu_kernel_impl", "gpu_kernel_impl_nocast", "BinaryFunctor", "AUnaryFunctor", "BUnaryFunctor",
    "OpaqueType", "TensorListMetadata", "MatrixShape", "policy_hub", "Var"})  # fmt: skip
"""Template arguments of PyTorch, CUB and CUTLASS that hold another one, which says more, or that only size memory."""
_LONGEST_PART = 60
"""Letters of the part that tells two kernels apart: rows of 450 letters nobody reads."""
_OF_A_NAMESPACE = re.compile(r"\w+::kernel\b")
_MANGLED = re.compile(r"_ZN?K?(?=L?\d)")
_LENGTH = re.compile(r"L?(\d{1,4})")


def short_name(symbol: str) -> str:
    """Return a kernel's name without return type, namespaces, template arguments and parameters.

    ``symbol``: the kernel's own name, demangled or mangled.

    Examples
    --------
    >>> from streamscope.trace.symbols import short_name
    >>> short_name("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int, float)")
    'vectorized_elementwise_kernel'
    >>> short_name("_ZN2at6native18elementwise_kernelILi128EEEvi")
    'elementwise_kernel'
    >>> short_name("void cutlass::Kernel2<cutlass_80_tensorop_s16816gemm_f16_64x64_nn>(Params)")
    'cutlass_80_tensorop_s16816gemm_f16_64x64_nn'
    >>> short_name("sm90_xmma_gemm_f16f16_tn")
    'sm90_xmma_gemm_f16f16_tn'
    """
    if _MANGLED.match(symbol):
        return (_mangled_parts(symbol) or [symbol])[-1]
    text = _NAMELESS.sub("", symbol)
    for _ in range(3):
        whole, arguments = _parted(text)
        name = whole.rpartition("::")[2]
        if name not in _WRAPPERS or not arguments:
            break
        text = arguments
    return name.removesuffix(".kd") or symbol


def qualified_name(symbol: str) -> str:
    """Return a kernel's name with its namespaces, and without return type, template arguments and parameters.

    A nameless namespace is called ``anonymous``.

    Examples
    --------
    >>> from streamscope.trace.symbols import qualified_name
    >>> qualified_name("void deep_ep::internode::dispatch<true, 3>(int4*)")
    'deep_ep::internode::dispatch'
    >>> qualified_name("_ZN7deep_ep9internode8dispatchILb1EEEvP4int4")
    'deep_ep::internode::dispatch'
    >>> qualified_name("void (anonymous namespace)::multimem_all_reduce_kernel<float>(float*)")
    'anonymous::multimem_all_reduce_kernel'
    """
    if _MANGLED.match(symbol):
        parts = _mangled_parts(symbol)
        return "::".join("anonymous" if part.startswith("_GLOBAL__N_") else part for part in parts) or symbol
    return _parted(_NAMELESS.sub("anonymous::", symbol))[0].removesuffix(".kd") or symbol


def readable_name(symbol: str) -> str:
    """Return a kernel's short name with its function, where a template argument says so: kernels of PyTorch share a few short names.

    Examples
    --------
    >>> from streamscope.trace.symbols import readable_name
    >>> readable_name("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int, float)")
    'vectorized_elementwise_kernel FillFunctor'
    >>> readable_name("void internal::gemvx::kernel<int, float>(Params)")
    'gemvx::kernel'
    >>> readable_name("sm90_xmma_gemm_f16f16_tn")
    'sm90_xmma_gemm_f16f16_tn'
    """
    name = short_name(symbol)
    whole = found[0] if name == "kernel" and (found := _OF_A_NAMESPACE.search(symbol)) else name
    inside = _NAMELESS.sub("", symbol).partition(">(")[0].partition("<")[2]
    told = (found for found in _QUALIFIED.findall(inside) if found not in _SAY_NOTHING and found != name)
    return " ".join(filter(None, (whole, next(told, ""))))


def told_apart(label: str, symbols: Sequence[str]) -> list[str]:
    """Return a name for each kernel of one label: the label, and the part in which its symbol differs from the others.

    Examples
    --------
    >>> from streamscope.trace.symbols import told_apart
    >>> told_apart("gemm", ["void gemm<Tile<64, 64>, float>(Params)", "void gemm<Tile<128, 64>, float>(Params)"])
    ['gemm … 64', 'gemm … 128']
    """
    start = _alike(symbols)
    end = _alike([symbol[start:][::-1] for symbol in symbols])
    parts = [shortened_inside(symbol[start : len(symbol) - end].strip(), _LONGEST_PART) for symbol in symbols]
    counts: Counter[str] = Counter()
    names = []
    for part in parts:
        counts[part] += 1
        names.append(" … ".join(filter(None, (label, part))) + (f" ({counts[part]})" if counts[part] > 1 else ""))
    return names


def _alike(texts: Sequence[str]) -> int:
    """Return how many letters texts begin with alike, whole words only."""
    first, last = min(texts), max(texts)
    same = next((at for at, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), len(first))
    return max((found.end() for found in re.finditer(r"\W", first[:same])), default=0)


def _parted(text: str) -> tuple[str, str]:
    """Return the name in a declaration with its namespaces, and its first template argument."""
    outside, argument = [], ""
    depth = after = opened = 0
    for mark in _MARKS.finditer(text):
        sign = mark[0]
        if len(sign) > 1:
            continue  # an operator or an arrow: no bracket
        if sign in "<({[":
            if depth == 0:
                outside.append(text[after : mark.start()])
                if sign == "(" and outside[-1].strip():
                    after = len(text)
                    break  # its parameters
                opened = mark.end()
            depth += 1
        elif depth:
            depth -= 1
            if depth == 0:
                after = mark.end()
                argument = argument or (text[opened : mark.start()] if sign == ">" else "")
    if depth == 0:
        outside.append(text[after:])
    words = "".join(outside).split()
    return words[-1] if words else "", argument.partition(",")[0]


def _mangled_parts(symbol: str) -> list[str]:
    """Return the names in a mangled one, each of which stands behind its length; none where one is cut off."""
    parts, at = [], _MANGLED.match(symbol).end()  # type: ignore[union-attr]
    while length := _LENGTH.match(symbol, at):
        at = length.end() + int(length[1])
        parts.append(symbol[length.end() : at])
    return parts if at <= len(symbol) else []


_COPIES_IN = re.compile(r"HtoD|HtoA|host_?to_?device|copy to device", re.IGNORECASE)
_COPIES_OUT = re.compile(r"DtoH|AtoH|device_?to_?host|copy to host", re.IGNORECASE)
_SUFFIX = re.compile(r"(?:_v\d+|_ptsz|_ptds|_spt)+$")
_KINDS = (
    (SpanKind.GRAPH_LAUNCH, re.compile(r"(?:cuda|cu|hip)GraphLaunch")),
    (SpanKind.LAUNCH, re.compile(r"(?:cuda|cu|hip)\w*Launch\w*Kernel\w*|hipLaunchByPtr|cudaLaunch|cuLaunch(?:Grid\w*)?")),
    (SpanKind.LAUNCH, re.compile(r"(?:cuda|cu|hip)(?:Memcpy|Memset)\w*")),
    (SpanKind.EVENT, re.compile(r"(?:cuda|cu|hip)(?:EventRecord\w*|StreamWaitEvent)")),
    (SpanKind.SYNC, re.compile(r"(?:cuda|cu|hip)\w*Synchronize")),
)


def call_name(name: str) -> str:
    """Return a call's name without the endings that say which version of it was called."""
    return _SUFFIX.sub("", name[:200])


def call_kinds(names: Sequence[str]) -> npt.NDArray[np.uint8]:
    """Return the `SpanKind` of each call of a runtime or driver, by its name: `API` for all that order no work and wait for none.

    Nsight's endings for versions (``cudaLaunchKernel_v7000``) do not matter.

    Examples
    --------
    >>> from streamscope.trace import SpanKind
    >>> from streamscope.trace.symbols import call_kinds
    >>> [SpanKind(kind).name for kind in call_kinds(["cuLaunchKernelEx", "cudaMalloc", "hipStreamSynchronize", "cudaGraphLaunch_v10000"])]
    ['LAUNCH', 'API', 'SYNC', 'GRAPH_LAUNCH']
    """
    return np.array([_kind(call_name(name)) for name in names], np.uint8)


def _kind(name: str) -> SpanKind:
    return next((kind for kind, pattern in _KINDS if pattern.fullmatch(name)), SpanKind.API)


def copy_way(name: str) -> int:
    """Return the way of a copy by its name, as Kineto, Nsight Systems, rocpd and `ss.record` write it.

    Returns
    -------
    int
        1 to the device, -1 to the host, 0 for all others.

    Examples
    --------
    >>> from streamscope.trace.symbols import copy_way
    >>> [copy_way(name) for name in ("Memcpy HtoD (Pinned -> Device)", "copy to host", "MEMORY_COPY_DEVICE_TO_DEVICE")]
    [1, -1, 0]
    """
    return 1 if _COPIES_IN.search(name) else -1 if _COPIES_OUT.search(name) else 0
