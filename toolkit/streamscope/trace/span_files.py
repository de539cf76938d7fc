"""Spans of one or several traces as a plain table for other programs: CSV or Parquet, one row a span."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from streamscope.files import suffix_of, written_whole
from streamscope.trace.info import TraceInfo
from streamscope.trace.trace import Trace

if TYPE_CHECKING:
    import pyarrow as pa

SPANS_COLUMNS = frozenset({"engine", "device"})
"""Which columns come first, and tell such a table from a trace."""
ORIGINS = ("operator", "module", "line")
"""Which columns come last: where the operation of a span comes from. The first two are known of captured code."""


def write_spans(traces: Sequence[Trace], path: Path) -> Path:
    """Write the spans of traces below each other, whole or not at all, and return the path.

    Columns ``engine`` and ``device`` come first: each row says whose it is, and whether its times are simulated. `ORIGINS` come last.
    """
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    kind = suffix_of(path, ".csv", ".parquet")
    tables = list(_tables(traces))
    with written_whole(path) as temporary, temporary.open("wb") as file:
        if kind == ".csv":
            with pa.csv.CSVWriter(file, tables[0].schema) as writer:
                for table in tables:
                    writer.write_table(table)
        else:
            pa.parquet.write_table(pa.concat_tables(tables), file, compression="zstd")
    return path


def _tables(traces: Sequence[Trace]) -> Iterator[pa.Table]:
    import pyarrow as pa

    for trace in traces:
        table = pa.Table.from_pandas(trace.spans.to_pandas(), preserve_index=False)
        plain = [field.with_type(pa.string()) if pa.types.is_dictionary(field.type) else field for field in table.schema]
        columns = [column.cast(field.type) for column, field in zip(table.columns, plain, strict=True)]
        whose = {name: pa.repeat(text, len(table)) for name, text in (("engine", trace.info.engine), ("device", _device(trace.info)))}
        words = _words(trace)
        yield pa.table([*whose.values(), *columns, *map(pa.array, words.values())], names=[*whose, *table.column_names, *words])


def _words(trace: Trace) -> dict[str, list[str]]:
    """Return a column for each of `ORIGINS`: facts about the operation of each span, empty where unknown."""
    known, nothing = trace.origins.words(), dict[str, str]()
    found = [known[operation] if 0 <= operation < len(known) else nothing for operation in trace.spans.operation.tolist()]
    return {name: [each.get(name, "") for each in found] for name in ORIGINS}


def _device(info: TraceInfo) -> str:
    """Return the device's name, and before it that times are simulated or predicted: the column `basis` does not say so."""
    plain = info.device.name.removeprefix("simulated ")
    return f"predicted {plain}" if info.recorder == "prediction" else f"simulated {plain}" if info.device.simulated else info.device.name
