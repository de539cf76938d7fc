"""Reads tables of an SQLite file that somebody else wrote, and nothing but tables: no view, trigger or function of the file is run.

The file is opened read-only. Its size, the length of a value, the rows of a table and the steps of all queries are limited, so that no
file keeps a reader for ever or fills the memory.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from streamscope.trace.format import Format, ReadOptions
from streamscope.trace.trace import Trace

MOST_ROWS = 20_000_000
"""Of one table."""
MOST_STEPS = 3_000_000_000
"""Of SQLite's machine for all queries; a row takes about as many as it has columns."""
_MOST_VALUE_BYTES = 1 << 22
MOST_TEXT = 1 << 28
"""Bytes that texts and blobs may take: many rows may share one place in the file, so its length limits nothing."""
_OBJECT_BYTES = 64
"""That the shortest of them takes."""
_AT_ONCE = 1 << 16
_STEPS_BETWEEN = 1 << 20
_LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: _MOST_VALUE_BYTES,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 1 << 20,
    sqlite3.SQLITE_LIMIT_COLUMN: 1000,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 50,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 0,
}
Columns = dict[str, npt.NDArray[Any]]
_MAGIC = b"SQLite format 3\0"


class Tables:
    """The tables of an open database."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._text = 0
        found = self._rows("SELECT name, type, sql FROM sqlite_master")
        self.names = frozenset(
            name
            for name, kind, sql in found
            if kind == "table" and isinstance(sql, str) and not sql[:15].upper().startswith("CREATE VIRTUAL")
        )
        """Of real tables; views and virtual tables are not among them."""

    def columns(self, table: str) -> frozenset[str]:
        """Return the names of a table's stored columns; none where there is no such table."""
        if table not in self.names:
            return frozenset()
        return frozenset(row[1] for row in self._rows(f"PRAGMA table_xinfo({_quoted(table)})") if row[6] == 0)

    def numbers(self, table: str, columns: Mapping[str, int | None]) -> Columns:
        """Return columns of whole numbers. The mapping gives each column's default, for missing values and a missing column."""
        there = self.columns(table)
        for name, missing in columns.items():
            if missing is None and name not in there:
                raise ValueError(f"its table {table!r} has no column {name!r}")
        stored = [name for name in columns if name in there]
        parts: dict[str, list[npt.NDArray[Any]]] = {name: [] for name in stored}
        rows = 0
        cursor = self._connection.execute(_query(table, map(_number, stored))) if stored else None
        while cursor is not None and (some := cursor.fetchmany(_AT_ONCE)):
            rows += len(some)
            if rows > MOST_ROWS:
                raise ValueError(f"its table {table!r} has more than {MOST_ROWS:,} rows")
            for name, values in zip(stored, zip(*some, strict=True), strict=True):
                parts[name].append(_whole(values, columns[name], f"{table}.{name}"))
        found = {name: np.concatenate(arrays) if arrays else np.zeros(0, np.int64) for name, arrays in parts.items()}
        return {name: found[name] if name in found else np.full(rows, missing, np.int64) for name, missing in columns.items()}

    def texts(self, table: str, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of columns whose values may be anything; none where the table or one of the columns is missing."""
        if self.columns(table).issuperset(columns):
            yield from self._counted(self._connection.execute(_query(table, map(_quoted, columns))), table)

    def named(self, table: str, column: str) -> dict[int, str]:
        """Return the texts of a column by the ids of their rows."""
        rows = self.texts(table, ("id", column))
        return {one: text for one, text in rows if isinstance(one, int) and isinstance(text, str)}

    def _rows(self, query: str) -> list[tuple[Any, ...]]:
        return list(self._counted(self._connection.execute(query), "sqlite_master"))

    def _counted(self, cursor: sqlite3.Cursor, table: str) -> Iterator[tuple[Any, ...]]:
        """Yield rows one by one until there are too many, or too much text in them."""
        for count, row in enumerate(cursor, 1):
            self._text += sum(_OBJECT_BYTES + len(value) for value in row if isinstance(value, str | bytes))
            if self._text > MOST_TEXT:
                raise ValueError(f"its texts take more than {MOST_TEXT:,} bytes")
            if count > MOST_ROWS:
                raise ValueError(f"its table {table!r} has more than {MOST_ROWS:,} rows")
            yield row


@contextmanager
def opened_tables(path: Path) -> Iterator[Tables]:
    """Open a database for reading its tables."""
    _check_whole(path)
    steps = 0

    def tired() -> bool:
        nonlocal steps
        steps += _STEPS_BETWEEN
        return steps > MOST_STEPS

    try:
        # Immutable: SQLite takes no lock, and makes no file beside this one.
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True, isolation_level=None)) as connection:
            for limit, most in _LIMITS.items():
                connection.setlimit(limit, most)
            # Damaged text is shown with �: the default would refuse the whole row.
            connection.text_factory = lambda data: data.decode("utf-8", "replace")
            for setting in ("trusted_schema=OFF", "query_only=ON", "cell_size_check=ON", "mmap_size=0"):
                connection.execute(f"PRAGMA {setting}")
            connection.set_progress_handler(tired, _STEPS_BETWEEN)
            # Last: the settings above are no reads, and would be denied.
            connection.set_authorizer(_allowed)
            yield Tables(connection)
    except sqlite3.Error as error:
        reason = f"reading it takes more than {MOST_STEPS:,} steps" if steps > MOST_STEPS else f"SQLite says of it: {error}"
        raise ValueError(reason) from error


def table_format(fits: Callable[[frozenset[str]], bool], trace_of: Callable[[Tables, ReadOptions], Trace], **entry: Any) -> Format:
    """Return the format of a profiler's tables, which fit by their names. A compressed file, without a path, is not looked into."""

    def sniff(start: bytes, path: Path | None) -> bool:
        if path is None or not start.startswith(_MAGIC):
            return False
        with opened_tables(path) as tables:
            return fits(tables.names)

    def read(file: object, options: ReadOptions) -> Trace:
        with opened_tables(options.path) as tables:
            return trace_of(tables, options)

    return Format(sniff=sniff, read=read, stretches=True, **entry)


def _check_whole(path: Path) -> None:
    """Check that the file is as long as it says, and that no part of it stands in another file."""
    with path.open("rb") as file:
        header = file.read(32)
    if len(header) < 32:
        raise ValueError("it ends in its header")
    page_bytes, pages = int.from_bytes(header[16:18], "big"), int.from_bytes(header[28:32], "big")
    wanted = (65536 if page_bytes == 1 else page_bytes) * pages
    if path.stat().st_size < wanted:
        raise ValueError(f"it is truncated: its header counts {wanted:,} bytes, the file has {path.stat().st_size:,}")
    for ending in ("-wal", "-journal"):
        beside = path.with_name(path.name + ending)
        if beside.exists() and beside.stat().st_size:
            raise ValueError(f"changes of it stand in {beside.name!r}, which is not read: open and close it with sqlite3 first")


def _allowed(action: int, one: str | None, two: str | None, database: str | None, inside: str | None) -> int:
    """Allow to read tables and to list their columns; nothing from inside of a view or a trigger."""
    reads = action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ) or (
        (action == sqlite3.SQLITE_PRAGMA and one == "table_xinfo") or (action == sqlite3.SQLITE_FUNCTION and two == "typeof")
    )
    return sqlite3.SQLITE_OK if reads and inside is None else sqlite3.SQLITE_DENY


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _number(column: str) -> str:
    name = _quoted(column)
    return f"CASE WHEN typeof({name}) IN ('text', 'blob') THEN '' ELSE {name} END"


def _query(table: str, columns: Iterable[str]) -> str:
    return f"SELECT {', '.join(columns)} FROM {_quoted(table)}"  # noqa: S608 — quoted


def _whole(values: Sequence[Any], missing: int | None, what: str) -> npt.NDArray[np.int64]:
    if missing is not None and None in values:
        values = [missing if value is None else value for value in values]
    found = np.array(values)
    if found.dtype.kind != "i":
        raise ValueError(f"its column {what} must hold whole numbers only")
    return found.astype(np.int64)


def text_of(texts: Mapping[int, str]) -> Callable[[int], str]:
    """Return a lookup from ids to texts; an id without a text becomes ``#id``."""
    return lambda one: texts.get(one, f"#{one}")
