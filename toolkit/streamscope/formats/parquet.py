"""Traces as Parquet files: the columns of `SpanTable`, one row a span, and the rest as JSON in the file's metadata.

Names, lanes, kinds and bases are dictionary-encoded strings, so that DuckDB, pandas, Polars or Spark read the file without us.
A kernel whose symbol is not known has no value there.
The metadata key ``streamscope`` holds ``{"schema", "info", "names", "lanes", "gpus", "origins", "columns", "digest"}``: the version of
this layout, the `TraceInfo`, the lists in the order in which the trace had them, the `Origins`, a digest of the columns, and one of all of
these. ``"blocks"``, ``"collectives"``, ``"peers"``, ``"sites"``, ``"counters"``, ``"markers"``, ``"memory"`` and ``"user_notes"`` are there
where the trace has some. Files without ``gpus`` are of one GPU. Pages have checksums.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from streamscope.errors import TraceError
from streamscope.files import written_whole
from streamscope.formats.pages import MAGIC, checked_columns
from streamscope.trace.collectives import Collectives, PeerCopies
from streamscope.trace.columns import Blocks, Columns
from streamscope.trace.counters import Counters, Markers, Note
from streamscope.trace.file_checks import MOST_JSON_BYTES, checked_content, file_errors, listed_texts, opened, parsed, whole, with_digest
from streamscope.trace.format import Format, ReadOptions
from streamscope.trace.info import TraceInfo
from streamscope.trace.launch_sites import LaunchSites
from streamscope.trace.memory import Allocations
from streamscope.trace.origins import Origins
from streamscope.trace.span_files import SPANS_COLUMNS
from streamscope.trace.spans import COLUMN_DTYPES, MOST_SPANS, Basis, SpanKind, SpanTable
from streamscope.trace.trace import Trace

if TYPE_CHECKING:
    import pyarrow as pa

_METADATA_KEY = b"streamscope"
_KIND_NAMES = tuple(kind.name.lower() for kind in SpanKind)
_BASIS_NAMES = tuple(basis.name.lower() for basis in Basis)
_TEXT_COLUMNS = ("kind", "name", "lane", "basis", "symbol")
_RISING_COLUMNS = ("start_ns", "end_ns", "correlation")
"""Hardly any value is there twice: their differences take two thirds of the space, and less time."""
_BESIDE: Mapping[str, type[Columns]] = {
    "blocks": Blocks, "collectives": Collectives, "peers": PeerCopies, "sites": LaunchSites, "counters": Counters, "markers": Markers,
    "memory": Allocations,
}  # fmt: skip
_MOST_FILE_BYTES = 1 << 28
_HINT = "give a file that Trace.to_parquet wrote"


def _write_parquet(trace: Trace, path: Path) -> Path:
    """Write a trace to one Parquet file, whole or not at all, and return its path."""
    import pyarrow.parquet as pq

    table = _to_arrow(trace)
    # Arrow takes names of files in UTF-8 only, so it is given the file.
    with written_whole(path) as temporary, temporary.open("wb") as file:
        encodings = dict.fromkeys(_RISING_COLUMNS, "DELTA_BINARY_PACKED")
        others = [column for column in COLUMN_DTYPES if column not in _RISING_COLUMNS]
        pq.write_table(table, file, compression="zstd", write_page_checksum=True, use_dictionary=others, column_encoding=encodings)
    return path


def _read_parquet(file: io.BufferedReader[Any], options: ReadOptions) -> Trace:
    """Read a file of `_write_parquet`."""
    return _read(whole(file, _MOST_FILE_BYTES))


def trace_bytes(path: Path) -> bytes:
    """Return the bytes of a file that should hold a trace, for `decoded_trace`."""
    with file_errors(path, hint=_HINT), opened(path, _MOST_FILE_BYTES) as file:
        return file.read(_MOST_FILE_BYTES)


def decoded_trace(path: Path, data: bytes) -> Trace:
    """Decode a trace from the bytes of a file; ``path`` is for errors."""
    with file_errors(path, hint=_HINT):
        return _read(data)


def _read(data: bytes) -> Trace:
    import pyarrow as pa
    import pyarrow.parquet as pq

    source = pa.BufferReader(data)
    try:
        texts = [column for column in checked_columns(data, MOST_SPANS) if column in _TEXT_COLUMNS]
        with pq.ParquetFile(source, read_dictionary=texts, page_checksum_verification=True) as file:
            schema = file.schema_arrow  # Made anew with all of the metadata each time.
            if SPANS_COLUMNS.issubset(schema.names):
                raise TraceError("it holds the spans of several engines, as a table for other programs", hint="open comparison.json")
            layout = _layout(schema.metadata)
            if missing := [column for column in COLUMN_DTYPES if column not in schema.names]:
                raise TraceError(f"it lacks the columns {', '.join(missing)}")
            table = file.read(columns=list(COLUMN_DTYPES))
    except (pa.ArrowException, OSError, LookupError, TypeError, ValueError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise TraceError(f"it is not a readable Parquet file: {reason:.200}", hint="truncated, or another format?") from error
    beside: dict[str, Any] = {name: kind.from_dict(layout.get(name)) for name, kind in _BESIDE.items()}
    info, origins = TraceInfo.from_dict(layout["info"]), Origins.from_dict(layout["origins"])
    notes = tuple(Note(**stored) for stored in layout.get("user_notes", ()))
    trace = Trace(_to_spans(table, layout), info, origins, **beside, user_notes=notes)
    if layout["columns"] != _digest(trace.spans):
        raise TraceError("its spans do not match its digest")
    return trace


def _to_arrow(trace: Trace) -> pa.Table:
    import pyarrow as pa

    spans = trace.spans
    vocabularies = _vocabularies(spans.names, spans.lanes)
    arrays = [_encoded(getattr(spans, column), vocabularies.get(column)) for column in COLUMN_DTYPES]
    layout = {
        "info": asdict(trace.info),
        "names": spans.names,
        "lanes": spans.lanes,
        "gpus": spans.gpus,
        "origins": trace.origins.to_dict(),
        **{name: found.to_dict() for name in _BESIDE if len(found := getattr(trace, name))},
        **({"user_notes": [asdict(note) for note in trace.user_notes]} if trace.user_notes else {}),
        "columns": _digest(spans),
    }
    try:
        metadata = json.dumps(with_digest(layout), ensure_ascii=False).encode()
    except (TypeError, ValueError) as error:  # Somebody may have put something into the details since they were checked.
        raise TraceError(f"this trace cannot be written: {error}", hint="its details must be JSON values, its names UTF-8") from error
    if len(metadata) > MOST_JSON_BYTES:
        raise TraceError(f"the names and details of this trace have {len(metadata):,} bytes; at most {MOST_JSON_BYTES:,} can be read")
    return pa.table(arrays, names=list(COLUMN_DTYPES)).replace_schema_metadata({_METADATA_KEY: metadata})


def _encoded(values: npt.NDArray[Any], vocabulary: tuple[str, ...] | None) -> pa.Array:
    import pyarrow as pa

    if vocabulary is None:
        return _arrow_numbers(values)
    codes = _arrow_numbers(values.astype(np.int32), there=values >= 0)  # An unknown text is a missing value.
    return pa.DictionaryArray.from_arrays(codes, _arrow_texts(vocabulary))


def _vocabularies(names: tuple[str, ...], lanes: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    return {"kind": _KIND_NAMES, "name": names, "symbol": names, "lane": lanes, "basis": _BASIS_NAMES}


def _digest(spans: SpanTable) -> str:
    """Return the SHA-256 of the columns, whatever a file's encoding of them is."""
    found = hashlib.sha256()
    for column, dtype in COLUMN_DTYPES.items():
        # Little-endian, whatever the machine: a file has one digest everywhere.
        found.update(np.ascontiguousarray(getattr(spans, column), np.dtype(dtype).newbyteorder("<")).data)
    return found.hexdigest()


def _layout(metadata: Mapping[bytes, bytes] | None) -> dict[str, Any]:
    text = (metadata or {}).get(_METADATA_KEY)
    if text is None:
        raise TraceError("it is a Parquet file, but not a Streamscope trace", hint="traces are written by Trace.to_parquet")
    try:
        return checked_content(parsed(text))
    except (TypeError, ValueError) as error:
        raise TraceError(f"its metadata is damaged: {error}") from error


def _to_spans(table: pa.Table, layout: Mapping[str, Any]) -> SpanTable:
    names, lanes = listed_texts(layout["names"]), listed_texts(layout["lanes"])
    vocabularies = _vocabularies(names, lanes)
    columns = {column: _decoded(table.column(column), column, vocabularies.get(column)) for column in table.column_names}
    return SpanTable(**columns, names=names, lanes=lanes, gpus=tuple(layout.get("gpus", ())))


def _decoded(values: pa.ChunkedArray, column: str, vocabulary: tuple[str, ...] | None) -> npt.NDArray[Any]:
    import pyarrow as pa

    missing = values.null_count
    if missing and column != "symbol":
        raise TraceError(f"column {column!r} has {missing} missing values")
    if vocabulary is not None:
        values = pa.chunked_array([_coded(chunk, vocabulary) for chunk in values.chunks], pa.int32())
        if values.null_count > missing:
            raise TraceError(f"column {column!r} has {values.null_count - missing} values that this version of Streamscope does not know")
        values = values.fill_null(_arrow_numbers(np.array([-1], np.int32))[0])
    return _numbers_in(values.cast(pa.from_numpy_dtype(COLUMN_DTYPES[column])), COLUMN_DTYPES[column])


def _coded(texts: pa.Array, vocabulary: tuple[str, ...]) -> pa.Array:
    """Return where texts stand in a vocabulary: each different one is looked up once, since a long one may stand in many rows."""
    import pyarrow as pa
    import pyarrow.compute as pc

    encoded = texts if isinstance(texts, pa.DictionaryArray) else texts.dictionary_encode()
    codes = pc.index_in(encoded.dictionary.cast(pa.string()), value_set=_arrow_texts(vocabulary))
    return codes.take(encoded.indices)


# Arrow's own conversions load pandas, which takes longer than all the rest of reading or writing a small trace.


def _numbers_in(values: pa.ChunkedArray, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return numbers of which none is missing."""
    whole = values.combine_chunks() if values.num_chunks != 1 else values.chunk(0)
    buffer = whole.buffers()[1]
    if buffer is None:
        return np.empty(0, dtype)
    return np.frombuffer(buffer, dtype, len(whole), whole.offset * np.dtype(dtype).itemsize)


def _arrow_texts(texts: Sequence[str]) -> pa.Array:
    import pyarrow as pa

    encoded = [str.encode(text) for text in texts]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    return pa.StringArray.from_buffers(len(encoded), pa.py_buffer(ends), pa.py_buffer(b"".join(encoded)))


def _arrow_numbers(numbers: npt.NDArray[Any], there: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    import pyarrow as pa

    bits = None if there is None or there.all() else pa.py_buffer(np.packbits(there, bitorder="little"))
    return pa.Array.from_buffers(pa.from_numpy_dtype(numbers.dtype), len(numbers), [bits, pa.py_buffer(np.ascontiguousarray(numbers))])


FORMAT = Format(
    name="parquet",
    label="Parquet that Trace.to_parquet wrote",
    suffixes=(".parquet",),
    sniff=lambda start, path: start.startswith(MAGIC),
    read=_read_parquet,
    write=_write_parquet,
    most_bytes=_MOST_FILE_BYTES,
)
