"""Traces as Parquet files: the columns of `SpanTable`, one row a span, and the rest as JSON in the file's metadata.

Names, lanes, kinds and bases are dictionary-encoded strings, so that DuckDB, pandas, Polars or Spark read the file without us.
The metadata key ``streamscope`` holds ``{"schema", "info", "names", "lanes"}``: the version of this layout, the `TraceInfo`, and the
two lists in the order in which the trace had them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from streamscope.errors import TraceError
from streamscope.files import written_whole
from streamscope.trace.spans import COLUMN_DTYPES, Basis, SpanKind, SpanTable
from streamscope.trace.trace import SCHEMA_VERSION, DeviceInfo, Trace, TraceInfo

if TYPE_CHECKING:
    import pyarrow as pa

METADATA_KEY = b"streamscope"
KIND_NAMES = tuple(kind.name.lower() for kind in SpanKind)
BASIS_NAMES = tuple(basis.name.lower() for basis in Basis)


def write_parquet(trace: Trace, path: Path) -> Path:
    """Write a trace to one Parquet file, whole or not at all, and return its path.

    Raises
    ------
    OutputError
        The folder is missing or cannot be written, or the disk is full.
    TraceError
        The trace holds something that JSON or UTF-8 cannot express.
    """
    import pyarrow.parquet as pq

    table = _to_arrow(trace)
    # Arrow takes names of files in UTF-8 only, so it is given the file.
    with written_whole(path) as temporary, temporary.open("wb") as file:
        pq.write_table(table, file, compression="zstd")
    return path


def read_parquet(path: Path) -> Trace:
    """Read what `write_parquet` wrote.

    Raises
    ------
    TraceError
        The file is missing, truncated, not a trace of ours, lacks columns, or has a newer schema than this version knows.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if not path.is_file():
            raise TraceError(f"there is no trace file {str(path)!r}")
        with path.open("rb") as opened, pq.ParquetFile(opened) as file:
            layout = _layout(file.schema_arrow.metadata, path)
            _check_columns(file.schema_arrow.names, path)
            table = file.read(columns=list(COLUMN_DTYPES))
        return Trace(_to_spans(table, layout), _to_info(layout["info"]))
    except (pa.ArrowException, OSError) as error:
        raise TraceError(
            f"{str(path)!r} is not a readable Parquet file: {str(error).splitlines()[0]}", hint="truncated, or another format?"
        ) from error
    except (KeyError, TypeError, ValueError) as error:
        raise TraceError(f"the trace in {str(path)!r} is damaged: {error}") from error


def _to_arrow(trace: Trace) -> pa.Table:
    import pyarrow as pa

    spans = trace.spans
    vocabularies = {"kind": KIND_NAMES, "name": spans.names, "lane": spans.lanes, "basis": BASIS_NAMES}
    layout = {"schema": SCHEMA_VERSION, "info": asdict(trace.info), "names": spans.names, "lanes": spans.lanes}
    try:
        arrays = [_encoded(getattr(spans, column), vocabularies.get(column)) for column in COLUMN_DTYPES]
        metadata = json.dumps(layout, default=_plain, ensure_ascii=False).encode()
    except (TypeError, ValueError) as error:
        raise TraceError(f"this trace cannot be written: {error}", hint="its details must be JSON values, its names UTF-8") from error
    return pa.table(arrays, names=list(COLUMN_DTYPES)).replace_schema_metadata({METADATA_KEY: metadata})


def _encoded(values: npt.NDArray[Any], vocabulary: tuple[str, ...] | None) -> pa.Array:
    import pyarrow as pa

    if vocabulary is None:
        return pa.array(values)
    return pa.DictionaryArray.from_arrays(pa.array(values.astype(np.int32)), pa.array(vocabulary, type=pa.string()))


def _plain(value: object) -> object:
    """Turn what JSON does not know into what it does: NumPy numbers, and mappings that are not dicts."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{value!r} is not a JSON value")


def _layout(metadata: Mapping[bytes, bytes] | None, path: Path) -> dict[str, Any]:
    text = (metadata or {}).get(METADATA_KEY)
    if text is None:
        raise TraceError(f"{str(path)!r} is a Parquet file, but not a Streamscope trace", hint="traces are written by Trace.to_parquet")
    layout = cast("dict[str, Any]", json.loads(text))
    if layout["schema"] > SCHEMA_VERSION:
        raise TraceError(
            f"{str(path)!r} has schema {layout['schema']}, and this Streamscope reads up to {SCHEMA_VERSION}",
            hint="upgrade streamscope",
        )
    return layout


def _check_columns(names: list[str], path: Path) -> None:
    missing = [column for column in COLUMN_DTYPES if column not in names]
    if missing:
        raise TraceError(f"{str(path)!r} lacks the columns {', '.join(missing)}")


def _to_spans(table: pa.Table, layout: Mapping[str, Any]) -> SpanTable:
    names, lanes = tuple(layout["names"]), tuple(layout["lanes"])
    vocabularies = {"kind": KIND_NAMES, "name": names, "lane": lanes, "basis": BASIS_NAMES}
    columns = {column: _decoded(table.column(column), column, vocabularies.get(column)) for column in COLUMN_DTYPES}
    return SpanTable(**columns, names=names, lanes=lanes)


def _decoded(values: pa.ChunkedArray, column: str, vocabulary: tuple[str, ...] | None) -> npt.NDArray[Any]:
    import pyarrow as pa
    import pyarrow.compute as pc

    if values.null_count:
        raise TraceError(f"column {column!r} has {values.null_count} missing values")
    if vocabulary is not None:
        values = pc.index_in(values.cast(pa.string()), value_set=pa.array(vocabulary, type=pa.string()))
        if values.null_count:
            raise TraceError(f"column {column!r} has {values.null_count} values that this version does not know")
    decoded: npt.NDArray[Any] = values.cast(pa.from_numpy_dtype(COLUMN_DTYPES[column])).to_numpy()
    return decoded


def _to_info(stored: Mapping[str, Any]) -> TraceInfo:
    known = {field.name for field in fields(TraceInfo)}
    values = {name: value for name, value in stored.items() if name in known}
    return TraceInfo(**{**values, "device": DeviceInfo(**values["device"]), "notes": tuple(values["notes"])})
