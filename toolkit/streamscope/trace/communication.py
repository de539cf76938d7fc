"""Kernels that communicate between GPUs, known by their names; and kinds of collectives by theirs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fnmatch import translate
from functools import lru_cache

from streamscope.errors import TraceError
from streamscope.trace.symbols import qualified_name

COMMUNICATION: Mapping[str, tuple[str, ...]] = {
    "NCCL": ("nccl*kernel*",),  # Holistic Trace Analysis has this one alone.
    "RCCL": ("rccl*",),
    "NVSHMEM": ("nvshmem*", "rocshmem*"),
    "MSCCL": ("msccl*",),
    "DeepEP, UCCL, MORI": ("deep_ep::*", "hybrid_ep::*", "uccl::*", "mori::ep*", "mori::moe::ep*"),
    "oneCCL": ("oneccl_*",),
    "LMDeploy": ("turbomind::comm::*", "lmdeploy::comm::*"),
    "vLLM, SGLang, AITER": ("*::cross_device_reduce*", "*::reduce_scatter_cross_device*", "quickreduce::*", "*::allreduce_prototype*"),
    "TensorRT-LLM, FlashInfer": (
        "*::oneshotallreduce*", "*::twoshotallreduce*", "*::oneshot_allreduce*", "*::twoshot_allreduce*", "*::lowprecision*allreduce*",
        "*::allreduce_fusion_kernel*", "*::moe_*allreduce_fusion_kernel*", "*::lamport_style_one_shot_all_reduce*", "*::moealltoall*",
        "*::moea2a*", "*::userbuffers*",
    ),
    "PyTorch's symmetric memory": (
        "*::multimem_*all_reduce*", "*::multimem_*all_gather*", "*::multimem_*reduce_scatter*", "*::one_shot_all_reduce*",
        "*::two_shot_all_reduce*", "*::one_shot_reduce_scatter*", "*::one_shot_all_gather*", "*::one_shot_all_to_all*",
        "c10d::symmetric_memory::*", "c10d::nvshmem_extension::*",
    ),
    "collectives by their own names": (
        "*::all_reduce*kernel*", "*::allreduce*kernel*", "*::all_gather*kernel*", "*::allgather*kernel*", "*::reduce_scatter*kernel*",
        "*::reducescatter*kernel*", "*::all_to_all*kernel*", "*::alltoall*kernel*",
    ),
}  # fmt: skip
"""By library, the names of kernels that communicate, with ``*`` and ``?``; upper and lower case do not matter.

A name is that of the function with its namespaces, without return type, template arguments and parameters (`qualified_name`). A pattern
that begins with ``*::`` holds in any namespace, and in none. Beside these, a kernel communicates whose function has a collective's own name
as a whole word, as ``quantized_all_reduce`` has.
"""
_COLLECTIVE = re.compile(
    r"(?:.*::)?(?!triton_[a-z]+_fused)(?![^:]*(?:block|warp|wave|gemm|matmul))"
    r"(?:[^:]*[^:a-z0-9])?(?:all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|a2a|all2all)(?![a-z0-9])[^:]*",
    re.IGNORECASE,
)
"""A function named by a collective; but one of a block or a warp is within a GPU, and Inductor fuses code beside one."""


def communicates(name: str) -> bool:
    """Tell whether a kernel of this name communicates between GPUs, by `COMMUNICATION`, or by a collective's own name."""
    return is_called(name, _KNOWN) or bool(_COLLECTIVE.fullmatch(qualified_name(name)))


def is_called(name: str, patterns: re.Pattern[str]) -> bool:
    """Tell whether a kernel's name is one of those that `compiled` patterns mean."""
    qualified = qualified_name(name)
    # In C++, "::name" is the one of no namespace.
    return bool(patterns.match(qualified) or patterns.match(f"::{qualified}"))


def compiled(patterns: Iterable[str]) -> re.Pattern[str]:
    """Return patterns of names as one; without any, it matches nothing."""
    return re.compile("|".join(map(translate, patterns)) or r"(?!)", re.IGNORECASE)


def checked_patterns(more: Iterable[str]) -> list[str]:
    """Return patterns as a list; one alone need not be in one.

    Raises
    ------
    TraceError
        One of them is not text, or empty.
    """
    patterns: list[object] = [more] if isinstance(more, str) else list(more)
    for pattern in patterns:
        if not isinstance(pattern, str) or not pattern.strip():
            raise TraceError(f"{pattern!r} is not a name of kernels that communicate", hint='for example "*my_ring*"')
    return list(map(str, patterns))


_KNOWN = compiled(pattern for some in COMMUNICATION.values() for pattern in some)
_KINDS = (
    ("crossdevicereduce", "all_reduce"), ("allreduce", "all_reduce"), ("reducescatter", "reduce_scatter"), ("allgather", "all_gather"),
    ("alltoall", "all_to_all"), ("all2all", "all_to_all"), ("a2a", "all_to_all"), ("sendrecv", "send_recv"), ("broadcast", "broadcast"),
    ("barrier", "barrier"), ("send", "send"), ("recv", "recv"), ("gather", "gather"), ("scatter", "scatter"), ("reduce", "reduce"),
    ("dispatch", "all_to_all"), ("combine", "all_to_all"),
)  # fmt: skip
"""What stands in a name, without underscores, and the kind of collective: the first that fits."""
_OPS = {"sum": "sum", "avg": "mean", "min": "min", "max": "max", "prod": "prod"}
_OP = re.compile(r"(?:all_?reduce|reduce_?scatter|reduce)_(sum|avg|min|max|prod)(?![a-z])", re.IGNORECASE)


@lru_cache(1024)
def collective_kind(name: str) -> str:
    """Return the kind of a collective by the name of a function or a kernel; empty where the name does not say it.

    Examples
    --------
    >>> from streamscope.trace.communication import collective_kind
    >>> [collective_kind(name) for name in ("_allgather_base", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "ncclDevKernel_Generic")]
    ['all_gather', 'all_reduce', '']
    """
    plain = re.sub(r"[^a-z0-9]", "", qualified_name(name).lower())
    return next((kind for part, kind in _KINDS if part in plain), "")


def collective_op(name: str) -> str:
    """Return the reduction in the name of a kernel of NCCL, such as ``"sum"``; empty where it has none."""
    found = _OP.search(name)
    return _OPS[found[1].lower()] if found else ""
