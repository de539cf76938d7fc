"""The metrics of one trace as JSON Lines, one metric a line, for other programs to collect and plot."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from streamscope.analysis.collectives import link_copies
from streamscope.analysis.idle import idle_by_stream
from streamscope.analysis.metric import HOST, TRACE, metrics_of
from streamscope.analysis.overlap import busy_error_ns, copy_busy_ns, gpu_busy_ns, kernel_count, overlap_error
from streamscope.analysis.summary import Summary, summary
from streamscope.trace.one_gpu import with_received
from streamscope.trace.spans import DEVICE_KINDS, HOST_KINDS, Basis
from streamscope.trace.trace import Trace

_ERRORS: Mapping[str, Callable[..., Any]] = {"gpu_busy_error_us": busy_error_ns, "overlap_error": overlap_error}
"""How far metrics may be off, beside them in `Summary.to_dict`."""
_OF_STREAMS: Mapping[str, Callable[..., Any]] = {
    "kernel_count": kernel_count, "busy_us": gpu_busy_ns, "copy_us": copy_busy_ns, "idle_us": idle_by_stream,
}  # fmt: skip
_OF_LINKS: Mapping[str, Callable[..., Any]] = dict.fromkeys(("peer_copy_count", "peer_copy_bytes", "peer_copy_time_us"), link_copies)
_UNITS = {"us": "us", "bytes": "bytes"}
"""Units by the endings of names."""


def json_lines(trace: Trace, *, communication: Iterable[str] = ()) -> str:
    """Return the metrics of a trace as JSON Lines: those of `summary`, one a line, those of a stream with its lane.

    Each line has ``name``, ``value`` (null where there is nothing to measure), ``unit`` (``"us"``, ``"GB/s"``, ``"bytes"`` or ``"1"``),
    ``definition`` (the function of `ss.analysis` that defines it), ``at_least`` (whether it is a lower bound), ``basis``, ``program``,
    ``engine`` and ``device``. Metrics of one GPU have ``gpu``, those of a stream also ``lane``, those of copies between two GPUs ``from``
    and ``to``; others are of all GPUs together. The basis is ``"measured"``, ``"derived"`` or ``"placed"``, after
    the least certain span that the number rests on; or ``"simulated"`` or ``"predicted"``.

    Parameters
    ----------
    trace : Trace
    communication : iterable of str
        Patterns of yours for kernels that communicate between GPUs, as `work_of` takes them.

    Examples
    --------
    >>> import json
    >>> function, inputs = ss.workload("branches").build()
    >>> runs = ss.compare(function, *inputs, engines=["graph"], device="simulated", progress=False)
    >>> first = json.loads(ss.analysis.json_lines(runs["graph"].trace).splitlines()[0])
    >>> first["name"], first["value"], first["unit"], first["definition"], first["basis"]
    ('span_us', ..., 'us', 'span_ns', 'simulated')
    """
    return "".join(json.dumps(line, allow_nan=False) + "\n" for line in _lines(trace, communication))


def _lines(trace: Trace, communication: Iterable[str]) -> Iterator[dict[str, Any]]:
    found, whose = summary(trace, communication=communication), _whose(trace)
    metrics = metrics_of(TRACE)
    definitions = {**_ERRORS, **{metric.name: metric.trace_function for metric in metrics}}
    for each in found.each_gpu or (found,):
        spans = trace.spans if each.gpu is None else with_received(trace.spans, trace.peers, each.gpu)
        of_gpu = np.isin(spans.gpu, (-1, -1 if each.gpu is None else each.gpu))
        whole = each.metric_values(metric for metric in metrics if HOST not in metric.scope)
        streams, gpu = whole.pop("streams"), {"gpu": whole.pop("gpu")}
        for name, value in _flat(whole):
            rests_on = of_gpu & spans.is_kind(HOST_KINDS if name.startswith("api_time") else DEVICE_KINDS)
            yield _line(name, value, definitions, each) | {"basis": _basis(trace, rests_on)} | whose | gpu
        for stream in streams:
            lane = stream.pop("name")
            rests_on = spans.is_kind(DEVICE_KINDS) & (spans.stream_lanes[spans.lane] == spans.lanes.index(lane))
            for name, value in _flat(stream):
                yield _line(name, value, _OF_STREAMS, each) | {"basis": _basis(trace, rests_on)} | whose | gpu | {"lane": lane}
    basis = {"basis": _basis(trace, trace.spans.is_kind(DEVICE_KINDS))} | whose
    for metric in metrics:
        if HOST in metric.scope:
            yield _line(metric.name, found.value(metric.name), definitions, found) | basis
    for link in found.links:
        values = link.to_dict()
        ends = {end: values.pop(end) for end in ("from", "to")}
        for name, value in values.items():
            yield _line(f"peer_copy_{name}", value, _OF_LINKS, found) | basis | ends


def _whose(trace: Trace) -> dict[str, str]:
    return {"program": trace.info.program, "engine": trace.info.engine, "device": trace.info.device.name}


def _flat(values: Mapping[str, Any]) -> Iterator[tuple[str, float | None]]:
    """Yield each number with its name, those inside another mapping with both names."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from ((f"{name}.{inner}", number) for inner, number in value.items())
        else:
            yield name, value


def _line(name: str, value: Any, definitions: Mapping[str, Callable[..., Any]], found: Summary) -> dict[str, Any]:
    whole = name.partition(".")[0]
    function = definitions[whole]
    at_least = ("gpu_busy_us" if whole == "busy_us" else whole) in found.at_least
    unit = "GB/s" if whole == "bus_bandwidth" else _UNITS.get(whole.rpartition("_")[2], "1")
    return {"name": name, "value": value, "unit": unit, "definition": function.__name__, "at_least": at_least}


def _basis(trace: Trace, mask: npt.NDArray[np.bool_]) -> str:
    """Return the basis of times of some spans: a model, or the least certain basis among them."""
    if trace.info.recorder == "prediction":
        return "predicted"
    if trace.info.device.simulated:
        return "simulated"
    return Basis(int(trace.spans.basis[mask].max(initial=Basis.MEASURED))).name.lower()
