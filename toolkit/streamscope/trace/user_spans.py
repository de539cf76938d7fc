"""Traces of spans that a user has in a table: of a simulator, a log, or another profiler than those whose files can be read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from enum import IntEnum
from operator import index
from typing import Any

import numpy as np
import numpy.typing as npt

from streamscope.arguments import check_kinds, shown
from streamscope.errors import TraceError
from streamscope.trace.activities import ON_DEVICE, Activities
from streamscope.trace.file_checks import MOST_NS
from streamscope.trace.foreign import foreign_trace
from streamscope.trace.info import DeviceInfo, TraceInfo
from streamscope.trace.span_files import ORIGINS, SPANS_COLUMNS
from streamscope.trace.spans import COLUMN_DTYPES, HOST_KINDS, MOST_GPU, Basis, SpanKind, SpanTable
from streamscope.trace.trace import Trace
from streamscope.words import counted, listed

_TUPLES = ("name", "stream", "start_ns", "end_ns")
"""Columns of a row without names."""
_UNITS_NS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_PROGRAM, DEVICE = "spans", "GPU"
"""Default names of a trace and its device."""
_NUMBERS = {"correlation": -1, "graph_node": -1, "blocks": 0, "threads": 0, "bytes": 0}
"""Columns of whole numbers that may be left out, and their values for unknown numbers."""
_NUMBERS_OF_A_TRACE = _NUMBERS | {"operation": -1, "part": 0, "flops": 0}
_TIMES = ("start", "end", "duration")
_COLUMNS = ("name", "stream", *(f"{which}_{unit}" for which in _TIMES for unit in _UNITS_NS), "kind", "gpu", *_NUMBERS)
_COLUMNS_OF_A_TRACE = ("lane", *(name for name in _COLUMNS if name != "stream"), "basis", "symbol", "operation", "part", "flops")
"""Columns where lanes are given and not streams, as in `Trace.to_pandas`."""
_OF_CSV = (*SPANS_COLUMNS, *ORIGINS)
"""Columns that `Trace.to_csv` adds."""
_FURTHEST_NS = 2**61
_HELP = "see help(ss.Trace.from_spans)"
_WHOSE = "say which device: device='NVIDIA H200', or device=DeviceInfo('simulated', 'my model') for times that were not measured"
_OF_EACH_KERNEL = ("kernel_error_ns", "kernel_error_share", "overlap_error", "by_cupti", "stamp_by_cupti")
"""Fields of a calibration that hold for each time, whichever spans are kept."""
_NAMED = {
    "program": (lambda value: isinstance(value, str), "a text"),
    "device": (lambda value: isinstance(value, str | DeviceInfo), "a name"),
}


def trace_of_spans(spans: Any, program: str, device: str | DeviceInfo) -> Trace:
    """Return the trace of a table of spans; `Trace.from_spans` describes it."""
    check_kinds("Trace.from_spans", _NAMED, program, device, error=TraceError)
    info = getattr(spans, "attrs", {}).get("info")
    given = _columns(spans)
    columns, extra = _known_columns(given)
    _check_columns(columns)
    start_ns = _times_ns(columns, "start")
    ended = [_times_ns(columns, which) for which in ("end", "duration") if any(name.startswith(which) for name in columns)]
    if len(ended) != 1:
        said = "spans say twice when they end" if ended else "spans do not say when they end"
        raise TraceError(said, hint="give end_us, or duration_us; also in ns, ms or s")
    end_ns = ended[0] if any(name.startswith("end") for name in columns) else start_ns + ended[0]
    if (end_ns < start_ns).any():
        row = int(np.argmax(end_ns < start_ns))
        raise TraceError(f"row {row} ends {int(start_ns[row] - end_ns[row]):,} ns before it starts")
    kind = _coded_members("kind", columns["kind"], SpanKind) if "kind" in columns else np.full(len(start_ns), SpanKind.KERNEL, np.uint8)
    on_device = np.isin(kind, list(map(int, ON_DEVICE)))
    if not on_device.any():
        raise TraceError(
            "no span is of a kernel, copy or set", hint="kind='kernel' is what spans have by default, and each trace needs one"
        )
    notes = [f"columns left out: {listed(list(map(shown, extra)))}"] if extra else []
    if "lane" in columns:
        table = _table(columns, kind, start_ns, end_ns)
        known = info if isinstance(info, TraceInfo) else None
        if known is None and "device" in given:
            device = _device_of_csv(given["device"], device)
        elif known is None and "basis" in columns and device == DEVICE:
            raise TraceError("the table comes from a trace and has lost its origin: its times may be simulated", hint=_WHOSE)
        return Trace(table, _info(known, program, device, notes))
    names, name = _coded("name", columns["name"], _text)
    streams, place = _in_order(*_coded("stream", columns["stream"], _place))
    numbers: dict[str, Any] = {column: _numbers(column, columns[column], least) for column, least in _NUMBERS.items() if column in columns}
    gpu = _numbers("gpu", columns["gpu"], -1) if "gpu" in columns else np.zeros(len(kind), np.int64)
    found = Activities(
        kind, name, start_ns, end_ns, place, **numbers, gpu=np.where(on_device, gpu, -1), names=names, places=dict(enumerate(streams))
    )
    about = _device_info(device)
    return foreign_trace(found, engine="spans", program=program, device=about, recorder="spans", symbols=False, notes=notes)


def _table(columns: Mapping[str, Any], kind: npt.NDArray[Any], start_ns: npt.NDArray[Any], end_ns: npt.NDArray[Any]) -> SpanTable:
    """Return spans on the lanes that they name, at the times that they have, where these can be those of a trace."""
    if max(int(np.abs(start_ns).max()), int(np.abs(end_ns).max())) > MOST_NS:
        start_ns, end_ns = start_ns - start_ns.min(), end_ns - start_ns.min()
    lanes, lane = _coded("lane", columns["lane"], _place)
    order = _drawing_order(columns["lane"], lanes, lane, kind)
    names, name = _coded("name", columns["name"], _text)
    symbols, symbol = _coded("symbol", columns["symbol"], _text_or_none) if "symbol" in columns else (("",), np.zeros(len(kind), np.int64))
    codes = {text: code for code, text in enumerate(dict.fromkeys((*names, *filter(None, symbols))))}
    basis = _coded_members("basis", columns["basis"], Basis) if "basis" in columns else np.full(len(kind), Basis.MEASURED, np.uint8)
    made = {column: np.full(len(kind), missing) for column, missing in _NUMBERS_OF_A_TRACE.items()}
    made |= {column: _numbers(column, columns[column], least) for column, least in _NUMBERS_OF_A_TRACE.items() if column in columns}
    made |= {"kind": kind, "basis": basis, "start_ns": start_ns, "end_ns": end_ns, "lane": np.argsort(order)[lane]}
    made |= {
        "name": np.array([codes[text] for text in names])[name],
        "symbol": np.array([codes[text] if text else -1 for text in symbols])[symbol],
    }
    rows = np.argsort(start_ns, kind="stable")
    in_order: dict[str, Any] = {column: values[rows] for column, values in made.items()}
    gpu_of = _gpu_of_lanes(columns["gpu"], lanes, lane) if "gpu" in columns else {}
    gpus = tuple(gpu_of[at] for at in order if gpu_of)
    return SpanTable(**in_order, names=tuple(codes), lanes=tuple(lanes[at] for at in order), gpus=gpus)


def _gpu_of_lanes(column: Any, lanes: Sequence[str], lane: npt.NDArray[Any]) -> dict[int, int]:
    """Return the GPU of each lane, which all of its rows have."""
    gpus = _numbers("gpu", column, -1)
    found = dict(zip(lane.tolist(), gpus.tolist(), strict=True))
    wrong = np.array([found[one] for one in lane.tolist()]) != gpus
    if wrong.any():
        row = int(np.argmax(wrong))
        raise TraceError(f"row {row} has gpu {gpus[row]}, and another row of lane {lanes[lane[row]]!r} has gpu {found[int(lane[row])]}")
    return found


def _drawing_order(column: Any, lanes: Sequence[str], lane: npt.NDArray[Any], kind: npt.NDArray[Any]) -> list[int]:
    """Return lanes in the order of their categories, as a trace draws them; without those, lanes of the host first."""
    ordered = [str(each) for each in getattr(getattr(column, "cat", None), "categories", ())]
    on_host = set(lane[np.isin(kind, list(map(int, HOST_KINDS)))].tolist())
    return sorted(range(len(lanes)), key=lambda at: (ordered.index(lanes[at]), 0) if ordered else (at not in on_host, at))


def _info(info: TraceInfo | None, program: str, device: str | DeviceInfo, notes: Sequence[str]) -> TraceInfo:
    """Return the facts about a table: of one that a trace gave, its recorder, so that no predicted time is taken for a measured one."""
    if info is None:
        return TraceInfo("spans", program, _device_info(device), "spans", notes=tuple(notes))
    named = _device_info(device)
    if isinstance(device, str) and info.device.simulated:
        named = DeviceInfo("simulated", device)
    return replace(
        info,
        program=info.program if program == _PROGRAM else program,
        device=info.device if device == DEVICE else named,
        notes=(*info.notes, *notes),
        calibration={name: value for name, value in info.calibration.items() if name in _OF_EACH_KERNEL},
        ledger={}, plan={}, memory={},  # As the rest of the calibration, they are of all that ran, and rows may have been left out.
    )  # fmt: skip


def _device_of_csv(column: Any, given: str | DeviceInfo) -> str | DeviceInfo:
    """Return the device that `Trace.to_csv` wrote, or the one given; where the table says that times were not measured, the trace does."""
    names = sorted({str(name) for name in column})
    simulated = any(name.startswith(("simulated ", "predicted ")) for name in names)
    if given == DEVICE and len(names) > 1:
        raise TraceError(f"the table is of several devices: {listed(names[:5])}", hint="take the rows of one, or give device=")
    if isinstance(given, DeviceInfo):
        return given
    name = names[0] if given == DEVICE else given
    return DeviceInfo("simulated", name) if simulated else name


def _device_info(device: str | DeviceInfo) -> DeviceInfo:
    return device if isinstance(device, DeviceInfo) else DeviceInfo("cuda", device)


def _columns(spans: Any) -> dict[str, Any]:
    """Return the columns of a table: of a DataFrame, of a mapping, or of rows."""
    if hasattr(spans, "to_pandas"):  # pyarrow's, Polars'
        spans = spans.to_pandas()
    if isinstance(spans, Mapping):
        return dict(spans.items())
    if hasattr(spans, "columns"):
        names = list(spans.columns)
        for name in (one for one in names if names.count(one) > 1):
            raise TraceError(f"column {name!r} is there twice", hint="leave one of them out")
        return {name: spans[name] for name in names}
    if isinstance(spans, str | bytes) or not isinstance(spans, Iterable):
        raise TraceError(f"spans={shown(spans)} is not a table", hint=f"a DataFrame, a dict of columns, or a list of {_TUPLES}; {_HELP}")
    return _columns_of_rows(list(spans))


def _columns_of_rows(rows: Sequence[Any]) -> dict[str, Any]:
    if not rows:
        raise TraceError("there is no span")
    if isinstance(rows[0], Mapping):
        names = rows[0].keys()
        if wrong := [row for row, each in enumerate(rows) if not isinstance(each, Mapping) or each.keys() != names]:
            raise TraceError(f"row {wrong[0]} has other columns than row 0: {shown(rows[wrong[0]])}", hint="give all rows the same columns")
        return {name: [each[name] for each in rows] for name in names}
    if wrong := [row for row, each in enumerate(rows) if not isinstance(each, Sequence) or len(each) != len(_TUPLES)]:
        hint = "rows that say more are dicts, or columns of a DataFrame"
        raise TraceError(f"row {wrong[0]} is {shown(rows[wrong[0]])}, not {_TUPLES}", hint=hint)
    return dict(zip(_TUPLES, zip(*rows, strict=True), strict=True))


def _known_columns(columns: Mapping[Any, Any]) -> tuple[dict[str, Any], list[Any]]:
    """Return the columns that say something here, and the names of the others; a name that is nearly one of ours is an error."""
    for name in (one for one in columns if one in _TIMES):
        raise TraceError(f"column {name!r} has no unit", hint=f"call it {name}_ns, {name}_us, {name}_ms or {name}_s")
    if "lane" in columns and "stream" in columns:
        raise TraceError("spans have both 'stream' and 'lane'", hint="a lane has the name that a trace draws: 'stream 7' for stream 7")
    known = _COLUMNS_OF_A_TRACE if "lane" in columns else _COLUMNS
    extra = [name for name in columns if name not in known]
    for name in extra:
        if name not in (*_COLUMNS_OF_A_TRACE, *_OF_CSV) and (near := get_close_matches(str(name).lower(), known, 1, 0.8)):
            raise TraceError(f"column {shown(name)} is not known", hint=f"call it {near[0]!r}, or leave it out")
    return {name: values for name, values in columns.items() if name in known}, extra


def _check_columns(columns: Mapping[str, Any]) -> None:
    """Check that a table has the columns that it must have, all of one length."""
    for name in (one for one in ("name", "stream") if one not in columns and not (one == "stream" and "lane" in columns)):
        raise TraceError(f"spans have no column {name!r}, but {listed(list(map(repr, columns)))}", hint=_HELP)
    for name, values in columns.items():
        if isinstance(values, str | bytes) or not hasattr(values, "__len__") or getattr(values, "shape", None) == ():
            raise TraceError(f"column {name!r} is {shown(values)}, not a value for each row")
    lengths = {name: len(values) for name, values in columns.items()}
    for name, length in lengths.items():
        if length != lengths["name"]:
            raise TraceError(f"column {name!r} has {counted(length, 'row')}, and 'name' has {lengths['name']:,}")
    if not lengths["name"]:
        raise TraceError("there is no span")


def _times_ns(columns: Mapping[str, Any], which: str) -> npt.NDArray[np.int64]:
    """Return the column of starts, ends or durations in whole ns."""
    found = [(f"{which}_{unit}", factor) for unit, factor in _UNITS_NS.items() if f"{which}_{unit}" in columns]
    if len(found) != 1:
        said = f"spans have both {found[0][0]!r} and {found[1][0]!r}" if found else f"spans have no column {which}_us"
        raise TraceError(said, hint=f"one of {listed([f'{which}_{unit}' for unit in _UNITS_NS])}")
    (name, factor), *_ = found
    values = _array(columns[name])
    if values.dtype.kind not in "iuf" or values.ndim != 1:
        dates = values.dtype.kind in "mM" and values.ndim == 1
        hint = f"for example (t - t.min()) / np.timedelta64(1, {name.rpartition('_')[2]!r})" if dates else "one number a row, such as 12.5"
        raise TraceError(f"column {name!r} must hold numbers, not {'dates' if dates else _what(values)}", hint=hint)
    wrong = ~(np.abs(values.astype(np.float64)) <= _FURTHEST_NS / factor)  # That of NaN is wrong, too.
    if wrong.any():
        row = int(np.argmax(wrong))
        raise TraceError(f"row {row} has {name} {values[row]}, which is not a time")
    return np.rint(values.astype(np.float64) * factor).astype(np.int64) if values.dtype.kind == "f" else values.astype(np.int64) * factor


def _array(values: Any) -> npt.NDArray[Any]:
    """Return a column as an array; one of objects where some of its values are lists."""
    try:
        return np.asarray(values)
    except ValueError:
        return np.asarray([None, *values], object)[1:]


def _what(values: npt.NDArray[Any]) -> str:
    return f"{values.ndim} dimensions" if values.ndim != 1 else f"{values.dtype}, as {shown(values.flat[0])}" if values.size else "nothing"


def _coded(name: str, values: Any, text: Callable[[str, int, Any], str]) -> tuple[tuple[str, ...], npt.NDArray[np.int64]]:
    """Return the different texts of a column in the order in which they come, and for each row which one it has."""
    codes: dict[Any, int] = {}
    found: list[int] = []
    for row, each in enumerate(values.tolist() if hasattr(values, "tolist") else values):
        try:
            found.append(codes.setdefault(each, len(codes)))
        except TypeError:  # A list, for example.
            raise TraceError(f"row {row} of {name!r} is {shown(each)}, not a string") from None
    code = np.array(found, np.int64)
    first = np.full(len(codes), 0)
    first[code[::-1]] = np.arange(len(code))[::-1]
    texts: dict[str, int] = {}  # Different values may read alike, as 1 and "1".
    again = [texts.setdefault(text(name, row, each), len(texts)) for row, each in zip(first.tolist(), codes, strict=True)]
    return tuple(texts), np.array(again, np.int64)[code]


def _text(name: str, row: int, value: Any) -> str:
    if not isinstance(value, str):
        raise TraceError(f"row {row} of {name!r} is {shown(value)}, not a string")
    return value


def _place(name: str, row: int, value: Any) -> str:
    """Return the name of a stream or thread, which may be a number."""
    if isinstance(value, str):
        return value
    try:
        return str(index(int(value) if isinstance(value, float) and value.is_integer() else value))
    except (TypeError, ValueError):  # Python prints no whole number of more than 4,300 digits.
        raise TraceError(f"row {row} of {name!r} is {shown(value)}, neither a string nor a whole number") from None


def _in_order(streams: tuple[str, ...], place: npt.NDArray[np.int64]) -> tuple[list[str], npt.NDArray[np.int64]]:
    """Return streams in the order of their numbers, then of their names, and for each row which one it has."""
    order = sorted(
        range(len(streams)), key=lambda one: (not streams[one].isdecimal(), len(streams[one]) * streams[one].isdecimal(), streams[one])
    )
    return [streams[one] for one in order], np.argsort(order)[place]


def _text_or_none(name: str, row: int, value: Any) -> str:
    """Return a text, which is empty where the table has none."""
    missing = value is None or (isinstance(value, float) and np.isnan(value))
    return "" if missing else _text(name, row, value)


def _coded_members(column: str, values: Any, members: type[IntEnum]) -> npt.NDArray[np.uint8]:
    """Return the numbers of kinds or of bases, which are texts."""
    known = [member.name.lower() for member in members]
    texts, code = _coded(column, values, _text)
    if wrong := [text for text in texts if text.lower() not in known]:
        row = int(np.argmax(code == texts.index(wrong[0])))
        raise TraceError(f"row {row} is of the {column} {wrong[0]!r}, which is not known", hint=f"one of {listed(known)}")
    return np.array([known.index(text.lower()) for text in texts], np.uint8)[code]


def _numbers(name: str, values: Any, least: int) -> npt.NDArray[np.int64]:
    found = _array(values)
    if found.dtype.kind not in "iu" or found.ndim != 1:
        raise TraceError(f"column {name!r} must hold whole numbers, not {_what(found)}", hint=f"{least} where it is not known")
    most = MOST_GPU if name == "gpu" else int(np.iinfo(COLUMN_DTYPES[name]).max)
    wrong = (found < least) | (found > most)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise TraceError(f"row {row} has {name} {found[row]}, which must be from {least} to {most:,}")
    return found.astype(np.int64)
