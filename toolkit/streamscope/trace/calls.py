"""What calls of the CUDA and HIP runtimes and drivers do, by their names."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from streamscope.trace.spans import SpanKind

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
    >>> from streamscope.trace.calls import call_kinds
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
    >>> from streamscope.trace.calls import copy_way
    >>> [copy_way(name) for name in ("Memcpy HtoD (Pinned -> Device)", "copy to host", "MEMORY_COPY_DEVICE_TO_DEVICE")]
    [1, -1, 0]
    """
    return 1 if _COPIES_IN.search(name) else -1 if _COPIES_OUT.search(name) else 0
